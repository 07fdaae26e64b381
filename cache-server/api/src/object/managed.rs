//! Field ownership: `metadata.managedFields`, and sets of fields in the format `FieldsV1`.
//!
//! A set is a tree. Its steps are members (`f:spec`), list items by key (`k:{"name":"c"}`) and items of sets (`v:"x"`),
//! in the notation of `FieldsV1`. `.` means that the value itself belongs to the set, beside its descendants; a step
//! without descendants always belongs to the set.
//!
//! INVARIANT: entries from which no field was taken keep their meaning: members that this code does not understand are
//! kept.
//!
//! Source: apimachinery `pkg/util/managedfields` (order of entries: `internal/managedfields.go`), structured-merge-diff
//! `fieldpath/{serialize,set}.go`.

pub mod record;

use std::{cmp::Ordering, collections::BTreeMap};

use informer_core::wire::json::{JsonError, Walk};
use informer_serving::{
    go::quote,
    status::{CauseExt as _, CauseReason, Reason, Status, StatusCause},
};
use serde_json::{Map, Value, json};

use super::body::Object;

/// A set of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// True if the value itself is in the set.
    pub own: bool,
    /// Descendants, by step.
    pub inside: BTreeMap<String, Self>,
}

impl FieldSet {
    /// Creates a set of the value alone.
    pub(crate) fn leaf() -> Self {
        Self { own: true, inside: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.own && self.inside.is_empty()
    }

    /// Parses `fieldsV1`, normalising the steps.
    pub(crate) fn read(fields: &Value) -> Self {
        let mut read = Self::default();
        for (step, below) in fields.as_object().into_iter().flatten() {
            if step == "." {
                read.own = true;
                continue;
            }
            let mut below = Self::read(below);
            below.own |= below.inside.is_empty();
            read.inside.insert(canonical(step), below);
        }
        read
    }

    /// Encodes the set as `fieldsV1`.
    pub(crate) fn write(&self) -> Value {
        let mut steps = Map::new();
        for (step, below) in &self.inside {
            let mut inner = below.write();
            if let (true, Value::Object(inner)) = (below.own && !below.inside.is_empty(), &mut inner) {
                inner.insert(".".to_owned(), json!({}));
            }
            steps.insert(step.clone(), inner);
        }
        Value::Object(steps)
    }

    /// Returns the set as the compact text of [`write`](Self::write).
    pub(crate) fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        self.push(&mut text);
        text
    }

    fn push(&self, text: &mut Vec<u8>) {
        text.push(b'{');
        if self.own && !self.inside.is_empty() {
            text.extend_from_slice(br#"".":{}"#);
        }
        for (step, below) in &self.inside {
            if text.last() != Some(&b'{') {
                text.push(b',');
            }
            serde_json::to_writer(&mut *text, step).expect("a text is JSON");
            text.push(b':');
            below.push(text);
        }
        text.push(b'}');
    }

    /// Adds the fields of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.own |= other.own;
        for (step, below) in &other.inside {
            self.inside.entry(step.clone()).or_default().add(below);
        }
    }

    /// Removes the fields of `other`.
    fn subtract(&mut self, other: &Self) {
        self.own &= !other.own;
        self.inside.retain(|step, below| {
            if let Some(other) = other.inside.get(step) {
                below.subtract(other);
            }
            !below.is_empty()
        });
    }

    /// Returns the fields in both sets.
    fn common(&self, other: &Self) -> Self {
        let inside = self.inside.iter().filter_map(|(step, below)| {
            let common = below.common(other.inside.get(step)?);
            (!common.is_empty()).then(|| (step.clone(), common))
        });
        Self { own: self.own && other.own, inside: inside.collect() }
    }

    /// Returns true if it has a field in common with the set of this text, or the text is no set.
    pub(crate) fn overlaps(&self, fields: &[u8]) -> bool {
        Walk::new(fields).and_then(|mut walk| self.overlaps_object(&mut walk)).unwrap_or(true)
    }

    /// Walks through the object that was entered last, to its end unless it overlaps.
    fn overlaps_object(&self, walk: &mut Walk<'_>) -> Result<bool, JsonError> {
        let mut is_leaf = true;
        while let Some(step) = walk.key()? {
            let step = step.text().unwrap_or_default();
            if step == "." {
                if self.own {
                    return Ok(true);
                }
                continue;
            }
            is_leaf = false;
            let Some(below) = self.inside.get(&canonical(&step)) else { continue };
            if if walk.enter()? { below.overlaps_object(walk)? } else { below.own } {
                return Ok(true);
            }
        }
        Ok(is_leaf && self.own)
    }

