//! A value with its path, and the stored one that it replaces.

use std::fmt::Write as _;

use api_rules::object::Object;
use serde_json::Value;

use super::equality::is_same;

/// A place in an object, on the stack. Its value may be absent.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    parent: Option<&'a Self>,
    step: PlaceStep<'a>,
    pub(super) value: Option<&'a Value>,
    pub(super) stored: Option<&'a Value>,
    members: Option<&'a Object>,
    stored_members: Option<&'a Object>,
}

/// The last step of a path.
#[derive(Clone, Copy)]
enum PlaceStep<'a> {
    Root,
    Member(&'a str),
    Item(usize),
    Key(&'a str),
}

impl<'a> Place<'a> {
    pub(super) const fn root(object: &'a Object, stored: Option<&'a Object>) -> Self {
        let (members, stored_members) = (Some(object), stored);
        Self { parent: None, step: PlaceStep::Root, value: None, stored: None, members, stored_members }
    }

    fn inner<'b>(&'b self, step: PlaceStep<'b>, value: Option<&'b Value>, stored: Option<&'b Value>) -> Place<'b> {
        super::steps::count();
        let value = value.filter(|value| !value.is_null());
        Place {
            parent: Some(self),
            step,
            value,
            stored,
            members: value.and_then(Value::as_object),
            stored_members: stored.and_then(Value::as_object),
        }
    }

    pub(super) fn member<'b>(&'b self, name: &'b str) -> Place<'b> {
        self.inner(PlaceStep::Member(name), self.get(name), self.stored_members.and_then(|members| members.get(name)))
    }

    /// Returns the items of a list. The stored item that each replaces is unknown.
    pub(super) fn items<'b>(&'b self) -> impl ExactSizeIterator<Item = Place<'b>> {
        let list = self.value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        list.iter().enumerate().map(|(at, item)| self.inner(PlaceStep::Item(at), Some(item), None))
    }

    /// Returns the values of a map, by their keys.
    pub(super) fn entries<'b>(&'b self) -> impl Iterator<Item = (&'b str, Place<'b>)> {
        self.members
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), self.inner(PlaceStep::Key(key), Some(value), None)))
    }

    /// Returns the place of a key, as of one that a map should have.
    pub(super) fn key<'b>(&'b self, key: &'b str) -> Place<'b> {
        self.inner(PlaceStep::Key(key), self.get(key), None)
    }

    /// Returns the place of an item that may be absent.
    pub(super) fn item(&self, at: usize) -> Place<'_> {
        let item = self.value.and_then(|list| list.get(at));
        self.inner(PlaceStep::Item(at), item, None)
    }

    /// Returns a member with another value than its own, for causes that name another path than the value has.
    pub(super) fn renamed<'b>(&'b self, name: &'b str, value: Option<&'b Value>) -> Place<'b> {
        self.inner(PlaceStep::Member(name), value, None)
    }

    /// Returns the place that this one is in.
    pub(super) const fn outer(&self) -> Option<&'a Self> {
        self.parent
    }

    /// Returns the number of steps to this place.
    pub(super) fn depth(&self) -> usize {
        self.parent.map_or(0, |outer| outer.depth() + 1)
    }

    /// True if an update leaves the value as it is stored. kube-apiserver does not check many of these again, so that
    /// objects which an older version stored can still be changed; this server checks none of them.
    pub(super) fn is_retained(&self) -> bool {
        self.stored.is_some() && self.value == self.stored
    }

    /// True if an update changes the value, but for forms that mean the same.
    pub(super) fn is_changed(&self) -> bool {
        let member = match self.step {
            PlaceStep::Member(name) => name,
            PlaceStep::Root | PlaceStep::Item(_) | PlaceStep::Key(_) => "",
        };
        !is_same(member, self.value, self.stored)
    }

    /// Returns the stored value, with its own path.
    pub(super) fn before(&self) -> Place<'_> {
        let (value, members) = (self.stored, self.stored_members);
        Place { parent: self.parent, step: self.step, value, stored: None, members, stored_members: None }
    }

    pub(super) const fn is_update(&self) -> bool {
        self.stored_members.is_some()
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.members?.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns a text; empty if it is absent.
    pub(super) fn text(&self) -> &'a str {
        self.value.and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns a number, if the value is one.
    pub(super) fn int(&self) -> Option<i64> {
        self.value.and_then(Value::as_i64)
    }

    pub(super) fn str(&self, name: &str) -> &'a str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn num(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some(&Value::Bool(true))
    }

    /// Returns a member of the stored object.
    pub(super) fn stored_member(&self, name: &str) -> Option<&'a Value> {
        self.stored_members?.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn is_set(&self) -> bool {
        self.value.is_some() || self.members.is_some()
    }

    /// True for what Go does not tell from an absent value.
    pub(super) fn is_empty(&self) -> bool {
        match self.value {
            None => self.members.is_none(),
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(members)) => members.is_empty(),
            Some(Value::Number(number)) => number.as_f64() == Some(0.0),
            Some(Value::Null | Value::Bool(_)) => false,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self.value {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(members)) => members.len(),
            _ => 0,
        }
    }

    /// Returns the key of a value in a map.
    pub(super) const fn last_key(&self) -> Option<&'a str> {
        match self.step {
            PlaceStep::Key(key) => Some(key),
            PlaceStep::Root | PlaceStep::Member(_) | PlaceStep::Item(_) => None,
        }
    }

    /// Formats the path: `spec.containers[0].resources.limits[cpu]`.
    pub(super) fn path(&self) -> String {
        let mut path = self.parent.map_or_else(String::new, Place::path);
        // Writing to a String cannot fail.
        let _ = match self.step {
            PlaceStep::Root => Ok(()),
            PlaceStep::Member(name) if path.is_empty() => write!(path, "{name}"),
            PlaceStep::Member(name) => write!(path, ".{name}"),
            PlaceStep::Item(at) => write!(path, "[{at}]"),
            PlaceStep::Key(key) => write!(path, "[{key}]"),
        };
        path
    }
}
