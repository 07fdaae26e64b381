//! Field ownership of writers that do not apply: an entry of `managedFields` for each of them, with the fields that they
//! changed last.
//!
//! INVARIANT: a write that changes no field changes no entry. INVARIANT: an object has at most ten such entries.
//!
//! Source: apimachinery `pkg/util/managedfields/internal` (structuredmerge, managedfieldsupdater, capmanagers, skipnonapplied);
//! structured-merge-diff `typed/compare.go`.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
    sync::LazyLock,
};

use serde_json::{Value, json};

use super::{FieldSet, compare as order, fields as fields_of, is_reset, text};
use crate::{
    object::{
        Object, WriteTarget,
        apply::{
            self,
            typed::{is_associative, is_granular, member, step},
        },
        metadata::Part,
    },
    schemas::ValueShape,
};

/// Entries of writers that do not apply. Older ones lose their names.
const UPDATERS_MAX: usize = 10;

/// Manager of the fields of older entries.
const ANCIENT: &str = "ancient-changes";

/// Manager of writers without a name.
const UNKNOWN: &str = "unknown";

/// Returns the name of the manager of a write: the one that it states, or the program's name in its User-Agent.
#[must_use]
pub fn manager<'a>(stated: &'a str, user_agent: &'a str) -> &'a str {
    let program = || {
        let name = user_agent.split('/').next().unwrap_or_default();
        let end = name.char_indices().map(|(at, letter)| at + letter.len_utf8()).take_while(|end| *end <= 128).last();
        &name[..end.unwrap_or_default()]
    };
    let name = if stated.is_empty() { program() } else { stated };
    if name.is_empty() { UNKNOWN } else { name }
}

/// A write, as its entry describes it.
#[derive(Clone, Copy, Debug)]
pub struct RecordedWrite<'a> {
    /// Name of the writer.
    pub manager: &'a str,
    /// Time of the write, in RFC 3339.
    pub now: &'a str,
    /// True if it writes the Scale of the object.
    pub is_scale: bool,
}

/// Records in `next`, complete with its defaults, which fields the writer changes of `stored`; `None` for a create. An object
/// without entries gets none by an update, nor does one that does not fit its schema.
pub fn record(place: &WriteTarget<'_>, stored: Option<&Object>, next: &mut Object, write: RecordedWrite<'_>) {
    clean(next);
    let mut entries = entries(place, stored, next);
    if entries.is_empty() && stored.is_some() {
        return;
    }
    let shape = apply::shape(place.ty);
    let (mut changed, mut removed) = (FieldSet::default(), FieldSet::default());
    let before = stored.or_else(|| zero(place));
    if compare_members(before, Some(next), Some(&shape), &mut changed, &mut removed).is_err() {
        return;
    }
    for fields in [&mut changed, &mut removed] {
        apply::restrict_fields(place, fields);
    }
    if changed.is_empty() && removed.is_empty() {
        return;
    }
    for entry in &mut entries {
        let mut fields = fields_of(entry);
        let before = fields.clone();
        fields.subtract(&changed);
        fields.subtract(&removed);
        if fields != before {
            entry["fieldsV1"] = fields.write();
        }
    }
    entries.retain(|entry| entry.get("fieldsV1").is_none_or(|fields| fields != &json!({})));
    if !changed.is_empty() {
        add_entry(&mut entries, place, &changed, write);
    }
    cap(&mut entries);
    entries.sort_by(order);
    apply::put_entries(next, entries);
}

/// Leaves the last of the entries that a client sent for one writer, and none if Kubernetes cannot read all: those that are
/// stored stay then.
fn clean(next: &mut Object) {
    let sent = next.get_mut("metadata").and_then(|metadata| metadata.get_mut("managedFields"));
    let Some(sent) = sent.filter(|sent| !is_reset(sent)).and_then(Value::as_array_mut) else { return };
    if !sent.iter().all(is_entry) {
        sent.clear();
    }
    let mut known = HashSet::new();
    sent.reverse();
    sent.retain(|entry| {
        // An apply replaces those of all versions.
        let version = if text(entry, "operation") == "Apply" { "" } else { "apiVersion" };
        known.insert(["manager", "operation", "subresource", version].map(|member| text(entry, member).to_owned()))
    });
    sent.reverse();
}

