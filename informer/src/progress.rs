//! How far an informer is, as its handles read it.

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

/// What stands between an informer and its initial state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its part of the start-up spread is not over.
    Spread,
    /// The request waits for its turn.
    Queued,
    /// The request is on its way, or its answer.
    Reading,
    /// A saved state is read or proven.
    Proving,
}

/// A time in the past, by two clocks.
///
/// The monotonic clock stands still while the machine is suspended (`CLOCK_MONOTONIC` on Linux); the wall clock can be
/// set. The larger age of the two counts: a state must not look younger than it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmed {
    at: Instant,
    wall: SystemTime,
    /// Age at that moment: the state may be older than this process.
    before: Duration,
}

impl Confirmed {
    pub(crate) fn now() -> Self {
        Self::ago(Duration::ZERO)
    }

    /// Perhaps from before this machine started.
    pub(crate) fn ago(before: Duration) -> Self {
        Self { at: Instant::now(), wall: SystemTime::now(), before }
    }

    pub(crate) fn age(&self) -> Duration {
        self.age_at(Instant::now(), SystemTime::now())
    }

    fn age_at(&self, now: Instant, wall: SystemTime) -> Duration {
        // An error means that the wall clock was set back: the monotonic clock alone counts then.
        let by_wall = wall.duration_since(self.wall).unwrap_or_default();
        now.saturating_duration_since(self.at).max(by_wall).saturating_add(self.before)
    }
}

/// The writing side of a [`Progress`]. However it ends, by the last handle, with its runtime, or by a panic: nobody
/// waits for it then.
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

/// Written by the driver, read by handles. Stays readable when the driver has ended.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) started: Instant,
    /// The request in flight, else the last one.
    pub(crate) request: Option<Request>,
    /// Which of the endpoints it goes to, in order of preference.
    pub(crate) endpoint: usize,
    /// What stands between the informer and its initial state.
    pub(crate) stage: Stage,
    /// Requests for initial state, pages after the first not counted.
    pub(crate) attempts: u64,
    /// What the last attempt at initial state failed with; none once it is complete.
    pub(crate) failure: Option<Error>,
    pub(crate) is_synced: bool,
    /// Nothing is asked any more: what was asked for does not exist.
    pub(crate) is_final: bool,
    /// Whether watches are forbidden and lists are polled.
    pub(crate) is_polling: bool,
    /// True if what is published is the server's state at its position, as far as is known: worth saving.
    pub(crate) is_sound: bool,
    pub(crate) is_stopped: bool,
    /// When the server last confirmed what the store holds.
    pub(crate) confirmed: Option<Confirmed>,
    /// The same of a saved state, as long as nobody sees it.
    pub(crate) restored: Option<Confirmed>,
    pub(crate) stats: Stats,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            request: None,
            endpoint: 0,
            stage: Stage::Reading,
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

    /// Whether waiting for the first sync is over, well or badly.
    pub(crate) const fn is_decided(&self) -> bool {
        self.is_synced || self.is_final || self.is_stopped
    }

    /// How long ago the server last confirmed what the store holds.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.confirmed.as_ref().map(Confirmed::age)
    }

    /// The request in flight, else the last one, and where it goes when that is not the preferred endpoint.
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
                Stage::Spread => Cause::Spread,
                Stage::Queued => Cause::Queued,
                Stage::Reading => Cause::Receiving,
                Stage::Proving => Cause::Proving,
            },
        };
        NotReady { cause, attempts: self.attempts, since: self.started.elapsed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: eight hours of suspend are eight hours of age. Method: both clocks by hand.
    #[test]
    fn age_counts_suspend_and_a_clock_set_back_is_harmless() {
        let before = Duration::from_secs(5);
        let confirmed = Confirmed::ago(before);
        let (second, hours) = (Duration::from_secs(1), Duration::from_secs(8 * 3_600));
        let (at, wall) = (confirmed.at + second, confirmed.wall + second);
        assert_eq!(confirmed.age_at(at, wall), before + second);
        assert_eq!(confirmed.age_at(at, wall + hours), before + second + hours, "suspended for eight hours");
        assert_eq!(confirmed.age_at(at, wall - hours), before + second, "the wall clock was set back");
        assert_eq!(confirmed.age_at(confirmed.at, wall - hours), before);
    }
}
