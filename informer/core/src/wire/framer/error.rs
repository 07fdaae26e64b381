//! Why a body cannot be cut into frames. INVARIANT: never carries a byte of the body.

use crate::wire::json::JsonError;

/// Why a body cannot be cut into frames. Positions count the bytes of the body from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Something else than JSON objects: a proxy's page, another encoding.
    #[error("expected a JSON object, but the body begins like {begins}")]
    NotJson {
        /// What it looks like.
        begins: Begins,
    },
    /// The body ended inside a document, or before the end of a list.
    #[error("the body ends too early, after {after} bytes")]
    Truncated {
        /// Bytes received.
        after: u64,
    },
    /// What stands around objects is larger than allowed.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The limit passed, in bytes.
        limit: usize,
    },
    /// Nested deeper than allowed: around objects, or an object deeper than one may be that is skipped.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// The limit passed, in levels.
        limit: usize,
    },
    /// Not JSON from here on.
    #[error("malformed JSON at byte {at}")]
    Malformed {
        /// Position of the first byte that is wrong.
        at: u64,
    },
    /// JSON, but no watch event and no list of objects.
    #[error("JSON of an unexpected shape at byte {at}")]
    Unexpected {
        /// Position of the value, or of its document.
        at: u64,
    },
    /// Something follows a complete list.
    #[error("something follows the list at byte {at}")]
    Trailing {
        /// Position of the first such byte.
        at: u64,
    },
}

/// What a body that is no JSON object looks like, told by its first byte that is not white space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// HTML or XML.
    Markup,
    /// gzip.
    Gzip,
    /// JSON, but no object.
    OtherJson,
    /// Some other text.
    Text,
    /// Neither text nor gzip.
    Binary,
}

impl Begins {
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

impl std::fmt::Display for Begins {
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
    /// The same error, told in positions of the body instead of a document that begins at `by`.
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
            // Running out of input is no error while framing; the position is only known to the framer.
            JsonError::Ended => Self::Truncated { after: 0 },
        }
    }
}
