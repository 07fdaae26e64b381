//! Shapes of the built-in types, made from `definitions.txt` and `merge_keys.txt`.
//!
//! INVARIANT: each is made once, on first use, with those that it refers to. Memory: about 500 KiB for all of them, for about
//! 3,200 values without descriptions.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{LazyLock, OnceLock},
};

use super::{
    definition::{self, BuiltinDefinition},
    read::{ReadDefinition, SchemaReader},
    shape::{JsonKind, MergeStrategy, Strategies, ValueShape},
};

/// The shape of objects of a built-in type.
pub(crate) fn find(api_version: &str, kind: &str) -> Option<ValueShape> {
    named(definition::of_kind(api_version, kind)?)
}

/// The shape of a definition, such as `io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta`.
pub(crate) fn named(name: &str) -> Option<ValueShape> {
    let (shape, definition) = (SHAPES.get(name)?, definition::find(name)?);
    Some(shape.get_or_init(|| read(definition)).clone())
}

/// Shapes of the definitions that were used, by name.
static SHAPES: LazyLock<BTreeMap<&'static str, OnceLock<ValueShape>>> =
    LazyLock::new(|| definition::all().map(|definition| (definition.name, OnceLock::new())).collect());

static STRATEGIES: LazyLock<HashMap<&'static str, Strategies>> = LazyLock::new(strategies);

/// Reads a definition. Some schemas do not state the kind of the value; their names decide.
///
/// Definitions refer to themselves, but to no others that refer back to them: that would not end. A test reads all of them.
fn read(definition: &BuiltinDefinition) -> ValueShape {
    let name = definition.name;
    let kind = match name.rsplit('.').next().unwrap_or_default() {
        "Quantity" => JsonKind::Quantity,
        "FieldsV1" | "RawExtension" => JsonKind::Object,
        "JSON" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => JsonKind::Any,
        _ => {
            let read = ReadDefinition { name, strategies: &STRATEGIES, other: named };
            return SchemaReader::define(read, &definition.undescribed_schema());
        }
    };
    ValueShape::of_any(kind)
}

/// Parses `merge_keys.txt`. A line has the type or member, the strategy of strategic merge patch, the strategy of
/// server-side apply, and optionally `retainKeys`.
pub(crate) fn strategies() -> HashMap<&'static str, Strategies> {
    let lines = include_str!("merge_keys.txt").lines().filter(|line| !line.starts_with('#'));
    let read = |line: &'static str| {
        let mut words = line.split_whitespace();
        let strategies = |patch, apply| Strategies { patch, apply, retain_keys: line.ends_with(" retainKeys") };
        Some((words.next()?, strategies(strategy(words.next()?), strategy(words.next()?))))
    };
    lines.filter_map(read).collect()
}

