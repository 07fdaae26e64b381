//! Decodes only those parts of a stored object that a change touches.
//!
//! All other lists and objects are sealed: a string that names their place in the stored text stands for them. The
//! rules move, compare and drop it like any value, and the draft of the result gets the text back.
//!
//! INVARIANT: a change leads to the draft, or the refusal, that it leads to with the whole object. Each value that it
//! may replace is decoded, since a sealed value differs from an equal decoded one. INVARIANT: checks pass over sealed
//! values, so only values of a normal entry are sealed: they were checked when they were stored. INVARIANT: no other
//! string begins with [`SEAL`]: an object or a change with such a string is decoded whole.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    ops::Range,
};

use informer_core::wire::json;
use serde_json::Value;

use super::{
    apply::typed,
    body::Object,
    managed::ManagerIdentity,
    metadata,
    strategic::{self, ListDirectives},
};
use crate::schemas::{Merge, ValueShape};

/// First character of a sealed value.
const SEAL: char = '\0';

/// Nesting to which a change is followed; deeper values are decoded.
const DEPTH_MAX: usize = 32;

/// Extent to which a change touches a value.
pub(crate) enum Touch<'a> {
    /// Not at all.
    None,
    /// The rules read its members, but nothing in them.
    Members,
    /// The metadata of an object, with what becomes of its managedFields.
    Metadata(ManagedTouch<'a>),
    /// Anything in it may change.
    Whole,
    /// A JSON merge patch.
    Merge(&'a Object),
    /// A strategic merge patch.
    Strategic(&'a Object, Option<ValueShape>),
    /// A strategic merge patch of a list: its key, and the patches by the JSON of their key.
    Items(String, HashMap<String, &'a Object>, Option<ValueShape>),
}

/// Extent to which a change touches managedFields.
#[derive(Clone, Copy)]
pub(crate) enum ManagedTouch<'a> {
    /// Not at all.
    None,
    /// Anything in them may change.
    Whole,
    /// An apply of this manager, which sets the fields of this text.
    Applied(ManagerIdentity<'a>, &'a [u8]),
}

impl<'a> Touch<'a> {
    /// Returns the extent to which a merge patch touches a member.
    pub(crate) fn by_merge(patch: &'a Object, name: &str) -> Self {
        match patch.get(name) {
            // Null removes the member, whatever it is.
            None | Some(Value::Null) => Self::None,
            Some(Value::Object(patch)) => Self::Merge(patch),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => Self::Whole,
        }
    }

    /// Returns the extent to which a strategic merge patch touches a member.
    pub(crate) fn by_strategic(
        patch: &'a Object,
        directives: &ListDirectives<'_>,
        shape: Option<&ValueShape>,
        name: &str,
    ) -> Self {
        if directives.deletes_from(name) {
            return Self::Whole;
        }
        let inner = strategic::member(shape, name);
        match patch.get(name) {
            None if directives.orders(name) => Self::items(&[], inner.as_ref()),
            None | Some(Value::Null) => Self::None,
            Some(Value::Object(_)) if strategic::is_replaced(inner.as_ref()) => Self::Whole,
            Some(Value::Object(patch)) => Self::Strategic(patch, inner),
            Some(Value::Array(items)) => Self::items(items, inner.as_ref()),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Self::Whole,
        }
    }

    /// Returns the extent to which the items of a strategic merge patch touch those of a list.
    fn items(patches: &'a [Value], list: Option<&ValueShape>) -> Self {
        let Some((list, Merge::ByKey([key]))) = list.map(|list| (list, list.merge())) else { return Self::Whole };
        let mut by_key = HashMap::with_capacity(patches.len());
        for patch in patches {
            let found = patch.as_object().and_then(|patch| Some((patch.get(&**key)?.to_string(), patch)));
            let Some((identity, patch)) = found else { return Self::Whole };
            // The item may be replaced, or has several patches.
            if patch.contains_key(strategic::PATCH) || by_key.insert(identity, patch).is_some() {
                return Self::Whole;
            }
        }
        Self::Items(key.to_string(), by_key, list.item())
    }
}

/// Decodes the parts of an object that `touch` names by its members. Returns `None` if the object has to be decoded
/// whole. Cost: one pass over the text; two over items that are patched, at each level of such lists.
pub(crate) fn read<'p>(text: &[u8], managed: ManagedTouch<'_>, touch: &dyn Fn(&str) -> Touch<'p>) -> Option<Object> {
    let mut reader = SparseReader::new(text);
    let object = reader.object(&mut |reader, name| match (name, touch(name)) {
        ("metadata", _) => reader.value(&Touch::Metadata(managed)),
        (name, Touch::None) if is_read(name) => reader.value(&Touch::Members),
        (_, touch) => reader.value(&touch),
    })?;
    reader.ended(object)
}

/// A stored object and the configuration that is applied to it, with the parts sealed in both in which they are equal.
pub(crate) struct SealedPair<'t> {
    pub object: Object,
    pub config: Object,
    /// The fields of other managers.
    pub others: Vec<&'t [u8]>,
}

