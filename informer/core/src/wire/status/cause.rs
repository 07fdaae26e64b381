//! Individual causes in a Status, usually about one field.

use serde::{Deserialize, Serialize};

use super::{lenient, reason::CauseReason};

/// One cause of a Status, usually about one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// Machine-readable part.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "CauseReason::is_unknown")]
    pub reason: CauseReason,
    /// Message for humans.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Dotted path of the field: `metadata.name`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "String::is_empty")]
    pub field: String,
}
