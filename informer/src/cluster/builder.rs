//! A cluster with more to say about it than a client.

use std::{fmt, sync::Arc};

use tokio::sync::Semaphore;

use super::{Cluster, Identity, RELISTS_AT_ONCE, Registry, Shared, Verdicts};

/// Settings that the informers of a cluster share.
#[must_use = "nothing is built before build"]
pub struct ClusterBuilder {
    clients: Vec<kube::Client>,
    relists_at_once: usize,
    identity: String,
    /// A digest of the certificate authority; empty when it is not known.
    pub(super) authority: String,
}

impl ClusterBuilder {
    pub(super) fn new(client: kube::Client) -> Self {
        Self {
            clients: vec![client],
            relists_at_once: RELISTS_AT_ONCE,
            identity: String::new(),
            authority: String::new(),
        }
    }

    /// Another endpoint of the same cluster, to be used when those before it fail. May be called again.
    ///
    /// The endpoints have to share resourceVersions: a watch cache, and the API server behind it; the servers of one
    /// control plane. Before anything is resumed at an endpoint, the history is proven by reading one object; an
    /// endpoint that proves to be another cluster is not used. An informer leaves an endpoint that has not worked for 5
    /// to 30 seconds, and returns to a better one within 10 minutes. See
    /// [`Informer::explain`](crate::Informer::explain) for where it is.
    pub fn fallback(mut self, client: kube::Client) -> Self {
        self.clients.push(client);
        self
    }

    /// How many informers read their initial state at the same time, whatever the endpoint; the others wait for their
    /// turn. Default [`RELISTS_AT_ONCE`]. More ask more of the servers after an outage.
    ///
    /// # Panics
    /// On zero: nothing would ever be read.
    pub fn relists_at_once(mut self, count: usize) -> Self {
        assert!(count > 0, "a budget of no relists");
        self.relists_at_once = count;
        self
    }

    /// What tells this cluster's checkpoints from those of others, for clients whose URL is not known here. Default:
    /// URL and certificate authority of a [`kube::Config`], else nothing, and the proof of the history alone decides.
    pub fn identity(mut self, text: impl Into<String>) -> Self {
        self.identity = text.into();
        self
    }

    /// The cluster. Sends nothing.
    #[must_use]
    pub fn build(self) -> Cluster {
        let relists = Arc::new(Semaphore::new(self.relists_at_once.min(Semaphore::MAX_PERMITS)));
        let identity = Identity { server: self.identity, authority: self.authority };
        Cluster {
            shared: Arc::new(Shared {
                clients: self.clients,
                identity,
                relists,
                verdicts: Verdicts::default(),
                running: Arc::new(Registry::default()),
            }),
        }
    }
}

impl fmt::Debug for ClusterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterBuilder")
            .field("endpoints", &self.clients.len())
            .field("relists_at_once", &self.relists_at_once)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