/// Decodes the parts of an object that an apply of `config` touches or reads. Returns `None` if the object has to be
/// decoded whole, or the manager has not exactly one entry with the fields of this configuration. Cost: one pass over
/// the text, and at each of [`DEPTH_MAX`] levels at most one over the beginning of both that is equal.
pub(crate) fn pair<'t>(
    text: &'t [u8],
    managed: ManagedTouch<'_>,
    config: &Object,
    shape: &ValueShape,
) -> Option<SealedPair<'t>> {
    let mut reader = SparseReader::new(text);
    let mut sealed = Object::new();
    let object = reader.object(&mut |reader, name| {
        let Some(applied) = config.get(name) else {
            return reader.value(if is_read(name) { &Touch::Members } else { &Touch::None });
        };
        if name == "metadata" {
            sealed.insert(name.to_owned(), applied.clone());
            return reader.value(&Touch::Metadata(managed));
        }
        let inner = typed::member(Some(shape), name);
        let (stored, applied) = reader.pair(applied, inner.as_ref(), is_read(name))?;
        sealed.insert(name.to_owned(), applied);
        Some(stored)
    })?;
    for (name, applied) in config.iter().filter(|(name, _)| !object.contains_key(*name)) {
        sealed.insert(name.clone(), applied.clone());
    }
    // Only then the entry's fields are those of the configuration.
    if reader.own_entries != 1 {
        return None;
    }
    let others = std::mem::take(&mut reader.others);
    Some(SealedPair { object: reader.ended(object)?, config: sealed, others })
}

/// Returns true for the parts of an object whose members rules read: those for writes of nodes.
fn is_read(name: &str) -> bool {
    matches!(name, "spec" | "status")
}

/// Returns true if no string in the value begins like a sealed value.
pub(crate) fn is_free_of_seals(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => !text.starts_with(SEAL),
        Value::Array(items) => items.iter().all(is_free_of_seals),
        Value::Object(members) => members.values().all(is_free_of_seals),
    }
}

/// Returns true for a sealed value of a sparse object.
pub(crate) fn is_sealed(value: &Value) -> bool {
    matches!(value, Value::String(text) if text.starts_with(SEAL))
}

/// Writes a value of a sparse object, whose sealed parts are in `text`, as compact JSON.
pub(crate) fn push(body: &mut Vec<u8>, value: &Value, text: &[u8]) {
    match value {
        Value::String(seal) if seal.starts_with(SEAL) => body.extend_from_slice(&text[place(seal)]),
        Value::Object(members) => {
            body.push(b'{');
            for (at, (name, value)) in members.iter().enumerate() {
                if at > 0 {
                    body.push(b',');
                }
                push_scalar(body, name);
                body.push(b':');
                push(body, value, text);
            }
            body.push(b'}');
        }
        Value::Array(items) => {
            body.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    body.push(b',');
                }
                push(body, item, text);
            }
            body.push(b']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => push_scalar(body, value),
    }
}

fn push_scalar<T: serde::Serialize + ?Sized>(body: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(body, value).expect("a JSON value has a text");
}

fn seal(place: &Range<usize>) -> Value {
    Value::String(format!("{SEAL}{}-{}", place.start, place.end))
}

/// Returns the place of a sealed value.
fn place(seal: &str) -> Range<usize> {
    let place = seal[1..].split_once('-').and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
    place.expect("only this module makes strings with this first character")
}

/// A position in the text of a normal entry, which is compact. Whatever else it finds ends the pass without a result.
struct SparseReader<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
    /// Number of entries of the manager that applies, and the fields in those of others.
    own_entries: usize,
    others: Vec<&'t [u8]>,
}

impl<'t> SparseReader<'t> {
    fn new(text: &'t [u8]) -> Self {
        Self { text, at: 0, depth: 0, own_entries: 0, others: Vec::new() }
    }

    /// Returns the object that was read to its end, unless it is being deleted: the answer to its last write shows all.
    fn ended(self, object: Object) -> Option<Object> {
        (self.at == self.text.len() && !metadata::is_terminating(&object)).then_some(object)
    }

