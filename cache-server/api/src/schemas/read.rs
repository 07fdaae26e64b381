//! Reads JSON schemas into graphs: each definition of the built-in types, which refer to each other, and the self-contained
//! schema of a custom resource.
//!
//! INVARIANT: every schema becomes a shape. Unsupported schemas, and schemas nested deeper than [`DEPTH_MAX`], become
//! shapes that allow any value.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/schema`, kube-openapi `pkg/schemaconv`.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Map, Value};

use super::shape::{Graph, JsonKind, MergeStrategy, Node, Strategies, UndeclaredMembers, ValueContent, ValueShape};

/// Levels of nested schemas that are read.
const DEPTH_MAX: usize = 64;

impl ValueShape {
    /// The shape of objects with the `openAPIV3Schema` of a CustomResourceDefinition, with kind, apiVersion and
    /// metadata as in every object.
    pub fn from_openapi(schema: &Value) -> Self {
        let mut reader = SchemaReader::default();
        let at = reader.root(schema);
        Self::new(Arc::new(reader.graph), at)
    }

    /// The shape of values of a kind that allow any members.
    pub(crate) fn of_any(kind: JsonKind) -> Self {
        let mut graph = Graph::default();
        let at = graph.add(any(kind));
        Self::new(Arc::new(graph), at)
    }

    /// The shape of objects that allow any members, with kind, apiVersion and metadata as in every object.
    pub fn free() -> Self {
        Self::from_openapi(&Value::Null)
    }
}

/// Builds a graph from a schema.
#[derive(Default)]
pub(crate) struct SchemaReader {
    graph: Graph,
    /// `None` for the schema of a custom resource.
    definition: Option<ReadDefinition>,
}

/// A built-in definition that is read. Its node is the first one of its graph.
pub(crate) struct ReadDefinition {
    pub name: &'static str,
    /// Merge strategies of members, by `definition.member`, and of definitions, by `definition`.
    pub strategies: &'static HashMap<&'static str, Strategies>,
    /// Returns the shape of another definition.
    pub other: fn(&str) -> Option<ValueShape>,
}

impl SchemaReader {
    /// Reads a definition.
    pub(crate) fn define(definition: ReadDefinition, schema: &Value) -> ValueShape {
        let ReadDefinition { name, strategies, .. } = definition;
        let mut reader = Self { definition: Some(definition), ..Self::default() };
        // Reserves its place, to which it may refer itself.
        let at = reader.graph.add(any(JsonKind::Any));
        let mut node = reader.node(schema, name, DEPTH_MAX);
        node.name = name.into();
        node.strategies = strategies.get(name).cloned().map(Box::new);
        *reader.graph.node_mut(at) = node;
        ValueShape::new(Arc::new(reader.graph), at)
    }

    fn root(&mut self, schema: &Value) -> u32 {
        let mut node = self.node(schema, "", DEPTH_MAX);
        node.kind = JsonKind::Object;
        let node = self.embed(node);
        self.graph.add(node)
    }

    /// Adds the members of every Kubernetes object.
    fn embed(&mut self, mut node: Node) -> Node {
        let ValueContent::Object { members, .. } = &mut node.content else { return node };
        let mut all = std::mem::take(members).into_vec();
        all.retain(|(name, _)| !matches!(&**name, "kind" | "apiVersion" | "metadata"));
        for name in ["kind", "apiVersion"] {
            all.push((name.into(), self.graph.add(Node::new(JsonKind::String, ValueContent::Scalar))));
        }
        let metadata = super::object_meta()
            .map_or_else(|| any(JsonKind::Object), |meta| Node::new(JsonKind::Object, ValueContent::Of(meta)));
        all.push(("metadata".into(), self.graph.add(metadata)));
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        *members = all.into();
        node
    }

