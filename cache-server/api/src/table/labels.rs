//! Formats labels and selectors as Kubernetes does.
//!
//! Source: apimachinery `apis/meta/v1/helpers.go`, `labels/selector.go`, `labels/labels.go`.

use super::json::CellJson;

/// Formats a map of labels: `a=b,c=d`, sorted by key; `<none>` if empty.
pub(crate) fn map(labels: &CellJson<'_>) -> String {
    let mut pairs: Vec<String> =
        labels.members().iter().map(|(key, value)| format!("{key}={}", value.text())).collect();
    pairs.sort_unstable();
    or_none(pairs.join(","))
}

/// Formats a LabelSelector; `<none>` if empty, `<error>` if invalid.
pub(crate) fn selector(selector: &CellJson<'_>) -> String {
    text(selector).map_or_else(|| "<error>".to_owned(), or_none)
}

/// Formats a LabelSelector in the syntax of `labelSelector`; `None` if invalid.
pub(crate) fn text(selector: &CellJson<'_>) -> Option<String> {
    let labels = selector.get("matchLabels").members().iter();
    let labels = labels.map(|(key, value)| Some((key.to_string(), format!("{key}={}", value.text()))));
    let expressions = selector.get("matchExpressions").items().iter().map(requirement);
    let mut requirements = labels.chain(expressions).collect::<Option<Vec<_>>>()?;
    requirements.sort_by(|(left, _), (right, _)| left.cmp(right));
    let texts: Vec<String> = requirements.into_iter().map(|(_, text)| text).collect();
    Some(texts.join(","))
}

/// Returns the key and the text of one of `matchExpressions`.
fn requirement(expression: &CellJson<'_>) -> Option<(String, String)> {
    let key = expression.get("key").text();
    let mut values: Vec<&str> = expression.get("values").items().iter().map(CellJson::text).collect();
    values.sort_unstable();
    let values = values.join(",");
    let text = match expression.get("operator").text() {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "Exists" => key.to_owned(),
        "DoesNotExist" => format!("!{key}"),
        _ => return None,
    };
    Some((key.to_owned(), text))
}

fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}
