//! Field selectors: grammar, error texts, canonical text and matching of apimachinery's `fields` package.
//!
//! INVARIANT: terms are sorted by their canonical text, so equal selectors print equal texts. The fields of a resource
//! are not known here; the server must refuse unsupported ones.

use std::{borrow::Cow, fmt};

/// Comparison of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The field has the value: `=` or `==`.
    Eq,
    /// The field has another value: `!=`.
    NotEq,
}

/// One comparison of a field with a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    /// Dotted name, as written: `spec.nodeName`.
    pub field: String,
    /// The comparison.
    pub op: Op,
    /// The value, unescaped.
    pub value: String,
}

/// A parsed field selector: all its terms must hold. The default matches everything.
///
/// # Source
/// Kubernetes, "Field selectors"; apimachinery `pkg/fields/selector.go`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    terms: Vec<Term>,
}

/// Error of an invalid selector; the text is kube-apiserver's, sent unchanged in a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

impl Selector {
    /// Parses a selector such as `spec.nodeName=node-1,status.phase!=Failed`. An empty text and empty terms match
    /// everything; in values `\` escapes `\`, `,` and `=`.
    ///
    /// Cost: linear in the text, which the caller bounds.
    ///
    /// # Errors
    /// [`ParseError`] with kube-apiserver's text.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut parts = split_terms(text);
        // kube-apiserver sorts before parsing, which decides which of several errors it reports.
        parts.sort_unstable();
        let mut terms = parts
            .into_iter()
            .filter(|part| !part.is_empty())
            .map(|part| Term::parse(part, text))
            .collect::<Result<Vec<_>, _>>()?;
        terms.sort_by_cached_key(Term::to_string);
        Ok(Self { terms })
    }

    /// Creates the selector `field=value`, for any value.
    #[must_use]
    pub fn one(field: &str, value: &str) -> Self {
        Self { terms: vec![Term { field: field.to_owned(), op: Op::Eq, value: value.to_owned() }] }
    }

    /// Returns the selector with other names of its fields.
    #[must_use]
    pub fn renamed(&self, name: impl Fn(&str) -> &str) -> Self {
        let rename = |term: &Term| Term { field: name(&term.field).to_owned(), ..term.clone() };
        let mut terms: Vec<Term> = self.terms.iter().map(rename).collect();
        terms.sort_by_cached_key(Term::to_string);
        Self { terms }
    }

    /// The comparisons, all of which must hold.
    #[must_use]
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Returns true if the fields, read through `field` (`None` counts as empty), satisfy every term. Reads once per
    /// term.
    pub fn matches<'a>(&self, mut field: impl FnMut(&str) -> Option<Cow<'a, str>>) -> bool {
        self.terms.iter().all(|term| {
            let found = field(&term.field).unwrap_or_default();
            match term.op {
                Op::Eq => found == term.value,
                Op::NotEq => found != term.value,
            }
        })
    }

    /// Returns a value that `field` must have in every match, so that a read by `metadata.name` can look it up
    /// directly.
    ///
    /// Other terms still apply: `metadata.name=a,metadata.name=b` gives `a`, and matches nothing.
    #[must_use]
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.op == Op::Eq && term.field == field).map(|term| term.value.as_str())
    }

    /// Returns true without terms.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

