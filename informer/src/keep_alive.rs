//! The hold of an informer's handles and subscriptions on the task or the shared copy behind them.
//!
//! INVARIANT: the driver ends with the last [`KeepAlive`], or earlier by a shutdown. A shutdown of a shared copy ends one
//! use of it; the copy runs as long as it has users.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};

use crate::{
    lifetime::{Lifetime, StateAtShutdown},
    progress::Progress,
    readiness::{DeclaredObjects, Readiness},
};

/// Keeps a driver running, or a use of a shared copy. Shared by the handles and the subscriptions of one informer.
pub(crate) struct KeepAlive {
    /// `None` once it was shut down.
    hold: Mutex<Option<Box<dyn InformerHold>>>,
    /// `None` before the shutdown of a shared copy's use.
    last: watch::Sender<Option<StateAtShutdown>>,
    readiness: Readiness,
    /// The driver's runtime.
    runtime: Handle,
}

/// A driver, or a use of a copy that others may use too. Its drop ends what it holds.
pub(crate) trait InformerHold: Send + Sync + 'static {
    /// Ends what it holds. A use of a shared copy first sets the `last` state that its subscribers see.
    fn shut_down(self: Box<Self>, last: &watch::Sender<Option<StateAtShutdown>>);

    /// Describes the use of a shared copy, to be shown behind the request that feeds it.
    fn note(&self) -> Option<String>;
}

/// Stop signal of a driver.
impl InformerHold for oneshot::Sender<()> {
    fn shut_down(self: Box<Self>, _last: &watch::Sender<Option<StateAtShutdown>>) {
        // An error means that the driver has ended, which is the goal.
        let _ = self.send(());
    }

    fn note(&self) -> Option<String> {
        None
    }
}

impl KeepAlive {
    /// Must be called inside a tokio runtime.
    pub(crate) fn new(
        hold: impl InformerHold,
        progress: watch::Receiver<Progress>,
        objects: Arc<DeclaredObjects>,
    ) -> Self {
        let (last, at_shutdown) = watch::channel(None);
        let readiness = Readiness::new(objects, Lifetime::new(progress, at_shutdown));
        Self { hold: Mutex::new(Some(Box::new(hold))), last, readiness, runtime: Handle::current() }
    }

    /// Read side of this life.
    pub(crate) const fn life(&self) -> &Lifetime {
        self.readiness.life()
    }

    pub(crate) const fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn shut_down(&self) {
        let hold = self.hold.lock().take();
        if let Some(hold) = hold {
            hold.shut_down(&self.last);
        }
    }

    /// Adds the use of a shared copy to the request that feeds it.
    pub(crate) fn annotate(&self, request: String) -> String {
        match self.hold.lock().as_ref().and_then(|hold| hold.note()) {
            Some(note) => format!("{request} ({note})"),
            None => request,
        }
    }
}

impl fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAlive").field("end_reason", &self.life().end_reason()).finish_non_exhaustive()
    }
}
