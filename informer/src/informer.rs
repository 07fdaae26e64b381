//! The handle of a running informer: reads, readiness, and what it is doing.

mod builder;
mod keeping;

use std::{cmp::Ordering, fmt, sync::Arc, time::Duration};

use informer_core::ResourceVersion;
use parking_lot::Mutex;
use tokio::{
    sync::{oneshot, watch},
    time::timeout,
};

use self::keeping::Keep;
pub use self::{builder::InformerBuilder, keeping::Representation};
use crate::{
    cluster::{self, Live},
    decode::Decoded,
    driver::{self, Setup, StoreSink},
    error::{NotReady, Ready},
    progress::Progress,
    stats::Stats,
    store::Store,
    subscription::{Source, Subscription, SubscriptionAll},
};

/// A live copy of the objects of one resource type. Cheap to clone. It ends when the last clone is dropped, or when
/// [`shutdown`](Self::shutdown) or [`stop`](Self::stop) ends it for all clones.
#[must_use = "an informer stops with its last handle"]
pub struct Informer<K> {
    store: Store<K>,
    progress: watch::Receiver<Progress>,
    decoded: Arc<Decoded<K>>,
    source: Source,
    stopper: Arc<Stopper>,
}

/// The order to stop, which the driver takes when the sender is dropped: by a shutdown, or with the last clone.
struct Stopper(Mutex<Option<oneshot::Sender<()>>>);

impl<K> Informer<K> {
    /// Starts the task. Must be called inside a tokio runtime.
    fn start(setup: Setup, keep: Keep<K>) -> Self {
        let Keep { keeping, decoded } = keep;
        let (stopper, stop) = oneshot::channel();
        let (sink, source) = StoreSink::new(keeping);
        let (sender, progress) = watch::channel(Progress::new());
        let entry = setup.cluster.started(Live {
            resource: cluster::name_of(&setup.resource),
            progress: progress.clone(),
            now: source.now.clone(),
            undecodable: decoded.undecodable_count(),
        });
        driver::start(setup, sink, sender.into(), stop, entry);
        let store = Store::new(source.now.clone(), Arc::clone(&decoded));
        Self { store, progress, decoded, source, stopper: Arc::new(Stopper(Mutex::new(Some(stopper)))) }
    }

    /// The request in flight, else the last one, as it goes on the wire: `GET /api/v1/pods?watch=true&…`. Then
    /// ` at fallback 1` when it goes to the first [`fallback`](crate::ClusterBuilder::fallback). Empty while a
    /// checkpoint is read.
    #[must_use]
    pub fn explain(&self) -> String {
        self.progress.borrow().explain()
    }

    /// Waits until initial state is complete. Once it was, this is ready as long as the informer runs;
    /// [`age`](Self::age) tells how old the state is. A liveness probe may ask it with a deadline of zero.
    ///
    /// Cancel safe. Cost: one wake-up.
    ///
    /// # Errors
    /// [`NotReady`] at the deadline, and earlier when waiting is of no use: the informer has ended
    /// ([`Cause::Stopped`](crate::Cause::Stopped)), or the version asked for with `Exact` is no longer there.
    pub async fn ready(&self, deadline: Duration) -> Result<Ready, NotReady> {
        let mut progress = self.progress.clone();
        // Late, or the driver is gone: what it wrote last tells which.
        let _ = timeout(deadline, progress.wait_for(Progress::is_decided)).await;
        let progress = progress.borrow();
        match (progress.is_synced && !progress.is_stopped, progress.is_polling) {
            (true, false) => Ok(Ready::Watching),
            (true, true) => Ok(Ready::Polling),
            (false, _) => Err(progress.not_ready()),
        }
    }

