//! Regular expressions of schemas, in the syntax of Go's `regexp`: translated for the crate `regex`, with Go's errors.
//!
//! Differences from Go: names of Unicode classes are those of the crate, which knows more; `\B` also matches inside of a letter
//! of several bytes; surrogates are refused; expressions nest at most 250 levels, not 1,000, and may have fewer states.
//!
//! INVARIANT: matching takes time in proportion to the text, at most times [`Pattern::states`].
//!
//! Source: Go's `regexp/syntax/parse.go`.

mod translation;

use regex::bytes::{Regex, RegexBuilder};

use self::translation::SyntaxTranslation;
use crate::limits::{PATTERN_BYTES_MAX, PATTERN_CACHE_BYTES, PATTERN_STATES};

/// A compiled regular expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    states: usize,
}

/// A text that is no regular expression, or a too large one.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("error parsing regexp: {what}: `{at}`")]
pub(crate) struct PatternError {
    what: &'static str,
    /// The part of the text that is wrong.
    at: String,
}

impl PatternError {
    fn new(what: &'static str, at: &str) -> Self {
        Self { what, at: at.to_owned() }
    }
}

impl Pattern {
    /// Compiles a text, and takes the states that it needs from those `left`.
    ///
    /// # Errors
    /// Go's error for the text; `expression too large` if fewer states are left.
    pub(crate) fn compile(text: &str, left: &mut usize) -> Result<Self, PatternError> {
        let too_large = || PatternError::new("expression too large", text);
        let translated = SyntaxTranslation::of(text)?;
        let states = translated.states.saturating_add(PATTERN_STATES);
        *left = left.checked_sub(states).ok_or_else(too_large)?;
        let mut builder = RegexBuilder::new(&translated.text);
        let built = builder.size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_CACHE_BYTES).build();
        let regex = built.map_err(|error| {
            if matches!(error, regex::Error::CompiledTooBig(_)) {
                return too_large();
            }
            translated.unknown_class().unwrap_or_else(|| PatternError::new("expression nests too deeply", text))
        })?;
        Ok(Self { regex, states })
    }

    /// Returns true if a part of the text matches.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text.as_bytes())
    }

    /// Returns the matches in a text, and the places behind them. No match lies inside of a letter.
    pub(crate) fn find_iter<'t>(&self, text: &'t str) -> impl Iterator<Item = (&'t str, usize)> {
        let matches = self.regex.find_iter(text.as_bytes());
        matches.filter_map(|found| Some((text.get(found.range())?, found.end())))
    }

    /// Returns an estimate of the states of its automaton.
    pub(crate) const fn states(&self) -> usize {
        self.states
    }
}

#[cfg(test)]
mod tests;