    /// Lists the fields as shown in messages: `.spec.containers[name="c"].image`.
    fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect(&mut String::new(), &mut paths);
        paths
    }

    fn collect(&self, path: &mut String, paths: &mut Vec<String>) {
        if self.own {
            paths.push(path.clone());
        }
        for (step, below) in &self.inside {
            let before = path.len();
            path.push_str(&shown(step));
            below.collect(path, paths);
            path.truncate(before);
        }
    }
}

/// Formats a step for messages: `.spec`, `[name="c"]`, `[="x"]`.
pub(crate) fn shown(step: &str) -> String {
    if let Some(name) = step.strip_prefix("f:") {
        return format!(".{name}");
    }
    if let Some(Ok(Value::Object(keys))) = step.strip_prefix("k:").map(serde_json::from_str) {
        let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
        return format!("[{}]", keys.join(","));
    }
    step.strip_prefix("v:").map_or_else(|| format!("[{step}]"), |value| format!("[={value}]"))
}

/// Returns the step of a set item by its value.
pub(crate) fn step_of_value(value: &Value) -> String {
    format!("v:{value}")
}

/// Returns the step of a list item by its keys.
pub(crate) fn step_of_keys(keys: Map<String, Value>) -> String {
    format!("k:{}", Value::Object(keys))
}

/// Like [`step_of_keys`], for one key. Cost: one text, without a map.
pub(crate) fn step_of_key(name: &str, value: &Value) -> String {
    let mut step = b"k:{".to_vec();
    let written = serde_json::to_writer(&mut step, name).and_then(|()| {
        step.push(b':');
        serde_json::to_writer(&mut step, value)
    });
    written.expect("a JSON value has a text");
    step.push(b'}');
    String::from_utf8(step).expect("JSON is UTF-8")
}

/// Normalises the JSON in a step: no spaces, sorted members.
fn canonical(step: &str) -> String {
    if is_short(step) {
        return step.to_owned();
    }
    match step.split_at_checked(2) {
        Some((kind @ ("k:" | "v:"), rest)) => {
            serde_json::from_str::<Value>(rest).map_or_else(|_| step.to_owned(), |value| format!("{kind}{value}"))
        }
        _ => step.to_owned(),
    }
}

/// Returns true for `k:{"name":"c"}`: one key and its text, without spaces and escapes. Most steps to items are.
fn is_short(step: &str) -> bool {
    let pair =
        step.strip_prefix("k:{\"").and_then(|rest| rest.strip_suffix("\"}")).and_then(|pair| pair.split_once("\":\""));
    let is_plain = |text: &str| text.bytes().all(|byte| byte > b' ' && !matches!(byte, b'"' | b'\\'));
    pair.is_some_and(|(key, value)| is_plain(key) && is_plain(value))
}

/// Identity of a manager's apply; each identity has one entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ManagerIdentity<'a> {
    pub manager: &'a str,
    pub api_version: &'a str,
    /// Empty for the main resource.
    pub subresource: &'a str,
}

impl ManagerIdentity<'_> {
    /// Returns true for the entry of this identity.
    pub(crate) fn is(&self, entry: &Value) -> bool {
        text(entry, "operation") == "Apply"
            && text(entry, "manager") == self.manager
            && text(entry, "apiVersion") == self.api_version
            && text(entry, "subresource") == self.subresource
    }
}

/// The managedFields of an object, seen by the owner that applies.
pub(crate) struct Ownership<'a> {
    owner: ManagerIdentity<'a>,
    entries: Vec<Value>,
}

impl<'a> Ownership<'a> {
    pub(crate) fn of(object: &Object, owner: ManagerIdentity<'a>) -> Self {
        let listed =
            object.get("metadata").and_then(|metadata| metadata.get("managedFields")).and_then(Value::as_array);
        Self { owner, entries: listed.into_iter().flatten().cloned().collect() }
    }

    /// Returns the fields of the owner's last apply.
    pub(crate) fn last(&self) -> FieldSet {
        self.entries.iter().find(|entry| self.owner.is(entry)).map(fields).unwrap_or_default()
    }

    /// Returns the fields of all other entries.
    pub(crate) fn others(&self) -> FieldSet {
        let mut all = FieldSet::default();
        for entry in self.entries.iter().filter(|entry| !self.owner.is(entry)) {
            all.add(&fields(entry));
        }
        all
    }

