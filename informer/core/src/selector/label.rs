//! Label selectors: grammar, error texts, canonical text and matching of apimachinery's `labels` package.
//!
//! INVARIANT: requirements are sorted by key, values are sorted and distinct, so equal selectors print equal texts.

mod name;
mod parse;

use std::{borrow::Cow, cmp::Ordering, collections::HashSet, fmt};

use memchr::{memchr, memrchr};

/// Comparison of a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `key in (a,b)`: present, and one of the values.
    In,
    /// `key notin (a,b)`: absent, or none of the values.
    NotIn,
    /// `key=value`: present with the value.
    Equals,
    /// `key==value`: like `Equals`, but printed as written.
    DoubleEquals,
    /// `key!=value`: absent, or with another value.
    NotEquals,
    /// `key>5`: present, a number, and greater.
    GreaterThan,
    /// `key<5`: present, a number, and smaller.
    LessThan,
    /// `key`: present.
    Exists,
    /// `!key`: absent.
    DoesNotExist,
}

/// One condition on one label, borrowed from the text of its selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement<'a> {
    key: &'a str,
    operator: Operator,
    /// Sorted and distinct, separated by commas; empty for existence, and for the one empty value.
    values: &'a str,
}

/// A parsed label selector: all its requirements must hold. The default matches everything.
///
/// Memory: its canonical text, and eight bytes per requirement, whatever its number of values.
///
/// # Source
/// Kubernetes, "Labels and selectors"; apimachinery `pkg/labels/selector.go`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selector {
    /// `None` without requirements, as in most watches.
    requirements: Option<Box<Requirements>>,
}

/// The requirements of a selector, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Requirements {
    /// Canonical text. Neither keys nor values contain commas, spaces or parentheses.
    text: Box<str>,
    /// Start of each requirement in the text, sorted by key.
    places: Box<[RequirementSpan]>,
    /// Requirements that an absent label does not satisfy.
    positive: u32,
}

/// One requirement in the text of a selector: key, operator, values, and the comma before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RequirementSpan {
    start: u32,
    key_len: u16,
    operator: Operator,
}

/// Error of an invalid selector; the text is kube-apiserver's, sent unchanged in a 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

impl Selector {
    /// Parses a selector such as `app in (web,api),tier!=cache,!old`. An empty text matches everything.
    ///
    /// Cost: linear in the text, which the caller bounds.
    ///
    /// # Errors
    /// [`ParseError`] with kube-apiserver's text.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut parsed = parse::parse(text)?;
        parsed.sort_by(|left, right| left.key.cmp(right.key));
        let mut places = Vec::with_capacity(parsed.len());
        let mut canonical = String::with_capacity(text.len());
        for requirement in &parsed {
            if !canonical.is_empty() {
                canonical.push(',');
            }
            let too_long = |_| ParseError("the selector is too long".to_owned());
            let start = u32::try_from(canonical.len()).map_err(too_long)?;
            let key_len = u16::try_from(requirement.key.len()).map_err(too_long)?;
            places.push(RequirementSpan { start, key_len, operator: requirement.operator });
            requirement.push_to(&mut canonical);
        }
        let positive = parsed.iter().filter(|requirement| requirement.operator.is_positive()).count();
        let positive = u32::try_from(positive).unwrap_or(u32::MAX);
        let requirements = Requirements { text: canonical.into(), places: places.into(), positive };
        Ok(Self { requirements: (!parsed.is_empty()).then(|| Box::new(requirements)) })
    }

    /// Returns true if the labels, read through `label`, satisfy every requirement. Reads once per requirement.
    pub fn matches<'a>(&self, mut label: impl FnMut(&str) -> Option<Cow<'a, str>>) -> bool {
        self.requirements().all(|requirement| requirement.matches(label(requirement.key).as_deref()))
    }

    /// Returns true if `labels` satisfy every requirement; of two labels with one key the first counts. For selectors
    /// with many requirements. Cost: a binary search per label, and one comparison per requirement on its key.
    pub fn matches_labels<'a>(&self, labels: impl IntoIterator<Item = (Cow<'a, str>, Cow<'a, str>)>) -> bool {
        self.requirements.as_ref().is_none_or(|requirements| requirements.match_labels(labels))
    }

    /// The conditions, sorted by key.
    pub fn requirements(&self) -> impl Iterator<Item = Requirement<'_>> {
        let known = self.requirements.iter();
        known.flat_map(|known| (0..known.places.len()).map(move |at| known.requirement(at)))
    }

    /// Number of conditions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requirements.as_ref().map_or(0, |known| known.places.len())
    }

    /// Returns true without requirements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.requirements.is_none()
    }
}

