//! Written objects as bytes, the watchers of their events, and the prepared watch-list.

use std::{collections::HashMap, fmt::Write as _, io::Write as _, sync::Arc};

use cache_server::populate::{self, PopulateSpec};
use memchr::memmem;

use super::request::Request;
use crate::load::fanout::marks::ANNOTATION;

/// Digits of a resourceVersion, so that it can be replaced in place.
const VERSION_DIGITS: usize = 10;
const VERSION: &[u8] = br#""resourceVersion":""#;
/// The node of a pod in its JSON, and in the query of a watch.
const NODE: &[u8] = br#""nodeName":""#;
const NODE_SELECTOR: &str = "spec.nodeName%3D";
/// Bytes of a chunk of the watch-list, as of the measured server.
const CHUNK_BYTES: usize = 64 << 10;

/// The objects of the server.
pub(super) struct Objects {
    /// JSON by path.
    stored: HashMap<Box<str>, Vec<u8>>,
    /// Connections that watch all objects, by `None`, or those of a node.
    watchers: HashMap<Option<Box<str>>, Vec<usize>>,
    version: u64,
    /// The chunks of a watch-list.
    state: Arc<[u8]>,
}

/// A change and those who get it.
pub(super) struct Written {
    pub(super) chunk: Vec<u8>,
    pub(super) watchers: Vec<usize>,
}

impl Objects {
    pub(super) fn new(spec: Option<&PopulateSpec>) -> Self {
        let state = spec.map_or_else(Vec::new, state).into();
        Self { stored: HashMap::new(), watchers: HashMap::new(), version: 1, state }
    }

    pub(super) fn state(&self) -> Arc<[u8]> {
        Arc::clone(&self.state)
    }