    /// Checks other owners of `changed`, and takes the fields from them with `force`.
    ///
    /// # Errors
    /// 409 without `force`, with a cause for each field.
    pub(crate) fn take_over(&mut self, changed: &FieldSet, force: bool) -> Result<(), Status> {
        let mut conflicts = Vec::new();
        for entry in self.entries.iter_mut().filter(|entry| !self.owner.is(entry)) {
            let owned = fields(entry);
            let taken = owned.common(changed);
            if taken.is_empty() {
                continue;
            }
            if !force {
                conflicts.push((shown_manager(entry), taken.paths()));
                continue;
            }
            let mut rest = owned;
            rest.subtract(&taken);
            entry["fieldsV1"] = rest.write();
        }
        if force {
            self.entries.retain(|entry| entry.get("fieldsV1").is_none_or(|fields| fields != &json!({})));
        }
        if conflicts.is_empty() { Ok(()) } else { Err(conflict(&conflicts)) }
    }

    /// Returns the entries after the owner applied `fields` at `now`.
    pub(crate) fn with(self, fields: &FieldSet, now: &str) -> Vec<Value> {
        let fields = (!fields.is_empty()).then(|| fields.write());
        self.with_entry(fields, now)
    }

    /// Returns the entries after the owner applied the fields of its last apply again, at `now`.
    pub(crate) fn renewed(self, now: &str) -> Vec<Value> {
        let fields = self.entries.iter().find(|entry| self.owner.is(entry)).and_then(|entry| entry.get("fieldsV1"));
        let fields = fields.cloned();
        self.with_entry(fields, now)
    }

    fn with_entry(mut self, fields: Option<Value>, now: &str) -> Vec<Value> {
        self.entries.retain(|entry| !self.owner.is(entry));
        if let Some(fields) = fields {
            let mut entry = json!({
                "manager": self.owner.manager, "operation": "Apply", "apiVersion": self.owner.api_version,
                "time": now, "fieldsType": "FieldsV1", "fieldsV1": fields,
            });
            if !self.owner.subresource.is_empty() {
                entry["subresource"] = Value::from(self.owner.subresource);
            }
            self.entries.push(entry);
        }
        self.entries.sort_by(compare);
        self.entries
    }
}

/// Orders applies before updates, then by time, manager, apiVersion and subresource.
fn compare(one: &Value, other: &Value) -> Ordering {
    let key = |entry: &Value| {
        ["operation", "time", "manager", "apiVersion", "subresource"].map(|member| text(entry, member).to_owned())
    };
    key(one).cmp(&key(other))
}

fn fields(entry: &Value) -> FieldSet {
    entry.get("fieldsV1").map(FieldSet::read).unwrap_or_default()
}

fn text<'a>(entry: &'a Value, member: &str) -> &'a str {
    entry.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// Formats a manager for messages about conflicts.
fn shown_manager(entry: &Value) -> String {
    let mut shown = quote(text(entry, "manager"));
    if !text(entry, "subresource").is_empty() {
        shown.push_str(&format!(" with subresource {}", quote(text(entry, "subresource"))));
    }
    if text(entry, "operation") == "Update" {
        shown.push_str(&format!(" using {}", text(entry, "apiVersion")));
        if !text(entry, "time").is_empty() {
            shown.push_str(&format!(" at {}", text(entry, "time")));
        }
    }
    shown
}

/// Builds the 409 for fields that other managers own with different values.
fn conflict(conflicts: &[(String, Vec<String>)]) -> Status {
    let mut causes = Vec::new();
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (manager, paths) in conflicts {
        for path in paths {
            causes.push(StatusCause::new(CauseReason::FieldManagerConflict, path, &format!("conflict with {manager}")));
            lines.entry(manager).or_default().push(path);
        }
    }
    let message = match causes.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        _ => {
            let lines: Vec<String> = lines
                .iter()
                .map(|(manager, paths)| format!("conflicts with {manager}:\n- {}", paths.join("\n- ")))
                .collect();
            format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
        }
    };
    let mut status =
        Status { status: "Failure".into(), message, reason: Reason::Conflict, code: 409, ..Status::default() };
    status.details.get_or_insert_default().causes = causes;
    status
}

