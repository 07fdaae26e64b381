//! The rules of a served type: of the built-in type, or of its CustomResourceDefinition.

use std::sync::{Arc, LazyLock};

use api_rules::registry::{Definition, Registry, ResourceType};
use serde_json::{Value, json};

use super::{
    history::History,
    types::{DEFINITIONS, PathTarget},
};

/// The built-in types. Made once, as that takes most of a millisecond.
pub(super) static BUILTIN: LazyLock<Registry> = LazyLock::new(Registry::builtin);

/// `apiVersion` of definitions.
const DEFINITIONS_VERSION: &str = "apiextensions.k8s.io/v1";

/// Returns the rules of a path's type. A type without a definition has the subresource `status` and allows any fields.
///
/// Cost: parses the definition, if there is one.
pub(super) fn of(history: &History, target: &PathTarget) -> Arc<ResourceType> {
    let ty = &target.ty;
    let version = ty.api_version.rsplit('/').next().unwrap_or_default();
    if let Some(found) = BUILTIN.find(&ty.group, version, &ty.plural) {
        return found;
    }
    let name = format!("{}.{}", ty.plural, ty.group);
    let definition = history.find(DEFINITIONS_VERSION, DEFINITIONS).and_then(|ty| history.get(&ty, &name).cloned());
    let made = definition.and_then(|stored| at_version(stored.value(), version));
    made.or_else(|| at_version(undefined(target, version), version)).expect("a definition of our own writing")
}

/// Returns the type of one version of a definition, with the names that it requests.
fn at_version(mut definition: Value, version: &str) -> Option<Arc<ResourceType>> {
    definition["status"] = json!({"acceptedNames": definition["spec"]["names"]});
    let definition = Definition::read(definition.as_object()?)?;
    definition.types(&Arc::new(definition.schema()), 0).into_iter().find(|ty| ty.version == version)
}

/// Returns the definition of a type that has none.
fn undefined(target: &PathTarget, version: &str) -> Value {
    let ty = &target.ty;
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({"metadata": {"name": format!("{}.{}", ty.plural, ty.group)}, "spec": {
        "group": ty.group,
        "names": {"plural": ty.plural, "kind": ty.kind},
        "scope": if target.namespaced() { "Namespaced" } else { "Cluster" },
        "versions": [{"name": version, "served": true, "storage": true, "schema": schema, "subresources":
            {"status": {}}}],
    }})
}
