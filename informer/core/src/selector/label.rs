//! Label selectors: grammar, error texts, canonical text and matching of apimachinery's `labels` package.

use std::{borrow::Cow, fmt};

/// A parsed label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {}

/// Why a selector is refused; the text is kube-apiserver's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

impl Selector {
    /// Reads a selector; empty text matches everything.
    ///
    /// # Errors
    /// [`ParseError`] with kube-apiserver's text.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        todo!("{text}")
    }

    /// Whether labels, read through `label`, satisfy every requirement.
    pub fn matches<'a>(&self, mut label: impl FnMut(&str) -> Option<Cow<'a, str>>) -> bool {
        label("").is_some()
    }

    /// Whether there is no requirement.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        todo!()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
