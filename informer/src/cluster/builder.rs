//! Builder of a [`ClusterOf`] with settings beyond a single connection.

use std::{fmt, marker::PhantomData, ops::RangeInclusive, sync::Arc, time::Duration};

use informer_core::endpoints;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Semaphore;

use super::{
    ClusterIdentity, ClusterOf, ClusterState, DeclarationDefaults, RELISTS_AT_ONCE, RunningInformers, Verdicts,
    verdicts::VERDICT_LASTS,
};
use crate::{
    config::Config,
    connection::ServerConnection,
    selectors::IntoLabelSelector,
    shared::{SHARED_GRACE, SharedCopies},
    transform::Transform,
};

/// Settings shared by the informers of a cluster. `V`: see [`ClusterOf`].
#[must_use = "nothing is built before build"]
pub struct ClusterBuilder<V> {
    connections: Vec<ServerConnection>,
    relists_at_once: usize,
    endpoints: endpoints::Config,
    retry_streams_after: Duration,
    shared_grace: Duration,
    defaults: DeclarationDefaults,
    identity: String,
    /// Digest of the certificate authority; empty if unknown.
    authority: String,
    types: PhantomData<fn() -> V>,
}

impl<V> ClusterBuilder<V> {
    pub(super) fn new(connection: ServerConnection) -> Self {
        Self {
            connections: vec![connection],
            relists_at_once: RELISTS_AT_ONCE,
            endpoints: endpoints::Config::default(),
            retry_streams_after: VERDICT_LASTS,
            shared_grace: SHARED_GRACE,
            defaults: DeclarationDefaults::default(),
            identity: String::new(),
            authority: String::new(),
            types: PhantomData,
        }
    }

    /// Adds another endpoint of the same cluster, for failover from the endpoints before it. May be called several
    /// times.
    ///
    /// The endpoints must share resourceVersions: a watch cache and the API server behind it, or the servers of one
    /// control plane. Before an informer resumes at another endpoint it reads one object to prove the history; it does
    /// not use an endpoint that proves to be another cluster. An informer leaves an endpoint after 5 to 30 seconds of
    /// failures ([`leave_after`](Self::leave_after)) and returns to the preferred one within 10 minutes
    /// ([`return_within`](Self::return_within)). An endpoint that answers 429 counts as working: it is overloaded, and
    /// a fleet that failed over would take the load along. [`Informer::explain`](crate::Informer::explain) shows the
    /// endpoint in use.
    pub fn fallback(mut self, connection: impl Into<ServerConnection>) -> Self {
        self.connections.push(connection.into());
        self
    }

    /// Sets how many informers read their initial state at the same time, over all endpoints; the others wait for a
    /// permit. Default [`RELISTS_AT_ONCE`]. A larger number loads the servers more after an outage. An informer
    /// releases its permit when the read ends, when the read stalls for
    /// [`initial_events_stall`](crate::Config::initial_events_stall), and after 60 s; in the last two cases the read
    /// continues without it.
    ///
    /// # Panics
    /// If `count` is zero.
    pub fn relists_at_once(mut self, count: usize) -> Self {
        assert!(count > 0, "a budget of no relists");
        self.relists_at_once = count;
        self
    }

