//! Loads manifests: YAML or JSON, one or many documents, lists, files and folders.
//!
//! INVARIANT: an object that cannot be created stops the start before anything is served. The one-line error names the
//! file and the document, and never quotes the object's content. INVARIANT: definitions and namespaces are created before
//! all other objects, whatever the files' names are.

mod documents;

use std::{
    fmt, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use informer_serving::status::{Reason, Status};
use serde_json::Value;

use self::documents::ManifestDocuments;
use crate::{app::App, limits::MANIFEST_DEPTH_MAX, registry::ResourceType, stored::ExistingObjects};

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

impl ObjectLocation {
    fn name(self) -> String {
        match (self.document, self.item) {
            (None, _) => String::new(),
            (Some(document), None) => format!("document {document}"),
            (Some(document), Some(item)) => format!("document {document}, item {item}"),
        }
    }
}

impl fmt::Display for ObjectLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.document {
            None => Ok(()),
            Some(_) => write!(f, "{}: ", self.name()),
        }
    }
}

/// Creates every object under `paths`, like a client's POST: names are checked, uids and times are assigned, unknown fields
/// are dropped, with a line in the log. A namespaced object without a namespace is created in `default`. Adds the number of
/// objects to `done`. Cost: reads each file twice.
///
/// # Errors
/// [`LoadError`] at the first file or object that cannot be used; objects before it stay in the store.
pub(crate) async fn into_storage(
    app: &App,
    paths: &[PathBuf],
    existing: ExistingObjects,
    done: &mut usize,
) -> Result<(), LoadError> {
    let mut all = Vec::new();
    for path in paths {
        all.append(&mut files(path, 0)?);
    }
    for turn in [LoadTurn::First, LoadTurn::Second] {
        for file in &all {
            // The objects of a pipe are created in their own order.
            let is_file = is_rereadable(file);
            if !is_file && turn == LoadTurn::First {
                continue;
            }
            for document in ManifestDocuments::open(file)? {
                for (place, object) in document? {
                    let at = |what| LoadError { path: file.clone(), place, what };
                    if is_file && LoadTurn::of(app, &object).map_err(at)? != turn {
                        continue;
                    }
                    let unknown = create(app, &object, existing).await.map_err(at)?;
                    if !unknown.is_empty() {
                        let fields = unknown.join(", ");
                        tracing::warn!(file = ?file, place = %place.name(), fields, "unknown fields dropped");
                    }
                    *done += 1;
                }
            }
        }
    }
    Ok(())
}

/// The turn in which an object is created: those that others need come first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LoadTurn {
    /// Definitions and namespaces.
    First,
    Second,
}

impl LoadTurn {
    fn of(app: &App, object: &Value) -> Result<Self, String> {
        let (api_version, kind) = kind(object)?;
        let ty = app.registry.now().by_kind(api_version, kind);
        Ok(if ty.is_some_and(|ty| ty.defines_types || ty.holds_objects) { Self::First } else { Self::Second })
    }
}

/// True unless a file is a pipe, which can be read once only.
fn is_rereadable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|data| data.is_file())
}

/// Reads every file under `paths` to its end, but for pipes, and checks that it has objects with a kind.
///
/// # Errors
/// [`LoadError`] at the first file or object that cannot be used.
pub(crate) fn verify(paths: &[PathBuf]) -> Result<(), LoadError> {
    for path in paths {
        for file in files(path, 0)?.into_iter().filter(|file| is_rereadable(file)) {
            for document in ManifestDocuments::open(&file)? {
                for (place, object) in document? {
                    kind(&object).map_err(|what| LoadError { path: file.clone(), place, what })?;
                }
            }
        }
    }
    Ok(())
}

/// Reads each object of the files under `path`.
///
/// # Errors
/// [`LoadError`] at the first file or object that cannot be used.
pub(crate) fn read_each<T>(path: &Path, read: impl Fn(&Value) -> Result<T, String>) -> Result<Vec<T>, LoadError> {
    let mut found = Vec::new();
    for file in files(path, 0)? {
        for document in ManifestDocuments::open(&file)? {
            for (place, object) in document? {
                found.push(read(&object).map_err(|what| LoadError { path: file.clone(), place, what })?);
            }
        }
    }
    Ok(found)
}

/// State of files, which changes when one of them is written, replaced, added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilesVersion(Vec<(PathBuf, FileVersion)>);

/// Device, inode, size, and time of the last change with its nanoseconds.
type FileVersion = (u64, u64, u64, i64, i64);

/// Returns the state of the files under `path`. Cost: one system call for each file.
///
/// # Errors
/// [`LoadError`] at the first file or folder that cannot be used.
pub(crate) fn version(path: &Path) -> Result<FilesVersion, LoadError> {
    let version = |file: PathBuf| match fs::metadata(&file) {
        Ok(data) => Ok((file, (data.dev(), data.ino(), data.len(), data.mtime(), data.mtime_nsec()))),
        Err(error) => Err(LoadError { path: file, place: ObjectLocation::default(), what: describe(&error) }),
    };
    files(path, 0)?.into_iter().map(version).collect::<Result<_, _>>().map(FilesVersion)
}