    /// The empty list at the newest version.
    pub(super) fn list(&self) -> Vec<u8> {
        let version = self.version;
        format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"{version:010}"}},"items":[]}}"#)
            .into_bytes()
    }

    /// Adds a watcher of what the query selects.
    pub(super) fn watch(&mut self, query: &str, watcher: usize) {
        let node = query.split_once(NODE_SELECTOR).map(|(_, rest)| rest.split('&').next().unwrap_or(rest).into());
        self.watchers.entry(node).or_default().push(watcher);
    }

    pub(super) fn forget(&mut self, watcher: usize) {
        self.watchers.values_mut().for_each(|watchers| watchers.retain(|known| *known != watcher));
    }

    /// Writes an object. Appends it to the answer; returns its event, if someone watches it.
    pub(super) fn write(&mut self, request: &Request<'_>, answer: &mut Vec<u8>) -> Option<Written> {
        self.version += 1;
        let Request { method, path, body, .. } = *request;
        let object = match method {
            "PATCH" => {
                let object = self.stored.get_mut(path)?;
                mark(object, body);
                object
            }
            "PUT" => {
                let object = self.stored.entry(path.into()).or_default();
                body.clone_into(object);
                object
            }
            _ => self.stored.entry(format!("{path}/{}", name(body)?).into()).or_insert_with(|| versioned(body)),
        };
        set_version(object, self.version);
        answer.extend_from_slice(object);
        let node = value(object, NODE);
        let (all, node) = (self.watchers.get(&None), node.and_then(|node| self.watchers.get(&Some(node.into()))));
        let watchers: Vec<usize> = all.into_iter().chain(node).flatten().copied().collect();
        if watchers.is_empty() {
            return None;
        }
        let mut chunk = Vec::with_capacity(object.len() + 64);
        push_chunk(&mut chunk, &[br#"{"type":"MODIFIED","object":"#, object, b"}\n"]);
        Some(Written { chunk, watchers })
    }

    pub(super) fn delete(&mut self, path: &str) {
        self.stored.remove(path);
    }
}

/// An object with a version, which is not there yet.
fn versioned(object: &[u8]) -> Vec<u8> {
    const METADATA: &[u8] = br#""metadata":{"#;
    let Some(at) = memmem::find(object, METADATA).map(|at| at + METADATA.len()) else { return object.to_vec() };
    let mut made = object[..at].to_vec();
    let _ = write!(made, r#""resourceVersion":"{:010}","#, 0);
    made.extend_from_slice(&object[at..]);
    made
}

fn set_version(object: &mut [u8], version: u64) {
    let Some(at) = memmem::find(object, VERSION).map(|at| at + VERSION.len()) else { return };
    if let Some(digits) = object.get_mut(at..at + VERSION_DIGITS) {
        let _ = (&mut *digits).write_all(format!("{version:010}").as_bytes());
    }
}

/// Copies the mark of a patch, which has the same length.
fn mark(object: &mut [u8], patch: &[u8]) {
    let needle = format!(r#""{ANNOTATION}":""#);
    let Some(mark) = value(patch, needle.as_bytes()) else { return };
    let Some(at) = memmem::find(object, needle.as_bytes()).map(|at| at + needle.len()) else { return };
    if let Some(old) = object.get_mut(at..at + mark.len()) {
        old.copy_from_slice(mark.as_bytes());
    }
}

fn name(object: &[u8]) -> Option<&str> {
    value(object, br#""name":""#)
}

/// The text after `before`, up to the next quote.
fn value<'a>(bytes: &'a [u8], before: &[u8]) -> Option<&'a str> {
    let rest = &bytes[memmem::find(bytes, before)? + before.len()..];
    std::str::from_utf8(&rest[..memchr::memchr(b'"', rest)?]).ok()
}

/// The chunks of a watch-list of the pods.
fn state(spec: &PopulateSpec) -> Vec<u8> {
    let (mut all, mut chunk) = (Vec::new(), Vec::new());
    for pod in populate::objects(spec).filter(|object| object.plural == "pods") {
        chunk.extend_from_slice(br#"{"type":"ADDED","object":"#);
        chunk.extend_from_slice(&pod.json);
        chunk.extend_from_slice(b"}\n");
        if CHUNK_BYTES <= chunk.len() {
            push_chunk(&mut all, &[&chunk]);
            chunk.clear();
        }
    }
    let mut end = String::new();
    let _ = write!(
        end,
        r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{:010}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#,
        1
    );
    chunk.extend_from_slice(end.as_bytes());
    chunk.push(b'\n');
    push_chunk(&mut all, &[&chunk]);
    all
}

/// Appends a chunk of HTTP/1.1 that has these parts.
fn push_chunk(to: &mut Vec<u8>, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let _ = write!(to, "{length:x}\r\n");
    parts.iter().for_each(|part| to.extend_from_slice(part));
    to.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request<'a>(method: &'a str, path: &'a str, body: &'a [u8]) -> Request<'a> {
        Request { method, path, query: "", body }
    }

    /// Goal: each watcher gets the changes that it asked for, whole. Method: two watchers, a created and a patched pod.
    #[test]
    fn a_change_goes_to_the_watchers_of_its_node() {
        let mut objects = Objects::new(None);
        objects.watch("watch=true", 3);
        objects.watch("fieldSelector=spec.nodeName%3Dn-1&watch=true", 4);
        objects.watch("fieldSelector=spec.nodeName%3Dn-2&watch=true", 5);
        let pod = br#"{"metadata":{"name":"p","annotations":{"load/at":"--"}},"spec":{"nodeName":"n-1"}}"#;
        objects.write(&request("POST", "/pods", pod), &mut Vec::new());
        let mut answer = Vec::new();
        let patch = request("PATCH", "/pods/p", br#"{"metadata":{"annotations":{"load/at":"42"}}}"#);
        let written = objects.write(&patch, &mut answer).unwrap();
        assert_eq!(written.watchers, [3, 4]);
        let expected = r#"{"metadata":{"resourceVersion":"0000000003","name":"p","annotations":{"load/at":"42"}},"spec":{"nodeName":"n-1"}}"#;
        assert_eq!(answer, expected.as_bytes());
        let chunk = String::from_utf8(written.chunk).unwrap();
        assert!(
            chunk.starts_with("8f\r\n{\"type\":\"MODIFIED\",\"object\":{") && chunk.ends_with("}\n\r\n"),
            "{chunk}"
        );
        objects.forget(3);
        objects.forget(4);
        assert!(objects.write(&patch, &mut answer).is_none());
    }
}
