//! A CustomResourceDefinition and the types it defines.
//!
//! INVARIANT: all versions of a definition share one schema, so one cache and one history: objects are stored at the
//! storage version, and read at every other one as they are, unless a webhook converts them: then each of these versions
//! has a cache of its own, with the positions of that history.
//! INVARIANT: does no I/O and reads no clock.
//!
//! In reading order: the fields of a definition (here), defaults and validation (`check`), acceptance of names
//! (`accept`), and the resulting types (`types`).
//!
//! Source: apiextensions-apiserver `pkg/apis/apiextensions`, `pkg/registry/customresourcedefinition`,
//! `pkg/controller/{status,establish}`.

mod accept;
mod check;
mod types;

pub use self::{
    accept::{AcceptedStatus, TakenNames},
    check::DefinitionRefusal,
};

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// A JSON object.
pub type Object = Map<String, Value>;

/// Finalizer of a definition that is being deleted, until its objects are deleted.
pub const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The fields of a definition that the server uses. Null members count as absent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Definition {
    #[serde(deserialize_with = "given")]
    metadata: Metadata,
    #[serde(deserialize_with = "given")]
    spec: DefinitionSpec,
    #[serde(deserialize_with = "readable")]
    status: DefinitionStatus,
    /// See [`Definition::converting`].
    #[serde(skip)]
    calls_webhooks: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    #[serde(deserialize_with = "given")]
    name: String,
    #[serde(deserialize_with = "given")]
    uid: String,
    #[serde(deserialize_with = "given")]
    annotations: Object,
    #[serde(deserialize_with = "given")]
    deletion_timestamp: String,
    #[serde(deserialize_with = "given")]
    finalizers: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DefinitionSpec {
    #[serde(deserialize_with = "given")]
    group: String,
    #[serde(deserialize_with = "given")]
    names: Names,
    #[serde(deserialize_with = "given")]
    scope: String,
    #[serde(deserialize_with = "given")]
    versions: Vec<Version>,
    #[serde(deserialize_with = "given")]
    conversion: Conversion,
    #[serde(deserialize_with = "given")]
    preserve_unknown_fields: bool,
}

/// Names of a type, requested or accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Names {
    #[serde(deserialize_with = "given")]
    pub plural: String,
    #[serde(deserialize_with = "given", skip_serializing_if = "String::is_empty")]
    pub singular: String,
    #[serde(deserialize_with = "given", skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    #[serde(deserialize_with = "given")]
    pub kind: String,
    #[serde(deserialize_with = "given", skip_serializing_if = "String::is_empty")]
    pub list_kind: String,
    #[serde(deserialize_with = "given", skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Version {
    #[serde(deserialize_with = "given")]
    name: String,
    #[serde(deserialize_with = "given")]
    served: bool,
    #[serde(deserialize_with = "given")]
    storage: bool,
    #[serde(deserialize_with = "given")]
    schema: Validation,
    #[serde(deserialize_with = "given")]
    subresources: Subresources,
    /// Unchanged; parsed when a table is made.
    additional_printer_columns: Value,
    #[serde(deserialize_with = "given")]
    selectable_fields: Vec<SelectableField>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Validation {
    /// Compact JSON; empty if missing.
    #[serde(rename = "openAPIV3Schema", deserialize_with = "text")]
    schema: Arc<str>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Subresources {
    status: Option<Object>,
    scale: Option<ScalePaths>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ScalePaths {
    #[serde(deserialize_with = "given")]
    spec_replicas_path: String,
    #[serde(deserialize_with = "given")]
    status_replicas_path: String,
    #[serde(deserialize_with = "given")]
    label_selector_path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SelectableField {
    #[serde(deserialize_with = "given")]
    json_path: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Conversion {
    #[serde(deserialize_with = "given")]
    strategy: String,
    /// Address of the webhook, and the reviews that it understands.
    webhook: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DefinitionStatus {
    #[serde(deserialize_with = "given")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "given")]
    accepted_names: Names,
    #[serde(deserialize_with = "given")]
    stored_versions: Vec<String>,
}

/// One condition of a definition, in the order kube-apiserver writes its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type", deserialize_with = "given")]
    pub kind: String,
    #[serde(deserialize_with = "given")]
    pub status: String,
    #[serde(deserialize_with = "given", skip_serializing_if = "String::is_empty")]
    pub last_transition_time: String,
    #[serde(deserialize_with = "given", skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(deserialize_with = "given", skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The kind of write that a definition is checked for.
#[derive(Clone, Copy, Debug)]
pub enum DefinitionChange<'a> {
    /// A create.
    Create,
    /// An update of this stored object.
    Update(&'a Object),
}

impl Definition {
    /// Reads a definition. `None` if a member has a wrong type; such an object is never stored.
    pub fn read(object: &Object) -> Option<Self> {
        Self::deserialize(object).ok()
    }

    /// Name of the definition, `plural.group`.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Group of the defined types.
    pub fn group(&self) -> &str {
        &self.spec.group
    }

    /// The definition for a server that calls the webhook that converts its objects, if there is one.
    #[must_use]
    pub fn converting(self) -> Self {
        Self { calls_webhooks: true, ..self }
    }

    fn is_converted(&self) -> bool {
        self.calls_webhooks && self.spec.conversion.strategy == "Webhook"
    }

    /// True if both convert objects in the same way. A server that calls no webhooks converts none.
    pub fn converts_as(&self, other: &Self) -> bool {
        !(self.is_converted() || other.is_converted()) || self.spec.conversion == other.spec.conversion
    }

    /// The version at which objects are stored: the storage version, or with a webhook the first one that was, as long as
    /// the status names it. Nothing converts its objects when the storage version changes.
    fn stored_version(&self) -> Option<&Version> {
        let first = self.status.stored_versions.iter();
        let mut first = first.filter_map(|name| self.spec.versions.iter().find(|version| version.name == *name));
        first
            .next()
            .filter(|_| self.is_converted())
            .or_else(|| self.spec.versions.iter().find(|version| version.storage))
    }

    /// True if the definition is served: its names were accepted once.
    pub fn is_established(&self) -> bool {
        self.condition("Established").is_some_and(|condition| condition.status == "True")
    }

    /// True if the definition is being deleted.
    pub fn is_terminating(&self) -> bool {
        !self.metadata.deletion_timestamp.is_empty()
    }

    /// True if the definition waits for the deletion of its objects.
    pub fn awaits_cleanup(&self) -> bool {
        self.is_terminating() && self.metadata.finalizers.iter().any(|finalizer| finalizer == CLEANUP)
    }

    fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// Reads a member that may be null.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads a member that counts as absent if malformed: clients can write anything into a status.
fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(T::deserialize(value).unwrap_or_default())
}

/// Reads a JSON value as compact text.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(if value.is_null() { Arc::default() } else { value.to_string().into() })
}