/// Reads every file under `paths` to its end. Returns the number of objects, and of those that are in the store, with the
/// name of the first of these. Objects of types that the files define are in no store.
///
/// # Errors
/// [`LoadError`] at the first file or object that cannot be read.
pub(crate) async fn count(app: &App, paths: &[PathBuf]) -> Result<ManifestCount, LoadError> {
    let mut found = ManifestCount::default();
    for path in paths {
        for file in files(path, 0)? {
            for document in ManifestDocuments::open(&file)? {
                for (place, object) in document? {
                    let at = |what| LoadError { path: file.clone(), place, what };
                    found.objects += 1;
                    let (api_version, kind) = kind(&object).map_err(at)?;
                    let Some(ty) = app.registry.now().by_kind(api_version, kind) else { continue };
                    let name = object["metadata"]["name"].as_str().unwrap_or_default();
                    let key = ty.key(namespace(&ty, &object).unwrap_or_default(), name);
                    let reader = app.caches.fresh(&ty).await.map_err(|error| at(error.to_string()))?;
                    if reader.get(&key).is_some() {
                        found.existing += 1;
                        found.first.get_or_insert_with(|| format!("{} {key}", ty.id()));
                    }
                }
            }
        }
    }
    Ok(found)
}

/// The objects of manifests.
#[derive(Debug, Default)]
pub(crate) struct ManifestCount {
    pub(crate) objects: usize,
    /// Objects that exist.
    pub(crate) existing: usize,
    /// Type and key of the first one that exists.
    pub(crate) first: Option<String>,
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

/// Returns apiVersion and kind of an object.
fn kind(object: &Value) -> Result<(&str, &str), String> {
    if !object.is_object() {
        return Err("not an object".to_owned());
    }
    let member = |field: &str| match object[field].as_str() {
        None | Some("") => Err(format!("{field} is missing")),
        Some(text) => Ok(text),
    };
    Ok((member("apiVersion")?, member("kind")?))
}

/// Returns the namespace of an object; `None` if the type has none.
fn namespace<'a>(ty: &ResourceType, object: &'a Value) -> Option<&'a str> {
    ty.namespaced.then(|| match object["metadata"]["namespace"].as_str() {
        None | Some("") => "default",
        Some(namespace) => namespace,
    })
}

/// Creates one object. Returns the complaints about its fields, such as `unknown field "spec.replica"`; the error is one
/// line.
pub(crate) async fn create(app: &App, object: &Value, existing: ExistingObjects) -> Result<Vec<String>, String> {
    let (api_version, kind) = kind(object)?;
    let unknown = || format!("unknown kind {kind:?} in {api_version:?}");
    let ty: Arc<ResourceType> = app.registry.now().by_kind(api_version, kind).ok_or_else(unknown)?;
    let local = app.local().ok_or_else(|| "this server stores nothing itself".to_owned())?;
    let (body, overwrites) = (object.to_string(), existing == ExistingObjects::Overwrite);
    let namespace = namespace(&ty, object);
    let created = crate::write::create_from_manifest(&local, &ty, namespace, body.as_bytes(), overwrites).await;
    if ty.defines_types {
        app.definitions.settle().await;
    }
    let stays = |status: &Status| existing == ExistingObjects::Keep && status.reason == Reason::AlreadyExists;
    match created {
        Err(status) if !stays(&status) => Err(status.message.lines().collect::<Vec<_>>().join(" ")),
        Ok(complaints) => Ok(complaints),
        Err(_) => Ok(Vec::new()),
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
        let mut count = 0;
        let loaded = into_storage(&app, &[folder.path().to_owned()], ExistingObjects::Refuse, &mut count).await;
        let prefix = format!("{}/", folder.path().display());
        loaded.map(|()| (app, count)).map_err(|error| error.to_string().replace(&prefix, ""))
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

    /// Goal: a folder loads whatever its files are called. Method: a custom object in the first file, its namespace in the
    /// second, its definition last; the other way round, and in one file.
    #[tokio::test]
    async fn definitions_and_namespaces_come_before_what_needs_them() {
        let object = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: ns}\n";
        let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n";
        let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: \
                          widgets.example.com\nspec:\n  group: example.com\n  scope: Namespaced\n  names: {plural: widgets, \
                          kind: Widget}\n  versions:\n  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: \
                          {type: object}}}\n";
        let whole = [object, namespace, definition].join("---\n");
        for files in [
            &[("1-widget.yaml", object), ("2-ns.yaml", namespace), ("crds/3.yaml", definition)][..],
            &[("1.yaml", definition), ("2.yaml", namespace), ("3.yaml", object)],
            &[("all.yaml", &*whole)],
        ] {
            let (app, count) = load(files).await.unwrap();
            assert_eq!(count, 3, "{files:?}");
            let ty = app.registry.now().find("example.com", "v1", "widgets").expect("defined");
            assert!(app.caches.fresh(&ty).await.unwrap().get("ns/w").is_some(), "{files:?}");
        }
    }

    #[tokio::test]
    async fn unknown_fields_are_named_and_dropped() {
        let app = App::new(Config::default());
        let object = serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {"replica": 1, "template": {"spec": {"conatiners": []}}}});
        let warnings = create(&app, &object, ExistingObjects::Refuse).await.unwrap();
        assert_eq!(warnings, [r#"unknown field "spec.replica""#, r#"unknown field "spec.template.spec.conatiners""#]);
        let ty = app.registry.now().find("apps", "v1", "deployments").unwrap();
        let stored = app.caches.fresh(&ty).await.unwrap().get("default/d").unwrap();
        let stored = String::from_utf8(stored.object().to_vec()).unwrap();
        assert!(!stored.contains("replica") && !stored.contains("conatiners"), "{stored}");
        let known = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
        assert!(create(&app, &known, ExistingObjects::Refuse).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_path_that_is_not_there_is_an_error() {
        let app = App::new(Config::default());
        let missing = ["/nowhere/at/all.yaml".into()];
        let error = into_storage(&app, &missing, ExistingObjects::Refuse, &mut 0).await.unwrap_err();
        assert_eq!(error.to_string(), "/nowhere/at/all.yaml: No such file or directory");
    }
}
