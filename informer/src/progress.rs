//! Progress of an informer, written by its driver and read by its handles.

use std::{
    ops::Deref,
    time::{Duration, SystemTime},
};

use informer_core::Request;
use tokio::{sync::watch, time::Instant};

use crate::{
    error::{Cause, Error, NotReady},
    stats::Stats,
};

/// Phase of the work towards initial state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InitialPhase {
    /// The random start-up delay has not passed.
    Spread,
    /// The request waits for a permit of the relist budget.
    Queued,
    /// The request, or its response, is in flight.
    Reading,
    /// A saved state is being loaded or proven.
    Proving,
}

/// A time in the past, on two clocks.
///
/// The monotonic clock stands still while the machine is suspended (`CLOCK_MONOTONIC` on Linux); the wall clock can be
/// set. The age is the larger of the two: a state must not look younger than it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConfirmedTime {
    at: Instant,
    wall: SystemTime,
    /// Age at that moment: the state may be older than this process.
    before: Duration,
}

impl ConfirmedTime {
    pub(crate) fn now() -> Self {
        Self::ago(Duration::ZERO)
    }

    /// A time `before` ago, possibly before this machine booted.
    pub(crate) fn ago(before: Duration) -> Self {
        Self { at: Instant::now(), wall: SystemTime::now(), before }
    }

    pub(crate) fn age(&self) -> Duration {
        self.age_at(Instant::now(), SystemTime::now())
    }

    fn age_at(&self, now: Instant, wall: SystemTime) -> Duration {
        // An error means the wall clock was set back: then only the monotonic clock counts.
        let by_wall = wall.duration_since(self.wall).unwrap_or_default();
        now.saturating_duration_since(self.at).max(by_wall).saturating_add(self.before)
    }
}

/// Write side of a [`Progress`]. Its drop marks the informer as stopped, so callers never wait in vain, whether the
/// driver ended by its last handle, by its runtime or by a panic.
pub(crate) struct Outlet(watch::Sender<Progress>);

impl From<watch::Sender<Progress>> for Outlet {
    fn from(sender: watch::Sender<Progress>) -> Self {
        Self(sender)
    }
}

impl Deref for Outlet {
    type Target = watch::Sender<Progress>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.0.send_modify(|progress| progress.is_stopped = true);
    }
}

/// Progress of an informer: written by the driver, read by handles. Stays readable after the driver has ended.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) started: Instant,
    /// The request in flight, else the last one.
    pub(crate) request: Option<Request>,
    /// Index of the endpoint in use, in order of preference.
    pub(crate) endpoint: usize,
    /// Phase of the work towards initial state.
    pub(crate) stage: InitialPhase,
    /// Requests for initial state, not counting pages after the first.
    pub(crate) attempts: u64,
    /// Failure of the last attempt at initial state; `None` once it is complete.
    pub(crate) failure: Option<Error>,
    pub(crate) is_synced: bool,
    /// True if no further request follows, because the requested state does not exist.
    pub(crate) is_final: bool,
    /// True if watches are forbidden and the informer polls lists.
    pub(crate) is_polling: bool,
    /// True if the published state is, as far as known, the server's state at its position, and so worth saving.
    pub(crate) is_sound: bool,
    pub(crate) is_stopped: bool,
    /// When the server last confirmed what the store holds.
    pub(crate) confirmed: Option<ConfirmedTime>,
    /// Like `confirmed`, for a saved state that is not published yet.
    pub(crate) restored: Option<ConfirmedTime>,
    pub(crate) stats: Stats,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            request: None,
            endpoint: 0,
            stage: InitialPhase::Reading,
            attempts: 0,
            failure: None,
            is_synced: false,
            is_final: false,
            is_polling: false,
            is_sound: false,
            is_stopped: false,
            confirmed: None,
            restored: None,
            stats: Stats::default(),
        }
    }

    /// True once waiting for the first sync is over, successfully or not.
    pub(crate) const fn is_decided(&self) -> bool {
        self.is_synced || self.is_final || self.is_stopped
    }

    /// Time since the server last confirmed the stored state.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.confirmed.as_ref().map(ConfirmedTime::age)
    }

    /// The request in flight, else the last one, and its endpoint if that is not the preferred one.
    pub(crate) fn explain(&self) -> String {
        match (&self.request, self.endpoint) {
            (None, _) => String::new(),
            (Some(request), 0) => request.to_string(),
            (Some(request), fallback) => format!("{request} at fallback {fallback}"),
        }
    }

    pub(crate) fn not_ready(&self) -> NotReady {
        let cause = match &self.failure {
            _ if self.is_stopped => Cause::Stopped,
            Some(error) => Cause::Failed(error.clone()),
            None => match self.stage {
                InitialPhase::Spread => Cause::Spread,
                InitialPhase::Queued => Cause::Queued,
                InitialPhase::Reading => Cause::Receiving,
                InitialPhase::Proving => Cause::Proving,
            },
        };
        NotReady { cause, attempts: self.attempts, since: self.started.elapsed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: eight hours of suspend are eight hours of age. Method: set both clocks by hand.
    #[test]
    fn age_counts_suspend_and_a_clock_set_back_is_harmless() {
        let before = Duration::from_secs(5);
        let confirmed = ConfirmedTime::ago(before);
        let (second, hours) = (Duration::from_secs(1), Duration::from_secs(8 * 3_600));
        let (at, wall) = (confirmed.at + second, confirmed.wall + second);
        assert_eq!(confirmed.age_at(at, wall), before + second);
        assert_eq!(confirmed.age_at(at, wall + hours), before + second + hours, "suspended for eight hours");
        assert_eq!(confirmed.age_at(at, wall - hours), before + second, "the wall clock was set back");
        assert_eq!(confirmed.age_at(confirmed.at, wall - hours), before);
    }
}
