//! Handle of a running informer: reads, readiness, subscriptions and statistics.

mod builder;
mod keeping;
mod lifecycle;
mod sharing;

use std::{cmp::Ordering, fmt, sync::Arc, time::Duration};

use informer_core::{
    ResourceVersion, resource_version::InvalidResourceVersion, store::StoreConfig, wire::framer::TypeMeta,
};
use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};

pub use self::builder::InformerBuilder;
use crate::{
    cluster::InformerState,
    decode::DecodedObjects,
    driver::{self, Setup, StoreSink},
    ended::EndReason,
    error::{NotReady, Ready},
    keep_alive::KeepAlive,
    lifetime::Lifetime,
    progress::Progress,
    readiness::DeclaredObjects,
    stats::Stats,
    store::{Snapshot, Store},
    subscription::{Source, Subscription, SubscriptionAll},
};

/// A live copy of the objects of one resource type. Cheap to clone.
///
/// Runs as long as a clone of this handle, a [`Store`] or a subscription exists, unless [`shutdown`](Self::shutdown),
/// [`stop`](Self::stop) or a [signal](Self::shutdown_on) ends it for all of them.
#[must_use = "an informer stops with its last handle"]
pub struct Informer<K> {
    store: Store<K>,
    decoded: Arc<DecodedObjects<K>>,
    source: Source,
    keep_alive: Arc<KeepAlive>,
    type_meta: Arc<TypeMeta>,
}

impl<K> Informer<K> {
    /// Starts the task. Must be called inside a tokio runtime.
    fn start(setup: Setup, keeping: StoreConfig, decoded: Arc<DecodedObjects<K>>) -> Self {
        let (stopper, stop) = oneshot::channel();
        let (sink, source) = StoreSink::new(keeping);
        let (sender, progress) = watch::channel(Progress::new());
        let objects = Arc::new(DeclaredObjects::from(&setup.resource));
        let entry = setup.cluster.started(InformerState {
            objects: Arc::clone(&objects),
            progress: progress.clone(),
            now: source.now.clone(),
            undecodable: decoded.undecodable_count(),
        });
        let type_meta = setup.type_meta.clone();
        driver::start(setup, sink, sender.into(), stop, entry);
        Self::with_keep_alive(source, decoded, KeepAlive::new(stopper, progress, objects), type_meta)
    }

    fn with_keep_alive(
        source: Source,
        decoded: Arc<DecodedObjects<K>>,
        keep_alive: KeepAlive,
        type_meta: TypeMeta,
    ) -> Self {
        let keep_alive = Arc::new(keep_alive);
        let store = Store::new(source.now.clone(), Arc::clone(&decoded), Arc::clone(&keep_alive));
        Self { store, decoded, source, keep_alive, type_meta: Arc::new(type_meta) }
    }

    /// The declared type of the objects.
    #[cfg(feature = "controller")]
    pub(crate) fn type_meta(&self) -> &TypeMeta {
        &self.type_meta
    }

    fn life(&self) -> &Lifetime {
        self.keep_alive.life()
    }

    /// The request in flight, else the last one, as on the wire: `GET /api/v1/pods?watch=true&…`, followed by ` at
    /// fallback 1` if it goes to the first [`fallback`](crate::ClusterBuilder::fallback). Empty while a checkpoint is
    /// loaded. Of a [shared](crate::InformerBuilder::start_shared) copy, followed by the number of its users and by the
    /// filter, if objects are filtered here: `(shared by 2, filtered here: namespace a)`.
    #[must_use]
    pub fn explain(&self) -> String {
        self.keep_alive.annotate(self.life().progress().explain())
    }

    /// Waits until initial state is complete. From then on this returns at once as long as the informer runs;
    /// [`age`](Self::age) shows how old the state is. A readiness probe may call it with a deadline of zero; liveness
    /// probes call [`is_running`](Self::is_running).
    ///
    /// Cancel safe. Cost: one wake-up of the caller.
    ///
    /// # Errors
    /// [`NotReady`] at the deadline, or earlier if waiting is useless: the informer has ended, before or after it was
    /// ready ([`Cause::Ended`](crate::Cause::Ended)), or the version requested with `Exact` has expired.
    pub async fn ready(&self, deadline: Duration) -> Result<Ready, NotReady> {
        self.life().ready(deadline).await
    }

    /// Waits until a state satisfies `condition`, such as "the Deployment has its replicas", and returns that state.
    /// Calls `condition` with the current state, and then with the newest one after each change.
    ///
    /// Cancel safe; for a deadline, use tokio's `timeout`. States that are replaced while the caller does not run are
    /// skipped. Before the first sync the state is empty: [`ready`](Self::ready) comes first where that matters.
    ///
    /// # Errors
    /// The [`EndReason`] if the informer has ended and its last state does not satisfy `condition`.
    pub async fn wait_until(&self, condition: impl FnMut(&Snapshot<K>) -> bool) -> Result<Snapshot<K>, EndReason> {
        self.store.wait_until(condition).await
    }

