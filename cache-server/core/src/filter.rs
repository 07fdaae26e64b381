//! The objects that a client selects: scope, name, labels and fields, resolved once against the schema.
//!
//! INVARIANT: `range` and `node` only narrow the search; [`Filter::matches`] alone decides.

mod shared;
mod verdicts;

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use informer_core::{
    KeyedObject,
    selector::{
        field,
        label::{self, Operator},
        shard,
    },
};
use memchr::memmem::Finder;

pub(crate) use self::{shared::Filters, verdicts::CachedFilter};
use crate::{
    buckets::Scope,
    entry::{Entry, Schema, Sketch},
    limits::{CONDITIONS_PER_OBJECT, KEYS_SEARCHED_MAX, REQUIREMENTS_SKETCHED_MAX, VALUES_SKETCHED_MAX},
};

/// A selector names a field that this type does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field label not supported: {label}")]
pub struct UnknownField {
    /// The field as the client wrote it.
    pub label: String,
}

/// A compiled selection of objects.
#[derive(Clone, Debug)]
pub struct Filter {
    /// The namespace in the request's path.
    namespace: Option<Box<str>>,
    range: Range,
    node: Option<Box<str>>,
    labels: label::Selector,
    /// One per requirement of `labels`, in their order; empty above [`KEYS_SEARCHED_MAX`].
    label_keys: Box<[LabelKey]>,
    terms: Terms,
    // Boxed, because few watches have one, and each idle watch pays for the space.
    shard: Option<Box<shard::Selector>>,
    sketches: Sketches,
    /// See [`Self::weight`].
    weight: usize,
}

/// Sketch bits every matching object must have set (a necessary condition).
#[derive(Clone, Debug, Default)]
struct Sketches {
    /// Bits that must all be set.
    all: Sketch,
    /// For each of these sets, the bits of at least one member must be set.
    any: Box<[Box<[Sketch]>]>,
}

/// A label's key with a prepared search, for use on many objects.
#[derive(Clone, Debug)]
pub(crate) struct LabelKey {
    pub(crate) key: Box<str>,
    /// Searches `"key":"`. In a compact map of strings without escapes it occurs only at the key: keys in selectors
    /// begin with a letter or digit, and the text after the end of a string does not.
    pub(crate) finder: Finder<'static>,
}

/// The keys that can match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Range {
    All,
    /// Keys of one namespace, with the prefix `namespace/`.
    Namespace(Box<str>),
    /// One key.
    Key(Box<str>),
}

/// A field selector with resolved fields. Memory: its values and twenty bytes for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Terms {
    /// All values, concatenated.
    values: Box<str>,
    places: Box<[TermSpan]>,
}

/// One comparison of [`Terms`], with the span of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct TermSpan {
    operand: Operand,
    op: field::Op,
    /// Span of the value.
    start: u32,
    end: u32,
}

/// One comparison.
#[derive(Clone, Copy, Debug)]
struct FilterTerm<'a> {
    operand: Operand,
    op: field::Op,
    value: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operand {
    Name,
    Namespace,
    /// An index in [`Schema::fields`].
    Field(u32),
}

impl Filter {
    /// Compiles a filter over objects of `schema`. `namespace` is the one in the request's path; `None` reads all
    /// namespaces and is required for cluster-scoped types. `metadata.name` and `metadata.namespace` in `fields`
    /// narrow the range that is read. Contradictions match no object.
    ///
    /// # Errors
    /// [`UnknownField`] for a term that names neither of these two fields nor one of [`Schema::fields`].
    pub fn new(
        schema: &Schema,
        namespaced: bool,
        namespace: Option<&str>,
        labels: label::Selector,
        fields: &field::Selector,
    ) -> Result<Arc<Self>, UnknownField> {
        let terms = Terms::new(schema, fields)?;
        let exactly = |operand: Operand| {
            let is_equality = |term: &FilterTerm<'_>| term.operand == operand && term.op == field::Op::Eq;
            terms.iter().find(is_equality).map(|term| term.value)
        };
        // The namespace of the path wins: a contradicting `metadata.namespace` term then matches no object in it.
        let one_namespace = namespace.or_else(|| exactly(Operand::Namespace)).filter(|_| namespaced);
        let range = match (exactly(Operand::Name), one_namespace) {
            (Some(name), Some(namespace)) => Range::Key(format!("{namespace}/{name}").into()),
            (Some(name), None) if !namespaced => Range::Key(name.into()),
            (_, Some(namespace)) => Range::Namespace(format!("{namespace}/").into()),
            (_, None) => Range::All,
        };
        let node = schema.node_field.and_then(|place| {
            // Fields with one path are aliases, such as `spec.host` for `spec.nodeName`.
            let same = |other: usize| schema.fields.get(other).map(|field| &field.path);
            let is_node = |operand| matches!(operand, Operand::Field(other) if same(other as usize) == same(place));
            terms.iter().find(|term| is_node(term.operand) && term.op == field::Op::Eq).map(|term| term.value.into())
        });
        let searched = labels.requirements().filter(|_| labels.len() <= KEYS_SEARCHED_MAX);
        let label_keys = searched.map(|requirement| LabelKey::new(requirement.key())).collect();
        let weight = 1 + (labels.len() + terms.places.len()) / CONDITIONS_PER_OBJECT;
        let sketches = Sketches::new(&labels, schema.node_field, &terms);
        let namespace = namespace.map(Into::into);
        Ok(Arc::new(Self { namespace, range, node, labels, label_keys, terms, shard: None, sketches, weight }))
    }

