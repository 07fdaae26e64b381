//! Parses an object once, into a tree that borrows its strings.
//!
//! INVARIANT: accessors never fail. A field that is missing or has another type reads as the zero value: `""`, `0`,
//! `false`, no items. INVARIANT: values nested deeper than [`DEPTH_MAX`] are dropped, so every document can be shown.
//!
//! `metadata.managedFields` is dropped as well: it is often a third of an object, and no column shows it.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Bound on nested objects and arrays; below serde_json's own limit, at which parsing fails. Memory: a few hundred
/// bytes of stack per level.
const DEPTH_MAX: usize = 96;

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CellJson<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    Object(Vec<(Cow<'a, str>, Self)>),
}

static NULL: CellJson<'static> = CellJson::Null;

impl<'a> CellJson<'a> {
    /// Parses a document; returns `Null` if it is invalid.
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        Seed { depth: 0, place: ValueLocation::Object }.deserialize(&mut reader).unwrap_or(CellJson::Null)
    }

    /// Returns the member `name`, or `Null`.
    pub(crate) fn get(&self, name: &str) -> &Self {
        let member = self.members().iter().find(|(key, _)| key == name);
        member.map_or(&NULL, |(_, value)| value)
    }

    /// Returns the value at a dotted path.
    pub(crate) fn at(&self, path: &str) -> &Self {
        path.split('.').fold(self, |value, name| value.get(name))
    }

    /// Returns the value, unless it is missing or null.
    pub(crate) fn present(&self) -> Option<&Self> {
        (!self.is_null()).then_some(self)
    }

    pub(crate) const fn is_null(&self) -> bool {
        matches!(self, CellJson::Null)
    }

    pub(crate) fn text(&self) -> &str {
        self.as_text().unwrap_or_default()
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let CellJson::Text(text) = self { Some(text) } else { None }
    }

    /// Returns the string, or `absent` if it is missing or empty.
    pub(crate) fn text_or<'s>(&'s self, absent: &'s str) -> &'s str {
        let text = self.text();
        if text.is_empty() { absent } else { text }
    }

    pub(crate) fn integer(&self) -> i64 {
        self.as_integer().unwrap_or_default()
    }

    pub(crate) const fn as_integer(&self) -> Option<i64> {
        if let CellJson::Integer(number) = *self { Some(number) } else { None }
    }

    pub(crate) const fn is_true(&self) -> bool {
        matches!(self, CellJson::Bool(true))
    }

    pub(crate) fn items(&self) -> &[Self] {
        if let CellJson::List(items) = self { items } else { &[] }
    }

    pub(crate) fn members(&self) -> &[(Cow<'a, str>, Self)] {
        if let CellJson::Object(members) = self { members } else { &[] }
    }

    /// Parses a timestamp, in whole Unix seconds.
    pub(crate) fn time(&self) -> Option<i64> {
        time(self.text())
    }

    /// Formats a string or a number, such as a quantity or an IntOrString.
    pub(crate) fn plain(&self) -> Option<Cow<'_, str>> {
        match self {
            CellJson::Text(text) => Some(Cow::Borrowed(text)),
            CellJson::Integer(number) => Some(Cow::Owned(number.to_string())),
            CellJson::Float(number) => Some(Cow::Owned(number.to_string())),
            CellJson::Null | CellJson::Bool(_) | CellJson::List(_) | CellJson::Object(_) => None,
        }
    }

    /// Like `plain`, with `absent` for other values.
    pub(crate) fn plain_or<'s>(&'s self, absent: &'s str) -> Cow<'s, str> {
        self.plain().unwrap_or(Cow::Borrowed(absent))
    }
}

/// Parses a Kubernetes timestamp, in whole Unix seconds. `None` also for Go's zero time.
pub(crate) fn time(text: &str) -> Option<i64> {
    let seconds = text.parse::<jiff::Timestamp>().ok()?.as_second();
    (seconds != GO_ZERO).then_some(seconds)
}

/// `0001-01-01T00:00:00Z`.
pub(crate) const GO_ZERO: i64 = -62_135_596_800;

/// Location of a value, as far as it decides what is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueLocation {
    Object,
    Metadata,
    Elsewhere,
}

