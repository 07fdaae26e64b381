//! The reason words in a Status: known ones as variants, others as sent.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Reason of a failed request, in one word.
///
/// # Source
/// apimachinery `metav1.StatusReason`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum Reason {
    /// Absent.
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
    /// 410, permanently.
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
    /// A word unknown to this version.
    Other(String),
}

/// Machine-readable part of a cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum CauseReason {
    /// Absent.
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
    /// A reference to something that does not exist.
    FieldValueNotFound,
    /// A value that is too long.
    FieldValueTooLong,
    /// A list with too many members.
    FieldValueTooMany,
    /// A value of another JSON type.
    FieldValueTypeInvalid,
    /// The requested resourceVersion is ahead of the server.
    ResourceVersionTooLarge,
    /// Server-side apply: another manager owns the field.
    FieldManagerConflict,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The response was not as expected.
    UnexpectedServerResponse,
    /// A word unknown to this version.
    Other(String),
}

macro_rules! words {
    ($name:ident: $($variant:ident),+ $(,)?) => {
        impl $name {
            /// The word on the wire; empty if absent.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    Self::Unknown => "",
                    $(Self::$variant => stringify!($variant),)+
                    Self::Other(word) => word,
                }
            }

            /// Returns true if the word is absent; then it is not sent.
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
