//! State shared by the informers of one cluster: endpoints, relist budget, verdicts on streams, running informers.

mod builder;
mod running;
mod verdicts;

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use informer_core::endpoints;
use tokio::{sync::Semaphore, time::timeout};

pub use self::builder::ClusterBuilder;
pub(crate) use self::running::{InformerRegistration, InformerState, RunningInformers};
use self::verdicts::Verdicts;
use crate::{
    config::Config,
    connection::ServerConnection,
    readiness::{InformersNotReady, all_ready, unready},
    selection::DeclaredSelection,
    shared::SharedCopies,
    status::ClusterStatus,
    transform::Transform,
};

/// Default number of informers of one cluster that read their initial state at the same time.
pub const RELISTS_AT_ONCE: usize = 2;

/// A Kubernetes cluster, from which informers are started. Cheap to clone; clones share the relist budget, the verdicts
/// on streams and the copies of [`start_shared`](crate::InformerBuilder::start_shared).
///
/// `V` are the types that [`informer`](Self::informer) knows: those of one kube version
/// ([`Kube5`](crate::kube5::Kube5)), or those of your own ([`Plain`](crate::plain::Plain)). Programs name its
/// aliases: [`kube5::Cluster`](crate::kube5::Cluster), which is also [`Cluster`](crate::Cluster),
/// [`plain::Cluster`](crate::plain::Cluster), `kube1::Cluster`, `kube3::Cluster` and `kube4::Cluster`.
pub struct ClusterOf<V> {
    state: Arc<ClusterState>,
    types: PhantomData<fn() -> V>,
}

/// State of one cluster, shared by the clones and by all that is started from them.
pub(crate) struct ClusterState {
    /// At least one, in order of preference.
    connections: Vec<ServerConnection>,
    identity: ClusterIdentity,
    relists: Arc<Semaphore>,
    endpoints: endpoints::Config,
    verdicts: Verdicts,
    running: Arc<RunningInformers>,
    copies: Arc<SharedCopies>,
    /// Time for which a shared copy runs on without users.
    shared_grace: Duration,
    defaults: DeclarationDefaults,
}

/// Settings with which the declarations of informers begin.
#[derive(Clone, Default)]
pub(crate) struct DeclarationDefaults {
    pub(crate) config: Config,
    pub(crate) selection: DeclaredSelection,
    pub(crate) transform: Option<Transform>,
}

/// Identity of the cluster, as far as the client configuration shows it.
pub(crate) struct ClusterIdentity {
    /// URL of the preferred endpoint, or the name the user gave; may be empty.
    pub(crate) server: String,
    /// Digest of the certificate authority; empty if unknown.
    pub(crate) authority: String,
}

impl<V> ClusterOf<V> {
    /// Creates a cluster whose informers read through `connection`, or a kube client with its authentication, TLS and
    /// proxy.
    ///
    /// kube's client retries some failures by itself; the requests of informers are built so that it does not. Clients
    /// of kube's own making speak HTTP/1.1 and open a connection for each watch;
    /// [`client_from`](crate::kube5::client_from) makes one that does better.
    #[must_use]
    pub fn new(connection: impl Into<ServerConnection>) -> Self {
        Self::builder(connection).build()
    }

    /// Like [`new`](Self::new), with more settings: fallback endpoints, the relist budget, a name.
    pub fn builder(connection: impl Into<ServerConnection>) -> ClusterBuilder<V> {
        ClusterBuilder::new(connection.into())
    }

    /// Waits until every informer of this cluster that runs now is ready,
    /// [shared](crate::InformerBuilder::start_shared) ones included. Like [`Informer::ready`](crate::Informer::ready),
    /// once for a whole program: start all, then wait. Does not wait for informers that have ended or start later, nor
    /// for raw streams. For some of the informers, see [`ready_all`](crate::ready_all).
    ///
    /// Cancel safe. Cost: one wake-up of the caller for each informer.
    ///
    /// # Errors
    /// [`InformersNotReady`], as of [`ready_all`](crate::ready_all). Of shared copies it names those with a watch of
    /// their own, which the filtered and the merged ones follow.
    pub async fn ready_all(&self, deadline: Duration) -> Result<(), InformersNotReady> {
        let (watching, derived) = (self.state.running().readiness(), self.state.copies().derived_readiness());
        let all = async {
            all_ready(&watching).await?;
            all_ready(&derived).await
        };
        // After a timeout and after an early end alike, each informer has its reason.
        let _ = timeout(deadline, all).await;
        unready(&watching)?;
        unready(&derived)
    }

    /// Returns the status of the informers of this cluster that run now, [shared](crate::InformerBuilder::start_shared)
    /// copies included: phase, last error, requests, objects, bytes, age. Serialize it for a page of the program, such as
    /// `/debug/informers`. It has no objects and no credentials. Raw streams are not included, nor informers that have
    /// ended.
    ///
    /// Cost: a few texts for each informer, however many objects there are.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        let watching = self.state.running().live();
        let watching = watching.iter().map(|informer| informer.report());
        ClusterStatus { informers: watching.chain(self.state.copies().derived_reports()).collect() }
    }

    pub(crate) fn state(&self) -> &Arc<ClusterState> {
        &self.state
    }
}

impl ClusterState {
    /// The endpoints, in order of preference; at least one.
    pub(crate) fn connections(&self) -> &[ServerConnection] {
        &self.connections
    }

    pub(crate) fn identity(&self) -> &ClusterIdentity {
        &self.identity
    }

    /// Settings of when informers leave an endpoint and when they return to it.
    pub(crate) fn endpoints(&self) -> &endpoints::Config {
        &self.endpoints
    }

    pub(crate) fn relists(&self) -> &Arc<Semaphore> {
        &self.relists
    }

    /// Registry of the running informers. Does not contain raw streams.
    pub(crate) fn running(&self) -> &Arc<RunningInformers> {
        &self.running
    }

    /// Registers a running informer until the returned guard is dropped.
    pub(crate) fn started(&self, informer: InformerState) -> InformerRegistration {
        self.running.add(informer)
    }

    pub(crate) fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// Registry of the shared copies.
    pub(crate) fn copies(&self) -> &Arc<SharedCopies> {
        &self.copies
    }

    /// Settings with which the declarations of informers begin.
    pub(crate) fn defaults(&self) -> &DeclarationDefaults {
        &self.defaults
    }

    pub(crate) fn shared_grace(&self) -> Duration {
        self.shared_grace
    }
}

impl<V> Clone for ClusterOf<V> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), types: PhantomData }
    }
}

impl<V> fmt::Debug for ClusterOf<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("endpoints", &self.state.connections.len())
            .field("relists_free", &self.state.relists.available_permits())
            .finish_non_exhaustive()
    }
}
