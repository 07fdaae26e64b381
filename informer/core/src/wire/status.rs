//! Kubernetes' error body, in and out: field order, omissions and texts as kube-apiserver sends them.
//!
//! Go's encoder also escapes `<`, `>` and `&` in strings as `\u003c` and so on; ours does not, and no client can tell
//! once the JSON is read.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

/// Why a request failed, in one word.
///
/// # Source
/// apimachinery `metav1.StatusReason`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Reason {
    /// None given.
    #[default]
    Unknown,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 409 on create.
    AlreadyExists,
    /// 409 on a stale write.
    Conflict,
    /// 410, for good.
    Gone,
    /// 422.
    Invalid,
    /// 500, try again.
    ServerTimeout,
    /// 504.
    Timeout,
    /// 429.
    TooManyRequests,
    /// 400.
    BadRequest,
    /// 405.
    MethodNotAllowed,
    /// 406.
    NotAcceptable,
    /// 413.
    RequestEntityTooLarge,
    /// 415.
    UnsupportedMediaType,
    /// 500.
    InternalError,
    /// 410: the position or the token is too old.
    Expired,
    /// 503.
    ServiceUnavailable,
    /// One this version does not know.
    Other(String),
}

/// Machine-readable part of a cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum CauseReason {
    /// None given.
    #[default]
    Unknown,
    /// A required field is empty.
    FieldValueRequired,
    /// A value that must be unique is repeated.
    FieldValueDuplicate,
    /// A malformed value.
    FieldValueInvalid,
    /// A value outside an enumeration.
    FieldValueNotSupported,
    /// A value that is well formed but not allowed here.
    FieldValueForbidden,
    /// A value that names something that does not exist.
    FieldValueNotFound,
    /// A value that is too long.
    FieldValueTooLong,
    /// A list with too many members.
    FieldValueTooMany,
    /// A value of another JSON type.
    FieldValueTypeInvalid,
    /// The asked resourceVersion lies in the future.
    ResourceVersionTooLarge,
    /// Server-side apply: another manager owns the field.
    FieldManagerConflict,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The answer was not what was expected.
    UnexpectedServerResponse,
    /// One this version does not know.
    Other(String),
}

