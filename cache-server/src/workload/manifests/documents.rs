//! The documents of a manifest file, one after the other.
//!
//! INVARIANT: a JSON file of many documents uses the memory of one, whatever its length. A YAML file is in memory whole.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{StreamDeserializer, Value, de::IoRead};

use super::{LoadError, ObjectLocation, describe, extension};
use crate::limits::MANIFEST_BYTES_MAX;

/// The non-empty documents of a file, each as its objects: lists are split into their items.
pub(super) struct ManifestDocuments {
    path: PathBuf,
    source: DocumentSource,
    /// Documents so far.
    number: usize,
}

enum DocumentSource {
    Json { documents: Box<StreamDeserializer<'static, IoRead<BoundedReader>, Value>>, left: Arc<AtomicU64> },
    Yaml(std::vec::IntoIter<Value>),
}

impl ManifestDocuments {
    /// Opens a file; reads it if it is YAML.
    pub(super) fn open(path: &Path) -> Result<Self, LoadError> {
        let io = |error: io::Error| fail(path, describe(&error));
        let mut file = BufReader::new(File::open(path).map_err(io)?);
        let is_json = match extension(path) {
            "json" => true,
            "yaml" | "yml" => false,
            _ => begins_with_brace(&mut file).map_err(io)?,
        };
        let source = if is_json {
            let left = Arc::new(AtomicU64::new(MANIFEST_BYTES_MAX));
            let reader = BoundedReader { inner: file, left: Arc::clone(&left) };
            let documents = Box::new(serde_json::Deserializer::from_reader(reader).into_iter());
            DocumentSource::Json { documents, left }
        } else {
            DocumentSource::Yaml(yaml(path, file)?.into_iter())
        };
        Ok(Self { path: path.to_owned(), source, number: 0 })
    }

    fn document(&mut self) -> Option<Result<Value, LoadError>> {
        match &mut self.source {
            DocumentSource::Yaml(documents) => documents.next().map(Ok),
            DocumentSource::Json { documents, left } => loop {
                left.store(MANIFEST_BYTES_MAX, Ordering::Relaxed);
                match documents.next()? {
                    Ok(Value::Null) => {}
                    Ok(document) => return Some(Ok(document)),
                    Err(error) if error.is_io() => return Some(Err(fail(&self.path, error.to_string()))),
                    Err(error) => return Some(Err(fail(&self.path, format!("not JSON: {error}")))),
                }
            },
        }
    }
}

impl Iterator for ManifestDocuments {
    type Item = Result<Vec<(ObjectLocation, Value)>, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let document = self.document()?;
        self.number += 1;
        Some(document.map(|document| objects(self.number, document)))
    }
}

/// A reader that fails once a document is too long.
struct BoundedReader {
    inner: BufReader<File>,
    /// Bytes that the document may still have.
    left: Arc<AtomicU64>,
}

impl Read for BoundedReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        let left = self.left.load(Ordering::Relaxed);
        let Some(left) = left.checked_sub(read as u64) else {
            return Err(io::Error::other(too_long("a document")));
        };
        self.left.store(left, Ordering::Relaxed);
        Ok(read)
    }
}

fn too_long(subject: &str) -> String {
    format!("{subject} has more than the {MANIFEST_BYTES_MAX} bytes that are allowed")
}

fn fail(path: &Path, what: String) -> LoadError {
    LoadError { path: path.to_owned(), place: ObjectLocation::default(), what }
}

/// Skips white space in the first bytes of a file.
fn begins_with_brace(file: &mut BufReader<File>) -> io::Result<bool> {
    let begin = file.fill_buf()?;
    Ok(begin.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{'))
}

fn yaml(path: &Path, mut file: BufReader<File>) -> Result<Vec<Value>, LoadError> {
    let io = |error: io::Error| fail(path, describe(&error));
    let bytes = fs::metadata(path).map_err(io)?.len();
    if bytes > MANIFEST_BYTES_MAX {
        return Err(fail(path, too_long("a YAML file")));
    }
    let mut text = Vec::new();
    // A file may grow, and a pipe has no length.
    (&mut file).take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut text).map_err(io)?;
    if text.len() as u64 > MANIFEST_BYTES_MAX {
        return Err(fail(path, too_long("a YAML file")));
    }
    let text = String::from_utf8(text).map_err(|_| fail(path, "not UTF-8 text".to_owned()))?;
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
    serde_saphyr::from_multiple_with_options(&text, options).map_err(|error| {
        let text = error.to_string();
        fail(path, format!("not YAML: {}", text.lines().next().unwrap_or_default()))
    })
}

/// The objects of document `number`: itself, or the items of a list.
fn objects(number: usize, mut document: Value) -> Vec<(ObjectLocation, Value)> {
    let kind = document["kind"].as_str().unwrap_or_default().to_owned();
    let items = kind.strip_suffix("List").and_then(|item_kind| Some((item_kind, items(&mut document)?)));
    let Some((item_kind, items)) = items else {
        return vec![(ObjectLocation { document: Some(number), item: None }, document)];
    };
    let mut found = Vec::with_capacity(items.len());
    for (index, mut item) in items.into_iter().enumerate() {
        // Items of a typed list may omit kind and apiVersion; items of kind `List` never do.
        if let Some(members) = item.as_object_mut().filter(|_| !item_kind.is_empty()) {
            members.entry("kind").or_insert_with(|| item_kind.into());
            members.entry("apiVersion").or_insert_with(|| document["apiVersion"].clone());
        }
        found.push((ObjectLocation { document: Some(number), item: Some(index + 1) }, item));
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