/// True for an entry that Kubernetes can read.
fn is_entry(entry: &Value) -> bool {
    let fields = entry.get("fieldsV1").filter(|fields| !fields.is_null());
    ["Apply", "Update"].contains(&text(entry, "operation"))
        && !text(entry, "apiVersion").is_empty()
        && text(entry, "fieldsType") == "FieldsV1"
        && fields.is_none_or(is_set)
}

fn is_set(fields: &Value) -> bool {
    let is_step = |(step, below): (&String, &Value)| {
        let value = step.strip_prefix("v:").or_else(|| step.strip_prefix("k:"));
        let is_read = value.is_none_or(|value| serde_json::from_str::<Value>(value).is_ok());
        (step == "." || step.as_bytes().get(1) == Some(&b':')) && is_read && is_set(below)
    };
    fields.as_object().is_some_and(|steps| steps.iter().all(is_step))
}

/// The entries before the write: those that the client sent, or the stored ones. A subresource does not change them.
fn entries(place: &WriteTarget<'_>, stored: Option<&Object>, next: &Object) -> Vec<Value> {
    let listed = |object: &Object| object.get("metadata").and_then(|metadata| metadata.get("managedFields")).cloned();
    let sent = listed(next).filter(|_| place.part == Part::Main);
    if sent.as_ref().is_some_and(is_reset) {
        return Vec::new();
    }
    let chosen = sent.filter(|sent| sent.as_array().is_some_and(|sent| !sent.is_empty()));
    match chosen.or_else(|| stored.and_then(listed)) {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    }
}

/// Adds fields to the entry of a writer.
fn add_entry(entries: &mut Vec<Value>, place: &WriteTarget<'_>, changed: &FieldSet, write: RecordedWrite<'_>) {
    let subresource = if write.is_scale { "scale" } else { place.part.subresource() };
    let is_own = |entry: &Value| {
        text(entry, "operation") == "Update"
            && text(entry, "manager") == write.manager
            && text(entry, "apiVersion") == place.ty.api_version()
            && text(entry, "subresource") == subresource
    };
    let mut fields = entries.iter().find(|entry| is_own(entry)).map(fields_of).unwrap_or_default();
    fields.add(changed);
    entries.retain(|entry| !is_own(entry));
    let mut entry = json!({
        "manager": write.manager, "operation": "Update", "apiVersion": place.ty.api_version(),
        "time": write.now, "fieldsType": "FieldsV1", "fieldsV1": fields.write(),
    });
    if !subresource.is_empty() {
        entry["subresource"] = subresource.into();
    }
    entries.push(entry);
}

/// The oldest entry of a version, and the ones that were merged into it.
struct MergedEntry {
    /// Its place among those that stay.
    place: usize,
    /// All fields; `None` while it is the only one.
    fields: Option<FieldSet>,
    time: Value,
}

/// Merges the oldest entries of writers that do not apply, by version, until there are few. Cost: reads each entry once.
fn cap(entries: &mut Vec<Value>) {
    let is_update = |entry: &Value| text(entry, "operation") == "Update";
    let (mut updates, others): (Vec<_>, Vec<_>) = mem::take(entries).into_iter().partition(is_update);
    updates.sort_by(|one, other| text(one, "time").cmp(text(other, "time")).then_with(|| order(one, other)));
    *entries = others;
    let mut count = updates.len();
    let mut oldest: HashMap<String, MergedEntry> = HashMap::new();
    for entry in updates {
        let version = text(&entry, "apiVersion").to_owned();
        let time = entry.get("time").cloned().unwrap_or_default();
        match oldest.get_mut(&version) {
            Some(merged) if count > UPDATERS_MAX => {
                let fields = merged.fields.get_or_insert_with(|| fields_of(&entries[merged.place]));
                fields.add(&fields_of(&entry));
                merged.time = time;
                count -= 1;
                continue;
            }
            Some(_) => {}
            None => drop(oldest.insert(version, MergedEntry { place: entries.len(), fields: None, time })),
        }
        entries.push(entry);
    }
    for (version, MergedEntry { place, fields, time }) in oldest {
        let Some(fields) = fields else { continue };
        entries[place] = json!({
            "manager": ANCIENT, "operation": "Update", "apiVersion": version, "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": fields.write(),
        });
    }
}

