//! Prefixes of types and values of objects, as Kubernetes has them in etcd.

use std::borrow::Cow;

use crate::registry::ResourceType;

/// A value that is no object of its type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum StoredValueError {
    /// It is encrypted at rest.
    #[error("the value is encrypted at rest by {provider}")]
    Encrypted {
        /// Kind and name of the provider.
        provider: String,
    },
    /// It is no JSON.
    #[error("the value is no JSON object")]
    Malformed,
}

/// Returns the prefix of a type below the root, with a slash at its end.
pub(super) fn key_prefix(ty: &ResourceType) -> String {
    match (&*ty.group, &*ty.plural) {
        (group, plural) if ty.custom.is_some() => format!("{group}/{plural}/"),
        ("", "nodes") => "minions/".to_owned(),
        ("", "services") => "services/specs/".to_owned(),
        ("", "endpoints") => "services/endpoints/".to_owned(),
        ("", "replicationcontrollers") => "controllers/".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress/".to_owned(),
        (group @ ("apiextensions.k8s.io" | "apiregistration.k8s.io"), plural) => format!("{group}/{plural}/"),
        (_, plural) => format!("{plural}/"),
    }
}

/// Returns the JSON of a value.
pub(super) fn decode_value<'a>(_: &ResourceType, value: &'a [u8]) -> Result<Cow<'a, [u8]>, StoredValueError> {
    const ENCRYPTED: &[u8] = b"k8s:enc:";
    if value.starts_with(b"{") {
        return Ok(Cow::Borrowed(value));
    }
    let provider = value.strip_prefix(ENCRYPTED).ok_or(StoredValueError::Malformed)?;
    let provider = provider.split(|&byte| byte == b':').take(2).map(String::from_utf8_lossy).collect::<Vec<_>>();
    Err(StoredValueError::Encrypted { provider: provider.join(" ") })
}