    /// Waits until the store has reached `version`: read your writes. Takes the version of an object just written as
    /// kube has it, `Option<String>`, and also a text, a number or a [`ResourceVersion`].
    ///
    /// Only versions of the same resource type compare. With selectors, the store reaches the version of a write that
    /// does not match them only with the next bookmark, which may take a minute.
    ///
    /// ```no_run
    /// # use std::{error::Error, time::Duration};
    /// # use informer::Informer;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::{Api, ResourceExt, api::PostParams};
    /// # async fn doc(api: Api<ConfigMap>, map: ConfigMap, maps: Informer<ConfigMap>) -> Result<(), Box<dyn Error>> {
    /// let written = api.replace(&map.name_any(), &PostParams::default(), &map).await?;
    /// maps.wait_for(written.resource_version(), Duration::from_secs(5)).await?;
    /// // A snapshot taken from here on has it, or what came after it.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WaitError::Invalid`] if it is no version, [`WaitError::NotReached`] at the deadline or if the informer has
    /// ended.
    pub async fn wait_for<V>(&self, version: V, deadline: Duration) -> Result<(), WaitError>
    where
        V: TryInto<ResourceVersion>,
        V::Error: Into<InvalidResourceVersion>,
    {
        let version = version.try_into().map_err(|invalid| WaitError::Invalid(invalid.into()))?;
        let has_reached =
            |reached: &ResourceVersion| matches!(reached.compare(&version), Some(Ordering::Equal | Ordering::Greater));
        let mut now = self.source.now.clone();
        let arrived = async {
            tokio::select! { biased;
                arrived = now.wait_for(|state| state.resource_version.as_ref().is_some_and(has_reached)) => arrived.is_ok(),
                _ = self.join() => false,
            }
        };
        match timeout(deadline, arrived).await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => {
                let reached = self.resource_version();
                Err(WaitError::NotReached(VersionTimeout { requested: version, reached }))
            }
        }
    }

    /// Version of the state that readers see. `None` before the first sync.
    #[must_use]
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.source.now.borrow().resource_version.clone()
    }

    /// Time since the server last confirmed the stored state, by a change, a bookmark or an accepted watch. `None`
    /// before the first sync. A state restored from a checkpoint keeps the age it was saved with until the server's
    /// next confirmation. On a quiet type the age grows up to the interval of bookmarks, about a minute.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.life().progress().age()
    }

    /// Counts since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { undecodable: self.decoded.undecodable(), ..self.life().progress().stats.clone() }
    }

    /// The read side of the store.
    #[must_use]
    pub const fn store(&self) -> &Store<K> {
        &self.store
    }

    /// Subscribes to the current state and then to its changes, level-triggered. The subscription keeps the informer
    /// running, as a handle does.
    ///
    /// A subscriber that starts before the informer is ready, while a checkpoint proves to be of the server's history,
    /// first receives the saved objects as [`Added`](crate::Event::Added), then their changes since.
    pub fn subscribe(&self) -> Subscription<K> {
        Subscription::new(self.source.clone(), Arc::clone(&self.decoded)).keeping(Arc::clone(&self.keep_alive))
    }

    /// Subscribes to the current state, like [`subscribe`](Self::subscribe), and then to each change in order, unless
    /// the subscriber falls behind by more than `capacity` changes. The subscription keeps the informer running, as a
    /// handle does.
    ///
    /// Memory: a ring of the last changes, shared by all such subscribers of an informer. Its length is the largest
    /// `capacity` requested, at most [`RING_CHANGES_MAX`](crate::RING_CHANGES_MAX). Each change takes 48 bytes and the
    /// replaced version of the object. Without such subscribers there is no ring.
    pub fn subscribe_all(&self, capacity: usize) -> SubscriptionAll<K> {
        let all = SubscriptionAll::new(self.source.clone(), Arc::clone(&self.decoded), capacity);
        all.keeping(Arc::clone(&self.keep_alive))
    }
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            decoded: Arc::clone(&self.decoded),
            source: self.source.clone(),
            keep_alive: Arc::clone(&self.keep_alive),
            type_meta: Arc::clone(&self.type_meta),
        }
    }
}

impl<K> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("request", &self.explain()).field("store", &self.store).finish()
    }
}

/// Why [`Informer::wait_for`] did not wait, or waited in vain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The text is no version, or the object has none. Returned at once.
    #[error("there is no version to wait for")]
    Invalid(#[source] InvalidResourceVersion),
    /// The store did not reach the version in time.
    #[error(transparent)]
    NotReached(VersionTimeout),
}

/// A version the store did not reach in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "version {requested} was not reached; the store is at {}",
    reached.as_ref().map_or("nothing", ResourceVersion::as_str)
)]
#[non_exhaustive]
pub struct VersionTimeout {
    /// The version waited for.
    pub requested: ResourceVersion,
    /// The store's version; `None` before the first sync.
    pub reached: Option<ResourceVersion>,
}