/// One of several reasons, usually about one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// Machine-readable part.
    #[serde(skip_serializing_if = "CauseReason::is_unknown")]
    pub reason: CauseReason,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Dotted path of the field: `metadata.name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// What the Status is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Details {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group; empty for core.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Plural of the resource, or the kind, as each error has it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Uid of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// More reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Seconds to wait; 0 for none.
    #[serde(skip_serializing_if = "is_zero_u32")]
    pub retry_after_seconds: u32,
}

/// List metadata of a Status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMeta {
    /// Position of the write that the Status answers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// A token that continues an expired list, inconsistently.
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    pub continue_token: String,
}

/// An answer that is no object.
///
/// # Source
/// apimachinery `metav1.Status` and `api/errors`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// Always `Status`.
    pub kind: String,
    /// Always `v1`.
    pub api_version: String,
    /// Always sent, mostly `{}`.
    pub metadata: ListMeta,
    /// `Failure` or `Success`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// One word.
    #[serde(skip_serializing_if = "Reason::is_unknown")]
    pub reason: Reason,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    /// HTTP status; 0 (omitted) on success.
    #[serde(skip_serializing_if = "is_zero_u16")]
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

macro_rules! words {
    ($name:ident: $($variant:ident),+ $(,)?) => {
        impl $name {
            /// The word on the wire; empty when there is none.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    Self::Unknown => "",
                    $(Self::$variant => stringify!($variant),)+
                    Self::Other(word) => word,
                }
            }

            /// Whether no word was given; then nothing is sent.
            #[must_use]
            pub const fn is_unknown(&self) -> bool {
                matches!(self, Self::Unknown)
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                match word.as_str() {
                    "" => Self::Unknown,
                    $(stringify!($variant) => Self::$variant,)+
                    _ => Self::Other(word),
                }
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.as_str().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words!(
    Reason: Unauthorized, Forbidden, NotFound, AlreadyExists, Conflict, Gone, Invalid, ServerTimeout, Timeout,
    TooManyRequests, BadRequest, MethodNotAllowed, NotAcceptable, RequestEntityTooLarge, UnsupportedMediaType,
    InternalError, Expired, ServiceUnavailable,
);
words!(
    CauseReason: FieldValueRequired, FieldValueDuplicate, FieldValueInvalid, FieldValueNotSupported,
    FieldValueForbidden, FieldValueNotFound, FieldValueTooLong, FieldValueTooMany, FieldValueTypeInvalid,
    ResourceVersionTooLarge, FieldManagerConflict, NamespaceTerminating, UnexpectedServerResponse,
);

impl Cause {
    /// `text` about `field`: the message of the Status gets `field: text`.
    #[must_use]
    pub fn new(reason: CauseReason, field: &str, text: &str) -> Self {
        Self { reason, message: text.into(), field: field.into() }
    }

    /// `Forbidden: why`.
    #[must_use]
    pub fn forbidden(field: &str, why: &str) -> Self {
        Self::new(CauseReason::FieldValueForbidden, field, &format!("Forbidden: {why}"))
    }

    /// `Required value: why`, or `Required value` alone.
    #[must_use]
    pub fn required(field: &str, why: &str) -> Self {
        Self::new(CauseReason::FieldValueRequired, field, &with_detail("Required value", why))
    }

    /// `Invalid value: value: why`. `value` is printed as given: quote texts with [`quote`].
    #[must_use]
    pub fn invalid(field: &str, value: &str, why: &str) -> Self {
        Self::new(CauseReason::FieldValueInvalid, field, &with_detail(&format!("Invalid value: {value}"), why))
    }

    /// `Duplicate value: value`. `value` is printed as given.
    #[must_use]
    pub fn duplicate(field: &str, value: &str) -> Self {
        Self::new(CauseReason::FieldValueDuplicate, field, &format!("Duplicate value: {value}"))
    }

    /// `Unsupported value: "value": supported values: "a", "b"`.
    #[must_use]
    pub fn not_supported(field: &str, value: &str, supported: &[&str]) -> Self {
        let supported = supported.iter().map(|value| quote(value)).collect::<Vec<_>>().join(", ");
        let text =
            with_detail(&format!("Unsupported value: {}", quote(value)), &format!("supported values: {supported}"));
        Self::new(CauseReason::FieldValueNotSupported, field, &text)
    }
}

fn with_detail(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") }
}

/// A text in double quotes as Go's `%q` prints it.
#[must_use]
pub fn quote(text: &str) -> String {
    format!("{text:?}")
}

/// `pods` or `deployments.apps`, as messages name a resource or a kind.
#[must_use]
pub fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
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
    fn failure(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        Self { status: "Failure".into(), message: message.into(), reason, code, ..Self::default() }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        let details = self.details.get_or_insert_default();
        details.group = group.into();
        details.kind = kind.into();
        details.name = name.into();
        self
    }

    fn with_causes(mut self, causes: Vec<Cause>) -> Self {
        self.details.get_or_insert_default().causes = causes;
        self
    }

    fn after_seconds(mut self, seconds: u32) -> Self {
        if seconds > 0 {
            self.details.get_or_insert_default().retry_after_seconds = seconds;
        }
        self
    }

    /// 404: `pods "x" not found`.
    #[must_use]
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {} not found", qualified(group, plural), quote(name));
        Self::failure(404, Reason::NotFound, message).about(group, plural, name)
    }

    /// 409: `pods "x" already exists`.
    #[must_use]
    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} {} already exists", qualified(group, plural), quote(name));
        Self::failure(409, Reason::AlreadyExists, message).about(group, plural, name)
    }

    /// 409: `Operation cannot be fulfilled on pods "x": text`.
    #[must_use]
    pub fn conflict(group: &str, plural: &str, name: &str, text: &str) -> Self {
        let what = qualified(group, plural);
        let message = format!("Operation cannot be fulfilled on {what} {}: {text}", quote(name));
        Self::failure(409, Reason::Conflict, message).about(group, plural, name)
    }

    /// 409 for a stale resourceVersion, with the text every client knows.
    #[must_use]
    pub fn modified(group: &str, plural: &str, name: &str) -> Self {
        let text = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, plural, name, text)
    }

    /// 422: `Pod "x" is invalid: field: text`, or `[first, second]` of several causes.
    #[must_use]
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        todo!("{group} {kind} {name} {causes:?}")
    }

    /// 422 for query options: `ListOptions.meta.k8s.io "" is invalid: …`.
    #[must_use]
    pub fn invalid_options(kind: &str, causes: Vec<Cause>) -> Self {
        Self::invalid("meta.k8s.io", kind, "", causes)
    }

    /// 422 without a field: the server rejected the request as such (a failed JSON patch).
    #[must_use]
    pub fn generic_invalid() -> Self {
        todo!()
    }

    /// 400 with `text`.
    #[must_use]
    pub fn bad_request(text: impl Into<String>) -> Self {
        Self::failure(400, Reason::BadRequest, text)
    }

    /// 401.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::failure(401, Reason::Unauthorized, "Unauthorized")
    }

    /// 403: `pods "x" is forbidden: text`.
    #[must_use]
    pub fn forbidden(group: &str, plural: &str, name: &str, text: &str) -> Self {
        let message = format!("{} {} is forbidden: {text}", qualified(group, plural), quote(name));
        Self::failure(403, Reason::Forbidden, message).about(group, plural, name)
    }

    /// 405: `watch is not supported on resources of kind "pods"`.
    #[must_use]
    pub fn method_not_supported(group: &str, plural: &str, verb: &str) -> Self {
        todo!("{group} {plural} {verb}")
    }

    /// 405 for a method no handler takes.
    #[must_use]
    pub fn generic_method_not_allowed() -> Self {
        Self::failure(405, Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
            .about("", "", "")
    }

    /// 404 for a path inside a served group and version, with empty details.
    #[must_use]
    pub fn generic_not_found() -> Self {
        Self::failure(404, Reason::NotFound, "the server could not find the requested resource").about("", "", "")
    }

    /// 406: the media types this server has, joined by `, `.
    #[must_use]
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        todo!("{accepted:?}")
    }

    /// 415: the media types a body may have.
    #[must_use]
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        todo!("{accepted:?}")
    }

    /// 415 for a type that no handler of the path takes.
    #[must_use]
    pub fn generic_unsupported_media_type() -> Self {
        Self::failure(415, Reason::UnsupportedMediaType, "415: Unsupported Media Type").about("", "", "")
    }

    /// 410 Gone with `text`.
    #[must_use]
    pub fn gone(text: impl Into<String>) -> Self {
        Self::failure(410, Reason::Gone, text)
    }

    /// 410 Expired with `text`.
    #[must_use]
    pub fn expired(text: impl Into<String>) -> Self {
        Self::failure(410, Reason::Expired, text)
    }

    /// In-stream 410: `oldest` is the oldest resourceVersion a watch may start from.
    #[must_use]
    pub fn expired_watch(asked: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {asked} ({oldest})"))
    }

    /// 410 for a list at an exact resourceVersion that is no longer kept.
    #[must_use]
    pub fn expired_list() -> Self {
        Self::expired("The resourceVersion for the provided list is too old.")
    }

    /// 410 for a page; `metadata.continue` is `inconsistent_token`.
    #[must_use]
    pub fn expired_continue(inconsistent_token: impl Into<String>) -> Self {
        let _: String = inconsistent_token.into();
        todo!()
    }

    /// 504: `Timeout: text`.
    #[must_use]
    pub fn timeout(text: &str, retry_after_seconds: u32) -> Self {
        Self::failure(504, Reason::Timeout, format!("Timeout: {text}"))
            .about("", "", "")
            .after_seconds(retry_after_seconds)
    }

    /// 504 for a resourceVersion that did not come within the time a request may wait.
    #[must_use]
    pub fn too_large_resource_version(asked: u64, current: u64) -> Self {
        Self::timeout(&format!("Too large resource version: {asked}, current: {current}"), 1)
            .with_causes(vec![Cause::new(CauseReason::ResourceVersionTooLarge, "", "Too large resource version")])
    }

    /// 429 with `text`.
    #[must_use]
    pub fn too_many_requests(text: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::failure(429, Reason::TooManyRequests, text).after_seconds(retry_after_seconds)
    }

    /// 500: `Internal error occurred: text`.
    #[must_use]
    pub fn internal(text: &str) -> Self {
        todo!("{text}")
    }

    /// 500 with `text` and neither reason nor details: errors kube-apiserver does not map.
    #[must_use]
    pub fn unmapped(text: impl Into<String>) -> Self {
        Self::failure(500, Reason::Unknown, text)
    }

    /// 503 with `text`.
    #[must_use]
    pub fn unavailable(text: impl Into<String>) -> Self {
        Self::failure(503, Reason::ServiceUnavailable, text)
    }

    /// 413: `Request entity too large: text`.
    #[must_use]
    pub fn request_entity_too_large(text: &str) -> Self {
        Self::failure(413, Reason::RequestEntityTooLarge, format!("Request entity too large: {text}"))
    }

    /// 200 after a delete that returns no object.
    #[must_use]
    pub fn deleted(group: &str, plural: &str, name: &str, uid: &str) -> Self {
        todo!("{group} {plural} {name} {uid}")
    }

    /// Reads a Status; `None` when the bytes are something else.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        todo!("{bytes:?}")
    }

    /// The body: compact JSON and a newline.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        todo!()
    }

    /// Whether it is a failure.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.status == "Failure"
    }

    /// Whether the position or token is too old: relist.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        todo!()
    }

    /// Whether the asked resourceVersion lies in the server's future (three dialects).
    #[must_use]
    pub fn is_too_large_resource_version(&self) -> bool {
        todo!()
    }

    /// How long the server asks to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// The causes; empty when there are none.
    #[must_use]
    pub fn causes(&self) -> &[Cause] {
        self.details.as_ref().map_or(&[], |details| &details.causes)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}
