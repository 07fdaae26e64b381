//! Decodes objects on demand, and shares the typed values while they are in use.
//! INVARIANT: a decoded object lives exactly as long as its users; errors contain the path, never the value.

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    marker::PhantomData,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use informer_core::{
    store::{Body, Entry, Represent, Value},
    wire::json::string_end,
};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};

/// Decoded objects in use, by the entry they were decoded from.
///
/// Memory: one slot for each decoded object in use, and at most as many unused slots. A `Weak` keeps its allocation, so
/// unused slots are swept whenever they could outnumber the used ones.
pub(crate) struct DecodedObjects<K> {
    slots: Mutex<Slots<K>>,
    undecodable: Arc<AtomicU64>,
    /// Position of the index by uid among the indexes declared with this cache.
    uid_index: OnceLock<usize>,
}

struct Slots<K> {
    by_entry: HashMap<usize, DecodedSlot<K>>,
    sweep_at: usize,
}

struct DecodedSlot<K> {
    // Keeps the entry's address from being reused, so that the map's key stays unique.
    _entry: Weak<Entry>,
    object: Weak<K>,
}

impl<K> Default for DecodedObjects<K> {
    fn default() -> Self {
        Self::counting(Arc::default())
    }
}

impl<K> DecodedObjects<K> {
    /// Creates a cache that continues another cache's count.
    pub(crate) fn counting(undecodable: Arc<AtomicU64>) -> Self {
        let slots = Slots { by_entry: HashMap::new(), sweep_at: SWEEP_AT_LEAST };
        Self { slots: Mutex::new(slots), undecodable, uid_index: OnceLock::new() }
    }

    /// Notes that the index at `position` finds objects by their uid.
    pub(crate) fn has_uid_index(&self, position: usize) {
        // Any one of several will do.
        self.uid_index.get_or_init(|| position);
    }

    /// Position of the index by uid, if one was declared.
    pub(crate) fn uid_index(&self) -> Option<usize> {
        self.uid_index.get().copied()
    }

    /// Returns the typed object of `entry`: stored decoded, shared with another holder, or decoded now. Two threads may
    /// decode one object at once; both then return the value inserted first.
    pub(crate) fn get(&self, entry: &Arc<Entry>) -> Result<Arc<K>, DecodeError>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        if let Some(stored) = stored(entry) {
            return Ok(stored);
        }
        if entry.is_skipped() {
            return Err(DecodeError::skipped(entry.key()));
        }
        let address = Arc::as_ptr(entry).addr();
        if let Some(shared) = self.slots.lock().find(address) {
            return Ok(shared);
        }
        let json = entry.json();
        let object = Arc::new(serde_json::from_slice(&json).map_err(|error| {
            self.count_undecodable();
            DecodeError::new(entry.key(), &json, &error)
        })?);
        let mut slots = self.slots.lock();
        if let Some(shared) = slots.find(address) {
            return Ok(shared);
        }
        slots.insert(address, DecodedSlot { _entry: Arc::downgrade(entry), object: Arc::downgrade(&object) });
        Ok(object)
    }

    /// Number of objects that did not decode.
    pub(crate) fn undecodable(&self) -> u64 {
        self.undecodable.load(Ordering::Relaxed)
    }

    /// The counter itself, for readers that do not know `K`.
    pub(crate) fn undecodable_count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.undecodable)
    }

    pub(crate) fn count_undecodable(&self) {
        self.undecodable.fetch_add(1, Ordering::Relaxed);
    }
}

/// The value of an entry that is stored decoded.
fn stored<K: Send + Sync + 'static>(entry: &Entry) -> Option<Arc<K>> {
    match entry.body() {
        Body::Value { value, .. } => typed(Arc::clone(value)),
        Body::Json(_) | Body::Packed(_) | Body::Skipped(_) => None,
    }
}

