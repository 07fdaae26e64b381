//! Conditions of signing requests: approvals and denials by one subresource, everything else by the status.
//!
//! Not checked: the request itself, its usages, and the certificate.
//!
//! Source: `pkg/registry/certificates/certificates/strategy.go`, `pkg/apis/certificates/validation` of
//! kubernetes/kubernetes.

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
};

use informer_serving::{
    go::quote,
    status::{CauseExt as _, Causes, StatusCause},
};
use serde_json::Value;

use super::{Object, WriteTarget, at, conditions, metadata::Part, put};

const FIELD: &str = "status.conditions";
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
/// Types of conditions that are true, and are never removed.
const FINAL: [&str; 3] = [APPROVED, DENIED, "Failed"];

/// Completes the conditions of a signing request as sent: those that the request cannot change are as stored, and each has
/// its times, but for those that `check` refuses. Calls `now` only for a write of conditions.
pub fn complete(place: &WriteTarget<'_>, stored: &Object, sent: &mut Object, now: impl FnOnce() -> String) {
    if !place.ty.is_approved() || !matches!(place.part, Part::Approval | Part::Status) {
        return;
    }
    let (now, mut all) = (now(), conditions::of(sent).to_vec());
    if place.part == Part::Status {
        keep(stored, &mut all, APPROVED);
        keep(stored, &mut all, DENIED);
    }
    let time = |condition: &Value, member: &str| condition.get(member).and_then(Value::as_str).map(str::to_owned);
    let state = |condition: &Value| (text(condition, "type").to_owned(), text(condition, "status").to_owned());
    let since = conditions::of(stored).iter().filter_map(|old| Some((state(old), time(old, "lastTransitionTime")?)));
    let since: HashMap<_, _> = since.collect();
    let mut seen = HashSet::new();
    for condition in &mut all {
        let state = state(condition);
        // Nameless and repeated conditions are refused: without times, they are no longer than they were sent.
        if state.0.is_empty() || !seen.insert(state.0.clone()) {
            continue;
        }
        if time(condition, "lastUpdateTime").is_none() {
            condition["lastUpdateTime"] = now.as_str().into();
        }
        if time(condition, "lastTransitionTime").is_none() {
            condition["lastTransitionTime"] = since.get(&state).unwrap_or(&now).as_str().into();
        }
    }
    if !all.is_empty() {
        put(sent, FIELD, all.into());
    }
}

fn text<'a>(condition: &'a Value, member: &str) -> &'a str {
    condition.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// Restores the stored conditions of a type, unless some were added or removed.
fn keep(stored: &Object, all: &mut [Value], name: &str) {
    let is_named = |condition: &&Value| condition["type"] == name;
    let old: Vec<&Value> = conditions::of(stored).iter().filter(is_named).collect();
    let new: Vec<&mut Value> = all.iter_mut().filter(|condition| condition["type"] == name).collect();
    if old.len() == new.len() {
        for (new, old) in new.into_iter().zip(old) {
            new.clone_from(old);
        }
    }
}

/// Checks the successor of a signing request.
pub(super) fn check(part: Part, stored: &Object, next: &Object, causes: &mut Causes) {
    let (old, new) = (conditions::of(stored), conditions::of(next));
    // Conditions that are stored already may be older than a rule.
    if old != new {
        check_each(new, causes);
    }
    let count = |all: &[Value], name: &str| all.iter().filter(|condition| condition["type"] == name).count();
    for name in FINAL {
        let why = match count(new, name).cmp(&count(old, name)) {
            Ordering::Less => "remove",
            Ordering::Greater if part != Part::Approval && name != "Failed" => "add",
            Ordering::Equal | Ordering::Greater => continue,
        };
        let why = format!("updates may not {why} a condition of type {}", quote(name));
        causes.push(StatusCause::forbidden(FIELD, &why));
    }
    let certificate = |object| at(object, "status.certificate").and_then(Value::as_str).unwrap_or_default();
    if !certificate(stored).is_empty() && certificate(stored) != certificate(next) {
        let why = "updates may not modify existing certificate content";
        causes.push(StatusCause::forbidden("status.certificate", why));
    }
}

fn check_each(all: &[Value], causes: &mut Causes) {
    let mut seen = HashSet::new();
    for (at, condition) in all.iter().enumerate() {
        let (name, status) = (text(condition, "type"), text(condition, "status"));
        let field = |member: &str| format!("{FIELD}[{at}].{member}");
        if name.is_empty() {
            causes.push_with(|| StatusCause::required(&field("type"), ""));
        }
        let allowed: &[&str] = if FINAL.contains(&name) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            causes.push_with(|| StatusCause::required(&field("status"), ""));
        } else if !allowed.contains(&status) {
            causes.push_with(|| StatusCause::not_supported(&field("status"), status, allowed));
        }
        if !seen.insert(name) {
            causes.push_with(|| StatusCause::duplicate(&field("type"), &quote(name)));
        }
    }
    if seen.contains(APPROVED) && seen.contains(DENIED) {
        let both = [APPROVED, DENIED].map(|name| format!("conditions[{{\"type\": \"{name}\"}}]"));
        let value = quote(&format!("{{{}}}", both.join(", ")));
        let why = format!("must specify at most one of: `{}`", both.join("`, `"));
        causes.push(StatusCause::invalid(FIELD, &value, &why));
    }
}
