//! Life of an informer: its stop signal, its end and the reason, and its liveness.
//!
//! INVARIANT: the driver ends with the last [`KeepAlive`], or earlier by a shutdown.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
    time::timeout,
};

use super::Informer;
use crate::{
    ended::{EndReason, ShutdownTimeout},
    progress::{self, Progress},
};

/// Keeps a driver running. Shared by the handles and the subscriptions of one informer.
pub(crate) struct KeepAlive {
    /// Stops the driver when it is sent or dropped; `None` once it was sent.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// The driver's runtime.
    runtime: Handle,
    progress: watch::Receiver<Progress>,
}

impl KeepAlive {
    /// Must be called inside a tokio runtime.
    pub(super) fn new(stop: oneshot::Sender<()>, progress: watch::Receiver<Progress>) -> Self {
        Self { stop: Mutex::new(Some(stop)), runtime: Handle::current(), progress }
    }

    /// The reason of the end; `None` while the driver runs.
    pub(crate) fn end_reason(&self) -> Option<EndReason> {
        self.progress.borrow().ended
    }

    fn shut_down(&self) {
        if let Some(stop) = self.stop.lock().take() {
            // An error means that the driver has ended, which is the goal.
            let _ = stop.send(());
        }
    }
}

impl fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAlive").field("end_reason", &self.end_reason()).finish_non_exhaustive()
    }
}

impl<K> Informer<K> {
    /// True while the informer keeps its copy in step. False once it has ended; [`end_reason`](Self::end_reason) has
    /// the reason. It is never restarted. Its last state stays readable.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.end_reason().is_none()
    }

    /// Why the informer has ended; `None` while it runs.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        self.keep_alive.end_reason()
    }

    /// For a liveness probe: true if the informer runs and heard from the server within `max_age`, counted from the
    /// start until it first does. See [`age`](Self::age) for the signs of the server that count.
    ///
    /// Choose `max_age` well above [`Config::idle_timeout`](crate::Config::idle_timeout): five minutes where the server
    /// sends a bookmark each minute, as kube-apiserver does; fifteen where it sends none, because a quiet watch may
    /// then last ten, and where the informer polls. An outage of the server that lasts longer makes the result false; a
    /// probe that must not restart the program then uses [`is_running`](Self::is_running).
    #[must_use]
    pub fn is_alive(&self, max_age: Duration) -> bool {
        self.progress.borrow().is_alive(max_age)
    }

    /// Stops the informer, whatever clones and subscriptions exist, and waits until it has ended or `deadline` has
    /// passed. Its last state is then in its [`checkpoint`](crate::Config::checkpoint). Snapshots, stores and clones
    /// stay readable; subscriptions end.
    ///
    /// Returns the reason of the end, at once if the informer had ended before. Otherwise waits for the event being
    /// processed and, with a checkpoint, for one save. Cancel safe: the informer ends even if the future is dropped
    /// after its first poll.
    ///
    /// # Errors
    /// [`ShutdownTimeout`] if the informer has not ended in time. It still ends later.
    pub async fn shutdown(&self, deadline: Duration) -> Result<EndReason, ShutdownTimeout> {
        self.keep_alive.shut_down();
        timeout(deadline, self.join()).await.map_err(|_| ShutdownTimeout { deadline })
    }

    /// Like [`shutdown`](Self::shutdown), but consumes the handle and waits without a deadline. Dropping a handle
    /// instead stops the informer only if it is the last one, and does not wait.
    pub async fn stop(self) {
        self.keep_alive.shut_down();
        self.join().await;
    }

    /// Shuts the informer down once `signal` resolves: a `CancellationToken`'s `cancelled_owned()`, `ctrl_c()`, or any
    /// other future. May be called several times; the first signal counts. [`join`](Self::join) waits for the end.
    ///
    /// Does not keep the informer running. Cost: one task, which ends with the informer.
    pub fn shutdown_on<F>(&self, signal: F)
    where
        F: Future + Send + 'static,
    {
        let (informer, ended) = (Arc::downgrade(&self.keep_alive), progress::ended(self.progress.clone()));
        self.keep_alive.runtime.spawn(async move {
            tokio::select! {
                _ = signal => {
                    if let Some(informer) = informer.upgrade() {
                        informer.shut_down();
                    }
                }
                _ = ended => {}
            }
        });
    }

    /// Waits until the informer has ended, and returns the reason. Does not end it; the handle keeps it running.
    ///
    /// Cancel safe.
    pub async fn join(&self) -> EndReason {
        progress::ended(self.progress.clone()).await
    }
}
