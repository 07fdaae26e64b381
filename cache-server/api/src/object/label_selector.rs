//! LabelSelectors of objects, in the syntax of selectors.

use serde_json::Value;

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
