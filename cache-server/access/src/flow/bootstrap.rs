//! The FlowSchemas and PriorityLevelConfigurations that every cluster has.
//!
//! Source: apiserver `apis/flowcontrol/bootstrap` of v1.36; `registry/flowcontrol/ensurer`.

use serde_json::Value;

use super::objects::{CATCH_ALL, EXEMPT, FlowObject};

/// Annotation of objects that are reset to their built-in spec, as long as its value is `true`.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

const MANIFESTS: &str = include_str!("bootstrap.yaml");

/// Returns the manifests of all built-in objects, the mandatory ones first.
///
/// # Panics
/// Never: a test reads the same text.
#[must_use]
pub fn manifests() -> Vec<Value> {
    serde_saphyr::from_str(MANIFESTS).expect("the built-in objects are YAML")
}

/// Returns all built-in objects, without uid.
///
/// # Panics
/// Never: a test reads the same text.
#[must_use]
pub fn objects() -> Vec<FlowObject> {
    let read = |value: &Value| FlowObject::read(value, true).expect("the built-in objects are valid");
    manifests().iter().map(read).collect()
}

/// Returns true for objects that always exist, with a fixed spec.
#[must_use]
pub fn is_mandatory(name: &str) -> bool {
    matches!(name, EXEMPT | CATCH_ALL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::objects::LimitResponse;

    #[test]
    fn the_objects_of_a_cluster_are_built_in() {
        let all = objects();
        let schemas = all.iter().filter(|object| matches!(object, FlowObject::Schema(_))).count();
        assert_eq!((all.len(), schemas), (19, 11));
        let level = |name: &str| {
            let mut levels = all.iter().filter_map(|object| match object {
                FlowObject::Level(level) => Some(level),
                FlowObject::Schema(_) => None,
            });
            levels.find(|level| level.name == name).cloned().unwrap()
        };
        assert_eq!(level(EXEMPT).response, LimitResponse::Exempt);
        assert_eq!(level(CATCH_ALL).response, LimitResponse::Reject);
        assert_eq!((level("workload-low").shares, level("workload-low").lendable_percent), (100, 90));
        assert!(all[..4].iter().all(|object| is_mandatory(object.name())));
    }
}
