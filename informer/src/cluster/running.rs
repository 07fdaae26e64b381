//! The informers of a cluster that run now, for whoever reports on all of them.

use std::sync::{Arc, Weak};

use informer_core::store;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::progress::Progress;

/// One running informer as metrics read it. Held by its task: when that ends, this is gone.
#[derive(Debug)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "read by metrics alone"))]
pub(crate) struct Running {
    /// The plural of its type.
    pub(crate) resource: String,
    pub(crate) progress: watch::Receiver<Progress>,
    pub(crate) now: watch::Receiver<store::Snapshot>,
}

/// Those of one cluster. Holds no state alive.
#[derive(Default)]
pub(super) struct Registry {
    informers: Mutex<Vec<Weak<Running>>>,
}

impl Registry {
    pub(super) fn add(&self, informer: &Arc<Running>) {
        let mut informers = self.informers.lock();
        informers.retain(|running| running.strong_count() > 0);
        informers.push(Arc::downgrade(informer));
    }

    #[cfg(feature = "metrics")]
    pub(super) fn all(&self) -> Vec<Arc<Running>> {
        self.informers.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