impl Requirements {
    fn match_labels<'a>(&self, labels: impl IntoIterator<Item = (Cow<'a, str>, Cow<'a, str>)>) -> bool {
        let (mut missing, mut seen) = (self.positive, HashSet::new());
        for (key, value) in labels {
            let first = self.places.partition_point(|place| self.key_of(place) < &*key);
            if self.places.get(first).is_none_or(|place| self.key_of(place) != key) || !seen.insert(first) {
                continue;
            }
            for at in first..self.places.len() {
                let requirement = self.requirement(at);
                if requirement.key != key {
                    break;
                }
                if !requirement.matches(Some(&value)) {
                    return false;
                }
                missing = missing.saturating_sub(u32::from(requirement.operator.is_positive()));
            }
        }
        missing == 0
    }

    fn key_of(&self, place: &RequirementSpan) -> &str {
        let start = place.start as usize + usize::from(place.operator == Operator::DoesNotExist);
        &self.text[start..start + usize::from(place.key_len)]
    }

    fn requirement(&self, at: usize) -> Requirement<'_> {
        let place = &self.places[at];
        let (open, close) = place.operator.around();
        let key = self.key_of(place);
        // A comma follows it, or the end of the text.
        let end = self.places.get(at + 1).map_or(self.text.len(), |next| next.start as usize - 1);
        let values = match place.operator {
            Operator::Exists | Operator::DoesNotExist => "",
            Operator::In
            | Operator::NotIn
            | Operator::Equals
            | Operator::DoubleEquals
            | Operator::NotEquals
            | Operator::GreaterThan
            | Operator::LessThan => &self.text[place.start as usize + key.len() + open.len()..end - close.len()],
        };
        Requirement { key, operator: place.operator, values }
    }
}

impl Operator {
    /// True if an absent label does not satisfy it.
    const fn is_positive(self) -> bool {
        match self {
            Self::In | Self::Equals | Self::DoubleEquals | Self::GreaterThan | Self::LessThan | Self::Exists => true,
            Self::NotIn | Self::NotEquals | Self::DoesNotExist => false,
        }
    }

    /// Returns the text between the key and its values, and the text behind them.
    const fn around(self) -> (&'static str, &'static str) {
        match self {
            Self::In => (" in (", ")"),
            Self::NotIn => (" notin (", ")"),
            Self::Equals => ("=", ""),
            Self::DoubleEquals => ("==", ""),
            Self::NotEquals => ("!=", ""),
            Self::GreaterThan => (">", ""),
            Self::LessThan => ("<", ""),
            Self::Exists | Self::DoesNotExist => ("", ""),
        }
    }
}

impl<'a> Requirement<'a> {
    /// The label's key.
    #[must_use]
    pub const fn key(&self) -> &'a str {
        self.key
    }

    /// The comparison.
    #[must_use]
    pub const fn operator(&self) -> Operator {
        self.operator
    }

    /// Returns the values to compare with, sorted; empty for existence.
    pub fn values(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let has_values = !matches!(self.operator, Operator::Exists | Operator::DoesNotExist);
        self.values.split(',').filter(move |_| has_values)
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let listed = |value: &str| is_listed(self.values, value);
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
        Some((label?.parse().ok()?, self.values.parse().ok()?))
    }
}

/// Returns true if `wanted` is one of the sorted, comma-separated `values`. Cost: a binary search.
fn is_listed(values: &str, value: &str) -> bool {
    let values = values.as_bytes();
    let (mut low, mut high) = (0, values.len());
    loop {
        let middle = usize::midpoint(low, high);
        // Extend from the middle to the commas around a value.
        let start = memrchr(b',', &values[low..middle]).map_or(low, |at| low + at + 1);
        let end = memchr(b',', &values[middle..high]).map_or(high, |at| middle + at);
        match values[start..end].cmp(value.as_bytes()) {
            Ordering::Equal => return true,
            Ordering::Less if end < high => low = end + 1,
            Ordering::Greater if low < start => high = start - 1,
            Ordering::Less | Ordering::Greater => return false,
        }
    }
}

/// Writes the canonical text, as Kubernetes prints it; parsing it gives an equal selector.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.requirements.as_ref().map_or("", |known| &*known.text))
    }
}

#[cfg(test)]
mod tests;
