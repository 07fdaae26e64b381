//! Estimates the memory of a decoded JSON value, before or while it is built.
//!
//! A `serde_json::Value` can take two hundred times the bytes of its text: an object with one member allocates a B-tree
//! node for eleven. INVARIANT: the estimate is at least the memory that the allocator hands out, within a few percent,
//! so a bound on it bounds memory.

use informer_core::wire::json;
use informer_serving::status::{Status, StatusExt as _};
use serde_json::Value;
use watch_cache::Entry;

use super::{
    apply,
    body::{Object, media_type},
    protobuf,
};
use crate::limits::{DECODED_BYTES_MAX, LARGE_BYTES_MIN, LARGE_DECODED_BYTES_MIN, UNREAD_BYTES_MAX, WEIGHT_UNREAD};

/// Estimated size of a write, in the order of its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Size {
    /// Runs on a worker of the runtime. The bytes that it decodes at once.
    Small(usize),
    /// Runs outside the runtime's workers.
    Large,
}

impl Size {
    /// Returns the size of a write that has decoded so many bytes.
    #[must_use]
    pub const fn of_decoded(bytes: usize) -> Self {
        if bytes > LARGE_DECODED_BYTES_MIN { Self::Large } else { Self::Small(bytes) }
    }

    /// Returns the size of a write that decodes `more`, too.
    #[must_use]
    pub const fn and(self, more: Self) -> Self {
        match (self, more) {
            (Self::Small(bytes), Self::Small(more)) => Self::Small(bytes.saturating_add(more)),
            (Self::Large, _) | (_, Self::Large) => Self::Large,
        }
    }
}

/// Bytes of one value in its list or object.
const SLOT: usize = size_of::<Value>();
/// Bytes of a B-tree node of a map: eleven members, and the links.
const NODE: usize = 11 * (size_of::<String>() + SLOT) + 48;
/// Each node has at least this many members after a split.
const MEMBERS_PER_NODE: usize = 6;
const MEMBERS_IN_FIRST_NODE: usize = 11;
/// Smallest block of the allocator; also the allowance for its overhead and rounding.
const BLOCK: usize = 32;
/// Nesting depth that [`of_json`] follows. The decoder refuses deeper texts.
const DEPTH_MAX: usize = 130;

/// Bytes counted so far, and their bound.
#[derive(Debug)]
pub struct Weight {
    bytes: usize,
    max: usize,
}

/// The bound on decoded bytes is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("decoded, it has more than {0} bytes")]
pub struct TooHeavy(usize);

impl Weight {
    /// Starts at zero, with a bound of `max` bytes.
    pub const fn new(max: usize) -> Self {
        Self { bytes: 0, max }
    }

    /// Returns the bytes so far.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the error if the bound is exceeded.
    pub fn exceeded(&self) -> Option<TooHeavy> {
        (self.bytes > self.max).then_some(TooHeavy(self.max))
    }

    /// Counts a string of `len` bytes.
    ///
    /// # Errors
    /// [`TooHeavy`], like every method here.
    pub fn text(&mut self, len: usize) -> Result<(), TooHeavy> {
        self.add(if len == 0 { 0 } else { BLOCK + len })
    }

    /// Counts the slot of an item in a list of `before` items.
    pub fn item(&mut self, before: usize) -> Result<(), TooHeavy> {
        self.add(item(before))
    }

    /// Counts the slot of a member, without its name, in an object of `before` members.
    pub fn member(&mut self, before: usize) -> Result<(), TooHeavy> {
        self.add(member(before))
    }

    /// Counts a value with everything in it.
    pub fn value(&mut self, value: &Value) -> Result<(), TooHeavy> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
            Value::String(text) => self.text(text.len()),
            Value::Array(items) => items.iter().enumerate().try_for_each(|(before, inner)| {
                self.item(before)?;
                self.value(inner)
            }),
            Value::Object(members) => self.object(members),
        }
    }

    /// Counts the members of an object.
    pub fn object(&mut self, object: &Object) -> Result<(), TooHeavy> {
        object.iter().enumerate().try_for_each(|(before, (name, inner))| {
            self.member(before)?;
            self.text(name.len())?;
            self.value(inner)
        })
    }

    /// Counts the value that the decoder makes of a JSON text.
    pub fn json(&mut self, text: &[u8]) -> Result<(), TooHeavy> {
        self.add(of_json(text))
    }

    fn add(&mut self, bytes: usize) -> Result<(), TooHeavy> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.exceeded().map_or(Ok(()), Err)
    }
}

