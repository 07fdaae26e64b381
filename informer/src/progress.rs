//! Progress of an informer, written by its driver and read by its handles.

use std::{
    ops::Deref,
    time::{Duration, SystemTime},
};

use informer_core::Request;
use tokio::{sync::watch, time::Instant};

use crate::{
    ended::EndReason,
    error::{Cause, Error, NotReady, is_watch},
    stats::Stats,
    status::{InformerPhase, InformerStatus},
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

    /// When it was noted, on the clock that does not jump.
    #[cfg(all(feature = "controller", feature = "kube-5"))]
    pub(crate) const fn at(&self) -> Instant {
        self.at
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

/// Write side of a [`Progress`]. Its drop publishes the end of the informer, so callers never wait in vain, whether the
/// driver ended by its last handle, by its runtime or by a panic.
pub(crate) struct Outlet {
    sender: watch::Sender<Progress>,
    /// Why the driver is about to end; `None` while it runs.
    reason: Option<EndReason>,
}

impl Outlet {
    /// Sets the reason that the drop publishes.
    pub(crate) const fn ending(&mut self, reason: EndReason) {
        self.reason = Some(reason);
    }
}

impl From<watch::Sender<Progress>> for Outlet {
    fn from(sender: watch::Sender<Progress>) -> Self {
        Self { sender, reason: None }
    }
}

impl Deref for Outlet {
    type Target = watch::Sender<Progress>;

    fn deref(&self) -> &Self::Target {
        &self.sender
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let reason = match self.reason {
            // A panic of the task drops its future while the thread unwinds.
            _ if std::thread::panicking() => EndReason::Panicked,
            Some(reason) => reason,
            // Tasks of drivers are never aborted: only the runtime drops a future that has not ended.
            None => EndReason::RuntimeGone,
        };
        self.sender.send_modify(|progress| {
            progress.ended = Some(reason);
            progress.enter(InformerPhase::Ended(reason));
        });
    }
}

/// Waits until the driver has ended, and returns the reason. Cancel safe.
pub(crate) async fn ended(mut progress: watch::Receiver<Progress>) -> EndReason {
    // An error means that the sender is dropped, which happens after the reason was published.
    let _ = progress.wait_for(|progress| progress.ended.is_some()).await;
    let reason = progress.borrow().ended;
    reason.unwrap_or(EndReason::RuntimeGone)
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
    /// Why the driver has ended; `None` while it runs.
    pub(crate) ended: Option<EndReason>,
    /// When the server last confirmed what the store holds.
    pub(crate) confirmed: Option<ConfirmedTime>,
    /// Like `confirmed`, for a saved state that is not published yet.
    pub(crate) restored: Option<ConfirmedTime>,
    pub(crate) stats: Stats,
    pub(crate) phase: InformerPhase,
    pub(crate) phase_began: Instant,
    /// Requests sent before the phase began.
    pub(crate) requests_before: u64,
    /// The last failed request or response, and its time.
    pub(crate) last_error: Option<(Error, Instant)>,
    /// Number of failed requests and responses.
    pub(crate) failures: u64,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            started: now,
            request: None,
            endpoint: 0,
            stage: InitialPhase::Reading,
            attempts: 0,
            failure: None,
            is_synced: false,
            is_final: false,
            is_polling: false,
            is_sound: false,
            ended: None,
            confirmed: None,
            restored: None,
            stats: Stats::default(),
            phase: InformerPhase::Starting,
            phase_began: now,
            requests_before: 0,
            last_error: None,
            failures: 0,
        }
    }

    /// Begins a phase, unless it is the current one.
    pub(crate) fn enter(&mut self, phase: InformerPhase) {
        if self.phase != phase {
            (self.phase, self.phase_began) = (phase, Instant::now());
            self.requests_before = self.stats.reflector.requests;
        }
    }

    /// Begins the phase of an informer whose state the server has just confirmed.
    pub(crate) fn enter_confirmed(&mut self) {
        self.enter(if self.is_polling { InformerPhase::Polling } else { InformerPhase::Watching });
    }

    /// Records a failed request or response.
    pub(crate) fn failed(&mut self, error: &Error) {
        self.last_error = Some((error.clone(), Instant::now()));
        self.failures += 1;
        // Forbidden watches are what polling is for.
        let is_expected = self.is_polling && error.request().is_some_and(is_watch);
        if self.is_synced && !is_expected {
            self.enter(InformerPhase::Disconnected);
        }
    }

    /// The status of a driver or a copy.
    pub(crate) fn status(&self) -> InformerStatus {
        InformerStatus {
            phase: self.phase,
            since: self.phase_began.elapsed(),
            requests: self.stats.reflector.requests.saturating_sub(self.requests_before),
            last_error: self.last_error.as_ref().map(|(error, at)| (error.clone(), at.elapsed())),
        }
    }

    /// True once waiting for the first sync is over, successfully or not.
    pub(crate) const fn is_decided(&self) -> bool {
        self.is_synced || self.is_final || self.ended.is_some()
    }

    /// Time since the server last confirmed the stored state.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.confirmed.as_ref().map(ConfirmedTime::age)
    }

    /// True if the driver runs and the server confirmed the stored state within `max_age`, or the start lies within it:
    /// a restored state may be older than the process.
    pub(crate) fn is_alive(&self, max_age: Duration) -> bool {
        let is_confirmed = self.age().is_some_and(|age| age <= max_age);
        self.ended.is_none() && (is_confirmed || self.started.elapsed() <= max_age)
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
        let cause = match (self.ended, &self.failure) {
            (Some(reason), _) => Cause::Ended(reason),
            (None, Some(error)) => Cause::Failed(error.clone()),
            (None, None) => match self.stage {
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

    /// Goal: a probe does not kill a process that resumes an old checkpoint, before the server had time to confirm it.
    #[test]
    fn an_old_restored_state_does_not_make_a_young_process_look_dead() {
        let (second, hours) = (Duration::from_secs(1), Duration::from_secs(8 * 3_600));
        let mut progress = Progress::new();
        progress.confirmed = Some(ConfirmedTime::ago(hours));
        assert!(progress.is_alive(Duration::from_secs(60)));
        progress.started = Instant::now().checked_sub(2 * second).expect("a machine that runs for seconds");
        assert!(!progress.is_alive(second));
        progress.confirmed = Some(ConfirmedTime::now());
        assert!(progress.is_alive(second));
        progress.ended = Some(EndReason::Dropped);
        assert!(!progress.is_alive(hours));
    }

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
