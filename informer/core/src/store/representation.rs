//! How an object's bytes are kept. One way so far; readers only see JSON, so that others can come.

use std::borrow::Cow;

/// How a store keeps the bytes of its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Representation {
    /// As JSON, trimmed as it was received.
    #[default]
    Json,
}

/// The bytes of one object.
pub(super) enum Body {
    Json(Box<[u8]>),
}

impl Body {
    /// Keeps a copy of `json`.
    pub(super) fn new(json: &[u8], representation: Representation) -> Self {
        match representation {
            Representation::Json => Self::Json(json.into()),
        }
    }

    /// The JSON, as it was handed in.
    pub(super) const fn json(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Json(json) => Cow::Borrowed(json),
        }
    }
}
