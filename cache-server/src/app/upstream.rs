//! A server in front of an API server.

use std::sync::Arc;

use super::{App, Writes};
use crate::{
    cacher::{Caches, HandedStates, SavedStates, StateOrigin},
    config::{Config, UpstreamConfig},
    storage::folder::FolderError,
    upstream::{connect::UpstreamAddresses, gateway::Upstream},
    watched::FileWatcher,
};

impl App {
    /// Builds the parts of a server in front of an API server, which answers whatever the caches do not. `handed` has the
    /// caches of the process before, which leaves the state folder later; `None` without one.
    ///
    /// # Errors
    /// [`FolderError`] if the caches cannot be saved in the folder.
    pub(crate) fn with_upstream(
        config: Config,
        addresses: UpstreamAddresses,
        upstream: &UpstreamConfig,
        files: FileWatcher,
        handed: Option<HandedStates>,
    ) -> Result<Self, FolderError> {
        let scopes = upstream.scopes.iter().cloned().collect();
        let origin = StateOrigin { server: addresses.origin(), scopes, cluster: None };
        let saved = match (&upstream.state_dir, handed) {
            (None, handed) => SavedStates::in_memory(origin, handed.unwrap_or_default()),
            (Some(path), None) => SavedStates::open(path, origin, upstream.saves_secrets)?,
            (Some(path), Some(handed)) => SavedStates::taken_over(path, origin, upstream.saves_secrets, handed),
        };
        let max_staleness = upstream.max_staleness;
        let upstream = Upstream::new(addresses, upstream);
        let caches = Caches::new(upstream.shared_source(), config.limits.clone()).at_most_stale(max_staleness);
        let caches = caches.saved_in(saved.awaiting_cluster());
        Ok(Self::assemble(config, caches, files, |_, _, _| Writes::Forward(Arc::new(upstream))))
    }
}
