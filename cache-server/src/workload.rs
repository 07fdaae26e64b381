//! Objects that a server starts with: synthetic ones, those of manifests, and those of flow control.

pub(crate) mod flow_objects;
pub(crate) mod manifests;
#[cfg(feature = "workload")]
pub mod populate;