/// Like [`stored`], borrowed: takes no reference count.
pub(crate) fn stored_value<K: 'static>(entry: &Entry) -> Option<&K> {
    match entry.body() {
        Body::Value { value, .. } => {
            let value: &dyn Any = &**value;
            value.downcast_ref()
        }
        Body::Json(_) | Body::Packed(_) | Body::Skipped(_) => None,
    }
}

fn typed<K: Send + Sync + 'static>(value: Arc<dyn Value>) -> Option<Arc<K>> {
    let value: Arc<dyn Any + Send + Sync> = value;
    value.downcast().ok()
}

/// Stores objects decoded.
pub(crate) struct DecodedForm<K> {
    decoded: Arc<DecodedObjects<K>>,
}

impl<K> DecodedForm<K> {
    pub(crate) const fn new(decoded: Arc<DecodedObjects<K>>) -> Self {
        Self { decoded }
    }
}

impl<K: DeserializeOwned + Serialize + Clone + Send + Sync + 'static> Represent for DecodedForm<K> {
    fn keep(&mut self, json: &[u8], value: Option<Arc<dyn Value>>) -> Body {
        let value = match value.and_then(typed::<K>) {
            Some(value) => Some(Arc::unwrap_or_clone(value)),
            None => serde_json::from_slice(json).ok(),
        };
        // The decoder does not know a list's length in advance: it allocates a container list for four entries even if
        // there is one, which wastes a fourth of a pod's memory. A clone allocates exact lengths, and costs a fourth of
        // the decoding time.
        let value = value.map(|value: K| Arc::new(value.clone()));
        match (value, u32::try_from(json.len())) {
            (Some(value), Ok(json_bytes)) => Body::Value { value, json_bytes },
            (_, _) => {
                self.decoded.count_undecodable();
                Body::Json(json.into())
            }
        }
    }

    fn learned(&mut self, _complete: bool) -> bool {
        false
    }
}

impl<K> Slots<K> {
    fn find(&self, address: usize) -> Option<Arc<K>> {
        self.by_entry.get(&address)?.object.upgrade()
    }

    fn insert(&mut self, address: usize, slot: DecodedSlot<K>) {
        if self.by_entry.len() >= self.sweep_at {
            self.by_entry.retain(|_, slot| slot.object.strong_count() > 0);
            self.by_entry.shrink_to(self.by_entry.len() * 2);
            self.sweep_at = (self.by_entry.len() * 2).max(SWEEP_AT_LEAST);
        }
        self.by_entry.insert(address, slot);
    }
}

impl<K> fmt::Debug for DecodedObjects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoded").field("of", &PhantomData::<K>).finish_non_exhaustive()
    }
}

/// Below this number of slots, a sweep is not worth its scan.
const SWEEP_AT_LEAST: usize = 64;

/// The bytes of an object are no `K`. The object stays in the store and is delivered like any other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeError {
    /// The object's `namespace/name`, or `name`.
    pub key: String,
    /// Path to the failing value, as far as it was read: `spec.containers[0].ports`. Empty for the object itself.
    pub path: String,
    /// Expectation of the type there, if serde's message has it without quoting the object: ``missing field `name` ``,
    /// `expected u16`. Of a [skipped](crate::Object::is_skipped) object, a text that says so.
    pub expected: Option<String>,
}

impl DecodeError {
    pub(crate) fn new(key: &str, json: &[u8], error: &serde_json::Error) -> Self {
        Self { key: key.to_owned(), path: path_at(json, offset(json, error)), expected: expectation(error) }
    }
}

impl DecodeError {
    fn skipped(key: &str) -> Self {
        let expected = Some("skipped when it was received, so only its names are known".to_owned());
        Self { key: key.to_owned(), path: String::new(), expected }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {} does not decode", self.key)?;
        if !self.path.is_empty() {
            write!(f, " at {}", self.path)?;
        }
        self.expected.as_ref().map_or(Ok(()), |expected| write!(f, ": {expected}"))
    }
}

impl std::error::Error for DecodeError {}

