//! A server in front of an API server.

use std::sync::Arc;

use super::{App, Writes};
use crate::{
    cacher::{Caches, StateFolder, StateOrigin},
    config::{Config, UpstreamConfig},
    storage::folder::FolderError,
    upstream::{connect::UpstreamAddresses, gateway::Upstream},
    watched::FileWatcher,
};

impl App {
    /// Builds the parts of a server in front of an API server, which answers whatever the caches do not.
    ///
    /// # Errors
    /// [`FolderError`] if the caches cannot be saved in the folder.
    pub(crate) fn with_upstream(
        config: Config,
        addresses: UpstreamAddresses,
        upstream: &UpstreamConfig,
        files: FileWatcher,
    ) -> Result<Self, FolderError> {
        let scopes = upstream.scopes.iter().cloned().collect();
        let origin = StateOrigin { server: addresses.origin(), scopes, cluster: None };
        let folder = upstream.state_dir.as_ref();
        let folder = folder.map(|path| StateFolder::open(path, origin, upstream.saves_secrets)).transpose()?;
        let max_staleness = upstream.max_staleness;
        let upstream = Upstream::new(addresses, upstream);
        let caches = Caches::new(upstream.shared_source(), config.limits.clone()).at_most_stale(max_staleness);
        let caches = match folder {
            Some(folder) => caches.saved_in(folder.awaiting_cluster()),
            None => caches,
        };
        Ok(Self::assemble(config, caches, files, |_, _, _| Writes::Forward(Arc::new(upstream))))
    }
}
