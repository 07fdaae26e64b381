//! Life of an informer, as its handles, stores and subscriptions see it.
//!
//! INVARIANT: a wait for an informer also ends with it.

use std::{future::pending, time::Duration};

use informer_core::store;
use tokio::{
    select,
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    ended::EndReason,
    error::{Cause, Error, NotReady, Ready},
    progress::{self, Progress},
    status::{InformerPhase, InformerStatus},
};

/// The state at the shutdown of a shared copy's use, and the time of the shutdown.
pub(crate) type StateAtShutdown = (store::Snapshot, Instant);

/// Progress and end of an informer, which is a driver or a handle of a shared copy. Does not keep the informer running.
#[derive(Clone)]
pub(crate) struct Lifetime {
    progress: watch::Receiver<Progress>,
    /// `None` before the shutdown. Its sender is dropped with the last handle.
    last: watch::Receiver<Option<StateAtShutdown>>,
}

impl Lifetime {
    pub(crate) const fn new(
        progress: watch::Receiver<Progress>,
        last: watch::Receiver<Option<StateAtShutdown>>,
    ) -> Self {
        Self { progress, last }
    }

    /// Life of a driver or of a copy, whatever happens to single uses of it.
    pub(crate) fn of_driver(progress: watch::Receiver<Progress>) -> Self {
        Self::new(progress, watch::Sender::new(None).subscribe())
    }

    pub(crate) fn progress(&self) -> watch::Ref<'_, Progress> {
        self.progress.borrow()
    }

    pub(crate) fn progress_receiver(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Reason of the end; `None` while the informer runs.
    pub(crate) fn end_reason(&self) -> Option<EndReason> {
        // The copy may end later, for want of users.
        self.is_shut_down().then_some(EndReason::ShutDown).or_else(|| self.progress.borrow().ended)
    }

    /// True once the use of a shared copy was shut down.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.last.borrow().is_some()
    }

    /// Returns the state at the shutdown of a shared copy's use, and true; before it, the state that `now` reads, and
    /// false. No state that `now` read is newer than the last one.
    pub(crate) fn look(&self, now: impl FnOnce() -> store::Snapshot) -> (store::Snapshot, bool) {
        // Borrowed while `now` reads: a shutdown takes its state before this or afterwards.
        let last = self.last.borrow();
        let state = last.as_ref().map_or_else(now, |(state, _)| state.clone());
        (state, last.is_some())
    }

    /// Waits until the use of a shared copy is shut down; forever if it never is. Cancel safe.
    pub(crate) async fn shut_down(&self) {
        if self.last.clone().wait_for(Option::is_some).await.is_err() {
            // The last handle was dropped without a shutdown.
            pending::<()>().await;
        }
    }

    /// Waits for the end, and returns the reason. Cancel safe.
    pub(crate) async fn ended(&self) -> EndReason {
        select! { biased;
            () = self.shut_down() => EndReason::ShutDown,
            reason = progress::ended(self.progress.clone()) => reason,
        }
    }

    /// Waits for the end, or until the last handle is dropped. Cancel safe.
    pub(crate) async fn ended_or_dropped(&self) {
        let mut last = self.last.clone();
        select! {
            _ = progress::ended(self.progress.clone()) => {}
            _ = last.wait_for(Option::is_some) => {}
        }
    }

    /// Waits until initial state is complete, until it can no longer become complete, or until the deadline.
    ///
    /// # Errors
    /// The reason why the informer is not ready.
    pub(crate) async fn ready(&self, deadline: Duration) -> Result<Ready, NotReady> {
        let mut progress = self.progress.clone();
        let decided = async {
            select! { biased;
                _ = progress.wait_for(Progress::is_decided) => {}
                () = self.shut_down() => {}
            }
        };
        // On a timeout and after the driver ended alike, the progress it wrote last has the reason.
        let _ = timeout(deadline, decided).await;
        self.readiness()
    }

    /// The current readiness.
    ///
    /// # Errors
    /// The reason why the informer is not ready.
    pub(crate) fn readiness(&self) -> Result<Ready, NotReady> {
        let progress = self.progress();
        match self.end_reason() {
            Some(reason) => Err(NotReady { cause: Cause::Ended(reason), ..progress.not_ready() }),
            None if !progress.is_synced => Err(progress.not_ready()),
            None if progress.phase == InformerPhase::Disconnected => Ok(Ready::Disconnected),
            None if progress.is_polling => Ok(Ready::Polling),
            None => Ok(Ready::Watching),
        }
    }

    /// The current status.
    pub(crate) fn status(&self) -> InformerStatus {
        let status = self.progress().status();
        match &*self.last.borrow() {
            None => status,
            // The copy may run on for others: its phase and requests are no longer those of this use.
            Some((_, at)) => {
                let phase = InformerPhase::Ended(EndReason::ShutDown);
                InformerStatus { phase, since: at.elapsed(), requests: 0, ..status }
            }
        }
    }

    /// Waits for a failure beyond the first `seen` ones. Returns the last failure and the number of all; `None` once
    /// the informer has ended, or its last handle was dropped. Cancel safe.
    pub(crate) async fn failure_after(&self, seen: u64) -> Option<(Error, u64)> {
        let mut progress = self.progress.clone();
        let failed = async {
            let state = progress.wait_for(|state| state.failures > seen || state.ended.is_some()).await.ok()?;
            let (error, _) = state.last_error.clone().filter(|_| state.failures > seen)?;
            Some((error, state.failures))
        };
        select! { biased;
            failure = failed => failure,
            () = self.ended_or_dropped() => None,
        }
    }

    /// True if the informer runs and the server confirmed its state within `max_age`; see [`Progress::is_alive`].
    pub(crate) fn is_alive(&self, max_age: Duration) -> bool {
        !self.is_shut_down() && self.progress().is_alive(max_age)
    }
}