/// Returns a new object of a built-in type as Go writes it. Its members are there before a create sets their values.
fn zero(place: &WriteTarget<'_>) -> Option<&'static Object> {
    static ZEROS: LazyLock<BTreeMap<(String, String), Object>> = LazyLock::new(|| {
        let rows = include_str!("zeros.txt").lines().filter(|line| !line.starts_with('#'));
        let read = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let (version, kind) = (words.next()?.to_owned(), words.next()?.to_owned());
            Some(((version, kind), serde_json::from_str(words.next()?).ok()?))
        };
        rows.filter_map(read).collect()
    });
    let ty = place.ty;
    ZEROS.get(&(ty.api_version().to_owned(), ty.kind.clone())).filter(|_| ty.schema.builtin)
}

fn compare_members(
    before: Option<&Object>,
    after: Option<&Object>,
    shape: Option<&ValueShape>,
    changed: &mut FieldSet,
    removed: &mut FieldSet,
) -> Result<(), String> {
    let names = after.into_iter().chain(before).flat_map(Object::keys);
    for name in names {
        let step = format!("f:{name}");
        if changed.inside.contains_key(&step) || removed.inside.contains_key(&step) {
            continue;
        }
        let inner = member(shape, name);
        let (before, after) = (before.and_then(|object| object.get(name)), after.and_then(|object| object.get(name)));
        at_step(step, before, after, inner.as_ref(), changed, removed)?;
    }
    Ok(())
}

/// Compares a value at a step, and adds what differs below that step.
fn at_step(
    step: String,
    before: Option<&Value>,
    after: Option<&Value>,
    shape: Option<&ValueShape>,
    changed: &mut FieldSet,
    removed: &mut FieldSet,
) -> Result<(), String> {
    let (mut changed_inside, mut removed_inside) = (FieldSet::default(), FieldSet::default());
    compare(before, after, shape, &mut changed_inside, &mut removed_inside)?;
    if !changed_inside.is_empty() {
        changed.inside.insert(step.clone(), changed_inside);
    }
    if !removed_inside.is_empty() {
        removed.inside.insert(step, removed_inside);
    }
    Ok(())
}

/// Adds the fields that differ. A value that is there on one side only belongs to the difference itself, beside all in it.
///
/// # Errors
/// The reason for an item without a key.
fn compare(
    before: Option<&Value>,
    after: Option<&Value>,
    shape: Option<&ValueShape>,
    changed: &mut FieldSet,
    removed: &mut FieldSet,
) -> Result<(), String> {
    if before == after {
        return Ok(());
    }
    let is_hollow = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(members)) => members.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => false,
    };
    let is_leaf = is_hollow(before) && is_hollow(after);
    let map = |value: Option<&'_ Value>| value.is_none_or(|value| value.is_object() || value.is_null());
    let list = |value: Option<&'_ Value>| value.is_none_or(|value| value.is_array() || value.is_null());
    if !is_leaf && map(before) && map(after) && is_granular(shape) {
        compare_members(before.and_then(Value::as_object), after.and_then(Value::as_object), shape, changed, removed)?;
    } else if let (false, true, true, Some(shape)) =
        (is_leaf, list(before), list(after), shape.filter(|it| is_associative(Some(it))))
    {
        compare_items(before, after, shape, changed, removed)?;
    } else if after.is_some() {
        changed.own = true;
        return Ok(());
    }
    changed.own |= before.is_none();
    removed.own |= after.is_none();
    Ok(())
}

fn compare_items(
    before: Option<&Value>,
    after: Option<&Value>,
    shape: &ValueShape,
    changed: &mut FieldSet,
    removed: &mut FieldSet,
) -> Result<(), String> {
    // Before and after; several items may have one key.
    let mut items: BTreeMap<String, [Vec<&Value>; 2]> = BTreeMap::new();
    for (side, value) in [before, after].into_iter().enumerate() {
        for item in value.and_then(Value::as_array).into_iter().flatten() {
            items.entry(step(shape, item)?).or_default()[side].push(item);
        }
    }
    let inner = shape.item();
    for (step, [before, after]) in items {
        let repeated = (before.len() > 1, after.len() > 1);
        if repeated == (true, true) {
            if before != after {
                changed.inside.entry(step).or_default().own = true;
            }
            continue;
        }
        // Items with one key are a single field, beside which the members of an item stand that has the key alone.
        let (single_before, single_after) =
            (before.first().filter(|_| !repeated.0), after.first().filter(|_| !repeated.1));
        at_step(step.clone(), single_before.copied(), single_after.copied(), inner.as_ref(), changed, removed)?;
        if repeated.0 {
            removed.inside.entry(step).or_default().own = true;
        } else if repeated.1 {
            changed.inside.entry(step).or_default().own = true;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