impl Default for Weight {
    /// Bound for one document: [`DECODED_BYTES_MAX`].
    fn default() -> Self {
        Self::new(DECODED_BYTES_MAX)
    }
}

impl From<TooHeavy> for Status {
    fn from(error: TooHeavy) -> Self {
        Self::request_entity_too_large(&error.to_string())
    }
}

/// Estimates the work of a write with this body; `stored` is the object that it changes or deletes.
///
/// # Errors
/// 413 for a body with too many values.
pub fn size(content_type: Option<&str>, body: &[u8], stored: Option<&Entry>) -> Result<Size, Status> {
    let is_json = match media_type(content_type).as_deref() {
        // YAML aliases can repeat values, so the size is known only after decoding.
        Some("application/yaml") => false,
        // Most clients apply JSON.
        Some(apply::MEDIA_TYPE) => body.trim_ascii_start().first() == Some(&b'{'),
        Some(protobuf::MEDIA_TYPE) => body.len() <= UNREAD_BYTES_MAX,
        _ => true,
    };
    if !is_json {
        return Ok(Size::Large);
    }
    let sent = of_text(body);
    if sent > DECODED_BYTES_MAX {
        return Err(TooHeavy(DECODED_BYTES_MAX).into());
    }
    // The stored object is decoded once, and its successor built beside it.
    let stored = stored.map(Entry::object_text).unwrap_or_default();
    let current = of_text(stored);
    // A short text takes little time, however it decodes.
    let long = |text: &[u8], decoded: usize| if text.len() <= UNREAD_BYTES_MAX { 0 } else { decoded };
    let slow = long(body, sent) + 2 * long(stored, current);
    let is_large = body.len().max(stored.len()) > LARGE_BYTES_MIN || slow > LARGE_DECODED_BYTES_MIN;
    Ok(if is_large { Size::Large } else { Size::Small(sent + 2 * current) })
}

/// Estimates the decoded bytes of a JSON text; a constant factor for short texts.
fn of_text(text: &[u8]) -> usize {
    if text.len() <= UNREAD_BYTES_MAX { WEIGHT_UNREAD * text.len() } else { of_json(text) }
}

/// A list starts with room for four items, and doubles when it is full.
const fn item(before: usize) -> usize {
    match before {
        0 => 4 * SLOT + BLOCK,
        1..4 => 0,
        _ if before.is_power_of_two() => before * SLOT,
        _ => 0,
    }
}

const fn member(before: usize) -> usize {
    let begins_node = before == 0 || (before >= MEMBERS_IN_FIRST_NODE && before.is_multiple_of(MEMBERS_PER_NODE));
    if begins_node { NODE + BLOCK } else { 0 }
}

/// Counts the bytes that the decoder makes of a JSON text, valid or not. Cost: one pass, about 1 ns a byte, without
/// allocation.
pub fn of_json(text: &[u8]) -> usize {
    // Number of earlier values in each enclosing object and list.
    let mut before = [0_usize; DEPTH_MAX];
    let mut is_object = [false; DEPTH_MAX];
    let (mut depth, mut bytes, mut at) = (0, 0_usize, 0);
    // A value is counted at its first byte, or at the first byte of its name.
    let mut is_due = false;
    while let Some(&byte) = text.get(at) {
        at += 1;
        if is_due && !matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b']' | b'}' | b',' | b':') {
            bytes += if is_object[depth] { member(before[depth]) } else { item(before[depth]) };
            before[depth] += 1;
            is_due = false;
        }
        match byte {
            b'"' => {
                let end = json::string_end(text, at);
                let contents = (end - 1).saturating_sub(at);
                bytes += if contents == 0 { 0 } else { BLOCK + contents };
                at = end;
            }
            b'{' | b'[' => {
                depth += 1;
                if depth == DEPTH_MAX {
                    return bytes;
                }
                (before[depth], is_object[depth], is_due) = (0, byte == b'{', true);
            }
            b'}' | b']' => {
                depth = usize::saturating_sub(depth, 1);
                is_due = false;
            }
            b',' => is_due = depth > 0,
            _ => {}
        }
    }
    bytes
}