    /// Decodes a value as far as it is touched.
    fn value(&mut self, touch: &Touch<'_>) -> Option<Value> {
        if self.depth >= DEPTH_MAX {
            return self.whole();
        }
        match (self.peek()?, touch) {
            (b'{' | b'[', Touch::None) => Some(seal(&self.skip()?)),
            (b'{', Touch::Members) => self.members(|_| Touch::None),
            (b'{', Touch::Metadata(managed)) => self.metadata(*managed),
            (b'{', Touch::Merge(patch)) => self.members(|name| Touch::by_merge(patch, name)),
            // Directives of the object itself name no members.
            (b'{', Touch::Strategic(patch, shape)) if !patch.contains_key(strategic::PATCH) => {
                let directives = ListDirectives::of(patch);
                self.members(|name| Touch::by_strategic(patch, &directives, shape.as_ref(), name))
            }
            (b'[', Touch::Items(key, patches, item)) => self.patched_items(key, patches, item.as_ref()),
            _ => self.whole(),
        }
    }

    fn members<'p>(&mut self, touch: impl Fn(&str) -> Touch<'p>) -> Option<Value> {
        self.object(&mut |reader, name| reader.value(&touch(name))).map(Value::Object)
    }

    /// Decodes metadata, which the rules read, with managedFields as far as they are touched.
    fn metadata(&mut self, managed: ManagedTouch<'_>) -> Option<Value> {
        let object = self.object(&mut |reader, name| match managed {
            ManagedTouch::None if name == "managedFields" => reader.value(&Touch::None),
            ManagedTouch::Applied(owner, fields) if name == "managedFields" && reader.peek()? == b'[' => {
                reader.items(&mut |reader| reader.entry(owner, fields))
            }
            ManagedTouch::None | ManagedTouch::Whole | ManagedTouch::Applied(..) => reader.whole(),
        });
        object.map(Value::Object)
    }

    /// Decodes an entry of managedFields but for its fields. Ends the pass if those of the owner are not `fields`.
    fn entry(&mut self, owner: ManagerIdentity<'_>, fields: &[u8]) -> Option<Value> {
        let entry = self.value(&Touch::Members)?;
        let found = entry.get("fieldsV1").filter(|fields| is_sealed(fields))?.as_str()?;
        let found = &self.text[place(found)];
        if owner.is(&entry) {
            self.own_entries += 1;
            return (found == fields).then_some(entry);
        }
        self.others.push(found);
        Some(entry)
    }

    /// Decodes an object, each member by `read`.
    fn object(&mut self, read: &mut dyn FnMut(&mut Self, &str) -> Option<Value>) -> Option<Object> {
        let mut object = Object::new();
        self.depth += 1;
        self.take(b'{')?;
        while self.peek()? != b'}' {
            if !object.is_empty() {
                self.take(b',')?;
            }
            let name = self.name()?;
            let value = read(self, &name)?;
            object.insert(name.into_owned(), value);
        }
        self.at += 1;
        self.depth -= 1;
        Some(object)
    }

    /// Decodes a list, each item by `read`.
    fn items(&mut self, read: &mut dyn FnMut(&mut Self) -> Option<Value>) -> Option<Value> {
        let mut items = Vec::new();
        self.depth += 1;
        self.take(b'[')?;
        while self.peek()? != b']' {
            if !items.is_empty() {
                self.take(b',')?;
            }
            items.push(read(self)?);
        }
        self.at += 1;
        self.depth -= 1;
        Some(Value::Array(items))
    }

    /// Decodes the items of a list as far as `patches` touch them, and the key of each.
    fn patched_items(
        &mut self,
        key: &str,
        patches: &HashMap<String, &Object>,
        shape: Option<&ValueShape>,
    ) -> Option<Value> {
        let mut patched = HashSet::new();
        self.items(&mut |reader| {
            let start = reader.at;
            let opened = reader.value(&Touch::Members)?;
            let Some((identity, patch)) = opened.get(key).and_then(|key| patches.get_key_value(&key.to_string()))
            else {
                return Some(opened);
            };
            // Of items with one key, a patch changes the first.
            if !patched.insert(identity) {
                return Some(opened);
            }
            reader.at = start;
            reader.value(&Touch::Strategic(patch, shape.cloned()))
        })
    }

    /// Decodes a value and the one applied to it as far as they differ, and their members if `is_open`.
    fn pair(&mut self, applied: &Value, shape: Option<&ValueShape>, is_open: bool) -> Option<(Value, Value)> {
        let start = self.at;
        if !is_open && self.depth < DEPTH_MAX && self.equals(applied).is_some() {
            let is_sealed = matches!(self.text[start], b'{' | b'[');
            let value = if is_sealed { seal(&(start..self.at)) } else { applied.clone() };
            return Some((value.clone(), value));
        }
        self.at = start;
        match (self.peek()?, applied) {
            (b'{', Value::Object(applied)) if typed::is_granular(shape) => self.paired_members(applied, shape),
            (b'[', Value::Array(applied)) if typed::is_associative(shape) => self.paired_items(applied, shape?),
            _ => Some((self.whole()?, applied.clone())),
        }
    }

    fn paired_members(&mut self, applied: &Object, shape: Option<&ValueShape>) -> Option<(Value, Value)> {
        let mut sealed = Object::new();
        let stored = self.object(&mut |reader, name| {
            let Some(applied) = applied.get(name) else { return reader.value(&Touch::None) };
            let (stored, applied) = reader.pair(applied, typed::member(shape, name).as_ref(), false)?;
            sealed.insert(name.to_owned(), applied);
            Some(stored)
        })?;
        for (name, value) in applied.iter().filter(|(name, _)| !stored.contains_key(*name)) {
            sealed.insert(name.clone(), value.clone());
        }
        Some((Value::Object(stored), Value::Object(sealed)))
    }

    /// Pairs the items of lists by their steps. Opens all, since the rules read their keys. Ends the pass if two have
    /// one step.
    fn paired_items(&mut self, applied: &[Value], shape: &ValueShape) -> Option<(Value, Value)> {
        let Merge::ByKey(keys) = shape.apply() else { return Some((self.whole()?, Value::Array(applied.to_vec()))) };
        let (mut sealed, inner) = (applied.to_vec(), shape.item());
        let steps = applied.iter().enumerate().filter_map(|(at, item)| Some((typed::step(shape, item).ok()?, at)));
        let mut places: HashMap<String, Option<usize>> = steps.map(|(step, at)| (step, Some(at))).collect();
        let stored = self.items(&mut |reader| {
            let start = reader.at;
            let opened = reader.value(&Touch::Members)?;
            if keys.iter().any(|key| opened.get(&**key).is_some_and(is_sealed)) {
                return None;
            }
            let step = typed::step(shape, &opened).ok()?;
            let Some(place) = places.get_mut(&step) else { return Some(opened) };
            let at = place.take()?;
            reader.at = start;
            let (stored, applied) = reader.pair(&applied[at], inner.as_ref(), true)?;
            sealed[at] = applied;
            Some(stored)
        })?;
        Some((stored, Value::Array(sealed)))
    }

    /// Takes a value if it equals this one.
    fn equals(&mut self, value: &Value) -> Option<()> {
        match value {
            Value::Object(members) => {
                self.take(b'{')?;
                for (at, (name, value)) in members.iter().enumerate() {
                    self.take_unless_first(at)?;
                    self.equals_text(name)?;
                    self.take(b':')?;
                    self.equals(value)?;
                }
                self.take(b'}')
            }
            Value::Array(items) => {
                self.take(b'[')?;
                for (at, item) in items.iter().enumerate() {
                    self.take_unless_first(at)?;
                    self.equals(item)?;
                }
                self.take(b']')
            }
            Value::String(text) => self.equals_text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {
                let found = self.skip()?;
                let found: Value = serde_json::from_slice(&self.text[found]).ok()?;
                (found == *value).then_some(())
            }
        }
    }

    fn take_unless_first(&mut self, at: usize) -> Option<()> {
        if at == 0 { Some(()) } else { self.take(b',') }
    }

    fn equals_text(&mut self, text: &str) -> Option<()> {
        self.take(b'"')?;
        let start = self.at;
        self.at = json::string_end(self.text, start);
        let found = self.text.get(start..self.at - 1)?;
        let is_equal = if found.contains(&b'\\') { json::unescape(found)? == text } else { found == text.as_bytes() };
        is_equal.then_some(())
    }

    /// Decodes a value.
    fn whole(&mut self) -> Option<Value> {
        let value = match &self.text[self.skip()?] {
            [b'"', text @ .., b'"'] if !text.contains(&b'\\') => Value::from(str::from_utf8(text).ok()?),
            text => serde_json::from_slice(text).ok()?,
        };
        is_free_of_seals(&value).then_some(value)
    }

    fn name(&mut self) -> Option<Cow<'t, str>> {
        self.take(b'"')?;
        let start = self.at;
        self.at = json::string_end(self.text, start);
        let name = json::unescape(self.text.get(start..self.at - 1)?)?;
        self.take(b':')?;
        Some(name)
    }

    fn skip(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        self.at += json::skip_value(&self.text[start..]).ok()?;
        Some(start..self.at)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }
}

#[cfg(test)]
mod tests;
