//! The token that continues a paged LIST.

/// Where the next page reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The list's own resourceVersion.
    At(u64),
    /// The latest state: what the token of an expired list offers.
    Latest,
}

/// A position and the key to start from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContinueToken {
    /// Where the next page reads.
    pub resource_version: Position,
    /// First key wanted, relative to the list's prefix, without leading slash: last key returned and a NUL byte.
    pub start: String,
}

/// Why a token is refused; the text is kube-apiserver's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("continue key is not valid: {0}")]
pub struct ContinueError(pub String);

impl ContinueToken {
    /// The token as text: base64 in the URL alphabet, unpadded.
    #[must_use]
    pub fn encode(&self) -> String {
        todo!()
    }

    /// Reads a token.
    ///
    /// # Errors
    /// [`ContinueError`] with kube-apiserver's text.
    pub fn decode(text: &str) -> Result<Self, ContinueError> {
        todo!("{text}")
    }
}
