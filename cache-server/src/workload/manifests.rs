//! Loads manifests at start: YAML or JSON, one or many documents, lists, files and folders.
//!
//! INVARIANT: an object that cannot be created stops the start before anything is served. The one-line error names the
//! file and the document, and never quotes the object's content.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use informer_serving::status::{Reason, Status};
use serde_json::Value;

use crate::{
    app::App,
    limits::{MANIFEST_BYTES_MAX, MANIFEST_DEPTH_MAX},
};

/// Reason why manifests cannot be loaded: one line.
#[derive(Debug, thiserror::Error)]
#[error("{}: {place}{what}", path.display())]
pub struct LoadError {
    path: PathBuf,
    place: ObjectLocation,
    what: String,
}

/// Position of an object in its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ObjectLocation {
    /// Counted from one, without empty documents; `None` if the error concerns the whole file.
    document: Option<usize>,
    /// Counted from one within a list; `None` outside lists.
    item: Option<usize>,
}

impl fmt::Display for ObjectLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.document, self.item) {
            (None, _) => Ok(()),
            (Some(document), None) => write!(f, "document {document}: "),
            (Some(document), Some(item)) => write!(f, "document {document}, item {item}: "),
        }
    }
}

/// Creates every object under `paths`, like a client's POST: names are checked, uids and times are assigned. A
/// namespaced object without a namespace is created in `default`. Returns the number of created objects.
///
/// # Errors
/// [`LoadError`] at the first file or object that cannot be used; objects before it stay in the store.
pub(crate) async fn into_storage(app: &App, paths: &[PathBuf]) -> Result<usize, LoadError> {
    let mut created = 0;
    for path in paths {
        for file in files(path, 0)? {
            let at = |place, what: String| LoadError { path: file.clone(), place, what };
            for (place, object) in objects(read(&file)?) {
                create(app, &object).await.map_err(|what| at(place, what))?;
                created += 1;
            }
        }
    }
    Ok(created)
}

/// The files under `path`, sorted by name: `path` itself, or all manifests in a folder at any depth.
fn files(path: &Path, depth: usize) -> Result<Vec<PathBuf>, LoadError> {
    let fail = |what: String| LoadError { path: path.to_owned(), place: ObjectLocation::default(), what };
    let io = |error: io::Error| fail(describe(&error));
    if !fs::metadata(path).map_err(io)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    if depth == MANIFEST_DEPTH_MAX {
        return Err(fail(format!("more than {MANIFEST_DEPTH_MAX} folders inside folders")));
    }
    let entries: io::Result<Vec<PathBuf>> =
        fs::read_dir(path).map_err(io)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut entries = entries.map_err(io)?;
    entries.sort();
    let mut found = Vec::new();
    for entry in entries {
        if fs::metadata(&entry).is_ok_and(|metadata| metadata.is_dir()) {
            found.append(&mut files(&entry, depth + 1)?);
        } else if matches!(extension(&entry), "yaml" | "yml" | "json") {
            found.push(entry);
        }
    }
    Ok(found)
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

/// The error's text without the OS error number.
fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// The non-empty documents of a file.
fn read(path: &Path) -> Result<Vec<Value>, LoadError> {
    let fail = |what: String| LoadError { path: path.to_owned(), place: ObjectLocation::default(), what };
    let io = |error: io::Error| fail(describe(&error));
    let bytes = fs::metadata(path).map_err(io)?.len();
    if bytes > MANIFEST_BYTES_MAX {
        return Err(fail(format!("{bytes} bytes are more than the {MANIFEST_BYTES_MAX} that a manifest may have")));
    }
    let bytes = fs::read(path).map_err(io)?;
    let text = String::from_utf8(bytes).map_err(|_| fail("not UTF-8 text".to_owned()))?;
    let is_json = match extension(path) {
        "json" => true,
        "yaml" | "yml" => false,
        _ => text.trim_start().starts_with('{'),
    };
    if is_json { read_json(&text) } else { read_yaml(&text) }.map_err(fail)
}

fn read_json(text: &str) -> Result<Vec<Value>, String> {
    let documents: Result<Vec<Value>, serde_json::Error> =
        serde_json::Deserializer::from_str(text).into_iter().collect();
    let mut documents = documents.map_err(|error| format!("not JSON: {error}"))?;
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

fn read_yaml(text: &str) -> Result<Vec<Value>, String> {
    // A file has fewer nodes than bytes. The default limits on aliases stay: only aliases can expand a small file.
    let nodes = text.len().max(250_000);
    let options = serde_saphyr::options! {
        with_snippet: false,
        legacy_octal_numbers: true,
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_documents: nodes,
            max_events: 4 * nodes,
            max_nodes: nodes,
            max_total_scalar_bytes: nodes.max(64 << 20),
        },
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let text = error.to_string();
        format!("not YAML: {}", text.lines().next().unwrap_or_default())
    })
}