/// Returns the nesting depth of objects and lists in a valid JSON text. Cost: one pass, without allocation.
pub(crate) fn nesting(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut at) = (0_usize, 0, 0);
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => at = json::string_end(text, at),
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a text and its value have equal weights, so that a body that was admitted decodes. Method: a table of
    /// shapes.
    #[test]
    fn a_text_weighs_as_much_as_its_value() {
        let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(", "));
        let members: Vec<String> = (0..1_000).map(|n| format!(r#""k{n:04}": "v""#)).collect();
        for text in [
            "null".to_owned(),
            r#""text""#.to_owned(),
            "{}".to_owned(),
            "[ ]".to_owned(),
            r#"{"a": [1, true, {"b": ""}, [], {}], "": null}"#.to_owned(),
            list(r#"{"name":""}"#, 5_000),
            list("0", 4_097),
            format!("{{{}}}", members.join(",\n")),
        ] {
            let mut weight = Weight::new(usize::MAX);
            weight.value(&serde_json::from_str(&text).expect("is JSON")).expect("no bound");
            assert_eq!(of_json(text.as_bytes()), weight.bytes, "{}", &text[..text.len().min(40)]);
        }
    }

    #[test]
    fn many_small_objects_are_a_hundred_times_as_long_as_their_text() {
        let text = format!("[{}]", vec![r#"{"":0}"#; 10_000].join(","));
        let bytes = of_json(text.as_bytes());
        assert!((90..140).contains(&(bytes / text.len())), "{bytes}");
        let plain = format!(r#"{{"data":"{}"}}"#, "x".repeat(1 << 20));
        assert!(of_json(plain.as_bytes()) < plain.len() + 1_000);
    }

    #[test]
    fn the_bound_is_told_when_it_is_reached() {
        let mut weight = Weight::new(1_000);
        assert_eq!(weight.json(br#"{"a":"b"}"#), Ok(()));
        assert_eq!(weight.json(br#"{"a":"b"}"#), Err(TooHeavy(1_000)));
        assert!(weight.exceeded().is_some());
    }

    #[test]
    fn what_is_large_runs_on_a_thread_of_its_own() {
        let size = |content_type: &str, body: &str| {
            size(Some(content_type), body.as_bytes(), None).map_err(|status| (status.code, status.message))
        };
        let json = "application/json";
        assert_eq!(size(json, r#"{"a":1}"#), Ok(Size::Small(7 * WEIGHT_UNREAD)));
        assert!(matches!(size(json, &format!("[{}]", "1,".repeat(9_000))), Ok(Size::Small(450_000..900_000))));
        assert_eq!(size(json, &format!("[{}]", "1,".repeat(30_000))), Ok(Size::Large), "of a megabyte");
        assert_eq!(size(json, &format!("[{}]", r#"{"":0},"#.repeat(10_000))), Ok(Size::Large), "of many values");
        assert_eq!(size(json, &format!("{:?}", "x".repeat(LARGE_BYTES_MIN))), Ok(Size::Large), "of many bytes");
        assert_eq!(size("application/yaml", "a: 1"), Ok(Size::Large), "aliases may repeat anything");
        assert_eq!(size(apply::MEDIA_TYPE, r#" {"a":1}"#), Ok(Size::Small(8 * WEIGHT_UNREAD)));
        assert_eq!(size(apply::MEDIA_TYPE, "a: 1"), Ok(Size::Large));
        assert_eq!(size(protobuf::MEDIA_TYPE, "k8s"), Ok(Size::Small(3 * WEIGHT_UNREAD)));
        assert_eq!(size(protobuf::MEDIA_TYPE, &"k8s\0".repeat(5_000)), Ok(Size::Large));
        assert_eq!(
            size(json, &format!("[{}]", r#"{"":0},"#.repeat(50_000))),
            Err((413, "Request entity too large: decoded, it has more than 25165824 bytes".to_owned()))
        );
    }

    /// Goal: no input causes a panic. Method: random bytes, most of them from JSON's alphabet.
    #[test]
    fn any_bytes_have_a_weight() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let text: Vec<u8> = (0..random.usize(..60)).map(|_| *random.choice(b"{}[]\",:\\ 1a").unwrap()).collect();
            of_json(&text);
        }
        of_json("[".repeat(1_000).as_bytes());
        of_json(b"}}}}]]\"");
    }
}
