//! Errors of a body that cannot be cut into frames. INVARIANT: they never contain a byte of the body.

use crate::wire::json::JsonError;

/// Error in a body that cannot be cut into frames. Positions count the bytes of the body from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The body is not JSON objects, but for example a proxy's page, or encoded.
    #[error("expected a JSON object, but the body begins like {begins}")]
    NotJson {
        /// Kind of the content.
        begins: ForeignBody,
    },
    /// The body ended inside a document, or before the end of a list.
    #[error("the body ends too early, after {after} bytes")]
    Truncated {
        /// Bytes received.
        after: u64,
    },
    /// The envelope around objects exceeds its limit.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// Nested too deep: an envelope, or a skipped object beyond the limit for those.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// The limit, in levels.
        limit: usize,
    },
    /// Malformed JSON.
    #[error("malformed JSON at byte {at}")]
    Malformed {
        /// Position of the first byte that is wrong.
        at: u64,
    },
    /// Valid JSON, but neither watch events nor a list of objects.
    #[error("JSON of an unexpected shape at byte {at}")]
    Unexpected {
        /// Position of the value, or of its document.
        at: u64,
    },
    /// Bytes follow a complete list.
    #[error("something follows the list at byte {at}")]
    Trailing {
        /// Position of the first such byte.
        at: u64,
    },
}

/// Kind of a body that is not a JSON object, guessed from its first byte that is not white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignBody {
    /// HTML or XML.
    Markup,
    /// gzip.
    Gzip,
    /// JSON, but not an object.
    OtherJson,
    /// Some other text.
    Text,
    /// Neither text nor gzip.
    Binary,
}

impl ForeignBody {
    pub(super) const fn with(byte: u8) -> Self {
        match byte {
            b'<' => Self::Markup,
            0x1f => Self::Gzip,
            b'[' | b'"' | b'-' | b'0'..=b'9' => Self::OtherJson,
            b'\t' | b'\n' | b'\r' | b' '..=b'~' => Self::Text,
            _ => Self::Binary,
        }
    }
}

impl std::fmt::Display for ForeignBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Markup => "HTML or XML",
            Self::Gzip => "gzip",
            Self::OtherJson => "another JSON value",
            Self::Text => "plain text",
            Self::Binary => "binary data",
        })
    }
}

impl FrameError {
    /// Converts positions from a document that begins at `by` to positions in the body.
    pub(super) const fn shifted(self, by: u64) -> Self {
        match self {
            Self::Malformed { at } => Self::Malformed { at: at + by },
            Self::NotJson { .. }
            | Self::Truncated { .. }
            | Self::TooLarge { .. }
            | Self::TooDeep { .. }
            | Self::Unexpected { .. }
            | Self::Trailing { .. } => self,
        }
    }
}

impl From<JsonError> for FrameError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Malformed { at } => Self::Malformed { at },
            JsonError::TooDeep { limit } => Self::TooDeep { limit },
            // The framer asks for more input instead of failing with this error, and knows the position itself.
            JsonError::Ended => Self::Truncated { after: 0 },
        }
    }
}
