//! A Bloom filter of an object's labels and node, in sixteen bytes in its entry: it rejects most objects that a
//! selector does not match without reading the object's text, which is a CPU cache miss.
//!
//! INVARIANT: an object's sketch contains the bits of every key, label and node value that a selector can find in it.
//! A missing bit proves absence; present bits prove nothing, so [`Filter::matches`](crate::Filter::matches) still
//! checks the object in the end.
//!
//! Three bits of 128 for each key, each label and the node: about 1 in 30 checks against an object with ten labels is
//! a false positive. Source: B. H. Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970.

use informer_core::wire::json;

/// The bits of a set of labels, or the bits that a selector requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sketch([u64; 2]);

impl Sketch {
    /// Bits of a label's key, independent of its value.
    pub(crate) fn key(key: &str) -> Self {
        Self::bits(hash(0, key.as_bytes()))
    }

    /// Bits of a label.
    pub(crate) fn label(key: &str, value: &str) -> Self {
        Self::bits(hash(hash(0, key.as_bytes()), value.as_bytes()))
    }

    /// Bits of the value that watches of one node look for.
    pub(crate) fn node(value: &str) -> Self {
        Self::bits(hash(1, value.as_bytes()))
    }

    /// Bits of a labels map in JSON. Also returns true if all keys and values are strings without escapes.
    pub(super) fn of_labels(map: &[u8]) -> (Self, bool) {
        let (mut sketch, mut plain) = (Self::default(), !map.contains(&b'\\'));
        for member in json::members(map) {
            // If the map cannot be read, claim every label: a false positive is harmless, a false negative is not.
            let Ok(member) = member else { return (Self::ALL, false) };
            let Some(key) = member.key.text() else { return (Self::ALL, false) };
            sketch.add(Self::key(&key));
            match json::string(member.value) {
                Some(value) => sketch.add(Self::label(&key, &value)),
                None => plain = false,
            }
        }
        (sketch, plain)
    }

    /// Adds the bits of `other`.
    pub(crate) const fn add(&mut self, other: Self) {
        self.0[0] |= other.0[0];
        self.0[1] |= other.0[1];
    }

    /// Returns true if all bits of `other` are set: it may be contained.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0[0] & other.0[0] == other.0[0] && self.0[1] & other.0[1] == other.0[1]
    }

    /// All bits set: contains any label.
    const ALL: Self = Self([u64::MAX; 2]);

    fn bits(hash: u64) -> Self {
        let mut sketch = Self::default();
        for shift in [0, 7, 14] {
            let bit = hash >> shift & 127;
            sketch.0[usize::from(bit >= 64)] |= 1 << (bit & 63);
        }
        sketch
    }
}

/// A hash that is good enough for labels; its quality affects only speed. Cost: one multiplication per eight bytes.
fn hash(seed: u64, text: &[u8]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |hash: u64, word: u64| {
        let product = (hash ^ word).wrapping_mul(ODD);
        product ^ product >> 32
    };
    let mut hash = mix(seed, text.len() as u64 + 1);
    for chunk in text.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    mix(hash, ODD)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    #[test]
    fn what_is_not_there_is_mostly_known_not_to_be() {
        let labels: Map<String, Value> =
            (0..10).map(|place| (format!("app.example.com/key-{place}"), format!("value-{place}").into())).collect();
        let (sketch, plain) = Sketch::of_labels(Value::Object(labels).to_string().as_bytes());
        assert!(plain);
        let maybe = (0..1_000).filter(|other| sketch.has(Sketch::label("app.example.com/key-1", &format!("v{other}"))));
        let maybe = maybe.count();
        assert!(maybe < 100, "{maybe} of 1,000");
    }

    #[test]
    fn what_cannot_be_read_may_have_everything() {
        for map in [r#"{"a":"b"#, r#"{"a":"b","c"}"#, r#"{"\x":"b"}"#] {
            let (sketch, plain) = Sketch::of_labels(map.as_bytes());
            assert!(sketch.has(Sketch::label("x", "y")) && !plain, "{map}");
        }
        assert_eq!(Sketch::of_labels(b"{}"), (Sketch::default(), true));
        assert!(!Sketch::of_labels(br#"{"a":1}"#).1);
    }

    proptest! {
        /// Goal: no false negatives. Method: random labels, each looked up.
        #[test]
        fn what_is_there_is_never_ruled_out(labels in prop::collection::hash_map(".{0,12}", ".{0,20}", 0..30)) {
            let text = serde_json::to_string(&labels).expect("a map of strings");
            let (sketch, _) = Sketch::of_labels(text.as_bytes());
            for (key, value) in &labels {
                prop_assert!(sketch.has(Sketch::key(key)) && sketch.has(Sketch::label(key, value)));
            }
        }
    }
}