    /// Returns a filter that matches every object.
    #[must_use]
    pub fn all() -> Arc<Self> {
        let labels = label::Selector::default();
        let (label_keys, terms, sketches) = (Box::default(), Terms::default(), Sketches::default());
        let (namespace, range, node, shard) = (None, Range::All, None, None);
        Arc::new(Self { namespace, range, node, labels, label_keys, terms, shard, sketches, weight: 1 })
    }

    /// Narrows the filter to the objects of a shard.
    #[must_use]
    pub fn in_shard(self: Arc<Self>, shard: Option<shard::Selector>) -> Arc<Self> {
        if shard.is_none() {
            return self;
        }
        Arc::new(Self { shard: shard.map(Box::new), ..Arc::unwrap_or_clone(self) })
    }

    /// Returns the shard to which the filter is narrowed.
    #[must_use]
    pub const fn shard(&self) -> Option<&shard::Selector> {
        match &self.shard {
            Some(shard) => Some(&**shard),
            None => None,
        }
    }

    /// Returns true if `entry` matches. Cost: the sketch rejects most other objects without reading their text; the
    /// rest costs string comparisons and one search in the labels per requirement, some 50 ns. The body is not
    /// scanned.
    #[must_use]
    pub fn matches(&self, entry: &Entry) -> bool {
        // Cheapest checks first: the sketch is in the entry, while fields and labels are in its text.
        self.sketches.may_be_in(entry.sketch())
            && self.namespace.as_deref().is_none_or(|namespace| entry.namespace() == namespace)
            && self.terms.iter().all(|term| term.matches(entry))
            && (self.labels.is_empty() || self.labels_match(entry))
            && self.shard.as_ref().is_none_or(|shard| shard.matches(entry.uid(), entry.namespace()))
    }

    /// Returns the cost of one match in examined objects: selectors may have thousands of conditions.
    pub(crate) const fn weight(&self) -> usize {
        self.weight
    }

    fn labels_match(&self, entry: &Entry) -> bool {
        if self.label_keys.is_empty() {
            // With many requirements, look up the object's few labels in the selector instead.
            return self.labels.matches_labels(entry.labels());
        }
        // `matches` evaluates each requirement once, in order.
        let mut keys = self.label_keys.iter();
        self.labels.matches(|_| keys.next().and_then(|key| entry.find_label(key)))
    }

    /// Returns true if no selector was given.
    #[must_use]
    pub fn selects_all(&self) -> bool {
        self.terms.places.is_empty() && self.labels.is_empty() && self.shard.is_none()
    }

    /// Returns true if every object matches.
    pub(crate) fn is_trivial(&self) -> bool {
        self.selects_all() && self.namespace.is_none()
    }

    /// Returns true if several watchers are likely to have an equal filter. A node has few watchers, and node filters
    /// are many.
    pub(crate) fn is_worth_sharing(&self) -> bool {
        self.is_costly() || (self.node.is_none() && !matches!(self.range, Range::Key(_)))
    }

    /// Returns true if evaluating it takes longer than looking up a cached verdict.
    pub(crate) fn is_costly(&self) -> bool {
        !self.labels.is_empty() || self.terms.places.len() > 1 || self.shard.is_some()
    }

    /// Returns the label selector.
    #[must_use]
    pub const fn labels(&self) -> &label::Selector {
        &self.labels
    }

    /// Returns the text of the field selector. `schema` is the one that the filter was made for.
    #[must_use]
    pub fn field_selector(&self, schema: &Schema) -> String {
        let label = |operand| match operand {
            Operand::Name => "metadata.name",
            Operand::Namespace => "metadata.namespace",
            Operand::Field(place) => schema.fields.get(place as usize).map_or("", |field| &field.label),
        };
        let term = |FilterTerm { operand, op, value }| {
            field::Term { field: label(operand).to_owned(), op, value: value.to_owned() }.to_string()
        };
        self.terms.iter().map(term).collect::<Vec<_>>().join(",")
    }

    /// Returns the namespace in the request's path.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the node of all matching objects, unless they are one object by its name.
    pub(crate) fn node(&self) -> Option<&str> {
        self.node.as_deref().filter(|_| !matches!(self.range, Range::Key(_)))
    }

    /// Returns the keys that can match.
    pub(crate) const fn range(&self) -> &Range {
        &self.range
    }

