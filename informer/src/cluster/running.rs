//! Registry of a cluster's running informers, read by metrics.
//!
//! INVARIANT: counters never decrease. When an informer ends, one critical section removes it and adds its counts to
//! the sum of its resource type.

use std::{
    collections::BTreeMap,
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use informer_core::store;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    lifetime::Lifetime,
    progress::Progress,
    readiness::{DeclaredObjects, Readiness},
    stats::Stats,
    status::InformerReport,
};

/// Registration of one running informer, held by its task. Dropping it removes the informer from the registry.
pub(crate) struct InformerRegistration {
    number: u64,
    live: Arc<InformerState>,
    registry: Arc<RunningInformers>,
}

/// Readable state of one informer.
pub(crate) struct InformerState {
    pub(crate) objects: Arc<DeclaredObjects>,
    pub(crate) progress: watch::Receiver<Progress>,
    pub(crate) now: watch::Receiver<store::Snapshot>,
    /// Number of objects that did not decode.
    pub(crate) undecodable: Arc<AtomicU64>,
}

/// The informers of one cluster. Memory: one entry for each running informer, and one sum for each type ever used.
#[derive(Default)]
pub(crate) struct RunningInformers {
    informers: Mutex<InformerTable>,
}

#[derive(Default)]
struct InformerTable {
    started: u64,
    live: BTreeMap<u64, Arc<InformerState>>,
    ended: BTreeMap<String, Stats>,
}

impl RunningInformers {
    pub(super) fn add(self: &Arc<Self>, live: InformerState) -> InformerRegistration {
        let live = Arc::new(live);
        let mut informers = self.informers.lock();
        informers.started += 1;
        let number = informers.started;
        informers.live.insert(number, Arc::clone(&live));
        InformerRegistration { number, live, registry: Arc::clone(self) }
    }

    /// Returns the readiness of the running informers, in the order of their start.
    pub(super) fn readiness(&self) -> Vec<Readiness> {
        let readiness = |informer: &Arc<InformerState>| {
            Readiness::new(Arc::clone(&informer.objects), Lifetime::of_driver(informer.progress.clone()))
        };
        self.informers.lock().live.values().map(readiness).collect()
    }

    /// Returns the running informers, in the order of their start.
    pub(crate) fn live(&self) -> Vec<Arc<InformerState>> {
        self.informers.lock().live.values().cloned().collect()
    }

    /// Returns the running informers and the summed counts of the ended ones by type, both as of one moment.
    #[cfg(feature = "metrics")]
    pub(crate) fn read(&self) -> (Vec<Arc<InformerState>>, BTreeMap<String, Stats>) {
        let informers = self.informers.lock();
        (informers.live.values().cloned().collect(), informers.ended.clone())
    }
}

impl fmt::Debug for RunningInformers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("running", &self.informers.lock().live.len()).finish_non_exhaustive()
    }
}

impl Deref for InformerRegistration {
    type Target = InformerState;

    fn deref(&self) -> &InformerState {
        &self.live
    }
}

impl Drop for InformerRegistration {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let resource = self.live.resource();
            tracing::error!(resource, "informer panicked");
        }
        let stats = self.live.stats();
        let mut informers = self.registry.informers.lock();
        informers.live.remove(&self.number);
        *informers.ended.entry(self.live.resource().to_owned()).or_default() += &stats;
    }
}

impl InformerState {
    /// Returns its description and status.
    pub(super) fn report(&self) -> InformerReport {
        // One after the other: the driver publishes states and progress under locks of their own.
        let state = self.now.borrow().clone();
        self.objects.report(&self.progress.borrow(), &state, false)
    }

    pub(crate) fn resource(&self) -> &str {
        &self.objects.resource
    }

    /// Returns the informer's counts.
    pub(crate) fn stats(&self) -> Stats {
        let undecodable = self.undecodable.load(Ordering::Relaxed);
        Stats { undecodable, ..self.progress.borrow().stats.clone() }
    }
}
