//! Flags of `cache-server serve` for flow control.

use std::path::PathBuf;

use clap::Args;

use crate::config::{FlowSettings, FlowSource};

/// Flags that decide which requests wait.
#[derive(Debug, Args)]
#[command(next_help_heading = "Flow control")]
pub(super) struct FlowFlags {
    /// FlowSchemas and PriorityLevelConfigurations in effect: `stored` for those in this server (or in the API server
    /// behind it), whose changes take effect at once; else a manifest or a folder of manifests beside those of every
    /// cluster, read again when they change. Left out: those of every cluster. Callers without authentication are exempt.
    #[arg(long, env = "CACHE_SERVER_FLOW_CONFIG", value_name = "stored|FILE|FOLDER")]
    flow_config: Option<PathBuf>,

    /// Requests that are carried out at a time, shared by all priority levels. A list counts as up to 10. Exempt requests
    /// do not count.
    #[arg(long, env = "CACHE_SERVER_MAX_REQUESTS_INFLIGHT", value_name = "N", default_value = "600", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_requests_inflight: u32,
}

impl FlowFlags {
    pub(super) fn into_settings(self) -> FlowSettings {
        let source = match self.flow_config {
            None => FlowSource::Builtin,
            Some(path) if path.as_os_str() == "stored" => FlowSource::Stored,
            Some(path) => FlowSource::Files(path),
        };
        FlowSettings { source, seats: self.max_requests_inflight }
    }
}