    /// Reads a schema. `owner` is the name of its definition, or empty.
    fn node(&mut self, schema: &Value, owner: &str, depth: usize) -> Node {
        let Some(schema) = schema.as_object().filter(|_| depth > 0) else { return any(JsonKind::Any) };
        if let Some(content) = self.referred(schema) {
            return Node::new(JsonKind::Any, content);
        }
        let kind = kind(schema);
        let mut node = Node::new(kind, ValueContent::Scalar);
        node.format = text(schema, "format").into();
        node.strategies = strategies(schema).map(Box::new);
        match kind {
            JsonKind::Object => node.content = self.object(schema, owner, depth),
            JsonKind::Array => {
                let item =
                    schema.get("items").map_or_else(|| any(JsonKind::Any), |item| self.node(item, "", depth - 1));
                node.content = ValueContent::List(self.place(item));
            }
            JsonKind::Any => return any(JsonKind::Any),
            JsonKind::String
            | JsonKind::Integer
            | JsonKind::Number
            | JsonKind::Boolean
            | JsonKind::IntOrString
            | JsonKind::Quantity => {}
        }
        if flag(schema, "x-kubernetes-embedded-resource") { self.embed(node) } else { node }
    }

    /// Returns the definition that a schema refers to.
    fn referred(&self, schema: &Map<String, Value>) -> Option<ValueContent> {
        let (definition, name) = (self.definition.as_ref()?, reference(schema)?);
        if name == definition.name {
            return Some(ValueContent::As(0));
        }
        (definition.other)(name).map(ValueContent::Of)
    }

    fn object(&mut self, schema: &Map<String, Value>, owner: &str, depth: usize) -> ValueContent {
        let mut members = Vec::new();
        for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let mut node = self.node(schema, "", depth - 1);
            let strategies = self.definition.as_ref().map(|definition| definition.strategies);
            if let Some(strategies) = strategies.and_then(|known| known.get(&*format!("{owner}.{name}"))) {
                node.strategies = Some(Box::new(strategies.clone()));
            }
            members.push((Box::from(name.as_str()), self.place(node)));
        }
        members.sort_by(|(one, _): &(Box<str>, u32), (other, _)| one.cmp(other));
        let rest = match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => {
                let values = self.node(values, "", depth - 1);
                UndeclaredMembers::Values(self.place(values))
            }
            Some(Value::Bool(true)) => UndeclaredMembers::Any,
            _ if flag(schema, "x-kubernetes-preserve-unknown-fields") => UndeclaredMembers::Any,
            _ => UndeclaredMembers::None,
        };
        ValueContent::Object { members: members.into(), rest }
    }

    /// Returns the index of a node; one that only refers to another node needs no entry of its own.
    fn place(&mut self, node: Node) -> u32 {
        match node {
            Node { content: ValueContent::As(at), strategies: None, .. } => at,
            node => self.graph.add(node),
        }
    }
}

/// A node that allows any members.
fn any(kind: JsonKind) -> Node {
    Node::new(kind, ValueContent::Object { members: Box::default(), rest: UndeclaredMembers::Any })
}

/// Name of the definition that a schema refers to with `$ref`.
fn reference(schema: &Map<String, Value>) -> Option<&str> {
    schema.get("$ref")?.as_str()?.rsplit('/').next()
}

fn kind(schema: &Map<String, Value>) -> JsonKind {
    if flag(schema, "x-kubernetes-int-or-string") {
        return JsonKind::IntOrString;
    }
    match text(schema, "type") {
        "object" => JsonKind::Object,
        "array" => JsonKind::Array,
        "string" => JsonKind::String,
        "integer" => JsonKind::Integer,
        "number" => JsonKind::Number,
        "boolean" => JsonKind::Boolean,
        // Some definitions have members but omit the type.
        "" if schema.contains_key("properties") => JsonKind::Object,
        _ => JsonKind::Any,
    }
}

/// Merge strategies from a custom resource's schema. Strategic merge patch does not exist for custom resources, so
/// `patch` is replaced or merged by type.
fn strategies(schema: &Map<String, Value>) -> Option<Strategies> {
    let apply = match (text(schema, "x-kubernetes-list-type"), text(schema, "x-kubernetes-map-type")) {
        ("set", _) => MergeStrategy::Set,
        ("map", _) => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten();
            MergeStrategy::ByKey(keys.filter_map(Value::as_str).map(Box::from).collect())
        }
        ("atomic", _) | (_, "atomic") => MergeStrategy::Atomic,
        (_, "granular") => MergeStrategy::Granular,
        _ => return None,
    };
    let patch = if text(schema, "type") == "object" { MergeStrategy::Granular } else { MergeStrategy::Atomic };
    Some(Strategies { patch, apply, retain_keys: false })
}