impl Term {
    fn parse(part: &str, selector: &str) -> Result<Self, ParseError> {
        // The leftmost operator wins; at one position the longest.
        let Some(at) = part.find('=').map(|at| if part[..at].ends_with('!') { at - 1 } else { at }) else {
            return Err(ParseError(format!("invalid selector: '{selector}'; can't understand '{part}'")));
        };
        let (field, rest) = part.split_at(at);
        let (op, value) = if let Some(value) = rest.strip_prefix("!=") {
            (Op::NotEq, value)
        } else {
            (Op::Eq, rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')).unwrap_or(rest))
        };
        Ok(Self { field: field.to_owned(), op, value: unescape(value)? })
    }
}

/// Splits at unescaped commas.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unescape(value: &str) -> Result<String, ParseError> {
    let mut out = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                other => {
                    let sequence: String = ['\\'].into_iter().chain(other).collect();
                    return Err(ParseError(format!("invalid field selector: invalid escape sequence: {sequence}")));
                }
            },
            ',' | '=' => {
                return Err(ParseError(format!("invalid field selector: unescaped character in value: {letter}")));
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

/// Writes the canonical text, as Kubernetes prints it; parsing it gives an equal selector.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            term.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match self.op {
            Op::Eq => "=",
            Op::NotEq => "!=",
        };
        write!(f, "{}{operator}", self.field)?;
        for letter in self.value.chars() {
            if matches!(letter, '\\' | ',' | '=') {
                f.write_str("\\")?;
            }
            write!(f, "{letter}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn matches(selector: &str, fields: &BTreeMap<&str, &str>) -> bool {
        Selector::parse(selector).unwrap().matches(|field| fields.get(field).map(|value| Cow::from(*value)))
    }

    #[test]
    fn canonical_text_is_what_kubernetes_prints() {
        for (text, expected) in [
            ("", ""),
            (",,", ""),
            ("a=b", "a=b"),
            ("a==b", "a=b"),
            ("a!=b", "a!=b"),
            ("a=", "a="),
            ("=b", "=b"),
            ("z=1,,a.b=2,", "a.b=2,z=1"),
            ("a==z,a=b", "a=b,a=z"),
            (r"a=x\=y\,z\\", r"a=x\=y\,z\\"),
            (" a = b ", " a = b "),
        ] {
            assert_eq!(Selector::parse(text).unwrap().to_string(), expected, "{text}");
        }
        let selector = Selector::parse(r"a!=x\,y").unwrap();
        let term = &selector.terms()[0];
        assert_eq!((term.field.as_str(), term.op, term.value.as_str()), ("a", Op::NotEq, "x,y"));
    }

    #[test]
    fn terms_match_as_in_kubernetes() {
        let fields = BTreeMap::from([("metadata.name", "p"), ("spec.nodeName", "n,1"), ("empty", "")]);
        for (selector, expected) in [
            ("", true),
            ("metadata.name=p", true),
            ("metadata.name==p", true),
            ("metadata.name!=p", false),
            ("metadata.name=q", false),
            ("metadata.name=p,metadata.name=q", false),
            (r"spec.nodeName=n\,1", true),
            ("metadata.name=p,spec.nodeName!=x", true),
            // A missing field counts as empty.
            ("absent=", true),
            ("absent!=", false),
            ("absent!=x", true),
            ("empty=", true),
        ] {
            assert_eq!(matches(selector, &fields), expected, "{selector}");
        }
    }

    #[test]
    fn a_name_is_exact_only_when_demanded() {
        for (selector, expected) in [
            ("metadata.name=a", Some("a")),
            ("metadata.name==a,spec.nodeName=n", Some("a")),
            ("metadata.name=a,metadata.name=b", Some("a")),
            ("metadata.name!=a", None),
            ("metadata.namespace=a", None),
            ("", None),
        ] {
            assert_eq!(Selector::parse(selector).unwrap().exact("metadata.name"), expected, "{selector}");
        }
    }

    #[test]
    fn errors_have_the_api_servers_words() {
        for (text, expected) in [
            ("foo", "invalid selector: 'foo'; can't understand 'foo'"),
            ("b=1,zoo,foo", "invalid selector: 'b=1,zoo,foo'; can't understand 'foo'"),
            (" ", "invalid selector: ' '; can't understand ' '"),
            ("a!b", "invalid selector: 'a!b'; can't understand 'a!b'"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \"),
            ("a=b=c", "invalid field selector: unescaped character in value: ="),
            // The escaped comma belongs to the value, so the second `=` is an unescaped character.
            (r"a=x\,b=c", "invalid field selector: unescaped character in value: ="),
            ("a===b", "invalid field selector: unescaped character in value: ="),
            ("a!==b", "invalid field selector: unescaped character in value: ="),
            ("a=!=b", "invalid field selector: unescaped character in value: ="),
        ] {
            assert_eq!(Selector::parse(text), Err(ParseError(expected.into())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn canonical_text_means_the_same(
            terms in prop::collection::vec(("[a-b.!\\\\]{0,3}", prop_oneof![Just("="), Just("=="), Just("!=")], "[xy]{0,1}(\\\\[,=\\\\])?"), 0..4),
            a in "[xy,=]{0,2}",
            b in "[xy]{0,1}",
        ) {
            let text = terms.into_iter().map(|(field, op, value)| format!("{field}{op}{value}")).collect::<Vec<_>>().join(",");
            let fields = BTreeMap::from([("a", a.as_str()), ("b", b.as_str())]);
            if let Ok(selector) = Selector::parse(&text) {
                let canonical = selector.to_string();
                prop_assert_eq!(&Selector::parse(&canonical).unwrap(), &selector);
                prop_assert_eq!(matches(&canonical, &fields), matches(&text, &fields));
            }
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = Selector::parse(&text);
        }
    }
}