/// Parses one value at a depth.
#[derive(Clone, Copy)]
struct Seed {
    depth: usize,
    place: ValueLocation,
}

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = CellJson<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<CellJson<'de>, D::Error> {
        if self.depth > DEPTH_MAX {
            return from.deserialize_ignored_any(IgnoredAny).map(|_| CellJson::Null);
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
    type Value = CellJson<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<CellJson<'de>, E> {
        Ok(CellJson::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<CellJson<'de>, E> {
        Ok(CellJson::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<CellJson<'de>, E> {
        Ok(CellJson::Integer(value))
    }

    #[expect(clippy::cast_precision_loss, reason = "above all integers of Kubernetes; only shown")]
    fn visit_u64<E: Error>(self, value: u64) -> Result<CellJson<'de>, E> {
        Ok(i64::try_from(value).map_or(CellJson::Float(value as f64), CellJson::Integer))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<CellJson<'de>, E> {
        Ok(CellJson::Float(value))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<CellJson<'de>, E> {
        Ok(CellJson::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<CellJson<'de>, E> {
        Ok(CellJson::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<CellJson<'de>, A::Error> {
        let mut items = Vec::new();
        let seed = Self { depth: self.depth + 1, place: ValueLocation::Elsewhere };
        while let Some(item) = from.next_element_seed(seed)? {
            items.push(item);
        }
        Ok(CellJson::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<CellJson<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(Name(name)) = from.next_key_seed(NameSeed)? {
            let place = match (self.place, &*name) {
                (ValueLocation::Metadata, "managedFields") => {
                    from.next_value::<IgnoredAny>()?;
                    continue;
                }
                (ValueLocation::Object, "metadata") => ValueLocation::Metadata,
                (ValueLocation::Object | ValueLocation::Metadata | ValueLocation::Elsewhere, _) => {
                    ValueLocation::Elsewhere
                }
            };
            members.push((name, from.next_value_seed(Self { depth: self.depth + 1, place })?));
        }
        Ok(CellJson::Object(members))
    }
}

struct Name<'de>(Cow<'de, str>);

struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Name<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Name<'de>, D::Error> {
        from.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NameSeed {
    type Value = Name<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Name<'de>, E> {
        Ok(Name(Cow::Owned(value.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_any_type_are_read_without_a_failure() {
        let object = br#"{"a":{"b":"x\n","n":-3,"f":1.5,"t":true,"u":18446744073709551615},"l":[1,"y",null]}"#;
        let object = CellJson::read(object);
        assert_eq!((object.at("a.b").text(), object.at("a.n").integer()), ("x\n", -3));
        assert_eq!((object.at("a.t").is_true(), object.at("a.b.c.d").is_null()), (true, true));
        assert_eq!(object.at("a.n").text_or("none"), "none");
        assert_eq!((object.get("l").items().len(), object.get("a").items().len()), (3, 0));
        assert_eq!(object.at("a.f").plain().as_deref(), Some("1.5"));
        assert_eq!(object.get("l").plain(), None);
    }

    #[test]
    fn managed_fields_are_left_out_of_the_metadata_alone() {
        let object = CellJson::read(br#"{"metadata":{"managedFields":[{}],"name":"a"},"spec":{"managedFields":1}}"#);
        assert_eq!(object.get("metadata").members().len(), 1);
        assert_eq!(object.at("spec.managedFields").integer(), 1);
    }

    #[test]
    fn depth_takes_nothing_from_what_stands_beside_it() {
        let deep = [r#"{"spec":"#, &"[".repeat(500), &"]".repeat(500), r#","metadata":{"name":"a"}}"#].concat();
        assert_eq!(CellJson::read(deep.as_bytes()).at("metadata.name").text(), "a");
        for broken in ["", "{", "[1", "nul", "\"\\x\""] {
            assert!(CellJson::read(broken.as_bytes()).is_null(), "{broken}");
        }
    }

    #[test]
    fn timestamps_are_read_to_the_second() {
        let at = |text: &'static str| CellJson::Text(text.into()).time();
        assert_eq!(at("1970-01-02T00:00:01Z"), Some(86_401));
        assert_eq!(at("1970-01-01T00:00:01.999999Z"), Some(1));
        assert_eq!(at("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!((at("0001-01-01T00:00:00Z"), at(""), at("yesterday")), (None, None, None));
    }
}
