//! A [`Shape`]: one node of a graph of values, cheap to clone.
//!
//! INVARIANT: nodes never change once a shape exists, and every index in a node is of the same graph. Types may contain
//! themselves, so whoever walks a shape walks a value beside it and ends with the value.

use std::{fmt, sync::Arc};

/// What is known about one JSON value. Cost of a clone: one reference count.
#[derive(Clone)]
pub(crate) struct Shape {
    graph: Arc<Graph>,
    at: u32,
}

/// What a member of an object is.
#[derive(Debug, Clone)]
pub(crate) enum Member {
    /// A member that the type names.
    Known(Shape),
    /// No such member: strict validation complains, and kube-apiserver would drop it.
    Unknown,
    /// Any name may stand here: a key of a map, or a field that is kept although nobody knows it. With the shape of the
    /// values where they have one.
    Free(Option<Shape>),
}

/// How two values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge<'a> {
    /// The new one replaces the old one.
    Atomic,
    /// Member by member.
    Granular,
    /// A list of scalars without duplicates.
    Set,
    /// A list of objects that are told apart by these members.
    ByKey(&'a [Box<str>]),
}

/// The JSON type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonKind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// `IntOrString` of Kubernetes.
    IntOrString,
    /// `Quantity` of Kubernetes: a string, or any number.
    Quantity,
    /// Whatever JSON can say.
    Any,
}

impl Shape {
    /// The shape of what stands under `name` in an object.
    pub(crate) fn member(&self, name: &str) -> Member {
        let (graph, node) = self.target();
        let Content::Object { members, rest } = &node.content else {
            return if node.kind == JsonKind::Any { Member::Free(None) } else { Member::Unknown };
        };
        match members.binary_search_by(|(known, _)| (**known).cmp(name)) {
            Ok(found) => Member::Known(Self::new(Arc::clone(graph), members[found].1)),
            Err(_) => match *rest {
                Rest::None => Member::Unknown,
                Rest::Any => Member::Free(None),
                Rest::Values(values) => Member::Free(Some(Self::new(Arc::clone(graph), values))),
            },
        }
    }

    /// Whether the value is a map: all of its members have one shape.
    pub(crate) fn is_map(&self) -> bool {
        let (_, node) = self.target();
        matches!(&node.content, Content::Object { members, rest: Rest::Values(_) } if members.is_empty())
    }

    /// The shape of the items of a list.
    pub(crate) fn item(&self) -> Option<Self> {
        let (graph, node) = self.target();
        match node.content {
            Content::List(item) => Some(Self::new(Arc::clone(graph), item)),
            Content::Scalar | Content::Object { .. } | Content::As(_) | Content::Of(_) => None,
        }
    }

    /// What strategic merge patches do with the value. `ByKey` has exactly one key.
    pub(crate) fn merge(&self) -> Merge<'_> {
        self.strategy(|strategies| &strategies.patch)
    }

    /// What server-side apply does with the value.
    pub(crate) fn apply(&self) -> Merge<'_> {
        self.strategy(|strategies| &strategies.apply)
    }

    /// The JSON type.
    pub(crate) fn kind(&self) -> JsonKind {
        self.target().1.kind
    }

    /// The name of the type in Go, such as `PodSpec`; empty for scalars, lists, maps and custom resources.
    pub(crate) fn type_name(&self) -> &str {
        self.target().1.name.rsplit('.').next().unwrap_or_default()
    }

    /// The `format` of the schema, such as `int32`, `byte` or `date-time`; empty when it has none.
    pub(crate) fn format(&self) -> &str {
        &self.target().1.format
    }

    fn strategy(&self, which: impl Fn(&Strategies) -> &Strategy) -> Merge<'_> {
        // What stands at the place of the value wins over what its type says.
        let told = self.node().strategies.as_deref().or_else(|| self.target().1.strategies.as_deref());
        match told.map(which) {
            None if self.kind() == JsonKind::Object => Merge::Granular,
            None | Some(Strategy::Atomic) => Merge::Atomic,
            Some(Strategy::Granular) => Merge::Granular,
            Some(Strategy::Set) => Merge::Set,
            Some(Strategy::ByKey(keys)) => Merge::ByKey(keys),
        }
    }
}

/// All values that refer to each other.
#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<Node>,
}

/// One value.
pub(super) struct Node {
    pub(super) kind: JsonKind,
    /// Of a definition, such as `io.k8s.api.core.v1.PodSpec`.
    pub(super) name: Box<str>,
    pub(super) format: Box<str>,
    /// `None` is what the kind says: objects member by member, everything else as a whole.
    pub(super) strategies: Option<Box<Strategies>>,
    pub(super) content: Content,
}

/// How a value is merged, by both kinds of patches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Strategies {
    pub(super) patch: Strategy,
    pub(super) apply: Strategy,
    /// Whether strategic merge patches may take members away that the patch does not name.
    pub(super) retain_keys: bool,
}

/// As [`Merge`], owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Strategy {
    Atomic,
    Granular,
    Set,
    ByKey(Box<[Box<str>]>),
}

/// What stands in a value.
pub(super) enum Content {
    Scalar,
    /// Members are sorted by name.
    Object {
        members: Box<[(Box<str>, u32)]>,
        rest: Rest,
    },
    List(u32),
    /// The same as that node, merged in another way.
    As(u32),
    /// The same as a value of another graph.
    Of(Shape),
}

/// Members that have no name of their own.
pub(super) enum Rest {
    None,
    Any,
    Values(u32),
}

impl Node {
    pub(super) fn new(kind: JsonKind, content: Content) -> Self {
        Self { kind, name: "".into(), format: "".into(), strategies: None, content }
    }
}

impl Graph {
    /// Adds a node; it may be filled in later, so that a type can contain itself.
    pub(super) fn add(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        u32::try_from(self.nodes.len() - 1).expect("schemas have fewer than 2^32 values")
    }

    pub(super) fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }
}

impl Shape {
    pub(super) fn new(graph: Arc<Graph>, at: u32) -> Self {
        Self { graph, at }
    }

    fn node(&self) -> &Node {
        &self.graph.nodes[self.at as usize]
    }

    /// The node that says what the value is, which this one may only point to, and its graph.
    fn target(&self) -> (&Arc<Graph>, &Node) {
        let (mut graph, mut node) = (&self.graph, self.node());
        loop {
            match &node.content {
                Content::As(at) => node = &graph.nodes[*at as usize],
                Content::Of(shape) => (graph, node) = (&shape.graph, shape.node()),
                Content::Scalar | Content::Object { .. } | Content::List(_) => return (graph, node),
            }
        }
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape({:?} {})", self.kind(), self.type_name())
    }
}
