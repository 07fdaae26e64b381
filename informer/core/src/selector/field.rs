//! Field selectors: grammar, error texts, canonical text and matching of apimachinery's `fields` package.

use std::{borrow::Cow, fmt};

/// How a term compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The field has the value.
    Eq,
    /// The field has another value.
    NotEq,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// Dotted name: `spec.nodeName`.
    pub field: String,
    /// How it compares.
    pub op: Op,
    /// The value, unescaped.
    pub value: String,
}

/// A parsed field selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    terms: Vec<Term>,
}

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

    /// The comparisons, all of which must hold.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether fields, read through `field` (`None` counts as empty), satisfy every term.
    pub fn matches<'a>(&self, mut field: impl FnMut(&str) -> Option<Cow<'a, str>>) -> bool {
        field("").is_some()
    }

    /// The one value `field` must have, when the selector demands exactly one.
    #[must_use]
    pub fn exact(&self, field: &str) -> Option<&str> {
        todo!("{field}")
    }

    /// Whether there is no term.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
