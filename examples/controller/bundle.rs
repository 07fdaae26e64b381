//! The type that the controller serves: a `Bundle` copies one ConfigMap to the namespaces that carry its labels.

use std::collections::BTreeMap;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Desired copies. Cluster-scoped, so that a Bundle can own objects in every namespace.
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, Serialize)]
#[kube(group = "copies.example.dev", version = "v1", kind = "Bundle", status = "BundleStatus")]
#[serde(rename_all = "camelCase")]
pub(crate) struct BundleSpec {
    /// Name of the original, a ConfigMap in the controller's trust namespace.
    pub(crate) source: String,
    /// Labels of the namespaces that get a copy, which has the name of the Bundle.
    pub(crate) namespace_labels: BTreeMap<String, String>,
}

/// The state that the controller observed and produced.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BundleStatus {
    /// Generation of the spec that this status is about.
    pub(crate) observed_generation: Option<i64>,
    /// Number of copies.
    pub(crate) copies: u32,
    /// Term of the leader that wrote this status: its fence token, which only grows.
    pub(crate) term: i32,
    /// One condition: [`SYNCED`].
    #[schemars(schema_with = "conditions")]
    pub(crate) conditions: Vec<Condition>,
}

/// Type of the condition that all copies equal the original.
pub(crate) const SYNCED: &str = "Synced";

impl Bundle {
    /// The condition [`SYNCED`], if it was ever written.
    pub(crate) fn synced(&self) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == SYNCED)
    }

    /// The condition to write now. Its transition time moves only if its status does.
    pub(crate) fn condition(&self, is_synced: bool, reason: &str, message: String) -> Condition {
        let status = if is_synced { "True" } else { "False" };
        let before = self.synced().filter(|before| before.status == status);
        let since = before.map(|before| before.last_transition_time.clone());
        Condition {
            last_transition_time: since.unwrap_or_else(|| Time(Timestamp::now())),
            message,
            observed_generation: self.metadata.generation,
            reason: reason.to_owned(),
            status: status.to_owned(),
            type_: SYNCED.to_owned(),
        }
    }
}

fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string"},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string"},
                "message": {"type": "string"},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64"},
            },
        },
    })
}
