//! A [`ValueShape`]: a node of an immutable graph of JSON value types, cheap to clone.
//!
//! INVARIANT: a graph never changes once a shape refers to it, and every index in a node refers to its own graph. Types
//! may contain themselves, so code must walk a shape along with a value, which ends the recursion.

use std::{fmt, sync::Arc};

use serde_json::Value;

/// The structure of a JSON value. Cost of a clone: one reference count.
#[derive(Clone)]
pub struct ValueShape {
    graph: Arc<Graph>,
    at: u32,
}

/// Structure of an object's member.
#[derive(Debug, Clone)]
pub enum ShapeMember {
    /// A member declared by the type.
    Known(ValueShape),
    /// An undeclared member: strict validation rejects it, and kube-apiserver would drop it.
    Unknown,
    /// A member with a free name: a map key, or an unknown field that the schema preserves. Has the shape of the values
    /// if the schema declares one.
    Free(Option<ValueShape>),
}

/// Strategy to merge two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge<'a> {
    /// The new value replaces the old one.
    Atomic,
    /// Objects are merged member by member.
    Granular,
    /// A list of scalars without duplicates.
    Set,
    /// A list of objects identified by these members.
    ByKey(&'a [Box<str>]),
}

/// The JSON type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonKind {
    /// An object.
    Object,
    /// A list.
    Array,
    /// A string.
    String,
    /// A number without a fraction.
    Integer,
    /// Any number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// Kubernetes' `IntOrString`.
    IntOrString,
    /// Kubernetes' `Quantity`: a string or a number.
    Quantity,
    /// Any JSON value.
    Any,
}

impl ValueShape {
    /// The shape of member `name` of an object.
    pub fn member(&self, name: &str) -> ShapeMember {
        let (graph, node) = self.target();
        let ValueContent::Object { members, rest } = &node.content else {
            return if node.kind == JsonKind::Any { ShapeMember::Free(None) } else { ShapeMember::Unknown };
        };
        match members.binary_search_by(|(known, _)| (**known).cmp(name)) {
            Ok(found) => ShapeMember::Known(Self::new(Arc::clone(graph), members[found].1)),
            Err(_) => match *rest {
                UndeclaredMembers::None => ShapeMember::Unknown,
                UndeclaredMembers::Any => ShapeMember::Free(None),
                UndeclaredMembers::Values(values) => ShapeMember::Free(Some(Self::new(Arc::clone(graph), values))),
            },
        }
    }

    /// Returns true for maps, whose values all have one shape.
    pub fn is_map(&self) -> bool {
        let (_, node) = self.target();
        matches!(&node.content, ValueContent::Object { members, rest: UndeclaredMembers::Values(_) } if members.is_empty())
    }

    /// The shape of the items of a list.
    pub fn item(&self) -> Option<Self> {
        let (graph, node) = self.target();
        match node.content {
            ValueContent::List(item) => Some(Self::new(Arc::clone(graph), item)),
            ValueContent::Scalar | ValueContent::Object { .. } | ValueContent::As(_) | ValueContent::Of(_) => None,
        }
    }