/// Every object of the documents, with lists split into their items.
fn objects(documents: Vec<Value>) -> Vec<(ObjectLocation, Value)> {
    let mut found = Vec::new();
    for (index, mut document) in documents.into_iter().enumerate() {
        let document_number = Some(index + 1);
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        let items = kind.strip_suffix("List").and_then(|item_kind| Some((item_kind, items(&mut document)?)));
        let Some((item_kind, items)) = items else {
            found.push((ObjectLocation { document: document_number, item: None }, document));
            continue;
        };
        for (index, mut item) in items.into_iter().enumerate() {
            // Items of a typed list may omit kind and apiVersion; items of kind `List` never do.
            if let Some(members) = item.as_object_mut().filter(|_| !item_kind.is_empty()) {
                members.entry("kind").or_insert_with(|| item_kind.into());
                members.entry("apiVersion").or_insert_with(|| document["apiVersion"].clone());
            }
            found.push((ObjectLocation { document: document_number, item: Some(index + 1) }, item));
        }
    }
    found
}

fn items(document: &mut Value) -> Option<Vec<Value>> {
    match document.get_mut("items")?.take() {
        Value::Array(items) => Some(items),
        Value::Null => Some(Vec::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => None,
    }
}

/// Creates one object; the error is one line.
async fn create(app: &App, object: &Value) -> Result<(), String> {
    if !object.is_object() {
        return Err("not an object".to_owned());
    }
    let said = |field: &str| match object[field].as_str() {
        None | Some("") => Err(format!("{field} is missing")),
        Some(text) => Ok(text),
    };
    let (api_version, kind) = (said("apiVersion")?, said("kind")?);
    let unknown = || format!("unknown kind {kind:?} in {api_version:?}");
    let ty = app.registry.now().by_kind(api_version, kind).ok_or_else(unknown)?;
    let namespace = ty.namespaced.then(|| match object["metadata"]["namespace"].as_str() {
        None | Some("") => "default",
        Some(namespace) => namespace,
    });
    let local = app.local().ok_or_else(|| "this server stores nothing itself".to_owned())?;
    let created = crate::write::create_from_manifest(&local, &ty, namespace, object.to_string().as_bytes()).await;
    if ty.defines_types {
        app.definitions.settle().await;
    }
    let stays = |status: &Status| app.config.objects_last() && status.reason == Reason::AlreadyExists;
    match created {
        Err(status) if !stays(&status) => Err(status.message.lines().collect::<Vec<_>>().join(" ")),
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    async fn load(files: &[(&str, &str)]) -> Result<(App, usize), String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let app = App::new(Config::default());
        let count = into_storage(&app, &[folder.path().to_owned()]).await;
        let prefix = format!("{}/", folder.path().display());
        count.map(|count| (app, count)).map_err(|error| error.to_string().replace(&prefix, ""))
    }

    async fn keys(app: &App, kind: &str) -> Vec<String> {
        let ty = app.registry.now().by_kind("v1", kind).unwrap();
        let snapshot = app.caches.fresh(&ty).await.unwrap().snapshot();
        snapshot.objects.iter().map(|entry| informer_core::KeyedObject::key(&**entry).to_owned()).collect()
    }

    #[tokio::test]
    async fn documents_lists_files_and_folders_are_created() {
        let (app, count) = load(&[
            ("b/two.yaml", "---\n# nothing\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n  namespace: ns\n"),
            ("a.json", r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}} {"kind":"Node","apiVersion":"v1","metadata":{"name":"x"}}"#),
            ("list.yml", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: c}\n"),
            ("typed.json", r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"d","namespace":"ns"}}]}"#),
            ("README.md", "not a manifest"),
        ])
        .await
        .unwrap();
        assert_eq!(count, 5);
        assert_eq!(keys(&app, "ConfigMap").await, ["default/a", "default/c", "ns/b", "ns/d"]);
        assert_eq!(keys(&app, "Node").await, ["x"]);
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_named_in_one_line() {
        let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let cases = [
            ("kind: Cat\napiVersion: v1\nmetadata: {name: a}\n", "x.yaml: document 1: unknown kind \"Cat\" in \"v1\""),
            ("metadata: {name: a}\nkind: Pod\n", "x.yaml: document 1: apiVersion is missing"),
            ("just text\n", "x.yaml: document 1: not an object"),
            ("apiVersion: v1\nkind: List\nitems: [{}]\n", "x.yaml: document 1, item 1: apiVersion is missing"),
        ];
        for (text, expected) in cases {
            assert_eq!(load(&[("x.yaml", text)]).await.err().as_deref(), Some(expected));
        }
        for (text, start) in [
            (format!("{good}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{}}\n"), "x.yaml: document 2: "),
            (format!("{good}---\n{good}"), "x.yaml: document 2: configmaps \"a\" already exists"),
            ("a: [1\nb: 2\n".to_owned(), "x.yaml: not YAML: "),
            ("apiVersion: v1\nkind: Pod\nmetadata: {name: Not_A_Name}\n".to_owned(), "x.yaml: document 1: "),
        ] {
            let error = load(&[("x.yaml", &text)]).await.err().unwrap();
            assert!(error.starts_with(start) && !error.contains('\n'), "{error}");
        }
        let error = load(&[("x.json", "{\"kind\":")]).await.err().unwrap();
        assert!(error.starts_with("x.json: not JSON: "), "{error}");
    }

    #[tokio::test]
    async fn a_path_that_is_not_there_is_an_error() {
        let app = App::new(Config::default());
        let error = into_storage(&app, &["/nowhere/at/all.yaml".into()]).await.unwrap_err();
        assert_eq!(error.to_string(), "/nowhere/at/all.yaml: No such file or directory");
    }
}
