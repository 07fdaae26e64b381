//! The envelope of a LIST body: what comes before the items and after them.

/// After the items of a built-in list.
pub const TAIL: &[u8] = b"]}\n";

/// A built-in list up to `"items":[`. `kind` is the list's own (`PodList`).
#[must_use]
pub fn head(
    kind: &str,
    api_version: &str,
    resource_version: u64,
    continue_token: Option<&str>,
    remaining: Option<u64>,
) -> Vec<u8> {
    todo!("{kind} {api_version} {resource_version} {continue_token:?} {remaining:?}")
}

/// A custom resource list up to `"items":[`; the metadata comes after the items, in [`custom_tail`].
#[must_use]
pub fn custom_head(api_version: &str) -> Vec<u8> {
    todo!("{api_version}")
}

/// A custom resource list from the end of its items.
#[must_use]
pub fn custom_tail(kind: &str, resource_version: u64, continue_token: Option<&str>, remaining: Option<u64>) -> Vec<u8> {
    todo!("{kind} {resource_version} {continue_token:?} {remaining:?}")
}
