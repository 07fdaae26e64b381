//! Objects that a server starts with: synthetic ones, those of a new cluster, of manifests, and of flow control.

pub(crate) mod cluster_objects;
pub(crate) mod flow_objects;
pub(crate) mod manifests;
#[cfg(feature = "workload")]
pub mod populate;
