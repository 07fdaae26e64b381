//! A cluster with more to say about it than a client.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use informer_core::endpoints;
use tokio::sync::Semaphore;

use super::{Cluster, Identity, RELISTS_AT_ONCE, Registry, Shared, Verdicts};

/// Settings that the informers of a cluster share.
#[must_use = "nothing is built before build"]
pub struct ClusterBuilder {
    clients: Vec<kube::Client>,
    relists_at_once: usize,
    endpoints: endpoints::Config,
    identity: String,
    /// A digest of the certificate authority; empty when it is not known.
    pub(super) authority: String,
}

impl ClusterBuilder {
    pub(super) fn new(client: kube::Client) -> Self {
        Self {
            clients: vec![client],
            relists_at_once: RELISTS_AT_ONCE,
            endpoints: endpoints::Config::default(),
            identity: String::new(),
            authority: String::new(),
        }
    }

    /// Another endpoint of the same cluster, to be used when those before it fail. May be called again.
    ///
    /// The endpoints have to share resourceVersions: a watch cache, and the API server behind it; the servers of one
    /// control plane. Before anything is resumed at an endpoint, the history is proven by reading one object; an
    /// endpoint that proves to be another cluster is not used. An informer leaves an endpoint that has not worked for 5
    /// to 30 seconds ([`leave_after`](Self::leave_after)), and returns to a better one within 10 minutes
    /// ([`return_within`](Self::return_within)). One that answers 429 works: it has too much to do, and a fleet that went
    /// on to the next one would take the load along. See
    /// [`Informer::explain`](crate::Informer::explain) for where it is.
    pub fn fallback(mut self, client: kube::Client) -> Self {
        self.clients.push(client);
        self
    }

    /// How many informers read their initial state at the same time, whatever the endpoint; the others wait for their
    /// turn. Default [`RELISTS_AT_ONCE`]. More ask more of the servers after an outage. A turn ends with the read, once it
    /// stands still for [`initial_events_stall`](crate::Config::initial_events_stall), and after 60 s; the read then goes on
    /// without it.
    ///
    /// # Panics
    /// On zero: nothing would ever be read.
    pub fn relists_at_once(mut self, count: usize) -> Self {
        assert!(count > 0, "a budget of no relists");
        self.relists_at_once = count;
        self
    }

    /// How long an endpoint may fail before an informer leaves it for another one; each draws from this range. Default 5 to
    /// 30 s, up to four times as long while endpoint after endpoint fails. Shorter, and with a narrower range, lets the
    /// informers of an endpoint that only restarts move together.
    ///
    /// # Panics
    /// On a range that is empty.
    pub fn leave_after(mut self, range: RangeInclusive<Duration>) -> Self {
        assert!(!range.is_empty(), "no time is in the range");
        self.endpoints.leave_after = range;
        self
    }

    /// The preferred endpoint is tried again within this time, and not before the longest of
    /// [`leave_after`](Self::leave_after). Default 10 minutes, up to eight times as long while it fails. Shorter brings the
    /// informers back together.
    pub fn return_within(mut self, time: Duration) -> Self {
        self.endpoints.return_within = time;
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
                endpoints: self.endpoints,
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