    /// True while the informer keeps its copy in step. False once it was stopped, its runtime is gone, or a function of
    /// the program panicked in its task; nothing starts it again. What it held last stays readable.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.progress.borrow().is_stopped
    }

    /// Waits until the store has reached `version`, such as that of an object just written: read your writes.
    ///
    /// Only versions of the same resource type compare. With selectors, a write outside of them is reached when a
    /// bookmark says so, which may take a minute.
    ///
    /// ```no_run
    /// # use std::{error::Error, time::Duration};
    /// # use informer::{Informer, ResourceVersion};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::{Api, ResourceExt, api::PostParams};
    /// # async fn doc(api: Api<ConfigMap>, map: ConfigMap, maps: Informer<ConfigMap>) -> Result<(), Box<dyn Error>> {
    /// let written = api.replace(&map.name_any(), &PostParams::default(), &map).await?;
    /// let version: ResourceVersion = written.resource_version().unwrap_or_default().parse()?;
    /// maps.wait_for(&version, Duration::from_secs(5)).await?;
    /// // A snapshot taken from here on has it, or what came after it.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Behind`] at the deadline, or when the informer was stopped.
    pub async fn wait_for(&self, version: &ResourceVersion, deadline: Duration) -> Result<(), Behind> {
        let has_reached =
            |reached: &ResourceVersion| matches!(reached.compare(version), Some(Ordering::Equal | Ordering::Greater));
        let mut now = self.source.now.clone();
        let arrived = now.wait_for(|state| state.resource_version.as_ref().is_some_and(has_reached));
        match timeout(deadline, arrived).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Behind { asked: version.clone(), reached: self.resource_version() }),
        }
    }

    /// The version of the state that reads see. `None` before the first sync.
    #[must_use]
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.source.now.borrow().resource_version.clone()
    }

    /// How long ago the server last confirmed what the store holds, by a change, a bookmark or an accepted watch.
    /// `None` before the first sync. A state restored from a checkpoint is as old as when it was saved,
    /// until the server says more. On a quiet type it grows to the distance of bookmarks, about a minute.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.progress.borrow().age()
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { undecodable: self.decoded.undecodable(), ..self.progress.borrow().stats.clone() }
    }

    /// Stops the informer, whatever clones of this handle exist, and waits until it has ended: its last state is then in
    /// its [`checkpoint`](crate::Config::checkpoint). Snapshots, stores and clones stay readable; subscriptions end.
    ///
    /// Returns at once when the informer has ended already. Otherwise it waits for the event in work and, with a
    /// checkpoint, for one save. Cancel safe: the informer ends whatever happens to the future.
    pub async fn shutdown(&self) {
        drop(self.stopper.0.lock().take());
        let mut progress = self.progress.clone();
        // An error says that nobody writes any more, which is what is waited for.
        let _ = progress.wait_for(|progress| progress.is_stopped).await;
    }

    /// Like [`shutdown`](Self::shutdown), for the last use of a handle. Dropping a handle stops the informer only if it
    /// is the last one, and waits for nothing.
    pub async fn stop(self) {
        self.shutdown().await;
    }

    /// The read side.
    #[must_use]
    pub const fn store(&self) -> &Store<K> {
        &self.store
    }

    /// A subscriber that is told everything there is, and then what changes. Does not keep the informer running.
    ///
    /// One that comes before the informer is ready, of an informer with a checkpoint that proved to be of the server's
    /// history, is told the saved objects as [`Added`](crate::Event::Added) first, and then what became of them.
    pub fn subscribe(&self) -> Subscription<K> {
        Subscription::new(self.source.clone(), Arc::clone(&self.decoded))
    }

    /// A subscriber that is told everything there is, as [`subscribe`](Self::subscribe) tells it, and then each change
    /// in order, unless it falls behind by more than `capacity` changes. Does not keep the informer running.
    ///
    /// Memory: a ring of the last changes, one for all such subscribers of an informer, as long as the largest
    /// `capacity` any of them asked for and at most [`RING_CHANGES_MAX`](crate::RING_CHANGES_MAX): for each change 48
    /// bytes and the version of the object that it replaced. None while there is no such subscriber.
    pub fn subscribe_all(&self, capacity: usize) -> SubscriptionAll<K> {
        SubscriptionAll::new(self.source.clone(), Arc::clone(&self.decoded), capacity)
    }
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            progress: self.progress.clone(),
            decoded: Arc::clone(&self.decoded),
            source: self.source.clone(),
            stopper: Arc::clone(&self.stopper),
        }
    }
}

impl<K> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("request", &self.explain()).field("store", &self.store).finish()
    }
}

/// A version that was not reached in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("version {asked} was not reached; the store is at {}", reached.as_ref().map_or("nothing", ResourceVersion::as_str))]
#[non_exhaustive]
pub struct Behind {
    /// The version waited for.
    pub asked: ResourceVersion,
    /// The store's own; `None` before the first sync.
    pub reached: Option<ResourceVersion>,
}
