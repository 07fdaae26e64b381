//! Parses a JSON or YAML document into a value and detects duplicate members. A second pass lists complaints in the
//! order of the document, if there are any.
//!
//! INVARIANT: the last of several members with one name wins, as in Go.
//!
//! Source: `sigs.k8s.io/json` UnmarshalStrict: `duplicate field "a.b"`, `unknown field "a.b[0].c"`, in order of
//! appearance.

use std::{cell::RefCell, collections::HashSet, fmt};

use informer_serving::go::quote;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::super::weight::Weight;
use crate::limits::STRICT_ERRORS_MAX;

/// Parses a value within a bound on its memory. Cost: as parsing a [`Value`].
pub struct BoundedValueSeed<'a> {
    /// Set if some object has a duplicate member.
    pub duplicates: &'a mut bool,
    /// Memory of the values parsed so far.
    pub weight: &'a mut Weight,
}

impl BoundedValueSeed<'_> {
    /// Returns the seed for a nested value.
    const fn inner(&mut self) -> BoundedValueSeed<'_> {
        BoundedValueSeed { duplicates: self.duplicates, weight: self.weight }
    }
}

impl<'de> DeserializeSeed<'de> for BoundedValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.weight.text(value.len()).map_err(E::custom)?;
        Ok(Value::from(value))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.weight.text(value.len()).map_err(E::custom)?;
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.inner())? {
            self.weight.item(list.len()).map_err(A::Error::custom)?;
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            let weighed = self.weight.member(object.len()).and_then(|()| self.weight.text(name.len()));
            weighed.map_err(A::Error::custom)?;
            let value = members.next_value_seed(self.inner())?;
            *self.duplicates |= object.insert(name, value).is_some();
        }
        Ok(Value::Object(object))
    }
}

/// Complaints about a document, in its order.
pub struct ComplaintOrder<'a> {
    unknown: HashSet<&'a str>,
    complaints: RefCell<DocumentComplaints>,
}

#[derive(Default)]
struct DocumentComplaints {
    texts: Vec<String>,
    seen: HashSet<String>,
    path: String,
}

impl<'a> ComplaintOrder<'a> {
    /// `unknown` holds the paths of unknown fields.
    pub fn of(unknown: &'a [String]) -> Self {
        Self { unknown: unknown.iter().map(String::as_str).collect(), complaints: RefCell::default() }
    }

    /// Walks the document again.
    pub fn read<'de, D: Deserializer<'de>>(&self, deserializer: D) -> Result<(), D::Error> {
        OrderWalk(self).deserialize(deserializer)
    }

    /// Returns the complaints, each once.
    pub fn texts(self) -> Vec<String> {
        self.complaints.into_inner().texts
    }

    fn say(&self, what: &str, path: &str) {
        let mut complaints = self.complaints.borrow_mut();
        let text = format!("{what} field {}", quote(path));
        if complaints.texts.len() < STRICT_ERRORS_MAX && complaints.seen.insert(text.clone()) {
            complaints.texts.push(text);
        }
    }

    /// Runs `inside` with one more step on the path.
    fn step<T>(&self, name: fmt::Arguments<'_>, inside: impl FnOnce() -> T) -> T {
        let before = {
            let path = &mut self.complaints.borrow_mut().path;
            let before = path.len();
            // Writing to a String cannot fail.
            let _ = fmt::Write::write_fmt(path, name);
            before
        };
        let value = inside();
        self.complaints.borrow_mut().path.truncate(before);
        value
    }

    fn path(&self) -> String {
        let complaints = self.complaints.borrow();
        complaints.path.strip_prefix('.').unwrap_or(&complaints.path).to_owned()
    }
}

struct OrderWalk<'a, 'b>(&'a ComplaintOrder<'b>);

impl<'de> DeserializeSeed<'de> for OrderWalk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for OrderWalk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut at = 0;
        while self.0.step(format_args!("[{at}]"), || items.next_element_seed(OrderWalk(self.0)))?.is_some() {
            at += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            self.0.step(format_args!(".{name}"), || {
                let path = self.0.path();
                let unknown = self.0.unknown.contains(path.as_str());
                if unknown {
                    self.0.say("unknown", &path);
                }
                if !seen.insert(name.clone()) && !unknown {
                    self.0.say("duplicate", &path);
                }
                // Fields below an unknown field are not reported.
                if unknown {
                    members.next_value::<IgnoredAny>().map(drop)
                } else {
                    members.next_value_seed(OrderWalk(self.0))
                }
            })?;
        }
        Ok(())
    }
}