fn text<'a>(schema: &'a Map<String, Value>, member: &str) -> &'a str {
    schema.get(member).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Map<String, Value>, member: &str) -> bool {
    schema.get(member).and_then(Value::as_bool).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::shape::{Merge, ShapeMember},
        *,
    };

    fn known(shape: &ValueShape, name: &str) -> ValueShape {
        match shape.member(name) {
            ShapeMember::Known(shape) => shape,
            other @ (ShapeMember::Free(_) | ShapeMember::Unknown) => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn a_custom_type_has_the_members_of_its_schema_and_of_every_object() {
        let shape = ValueShape::from_openapi(&json!({"type": "object", "properties": {
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {
                "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
                    "items": {"type": "object", "properties": {"a": {"type": "integer", "format": "int32"}}}},
                "names": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "place": {"type": "object", "x-kubernetes-map-type": "atomic"},
                "size": {"x-kubernetes-int-or-string": true},
                "labels": {"type": "object", "additionalProperties": {"type": "boolean"}},
            }},
        }}));
        let spec = known(&shape, "spec");
        let ports = known(&spec, "ports");
        assert_eq!(ports.apply(), Merge::ByKey(&["a".into(), "b".into()]));
        assert_eq!(ports.merge(), Merge::Atomic, "there are no strategic merge patches");
        assert_eq!(known(&ports.item().expect("a list"), "a").format(), "int32");
        assert_eq!(known(&spec, "names").apply(), Merge::Set);
        assert_eq!(known(&spec, "place").apply(), Merge::Atomic);
        assert_eq!(known(&spec, "size").kind(), JsonKind::IntOrString);
        assert!(
            matches!(known(&spec, "labels").member("x"), ShapeMember::Free(Some(value)) if value.kind() == JsonKind::Boolean)
        );
        assert!(matches!(spec.member("other"), ShapeMember::Unknown));
        assert_eq!(known(&shape, "kind").kind(), JsonKind::String);
        let metadata = known(&shape, "metadata");
        assert_eq!(metadata.kind(), JsonKind::Object);
        assert_eq!(known(&metadata, "finalizers").apply(), Merge::Set, "metadata is that of built-in types");
        assert!(matches!(metadata.member("other"), ShapeMember::Unknown));
    }

    #[test]
    fn unknown_fields_are_free_where_the_schema_keeps_them() {
        let preserve = "x-kubernetes-preserve-unknown-fields";
        let shape = ValueShape::from_openapi(&json!({"type": "object", "properties": {
            "preserve": {"type": "object", preserve: true, "properties": {"a": {"type": "string"}}},
            "any": {preserve: true},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true},
        }}));
        let inside = known(&shape, "preserve");
        assert_eq!(known(&inside, "a").kind(), JsonKind::String);
        assert!(matches!(inside.member("b"), ShapeMember::Free(None)));
        assert_eq!(known(&shape, "any").kind(), JsonKind::Any);
        assert_eq!(known(&known(&shape, "pod"), "apiVersion").kind(), JsonKind::String);
        for shape in [ValueShape::free(), ValueShape::from_openapi(&json!({preserve: true}))] {
            assert_eq!(shape.kind(), JsonKind::Object);
            assert!(matches!(shape.member("anything"), ShapeMember::Free(None)));
            assert!(matches!(shape.member("metadata"), ShapeMember::Known(_)));
        }
    }

    #[test]
    fn schemas_are_read_to_a_depth() {
        let mut schema = json!({"type": "string"});
        for _ in 0..2 * DEPTH_MAX {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        let mut shape = ValueShape::from_openapi(&schema);
        for _ in 0..DEPTH_MAX {
            shape = known(&shape, "a");
        }
        assert_eq!(shape.kind(), JsonKind::Any);
    }
}