/// Returns true for the value that clears all entries: a list of one empty entry.
pub(crate) fn is_reset(listed: &Value) -> bool {
    *listed == json!([{}])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, time: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
            "fieldsV1": fields})
    }

    fn owned_by(entries: &[Value]) -> Ownership<'static> {
        let object = json!({"metadata": {"managedFields": entries}});
        let owner = ManagerIdentity { manager: "me", api_version: "v1", subresource: "" };
        Ownership::of(object.as_object().expect("an object"), owner)
    }

    /// Goal: shortcuts lead to the steps that the general way leads to. Method: steps that look alike.
    #[test]
    fn short_steps_are_canonical() {
        for step in [
            r#"k:{"name":"c"}"#,
            r#"k:{"name": "c"}"#,
            r#"k:{"name":"c d"}"#,
            r#"k:{"name":"c","a":"b"}"#,
            r#"k:{"name":"c\u0041"}"#,
            r#"k:{"name":""}"#,
            r#"k:{"name":7}"#,
            "k:{\"name\":\"\u{e9}\"}",
        ] {
            let value: Value = serde_json::from_str(&step[2..]).expect("is JSON");
            assert_eq!(canonical(step), format!("k:{value}"), "{step}");
            if let [(name, value)] = value.as_object().expect("an object").iter().collect::<Vec<_>>()[..] {
                assert_eq!(step_of_key(name, value), canonical(step), "{step}");
            }
        }
        assert_eq!(canonical("k:{\"name\":\"c\"x\"}"), "k:{\"name\":\"c\"x\"}", "not JSON stays as it is");
    }

    #[test]
    fn sets_are_written_as_they_were_read() {
        let fields = json!({
            "f:metadata": {"f:finalizers": {"v:\"x\"": {}}, "f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}}
        });
        assert_eq!(FieldSet::read(&fields).write(), fields);
        assert_eq!(FieldSet::read(&fields).text(), fields.to_string().into_bytes());
        let spaced = json!({"k:{\"protocol\": \"TCP\", \"containerPort\": 80}": {}});
        assert_eq!(FieldSet::read(&spaced).write(), json!({"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}}));
        for odd in [json!(null), json!([]), json!({"k:{": {}, "x": 7})] {
            FieldSet::read(&odd);
        }
    }

    #[test]
    fn paths_are_shown_as_people_write_them() {
        let fields = json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}},
            "f:metadata": {"f:finalizers": {"v:\"x\"": {}}}});
        assert_eq!(
            FieldSet::read(&fields).paths(),
            [".metadata.finalizers[=\"x\"]", ".spec.containers[name=\"c\"]", ".spec.containers[name=\"c\"].image"]
        );
    }

    #[test]
    fn an_entry_is_replaced_by_its_owner_alone() {
        let theirs = entry("them", "Apply", "2026-01-02T00:00:00Z", json!({"f:data": {"f:k": {}}}));
        let update = entry("me", "Update", "2026-01-01T00:00:00Z", json!({"f:data": {"f:u": {}}}));
        let mine = entry("me", "Apply", "2026-01-01T00:00:00Z", json!({"f:data": {"f:a": {}, "f:b": {}}}));
        let owned = owned_by(&[update.clone(), theirs.clone(), mine]);
        assert_eq!(owned.last(), FieldSet::read(&json!({"f:data": {"f:a": {}, "f:b": {}}})));
        assert_eq!(owned.others(), FieldSet::read(&json!({"f:data": {"f:k": {}, "f:u": {}}})));
        let fields = FieldSet::read(&json!({"f:data": {"f:c": {}}}));
        let new = entry("me", "Apply", "2026-01-03T00:00:00Z", json!({"f:data": {"f:c": {}}}));
        assert_eq!(owned.with(&fields, "2026-01-03T00:00:00Z"), [theirs.clone(), new, update.clone()]);
        let gone = owned_by(&[update.clone(), theirs.clone()]).with(&FieldSet::default(), "2026-01-03T00:00:00Z");
        assert_eq!(gone, [theirs, update]);
    }

    #[test]
    fn what_others_own_is_taken_by_force_alone() {
        let theirs = entry("them", "Apply", "t", json!({"f:data": {"f:a": {}, "f:b": {}}}));
        let update = entry("u", "Update", "2026-01-01T00:00:00Z", json!({"f:data": {"f:a": {}}}));
        let changed = FieldSet::read(&json!({"f:data": {"f:a": {}, "f:z": {}}}));
        let refused = |entries: &[Value]| owned_by(entries).take_over(&changed, false).expect_err("owned");
        let one = refused(std::slice::from_ref(&theirs));
        assert_eq!(
            (one.code, one.message.as_str()),
            (409, "Apply failed with 1 conflict: conflict with \"them\": .data.a")
        );
        let causes = one.details.expect("details").causes;
        assert_eq!(causes, [StatusCause::new(CauseReason::FieldManagerConflict, ".data.a", "conflict with \"them\"")]);
        assert_eq!(
            refused(&[theirs.clone(), update.clone()]).message,
            "Apply failed with 2 conflicts: conflicts with \"them\":\n- .data.a\nconflicts with \"u\" using v1 at \
             2026-01-01T00:00:00Z:\n- .data.a"
        );
        let mut owned = owned_by(&[theirs, update]);
        owned.take_over(&changed, true).expect("by force");
        assert_eq!(owned.entries, [entry("them", "Apply", "t", json!({"f:data": {"f:b": {}}}))]);
    }
}
