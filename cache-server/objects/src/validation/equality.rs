//! Equality of values for rules about what may not change.
//!
//! Source: apimachinery `pkg/api/equality`.

use serde_json::Value;

use crate::quantity::Quantity;

/// True if two values are equal: absent ones and empty lists and maps are, and texts of the same quantity.
pub(super) fn is_same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            one.iter().all(|(name, value)| is_same(Some(value), other.get(name)))
                && other.iter().all(|(name, value)| one.contains_key(name) || is_empty(Some(value)))
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(Some(one), Some(other)))
        }
        (Some(Value::String(one)), Some(Value::String(other))) => one == other || is_same_quantity(one, other),
        (one, other) => one == other || (is_empty(one) && is_empty(other)),
    }
}

fn is_same_quantity(one: &str, other: &str) -> bool {
    match (Quantity::parse(one), Quantity::parse(other)) {
        (Ok(one), Ok(other)) => one.billionths == other.billionths,
        _ => false,
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(members)) => members.is_empty(),
        Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => false,
    }
}
