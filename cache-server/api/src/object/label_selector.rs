//! LabelSelectors of objects, in the syntax of selectors.

use std::borrow::Cow;

use informer_core::selector::label;
use serde_json::Value;

use super::Object;

/// A LabelSelector, parsed.
#[derive(Debug)]
pub struct LabelSelector(label::Selector);

impl LabelSelector {
    /// Parses a LabelSelector. Returns `None` if its operators, keys or values are none.
    #[must_use]
    pub fn read(selector: &Value) -> Option<Self> {
        let count = |member: &str| match selector.get(member) {
            Some(Value::Object(labels)) => labels.len(),
            Some(Value::Array(expressions)) => expressions.len(),
            _ => 0,
        };
        let parsed = label::Selector::parse(&text(selector)?).ok()?;
        // A value with a comma is none.
        (parsed.len() == count("matchLabels") + count("matchExpressions")).then_some(Self(parsed))
    }

    /// True if it selects everything.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if it selects an object with these labels.
    #[must_use]
    pub fn selects_labels<'a>(&self, label: impl FnMut(&str) -> Option<Cow<'a, str>>) -> bool {
        self.0.matches(label)
    }

    /// True if it selects the object.
    #[must_use]
    pub fn selects(&self, object: &Object) -> bool {
        let label = |key: &str| object.get("metadata")?.get("labels")?.get(key)?.as_str();
        self.0.matches(|key| label(key).map(Into::into))
    }
}

/// Formats a LabelSelector; empty if it selects everything. Returns `None` if it has an unknown operator.
pub(super) fn text(selector: &Value) -> Option<String> {
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let mut all = terms(selector.get("matchLabels"));
    for one in expressions.into_iter().flatten() {
        all.push(expression(one)?);
    }
    all.sort();
    Some(all.join(","))
}

/// Formats the labels of a map, one term each.
pub(super) fn terms(map: Option<&Value>) -> Vec<String> {
    let map = map.and_then(Value::as_object).into_iter().flatten();
    map.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect()
}

fn expression(expression: &Value) -> Option<String> {
    let key = expression.get("key")?.as_str()?;
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
    values.sort_unstable();
    Some(match expression.get("operator")?.as_str()? {
        "In" => format!("{key} in ({})", values.join(",")),
        "NotIn" => format!("{key} notin ({})", values.join(",")),
        "Exists" => key.to_owned(),
        "DoesNotExist" => format!("!{key}"),
        _ => return None,
    })
}