/// Parses `atomic`, `granular`, `set`, or `map:` with comma-separated keys.
fn strategy(word: &str) -> MergeStrategy {
    match word {
        "granular" => MergeStrategy::Granular,
        "set" => MergeStrategy::Set,
        _ => match word.strip_prefix("map:") {
            Some(keys) => MergeStrategy::ByKey(keys.split(',').map(Box::from).collect()),
            None => MergeStrategy::Atomic,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::ShapeMember, *};
    use crate::{registry::Registry, schemas::Merge};

    /// The shape at a dotted path, in which `[]` is an item of a list.
    fn at(kind: (&str, &str), path: &str) -> ValueShape {
        let mut shape = find(kind.0, kind.1).expect("a built-in kind");
        for name in path.split('.') {
            shape = match (name, shape.member(name)) {
                ("[]", _) => shape.item().expect("a list"),
                (_, ShapeMember::Known(shape) | ShapeMember::Free(Some(shape))) => shape,
                (_, ShapeMember::Free(None) | ShapeMember::Unknown) => panic!("no {name} in {path}"),
            };
        }
        shape
    }

    const POD: (&str, &str) = ("v1", "Pod");
    const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
    const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

    #[test]
    fn every_type_that_is_served_has_a_shape() {
        for ty in Registry::builtin().iter() {
            let shape = super::super::of(ty).unwrap_or_else(|| panic!("{} {}", ty.api_version(), ty.kind));
            assert_eq!((shape.kind(), shape.type_name()), (JsonKind::Object, &*ty.kind));
            let uid = at((ty.api_version(), &ty.kind), "metadata.ownerReferences.[].uid");
            assert_eq!(uid.kind(), JsonKind::String, "{}", ty.kind);
        }
    }

    /// Goal: reading a definition ends: none refers to another one that refers back to it. Method: reads all of them on a
    /// thread that a cycle would block for ever, because a definition would wait for its own `OnceLock`.
    #[test]
    fn every_definition_is_read() {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for definition in definition::all() {
                assert!(named(definition.name).is_some(), "{}", definition.name);
            }
            done.send(())
        });
        is_done.recv_timeout(Duration::from_secs(60)).expect("all definitions are read");
    }

    /// Goal: every merge strategy of Kubernetes. Method: one member per strategy, with the result for strategic merge
    /// patch and for server-side apply.
    #[test]
    fn values_are_merged_as_their_members_say() {
        let text = |merge: Merge<'_>| match merge {
            Merge::Atomic => "atomic".to_owned(),
            Merge::Granular => "granular".to_owned(),
            Merge::Set => "set".to_owned(),
            Merge::ByKey(keys) => keys.join(","),
        };
        for (kind, path, patch, apply) in [
            (POD, "spec.containers", "name", "name"),
            (POD, "spec.containers.[].ports", "containerPort", "containerPort,protocol"),
            (POD, "spec.volumes", "name", "name"),
            (POD, "spec.tolerations", "atomic", "atomic"),
            (POD, "spec.nodeSelector", "granular", "atomic"),
            (POD, "spec.containers.[].args", "atomic", "atomic"),
            (POD, "spec.containers.[].env.[].valueFrom.configMapKeyRef", "granular", "atomic"),
            (POD, "metadata.finalizers", "set", "set"),
            (POD, "metadata.labels", "granular", "granular"),
            (POD, "metadata.name", "atomic", "atomic"),
            (POD, "metadata.ownerReferences", "uid", "uid"),
            (DEPLOYMENT, "spec.strategy", "granular", "granular"),
            (DEPLOYMENT, "spec.selector", "granular", "atomic"),
            (("v1", "Service"), "spec.ports", "port", "port,protocol"),
            (("policy/v1", "PodDisruptionBudget"), "spec.selector", "atomic", "atomic"),
        ] {
            let shape = at(kind, path);
            assert_eq!((text(shape.merge()), text(shape.apply())), (patch.to_owned(), apply.to_owned()), "{path}");
        }
    }

    #[test]
    fn values_have_the_types_that_go_reads() {
        for (kind, path, expected, format) in [
            (POD, "spec.containers.[].resources.limits.cpu", JsonKind::Quantity, ""),
            (POD, "spec.containers.[].livenessProbe.httpGet.port", JsonKind::IntOrString, ""),
            (POD, "spec.priority", JsonKind::Integer, "int32"),
            (POD, "metadata.generation", JsonKind::Integer, "int64"),
            (POD, "metadata.creationTimestamp", JsonKind::String, "date-time"),
            (POD, "spec.hostNetwork", JsonKind::Boolean, ""),
            (("v1", "Secret"), "data.any", JsonKind::String, "byte"),
            (POD, "metadata.managedFields.[].fieldsV1", JsonKind::Object, ""),
            (DEFINITION, "spec.versions.[].schema.openAPIV3Schema.maximum", JsonKind::Number, "double"),
            (DEFINITION, "spec.versions.[].schema.openAPIV3Schema.properties.a.not.properties.b", JsonKind::Object, ""),
            (DEFINITION, "spec.versions.[].schema.openAPIV3Schema.items", JsonKind::Any, ""),
        ] {
            let shape = at(kind, path);
            assert_eq!((shape.kind(), shape.format()), (expected, format), "{path}");
        }
        assert_eq!(at(POD, "spec.containers.[]").type_name(), "Container");
    }

    #[test]
    fn members_are_known_unknown_or_free() {
        let spec = at(POD, "spec");
        assert!(matches!(spec.member("containers"), ShapeMember::Known(_)));
        assert!(matches!(spec.member("container"), ShapeMember::Unknown));
        assert!(matches!(at(POD, "metadata.labels").member("any"), ShapeMember::Free(Some(_))));
        assert!(matches!(at(POD, "metadata.managedFields.[].fieldsV1").member("f:a"), ShapeMember::Free(None)));
        assert!(matches!(at(POD, "metadata.name").member("any"), ShapeMember::Unknown));
        let subresource = at(DEFINITION, "spec.versions.[].subresources.status");
        assert!(matches!(subresource.member("any"), ShapeMember::Unknown), "a type without members");
    }

    #[test]
    fn each_line_of_the_table_is_about_a_member() {
        let mut known = 0;
        for what in strategies().keys() {
            let (ty, member) = what.rsplit_once('.').expect("a dotted name");
            // The table has all stable types; some of them appear in no stored object.
            if let Some(ty) = named(ty) {
                assert!(matches!(ty.member(member), ShapeMember::Known(_)), "{what}");
                known += 1;
            }
        }
        assert!(known > 60, "{known}");
    }
}
