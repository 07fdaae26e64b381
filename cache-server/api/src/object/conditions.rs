//! Conditions in the status of an object.

use serde_json::Value;

use super::{Object, at, put};

const PATH: &str = "status.conditions";

/// Returns the conditions.
pub(super) fn of(object: &Object) -> &[Value] {
    at(object, PATH).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the condition of this type.
pub(super) fn find<'a>(object: &'a Object, name: &str) -> Option<&'a Value> {
    of(object).iter().find(|condition| condition["type"] == name)
}

/// Adds a condition, or replaces the one of its type. Its transition time is `now`, or that of the replaced one if the status
/// is equal.
pub(super) fn set(object: &mut Object, mut condition: Value, now: &str) {
    let mut all = of(object).to_vec();
    let place = all.iter().position(|old| old["type"] == condition["type"]);
    let same = place.map(|place| &all[place]).filter(|old| old["status"] == condition["status"]);
    let since = same.and_then(|old| old.get("lastTransitionTime")).cloned();
    condition["lastTransitionTime"] = since.unwrap_or_else(|| now.into());
    match place {
        Some(place) => all[place] = condition,
        None => all.push(condition),
    }
    put(object, PATH, all.into());
}