/// Extracts the part of serde's message that comes from the type. The rest may quote the object, which may be a Secret.
fn expectation(error: &serde_json::Error) -> Option<String> {
    let text = error.to_string();
    // Drop serde_json's position: line and column mean nothing to the reader.
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    if text.starts_with("missing field `") {
        return Some(text.to_owned());
    }
    let known = ["invalid type: ", "invalid value: ", "invalid length ", "unknown variant `"];
    let (_, expected) = text.rsplit_once(", expected ").filter(|_| known.iter().any(|head| text.starts_with(head)))?;
    Some(format!("expected {expected}"))
}

/// Byte offset of serde_json's line and column, both counted from one.
fn offset(json: &[u8], error: &serde_json::Error) -> usize {
    let mut line_start = 0;
    for _ in 1..error.line() {
        let rest = json.get(line_start..).unwrap_or_default();
        line_start += rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
    }
    (line_start + error.column().saturating_sub(1)).min(json.len())
}

/// Dotted path of the value that contains byte `end`. Reads names and punctuation only.
fn path_at(json: &[u8], end: usize) -> String {
    enum Level {
        Object { name: String },
        Array { index: usize },
    }
    let mut levels: Vec<Level> = Vec::new();
    let mut at = 0;
    while at < end {
        match json[at] {
            b'{' => levels.push(Level::Object { name: String::new() }),
            b'[' => levels.push(Level::Array { index: 0 }),
            b'}' | b']' => drop(levels.pop()),
            b',' => {
                if let Some(Level::Array { index }) = levels.last_mut() {
                    *index += 1;
                }
            }
            b'"' => {
                let stop = string_end(json, at + 1);
                let is_name = json.get(stop..).unwrap_or_default().iter().find(|byte| !byte.is_ascii_whitespace());
                if let (Some(b':'), Some(Level::Object { name })) = (is_name, levels.last_mut()) {
                    *name = String::from_utf8_lossy(&json[at + 1..stop - 1]).into_owned();
                }
                at = stop - 1;
            }
            _ => {}
        }
        at += 1;
    }
    let mut path = String::new();
    for level in &levels {
        match level {
            Level::Object { name } if path.is_empty() => path.push_str(name),
            Level::Object { name } if name.is_empty() => {}
            Level::Object { name } => path.extend([".", name]),
            Level::Array { index } => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn error(json: &str) -> (String, Option<String>) {
        let error = serde_json::from_str::<Pod>(json).expect_err("not a pod");
        (path_at(json.as_bytes(), offset(json.as_bytes(), &error)), expectation(&error))
    }

    #[test]
    fn an_error_names_the_place_and_never_the_value() {
        for (json, path, expected) in [
            (
                r#"{"metadata":{"name":"a"},"spec":{"containers":[{"name":"x"},{"name":"y","ports":"hunter2"}]}}"#,
                "spec.containers[1].ports",
                Some("expected a sequence"),
            ),
            (r#"{"metadata":{"name":7}}"#, "metadata.name", Some("expected a string")),
            (r#"{"spec":{"containers":[{"image":"a"}], "nodeName" : {"hunter2":1}}}"#, "spec.nodeName", None),
            (r#"{"metadata":{"creationTimestamp":"hunter2"}}"#, "metadata.creationTimestamp", None),
            (r#"{"metadata":{"labels":{"a\"b":true}}}"#, "metadata.labels.a\\\"b", Some("expected a string")),
        ] {
            let (found, message) = error(json);
            assert_eq!(found, path, "{json}");
            assert!(!format!("{message:?}").contains("hunter2"), "{message:?}");
            if let Some(expected) = expected {
                assert_eq!(message.as_deref(), Some(expected), "{json}");
            }
        }
    }

    #[test]
    fn broken_json_has_a_place_too() {
        for json in ["{", "\"", r#"{"a":"\"#, r#"{"metadata":{"name":"#, "[", r#"{"a":["b","#] {
            for end in 0..=json.len() {
                path_at(json.as_bytes(), end);
            }
        }
        assert_eq!(path_at(br#"{"metadata":{"name":"#, 20), "metadata.name");
    }
}
