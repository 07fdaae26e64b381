//! The envelope of a LIST body: its parts before and after the items.
//!
//! INVARIANT: a body is head, items joined by commas, tail: one line of JSON. Built-in types have their metadata before
//! the items; custom resources, which kube-apiserver keeps as unstructured maps with sorted keys, after them.

/// Tail of a built-in list.
pub const TAIL: &[u8] = b"]}\n";

/// Separator of two items.
pub const SEPARATOR: &[u8] = b",";

/// Returns a built-in list up to `"items":[`. `kind` is the list's own (`PodList`).
///
/// `remaining` counts objects and is optional; kube-apiserver sends it with a token and without selectors.
#[must_use]
pub fn head(
    kind: &str,
    api_version: &str,
    resource_version: u64,
    continue_token: Option<&str>,
    remaining: Option<u64>,
) -> Vec<u8> {
    let mut out = opening(kind, api_version, resource_version, continue_token, remaining);
    out.extend_from_slice(br#","items":["#);
    out
}

/// Returns the start of a list that has its metadata in front, up to the end of the metadata.
#[must_use]
pub fn opening(
    kind: &str,
    api_version: &str,
    resource_version: u64,
    continue_token: Option<&str>,
    remaining: Option<u64>,
) -> Vec<u8> {
    let mut out = format!(
        r#"{{"kind":{},"apiVersion":{},"metadata":{{"resourceVersion":"{resource_version}""#,
        text(kind),
        text(api_version)
    );
    if let Some(token) = continue_token {
        out.push_str(&format!(r#","continue":{}"#, text(token)));
    }
    if let Some(remaining) = remaining {
        out.push_str(&format!(r#","remainingItemCount":{remaining}"#));
    }
    out.push('}');
    out.into_bytes()
}

/// Returns a custom resource list up to `"items":[`; [`custom_tail`] returns the rest.
#[must_use]
pub fn custom_head(api_version: &str) -> Vec<u8> {
    format!(r#"{{"apiVersion":{},"items":["#, text(api_version)).into_bytes()
}

/// Returns the rest of a custom resource list after its items. It contains `continue` even if empty, as in
/// kube-apiserver.
#[must_use]
pub fn custom_tail(kind: &str, resource_version: u64, continue_token: Option<&str>, remaining: Option<u64>) -> Vec<u8> {
    let remaining = remaining.map(|count| format!(r#""remainingItemCount":{count},"#)).unwrap_or_default();
    format!(
        "],\"kind\":{},\"metadata\":{{\"continue\":{},{remaining}\"resourceVersion\":\"{resource_version}\"}}}}\n",
        text(kind),
        text(continue_token.unwrap_or_default())
    )
    .into_bytes()
}

/// A JSON string.
fn text(text: &str) -> serde_json::Value {
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(head: Vec<u8>, items: &str, tail: &[u8]) -> String {
        String::from_utf8([&head, items.as_bytes(), tail].concat()).unwrap()
    }

    #[test]
    fn built_in_lists_look_like_those_of_the_api_server() {
        for (continue_token, remaining, expected) in [
            (
                None,
                None,
                r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"82"},"items":[]}"#,
            ),
            (
                Some("eyJ2"),
                Some(3),
                r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"82","continue":"eyJ2","remainingItemCount":3},"items":[]}"#,
            ),
            (
                Some("eyJ2"),
                None,
                r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"82","continue":"eyJ2"},"items":[]}"#,
            ),
        ] {
            let head = head("ConfigMapList", "v1", 82, continue_token, remaining);
            assert_eq!(body(head, "", TAIL), format!("{expected}\n"));
        }
    }

    #[test]
    fn custom_lists_have_sorted_members_and_always_a_token() {
        for (continue_token, remaining, expected) in [
            (None, None, r#"{"continue":"","resourceVersion":"189"}"#),
            (Some("t"), Some(7), r#"{"continue":"t","remainingItemCount":7,"resourceVersion":"189"}"#),
        ] {
            let tail = custom_tail("FooList", 189, continue_token, remaining);
            assert_eq!(
                body(custom_head("cr.bar.com/v1"), "{}", &tail),
                format!(r#"{{"apiVersion":"cr.bar.com/v1","items":[{{}}],"kind":"FooList","metadata":{expected}}}"#)
                    + "\n"
            );
        }
    }
}
