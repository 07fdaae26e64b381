//! Label selectors: grammar, error texts, canonical text and matching of apimachinery's `labels` package.
//!
//! INVARIANT: requirements are sorted by key, values are sorted and distinct, so equal selectors print equal texts.

mod name;
mod parse;

use std::{borrow::Cow, fmt};

/// How a requirement looks at its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `key in (a,b)`: present, and one of the values.
    In,
    /// `key notin (a,b)`: absent, or none of the values.
    NotIn,
    /// `key=value`: present with the value.
    Equals,
    /// `key==value`: the same, printed as written.
    DoubleEquals,
    /// `key!=value`: absent, or with another value.
    NotEquals,
    /// `key>5`: present, a number, and above.
    GreaterThan,
    /// `key<5`: present, a number, and below.
    LessThan,
    /// `key`: present.
    Exists,
    /// `!key`: absent.
    DoesNotExist,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: Box<str>,
    operator: Operator,
    values: Box<[Box<str>]>,
}

/// A parsed label selector: all its requirements must hold. The default one matches everything.
///
/// # Source
/// Kubernetes, "Labels and selectors"; apimachinery `pkg/labels/selector.go`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    requirements: Box<[Requirement]>,
}

/// Why a selector is refused; the text is kube-apiserver's, sent as it is in a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

impl Selector {
    /// Reads a selector such as `app in (web,api),tier!=cache,!old`. Empty text matches everything.
    ///
    /// Cost: linear in the text, which the caller bounds.
    ///
    /// # Errors
    /// [`ParseError`] with kube-apiserver's text.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut requirements = parse::parse(text)?;
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        Ok(Self { requirements: requirements.into() })
    }

    /// Whether labels, read through `label`, satisfy every requirement. One read a requirement.
    pub fn matches<'a>(&self, mut label: impl FnMut(&str) -> Option<Cow<'a, str>>) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches(label(&requirement.key).as_deref()))
    }

    /// The conditions, sorted by key.
    #[must_use]
    pub const fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether there is no requirement.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }
}

impl Requirement {
    fn new(key: &str, operator: Operator, mut values: Vec<&str>) -> Self {
        values.sort_unstable();
        values.dedup();
        Self { key: key.into(), operator, values: values.into_iter().map(Into::into).collect() }
    }

    /// The label it looks at.
    #[must_use]
    pub const fn key(&self) -> &str {
        &self.key
    }

    /// How it looks.
    #[must_use]
    pub const fn operator(&self) -> Operator {
        self.operator
    }

    /// What it compares with, sorted; empty for existence.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &str> {
        self.values.iter().map(AsRef::as_ref)
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let listed = |value: &str| self.values.binary_search_by(|wanted| (**wanted).cmp(value)).is_ok();
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => label.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !label.is_some_and(listed),
            Operator::GreaterThan => self.numbers(label).is_some_and(|(found, bound)| found > bound),
            Operator::LessThan => self.numbers(label).is_some_and(|(found, bound)| found < bound),
            Operator::Exists => label.is_some(),
            Operator::DoesNotExist => label.is_none(),
        }
    }

    fn numbers(&self, label: Option<&str>) -> Option<(i64, i64)> {
        Some((label?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

/// The canonical text: what Kubernetes prints, and parses to the same.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        let values = values.join(",");
        match operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
        }
    }
}

#[cfg(test)]
mod tests;
