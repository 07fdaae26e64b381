//! State shared by the informers of one cluster: endpoints, relist budget, verdicts on streams, running informers.

mod builder;
mod running;
mod verdicts;

use std::{fmt, sync::Arc, time::Duration};

use informer_core::endpoints;
use tokio::{sync::Semaphore, time::timeout};

pub use self::builder::ClusterBuilder;
pub(crate) use self::running::{InformerRegistration, InformerState, RunningInformers};
use self::verdicts::Verdicts;
use crate::{
    checkpoint,
    config::Config,
    error::{Error, Kind},
    readiness::{InformersNotReady, all_ready, unready},
    shared::SharedCopies,
    transport::{client_from, with_authority_file},
};

/// Default number of informers of one cluster that read their initial state at the same time.
pub const RELISTS_AT_ONCE: usize = 2;

/// A Kubernetes cluster, from which informers are started. Cheap to clone; clones share the relist budget, the verdicts
/// on streams and the copies of [`start_shared`](crate::InformerBuilder::start_shared).
#[derive(Clone)]
pub struct Cluster {
    shared: Arc<ClusterState>,
}

struct ClusterState {
    /// At least one, in order of preference.
    clients: Vec<kube::Client>,
    identity: ClusterIdentity,
    relists: Arc<Semaphore>,
    endpoints: endpoints::Config,
    verdicts: Verdicts,
    running: Arc<RunningInformers>,
    copies: Arc<SharedCopies>,
    /// Time for which a shared copy runs on without users.
    shared_grace: Duration,
    /// Settings with which declarations begin.
    defaults: Config,
}

/// Identity of the cluster, as far as the client configuration shows it.
pub(crate) struct ClusterIdentity {
    /// URL of the preferred endpoint, or the name the user gave; may be empty.
    pub(crate) server: String,
    /// Digest of the certificate authority; empty if unknown.
    pub(crate) authority: String,
}

impl Cluster {
    /// Creates a cluster whose informers read through `client`, with its authentication, TLS and proxy.
    ///
    /// kube's client retries some failures by itself; the requests of informers are built so that it does not. Clients
    /// of kube's own making speak HTTP/1.1 and open a connection for each watch; [`client_from`] makes one that does
    /// better.
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self::builder(client).build()
    }

    /// Creates a cluster from `KUBECONFIG` or `~/.kube/config`, else from the in-cluster configuration. Its connections
    /// are those of [`client_from`], and new ones trust the CA file as it is then. Needs a tokio runtime.
    ///
    /// # Errors
    /// No such configuration exists, or kube rejects it.
    pub async fn try_default() -> Result<Self, Error> {
        let config = kube::Config::infer().await;
        let config = config.map_err(|error| Error::new(Kind::Client(kube::Error::InferConfig(error)), None))?;
        with_authority_file(config).try_into()
    }

    /// Like [`new`](Self::new), with more settings: fallback endpoints, the relist budget, a name.
    pub fn builder(client: kube::Client) -> ClusterBuilder {
        ClusterBuilder::new(client)
    }

    /// Returns a client of the preferred endpoint, for everything that informers do not do: writes, single reads, events,
    /// leader election. It shares the connections, credentials and certificates of the watches, if the cluster made its
    /// client itself ([`try_default`](Self::try_default), `try_from` a configuration). Cheap.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.shared.clients.first().cloned().expect("a cluster has at least one client")
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
        let (watching, derived) = (self.running().readiness(), self.copies().derived());
        let all = async {
            all_ready(&watching).await?;
            all_ready(&derived).await
        };
        // After a timeout and after an early end alike, each informer has its reason.
        let _ = timeout(deadline, all).await;
        unready(&watching)?;
        unready(&derived)
    }

    /// The endpoints' clients, in order of preference; at least one.
    pub(crate) fn clients(&self) -> &[kube::Client] {
        &self.shared.clients
    }

    pub(crate) fn identity(&self) -> &ClusterIdentity {
        &self.shared.identity
    }

    /// Settings of when informers leave an endpoint and when they return to it.
    pub(crate) fn endpoints(&self) -> &endpoints::Config {
        &self.shared.endpoints
    }

    pub(crate) fn relists(&self) -> &Arc<Semaphore> {
        &self.shared.relists
    }

    /// Registry of the running informers. Does not contain raw streams.
    pub(crate) fn running(&self) -> &Arc<RunningInformers> {
        &self.shared.running
    }

    /// Registers a running informer until the returned guard is dropped.
    pub(crate) fn started(&self, informer: InformerState) -> InformerRegistration {
        self.shared.running.add(informer)
    }

    pub(crate) fn verdicts(&self) -> &Verdicts {
        &self.shared.verdicts
    }

    /// Registry of the shared copies.
    pub(crate) fn copies(&self) -> &Arc<SharedCopies> {
        &self.shared.copies
    }

    /// Settings with which declarations begin.
    pub(crate) fn defaults(&self) -> &Config {
        &self.shared.defaults
    }

    pub(crate) fn shared_grace(&self) -> Duration {
        self.shared.shared_grace
    }
}

impl TryFrom<kube::Config> for Cluster {
    type Error = Error;

    /// Creates a cluster with a client of its own, [`client_from`] this configuration. Needs a tokio runtime.
    ///
    /// # Errors
    /// As of [`client_from`].
    fn try_from(config: kube::Config) -> Result<Self, Error> {
        let server = without_credentials(&config.cluster_url);
        let authority = config.root_cert.as_ref().map(|certificates| checkpoint::digest(&certificates.concat()));
        let client = client_from(config)?;
        let mut builder = Self::builder(client).identity(server);
        builder.authority = authority.map_or_else(String::new, |digest| format!("{digest:016x}"));
        Ok(builder.build())
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("endpoints", &self.shared.clients.len())
            .field("relists_free", &self.shared.relists.available_permits())
            .finish_non_exhaustive()
    }
}

/// Strips user name and password from a URL, so that it can be logged and stored.
fn without_credentials(url: &http::Uri) -> String {
    let host = url.authority().map_or("", |authority| authority.as_str().rsplit('@').next().unwrap_or_default());
    format!("{}://{host}{}", url.scheme_str().unwrap_or_default(), url.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_down_of_a_url_has_no_password() {
        for (url, expected) in [
            ("https://user:hunter2@k8s.example:6443/prefix", "https://k8s.example:6443/prefix"),
            ("http://[::1]:8001", "http://[::1]:8001/"),
        ] {
            assert_eq!(without_credentials(&url.parse().expect("a URL")), expected);
        }
    }
}
