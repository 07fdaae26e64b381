//! Kubernetes' error body: field order and omissions as in kube-apiserver, and the conclusions that clients draw from it.
//! Servers make errors with the crate `informer-serving`.
//!
//! Go's encoder also escapes `<`, `>` and `&` in strings as `\u003c` and so on; this one does not, which is invisible
//! after JSON decoding.
//!
//! INVARIANT: reading never trusts the sender: a member that is missing, null or of the wrong type counts as absent.

mod cause;
mod reason;

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

pub use cause::StatusCause;
pub use reason::{CauseReason, Reason};

/// Text in a Status for a resourceVersion that is ahead of the server; its place depends on the server's version.
pub const TOO_LARGE: &str = "Too large resource version";

/// The object or type that the Status is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Details {
    /// Name of the object.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group; empty for core.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Plural of the resource, or the kind, depending on the error.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Uid of the object.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Individual reasons.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// Seconds to wait; 0 if absent.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "is_zero_u32")]
    pub retry_after_seconds: u32,
}

/// List metadata of a Status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMeta {
    /// Position of the write that the Status answers.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// A token that continues an expired list, inconsistently.
    #[serde(rename = "continue", deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
}

/// A response that is not an object: an error, or the result of a deletion.
///
/// # Source
/// apimachinery `metav1.Status` and `api/errors`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`.
    #[serde(default = "String::new", deserialize_with = "lenient")]
    pub kind: String,
    /// Always `v1`.
    #[serde(deserialize_with = "lenient")]
    pub api_version: String,
    /// Always sent, usually `{}`.
    #[serde(deserialize_with = "lenient")]
    pub metadata: ListMeta,
    /// `Failure` or `Success`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Message for humans.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// One machine-readable word.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Reason::is_unknown")]
    pub reason: Reason,
    /// The object or type concerned.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    /// HTTP status; 0 (omitted) on success.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "is_zero_u16")]
    pub code: u16,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            kind: "Status".into(),
            api_version: "v1".into(),
            metadata: ListMeta::default(),
            status: String::new(),
            message: String::new(),
            reason: Reason::Unknown,
            details: None,
            code: 0,
        }
    }
}

/// Deserializes a member; the wrong type counts as absent.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
const fn is_zero_u32(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
const fn is_zero_u16(number: &u16) -> bool {
    *number == 0
}

impl Status {
    /// Parses a Status; `None` if the bytes are something else. Cost: decodes `bytes`, which the caller bounds
    /// (`limits::ERROR_BODY_BYTES_MAX`).
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().filter(|status: &Self| status.kind == "Status")
    }

    /// Returns the body: compact JSON and a newline.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut body = serde_json::to_vec(self).expect("a Status is strings and numbers");
        body.push(b'\n');
        body
    }

    /// Returns true for a failure.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.status == "Failure"
    }

    /// Returns true if the position or token is too old, so the client must relist.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        match &self.reason {
            Reason::Expired | Reason::Gone => true,
            Reason::Unknown | Reason::Other(_) => self.code == 410,
            Reason::Unauthorized
            | Reason::Forbidden
            | Reason::NotFound
            | Reason::AlreadyExists
            | Reason::Conflict
            | Reason::Invalid
            | Reason::ServerTimeout
            | Reason::Timeout
            | Reason::TooManyRequests
            | Reason::BadRequest
            | Reason::MethodNotAllowed
            | Reason::NotAcceptable
            | Reason::RequestEntityTooLarge
            | Reason::UnsupportedMediaType
            | Reason::InternalError
            | Reason::ServiceUnavailable => false,
        }
    }

    /// Returns true if the requested resourceVersion is ahead of the server (three dialects).
    #[must_use]
    pub fn is_too_large_resource_version(&self) -> bool {
        if self.causes().iter().any(|cause| cause.reason == CauseReason::ResourceVersionTooLarge) {
            return true;
        }
        // 1.17 to 1.18.5 sent the cause without a reason; older ones only the message of a timeout.
        let is_timeout = self.reason == Reason::Timeout || (self.reason.is_unknown() && self.code == 504);
        is_timeout && (self.causes().iter().any(|cause| cause.message == TOO_LARGE) || self.message.contains(TOO_LARGE))
    }

    /// Returns the delay that the server requests.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// The causes; empty if there are none.
    #[must_use]
    pub fn causes(&self) -> &[StatusCause] {
        self.details.as_ref().map_or(&[], |details| &details.causes)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests;
