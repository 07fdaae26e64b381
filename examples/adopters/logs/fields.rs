//! The fields that records have, as types to project onto. Unlike kube's types they hold nothing else.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A pod, as a record names it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodFields {
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
    #[serde(default)]
    pub(crate) status: Status,
}

/// A namespace or a node: its labels are all that a record has.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Labelled {
    pub(crate) metadata: Metadata,
}

/// Metadata of any object.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    #[serde(default)]
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) uid: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) owner_references: Vec<Owner>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    #[serde(default)]
    pub(crate) node_name: String,
    pub(crate) containers: Vec<Container>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Container {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) image: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(default, rename = "podIP")]
    pub(crate) pod_ip: String,
    #[serde(default)]
    pub(crate) container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    pub(crate) name: String,
    #[serde(default, rename = "containerID")]
    pub(crate) container_id: String,
    #[serde(default, rename = "imageID")]
    pub(crate) image_id: String,
}
