//! The envelope of a LIST body: its parts before and after the items.
//!
//! INVARIANT: a body is head, items joined by commas, tail: one line of JSON. Built-in types have their metadata before
//! the items; custom resources, which kube-apiserver keeps as unstructured maps with sorted keys, after them.

/// Tail of a built-in list.
pub const TAIL: &[u8] = b"]}\n";

/// Separator of two items.
pub const SEPARATOR: &[u8] = b",";

/// Metadata of a list.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListMetadata<'a> {
    /// Position of the list.
    pub resource_version: u64,
    /// Token of the next page, if there is one.
    pub continue_token: Option<&'a str>,
    /// Number of objects behind the page, if known; kube-apiserver sends it with a token and without selectors.
    pub remaining: Option<u64>,
    /// Canonical text of the shard selector that was applied.
    pub shard: Option<&'a str>,
}

/// Returns a built-in list up to `"items":[`. `kind` is the list's own (`PodList`).
#[must_use]
pub fn head(kind: &str, api_version: &str, meta: &ListMetadata<'_>) -> Vec<u8> {
    let mut out = opening(kind, api_version, meta);
    out.extend_from_slice(br#","items":["#);
    out
}

/// Returns the start of a list that has its metadata in front, up to the end of the metadata.
#[must_use]
pub fn opening(kind: &str, api_version: &str, meta: &ListMetadata<'_>) -> Vec<u8> {
    let ListMetadata { resource_version, continue_token, remaining, shard } = *meta;
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
    out.push_str(&shard_info(shard));
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
pub fn custom_tail(kind: &str, meta: &ListMetadata<'_>) -> Vec<u8> {
    let ListMetadata { resource_version, continue_token, remaining, shard } = *meta;
    let remaining = remaining.map(|count| format!(r#""remainingItemCount":{count},"#)).unwrap_or_default();
    format!(
        "],\"kind\":{},\"metadata\":{{\"continue\":{},{remaining}\"resourceVersion\":\"{resource_version}\"{}}}}}\n",
        text(kind),
        text(continue_token.unwrap_or_default()),
        shard_info(shard)
    )
    .into_bytes()
}

/// The last member of a list's metadata, with a comma before it. kube-apiserver sends it in lists of whole objects of
/// built-in types only; here it is in every list, so that a client can check what it received.
fn shard_info(shard: Option<&str>) -> String {
    shard.map(|selector| format!(r#","shardInfo":{{"selector":{}}}"#, text(selector))).unwrap_or_default()
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
        let list = |continue_token, remaining, shard, expected: &str| {
            let meta = ListMetadata { resource_version: 82, continue_token, remaining, shard };
            let body = body(head("ConfigMapList", "v1", &meta), "", TAIL);
            let meta = format!(r#"{{"resourceVersion":"82"{expected}}}"#);
            assert_eq!(
                body,
                format!("{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{meta},\"items\":[]}}\n")
            );
        };
        list(None, None, None, "");
        list(Some("eyJ2"), Some(3), None, r#","continue":"eyJ2","remainingItemCount":3"#);
        list(Some("eyJ2"), None, None, r#","continue":"eyJ2""#);
        list(Some("eyJ2"), None, Some("s('0x')"), r#","continue":"eyJ2","shardInfo":{"selector":"s('0x')"}"#);
    }

    #[test]
    fn custom_lists_have_sorted_members_and_always_a_token() {
        for (continue_token, remaining, shard, expected) in [
            (None, None, None, r#"{"continue":"","resourceVersion":"189"}"#),
            (Some("t"), Some(7), None, r#"{"continue":"t","remainingItemCount":7,"resourceVersion":"189"}"#),
            (None, None, Some("s"), r#"{"continue":"","resourceVersion":"189","shardInfo":{"selector":"s"}}"#),
        ] {
            let tail =
                custom_tail("FooList", &ListMetadata { resource_version: 189, continue_token, remaining, shard });
            assert_eq!(
                body(custom_head("cr.bar.com/v1"), "{}", &tail),
                format!(r#"{{"apiVersion":"cr.bar.com/v1","items":[{{}}],"kind":"FooList","metadata":{expected}}}"#)
                    + "\n"
            );
        }
    }
}
