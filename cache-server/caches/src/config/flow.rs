//! Settings of flow control.

use std::path::PathBuf;

use crate::limits;

/// Settings of flow control: the source of its objects, and the seats of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSettings {
    /// Origin of the FlowSchemas and PriorityLevelConfigurations. Default [`FlowSource::Builtin`].
    pub source: FlowSource,
    /// Seats that all priority levels share. Default [`limits::SEATS`].
    pub seats: u32,
}

/// Origin of the FlowSchemas and PriorityLevelConfigurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowSource {
    /// Those that every cluster has.
    #[default]
    Builtin,
    /// Those that this server stores, or those of the API server behind it. A server that stores them itself creates
    /// those that every cluster has.
    Stored,
    /// Those of a manifest or a folder of manifests, beside those that every cluster has. Of equal names, those of the
    /// files count. The files are read again when they change.
    Files(PathBuf),
}

impl Default for FlowSettings {
    fn default() -> Self {
        Self { source: FlowSource::default(), seats: limits::SEATS }
    }
}