    /// Returns the narrowest bucket that contains every matching event.
    pub(crate) fn scope(&self) -> Scope {
        match (&self.range, &self.node) {
            (Range::Key(key), _) => Scope::Name(key.clone()),
            (Range::All | Range::Namespace(_), Some(node)) => Scope::Node(node.clone()),
            (Range::Namespace(prefix), None) => Scope::Namespace(prefix.strip_suffix('/').unwrap_or(prefix).into()),
            (Range::All, None) => Scope::All,
        }
    }
}

impl Sketches {
    fn new(labels: &label::Selector, node_field: Option<usize>, terms: &Terms) -> Self {
        let (mut all, mut any) = (Sketch::default(), Vec::new());
        for requirement in labels.requirements() {
            let key = requirement.key();
            let count = requirement.values().take(VALUES_SKETCHED_MAX + 1).count();
            match requirement.operator() {
                Operator::In | Operator::Equals | Operator::DoubleEquals if count == 1 => {
                    requirement.values().for_each(|only| all.add(Sketch::label(key, only)));
                }
                Operator::In | Operator::Equals | Operator::DoubleEquals
                    if count <= VALUES_SKETCHED_MAX && any.len() < REQUIREMENTS_SKETCHED_MAX =>
                {
                    any.push(requirement.values().map(|value| Sketch::label(key, value)).collect());
                }
                Operator::In
                | Operator::Equals
                | Operator::DoubleEquals
                | Operator::Exists
                | Operator::GreaterThan
                | Operator::LessThan => all.add(Sketch::key(key)),
                // A sketch cannot prove that a label is present, so negative requirements set no bits.
                Operator::NotIn | Operator::NotEquals | Operator::DoesNotExist => {}
            }
        }
        let is_node = |operand| matches!(operand, Operand::Field(place) if Some(place as usize) == node_field);
        let nodes = terms.iter().filter(|term| term.op == field::Op::Eq && is_node(term.operand));
        nodes.for_each(|term| all.add(Sketch::node(term.value)));
        Self { all, any: any.into() }
    }

    fn may_be_in(&self, sketch: Sketch) -> bool {
        sketch.has(self.all) && self.any.iter().all(|one_of| one_of.iter().any(|&one| sketch.has(one)))
    }
}

/// Compares only these fields; the others are derived from them.
impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.namespace == other.namespace
            && self.range == other.range
            && self.node == other.node
            && self.terms == other.terms
            && self.labels == other.labels
            && self.shard == other.shard
    }
}

impl Eq for Filter {}

impl Hash for Filter {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.namespace, &self.range, &self.node, &self.terms, &self.labels, &self.shard).hash(state);
    }
}

impl LabelKey {
    pub(crate) fn new(key: &str) -> Self {
        let finder = Finder::new(format!("\"{key}\":\"").as_bytes()).into_owned();
        Self { key: key.into(), finder }
    }
}

impl Range {
    /// Returns the first key that can be in the range.
    pub(crate) fn start(&self) -> &str {
        match self {
            Self::All => "",
            Self::Namespace(prefix) => prefix,
            Self::Key(key) => key,
        }
    }

    /// Returns true if a key at or after [`Self::start`] is in the range.
    pub(crate) fn contains(&self, entry: &Entry) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(prefix) => entry.key().starts_with(&**prefix),
            Self::Key(key) => entry.key() == &**key,
        }
    }
}

impl Terms {
    fn new(schema: &Schema, selector: &field::Selector) -> Result<Self, UnknownField> {
        let (mut values, mut places) = (String::new(), Vec::with_capacity(selector.terms().len()));
        // The offset fits: requests are shorter than 4 GiB.
        let end = |values: &String| u32::try_from(values.len()).unwrap_or(u32::MAX);
        for term in selector.terms() {
            let operand = Operand::new(schema, &term.field)?;
            let start = end(&values);
            values.push_str(&term.value);
            places.push(TermSpan { operand, op: term.op, start, end: end(&values) });
        }
        Ok(Self { values: values.into(), places: places.into() })
    }

    fn iter(&self) -> impl Iterator<Item = FilterTerm<'_>> {
        self.places.iter().map(|&TermSpan { operand, op, start, end }| FilterTerm {
            operand,
            op,
            value: self.values.get(start as usize..end as usize).unwrap_or_default(),
        })
    }
}

impl Operand {
    fn new(schema: &Schema, label: &str) -> Result<Self, UnknownField> {
        match label {
            "metadata.name" => Ok(Self::Name),
            "metadata.namespace" => Ok(Self::Namespace),
            label => {
                let place = schema.fields.iter().position(|field| field.label == label);
                let place = place.and_then(|place| u32::try_from(place).ok());
                place.map(Self::Field).ok_or_else(|| UnknownField { label: label.to_owned() })
            }
        }
    }
}

impl FilterTerm<'_> {
    fn matches(self, entry: &Entry) -> bool {
        let value = match self.operand {
            Operand::Name => entry.name(),
            Operand::Namespace => entry.namespace(),
            Operand::Field(place) => entry.field(place as usize),
        };
        match self.op {
            field::Op::Eq => value == self.value,
            field::Op::NotEq => value != self.value,
        }
    }
}