    /// Sets how long an endpoint must fail before an informer leaves it; each informer draws its time from this range.
    /// Default 5 to 30 s, doubled by each failover in a row up to four times. A shorter or narrower range makes the
    /// informers of a restarting endpoint move together.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn leave_after(mut self, range: RangeInclusive<Duration>) -> Self {
        assert!(!range.is_empty(), "no time is in the range");
        self.endpoints.leave_after = range;
        self
    }

    /// Sets the time within which an informer retries the preferred endpoint, at a random point not before the longest
    /// of [`leave_after`](Self::leave_after). Default 10 minutes, up to eight times as long while that endpoint fails.
    /// A shorter time brings the informers back together.
    pub fn return_within(mut self, time: Duration) -> Self {
        self.endpoints.return_within = time;
        self
    }

    /// Sets how long the informers of a type read its initial state in pages after a server refused to stream it, or
    /// let the stream stall; then they try a stream again. Default 1 hour, plus up to 20 % jitter. A shorter time
    /// notices an upgraded server sooner, and costs one refused request each time.
    ///
    /// # Panics
    /// If the time is zero.
    pub const fn retry_streams_after(mut self, time: Duration) -> Self {
        assert!(!time.is_zero(), "streams would be tried without a pause");
        self.retry_streams_after = time;
        self
    }

    /// Sets how long a [shared](crate::InformerBuilder::start_shared) copy runs on after its last user has dropped it,
    /// so that a component that restarts finds it running. Default [`SHARED_GRACE`]; zero stops it at once. A longer
    /// time keeps its memory and its watch for longer.
    pub const fn shared_grace(mut self, time: Duration) -> Self {
        self.shared_grace = time;
        self
    }

    /// Changes the settings with which the declarations of this cluster's informers begin:
    /// `.defaults(|config| config.drop_paths.push("metadata.annotations".into()))`. May be called several times.
    pub fn defaults(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.defaults.config);
        self
    }

    /// Sets the namespaces of informers that set none: controller-runtime's `DefaultNamespaces`. Types of the cluster
    /// ignore them; those known at run time need [`scope`](crate::InformerBuilder::scope) for that. A declaration's
    /// [`namespace`](crate::InformerBuilder::namespace), [`namespaces`](crate::InformerBuilder::namespaces) and
    /// [`all_namespaces`](crate::InformerBuilder::all_namespaces) replace them.
    ///
    /// With two or more, [`linger`](crate::InformerBuilder::linger) fails at the start with
    /// [`LingerDerived`](crate::ConfigError::LingerDerived), and [`delays`](crate::InformerBuilder::delays) with
    /// [`DelaysShared`](crate::ConfigError::DelaysShared).
    ///
    /// None of the defaults applies to [raw](crate::raw) streams and `watcher`. A wrong name or selector is an error of
    /// each start.
    pub fn default_namespaces<N: Into<String>>(mut self, namespaces: impl IntoIterator<Item = N>) -> Self {
        self.defaults.selection.default_namespaces(namespaces.into_iter().map(Into::into));
        self
    }

    /// Sets the label selector of informers that set none: controller-runtime's `DefaultLabelSelector`. A declaration's
    /// [`labels`](crate::InformerBuilder::labels) replace it; an empty text clears it.
    pub fn default_labels(mut self, selector: impl IntoLabelSelector) -> Self {
        self.defaults.selection.labels(None, selector);
        self
    }

    /// Sets the field selector of informers that set none: controller-runtime's `DefaultFieldSelector`. A declaration's
    /// [`fields`](crate::InformerBuilder::fields) replace it; an empty text clears it.
    pub fn default_fields(mut self, selector: impl AsRef<str>) -> Self {
        self.defaults.selection.fields(None, selector.as_ref());
        self
    }

    /// Changes the objects of all types before they are stored: controller-runtime's `DefaultTransform`. A declaration's
    /// [`transform`](crate::InformerBuilder::transform) replaces it;
    /// [`without_transforms`](crate::InformerBuilder::without_transforms) and
    /// [`metadata_only`](crate::InformerBuilder::metadata_only) clear it. [`defaults`](Self::defaults) with
    /// `drop_paths` cuts fields at no cost.
    ///
    /// `T` must hold every field, as `serde_json::Value` and kube's `DynamicObject` do: others are lost. Unlike a
    /// `transform`, it may capture values, and informers still share copies. A checkpoint does not know the values: if
    /// they change, set another [`identity`](Self::identity), or objects changed by the old ones are restored.
    ///
    /// Cost: each object is decoded and serialized once more.
    pub fn default_transform<T, F>(mut self, change: F) -> Self
    where
        F: Fn(&mut T) + Send + Sync + 'static,
        T: DeserializeOwned + Serialize,
    {
        self.defaults.transform = Some(Transform::of_cluster(change));
        self
    }

    /// Sets the text that distinguishes this cluster's checkpoints from the checkpoints of other clusters, for
    /// connections whose URL is not known here. Default: URL and certificate authority of a kube configuration, else
    /// empty; then only the history proof protects against another cluster's state.
    pub fn identity(mut self, text: impl Into<String>) -> Self {
        self.identity = text.into();
        self
    }

    /// Sets the digest of the certificate authority, for [`identity`](Self::identity).
    #[cfg(any(feature = "kube-1", feature = "kube-3", feature = "kube-4", feature = "kube-5"))]
    pub(crate) fn authority(mut self, digest: String) -> Self {
        self.authority = digest;
        self
    }

    /// Builds the cluster. Sends no request.
    #[must_use]
    pub fn build(self) -> ClusterOf<V> {
        let relists = Arc::new(Semaphore::new(self.relists_at_once.min(Semaphore::MAX_PERMITS)));
        let identity = ClusterIdentity { server: self.identity, authority: self.authority };
        ClusterOf {
            state: Arc::new(ClusterState {
                connections: self.connections,
                identity,
                relists,
                endpoints: self.endpoints,
                verdicts: Verdicts::new(self.retry_streams_after),
                running: Arc::new(RunningInformers::default()),
                copies: Arc::new(SharedCopies::default()),
                shared_grace: self.shared_grace,
                defaults: self.defaults,
            }),
            types: PhantomData,
        }
    }
}

impl<V> fmt::Debug for ClusterBuilder<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterBuilder")
            .field("endpoints", &self.connections.len())
            .field("relists_at_once", &self.relists_at_once)
            .field("shared_grace", &self.shared_grace)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}
