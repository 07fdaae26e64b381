//! Equality of values for rules about what may not change.
//!
//! Source: apimachinery `pkg/api/equality`.

use api_rules::object::Object;
use serde_json::Value;

use crate::quantity::Quantity;

/// Members whose values are quantities.
const AMOUNTS: [&str; 5] = ["allocatedResources", "capacity", "limits", "overhead", "requests"];

/// Members whose keys are a client's: one with an empty value is present.
const MAPS: [&str; 5] = ["annotations", "labels", "matchLabels", "nodeSelector", "parameters"];

/// True if two values of a member are equal: absent ones and zero values are, and two forms of one quantity.
///
/// Go has pointers that tell an absent value from zero. They are not known here: too many values are equal, not too
/// few.
pub(super) fn is_same(member: &str, one: Option<&Value>, other: Option<&Value>) -> bool {
    is_same_inside(["", member], one, other)
}

/// True if two lists have the same items, but for some members.
pub(super) fn have_same_items(ignored: &[&str], one: Option<&Value>, other: Option<&Value>) -> bool {
    let [one, other] = [one, other].map(|list| list.and_then(Value::as_array).map_or(&[][..], Vec::as_slice));
    let mut pairs = one.iter().zip(other);
    one.len() == other.len()
        && pairs.all(|(one, other)| {
            let mut names = [one, other].into_iter().filter_map(Value::as_object).flat_map(Object::keys);
            names.all(|name| ignored.contains(&name.as_str()) || is_same(name, one.get(name), other.get(name)))
        })
}

/// `members`: the names of the two innermost members that the values are in.
fn is_same_inside(members: [&str; 2], one: Option<&Value>, other: Option<&Value>) -> bool {
    let [holder, member] = members;
    match (one, other) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let mut own = one.iter();
            let mut others = other.iter().filter(|(name, _)| !one.contains_key(*name));
            own.all(|(name, value)| is_same_inside([member, name], Some(value), other.get(name)))
                && others.all(|(name, value)| is_same_inside([member, name], None, Some(value)))
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same_inside(members, Some(one), Some(other)))
        }
        (Some(Value::String(one)), Some(Value::String(other))) => {
            one == other || (is_quantity(holder, member) && is_same_quantity(one, other))
        }
        (Some(value), None) | (None, Some(value)) => is_zero(value) && !MAPS.contains(&holder),
        (one, other) => one == other || (one.is_none_or(is_zero) && other.is_none_or(is_zero)),
    }
}

fn is_quantity(holder: &str, member: &str) -> bool {
    AMOUNTS.contains(&holder)
        || [("emptyDir", "sizeLimit"), ("resourceFieldRef", "divisor")].contains(&(holder, member))
}

fn is_same_quantity(one: &str, other: &str) -> bool {
    match (Quantity::parse(one), Quantity::parse(other)) {
        (Ok(one), Ok(other)) => one.billionths == other.billionths,
        _ => false,
    }
}

/// True for a value that Go's encoder may leave out.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_zero),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: no update is refused that changes nothing for Go. Method: pairs of values, and whether they are equal.
    #[test]
    fn zero_values_are_absent_and_quantities_have_forms() {
        for (one, other, expected) in [
            (json!({}), json!({"a": false, "b": 0, "c": "", "d": [], "e": {}, "f": null}), true),
            (json!({}), json!({"resources": {"limits": {}}}), true),
            (json!({}), json!({"a": true}), false),
            (json!({"a": ""}), json!({"a": null}), true),
            (json!({"a": 1}), json!({"a": 0}), false),
            (json!({"a": [""]}), json!({"a": []}), false),
            (json!({"labels": {}}), json!({}), true),
            (json!({"labels": {"a": ""}}), json!({"labels": {}}), false),
            (json!({"resources": {"limits": {"cpu": "1"}}}), json!({"resources": {"limits": {"cpu": "1000m"}}}), true),
            (json!({"overhead": {"cpu": "1"}}), json!({"overhead": {"cpu": "1000m"}}), true),
            (json!({"emptyDir": {"sizeLimit": "1Ki"}}), json!({"emptyDir": {"sizeLimit": "1024"}}), true),
            (json!({"args": ["1"]}), json!({"args": ["1000m"]}), false),
            (json!({"env": [{"value": "1"}]}), json!({"env": [{"value": "1000m"}]}), false),
            (json!({"matchLabels": {"limits": "1"}}), json!({"matchLabels": {"limits": "1000m"}}), false),
        ] {
            assert_eq!(is_same("spec", Some(&one), Some(&other)), expected, "{one} {other}");
            assert_eq!(is_same("spec", Some(&other), Some(&one)), expected, "{other} {one}");
        }
        assert!(is_same("requests", Some(&json!({"cpu": "1"})), Some(&json!({"cpu": "1000m"}))));
    }
}