    /// The strategy of strategic merge patch. `ByKey` has exactly one key.
    pub fn merge(&self) -> Merge<'_> {
        self.strategy(|strategies| &strategies.patch)
    }

    /// The strategy of server-side apply.
    pub fn apply(&self) -> Merge<'_> {
        self.strategy(|strategies| &strategies.apply)
    }

    /// The JSON type.
    pub fn kind(&self) -> JsonKind {
        self.target().1.kind
    }

    /// The name of the type in Go, such as `PodSpec`; empty for scalars, lists, maps and custom resources.
    pub fn type_name(&self) -> &str {
        self.target().1.name.rsplit('.').next().unwrap_or_default()
    }

    /// The schema's `format`, such as `int32`, `byte` or `date-time`; empty if it has none.
    pub fn format(&self) -> &str {
        &self.target().1.format
    }

    /// Returns true if a value has the kind of the shape; integers must fit the width of their format.
    pub fn fits(&self, value: &Value) -> bool {
        match (self.kind(), value) {
            (JsonKind::Any, _)
            | (JsonKind::Object, Value::Object(_))
            | (JsonKind::Array, Value::Array(_))
            | (JsonKind::String | JsonKind::IntOrString | JsonKind::Quantity, Value::String(_))
            | (JsonKind::Number | JsonKind::Quantity, Value::Number(_))
            | (JsonKind::Boolean, Value::Bool(_)) => true,
            (JsonKind::IntOrString, Value::Number(number)) => is_int32(number),
            (JsonKind::Integer, Value::Number(number)) => {
                if self.format() == "int32" {
                    is_int32(number)
                } else {
                    number.is_i64()
                }
            }
            (
                JsonKind::Object
                | JsonKind::Array
                | JsonKind::String
                | JsonKind::Integer
                | JsonKind::Number
                | JsonKind::Boolean
                | JsonKind::IntOrString
                | JsonKind::Quantity,
                _,
            ) => false,
        }
    }

    fn strategy(&self, which: impl Fn(&Strategies) -> &MergeStrategy) -> Merge<'_> {
        // A strategy declared for the member takes precedence over its type's strategy.
        let strategies = self.node().strategies.as_deref().or_else(|| self.target().1.strategies.as_deref());
        match strategies.map(which) {
            None if self.kind() == JsonKind::Object => Merge::Granular,
            None | Some(MergeStrategy::Atomic) => Merge::Atomic,
            Some(MergeStrategy::Granular) => Merge::Granular,
            Some(MergeStrategy::Set) => Merge::Set,
            Some(MergeStrategy::ByKey(keys)) => Merge::ByKey(keys),
        }
    }
}

fn is_int32(number: &serde_json::Number) -> bool {
    number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
}

/// Nodes that refer to each other by index.
#[derive(Default)]
pub(crate) struct Graph {
    nodes: Vec<Node>,
}

/// Structure of a value.
pub(crate) struct Node {
    pub kind: JsonKind,
    /// Name of the definition, such as `io.k8s.api.core.v1.PodSpec`.
    pub name: Box<str>,
    pub format: Box<str>,
    /// `None` selects the default of the kind: granular for objects, atomic for everything else.
    pub strategies: Option<Box<Strategies>>,
    pub content: ValueContent,
}

/// Merge strategies for both kinds of patches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Strategies {
    pub patch: MergeStrategy,
    pub apply: MergeStrategy,
    /// True if strategic merge patch may remove members that the patch does not name.
    pub retain_keys: bool,
}

/// Owned form of [`Merge`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MergeStrategy {
    Atomic,
    Granular,
    Set,
    ByKey(Box<[Box<str>]>),
}

/// Content of a value.
pub(crate) enum ValueContent {
    Scalar,
    /// Members, sorted by name.
    Object {
        members: Box<[(Box<str>, u32)]>,
        rest: UndeclaredMembers,
    },
    List(u32),
    /// Like that node, with strategies of its own.
    As(u32),
    /// A value of another graph.
    Of(ValueShape),
}

/// Members that the type does not declare.
pub(crate) enum UndeclaredMembers {
    None,
    Any,
    Values(u32),
}

impl Node {
    pub(crate) fn new(kind: JsonKind, content: ValueContent) -> Self {
        Self { kind, name: "".into(), format: "".into(), strategies: None, content }
    }
}

impl Graph {
    /// Adds a node; it can be replaced later, so that a type can contain itself.
    pub(crate) fn add(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("schemas have fewer than 2^32 values")
    }

    pub(crate) fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }
}

impl ValueShape {
    pub(crate) fn new(graph: Arc<Graph>, at: u32) -> Self {
        Self { graph, at }
    }

    fn node(&self) -> &Node {
        &self.graph.nodes[self.at as usize]
    }

    /// Follows references to the node with the actual structure. Returns it with its graph.
    fn target(&self) -> (&Arc<Graph>, &Node) {
        let (mut graph, mut node) = (&self.graph, self.node());
        loop {
            match &node.content {
                ValueContent::As(at) => node = &graph.nodes[*at as usize],
                ValueContent::Of(shape) => (graph, node) = (&shape.graph, shape.node()),
                ValueContent::Scalar | ValueContent::Object { .. } | ValueContent::List(_) => return (graph, node),
            }
        }
    }
}

impl fmt::Debug for ValueShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape({:?} {})", self.kind(), self.type_name())
    }
}
