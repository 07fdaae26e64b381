//! Writes what a session reports: log lines, the progress that handles read, errors for callers of `ready`.

use std::collections::BTreeSet;

use informer_core::{
    Request, Time,
    reflector::{Ending, FallBack, Report},
    session::{SessionReport, UnreadableCause},
};
use tokio::time::Instant;

use super::{DriverSink, Session, TypeVerdicts};
use crate::{
    ended::EndReason,
    error::{Chain, Error, Kind},
    labels,
    progress::{ConfirmedTime, InitialPhase, Outlet},
    stats::Strategy,
};

pub(super) struct Reporter {
    // Name of the type, for logs.
    resource: String,
    progress: Outlet,
    bytes_received: u64,
    // Objects left out.
    dropped: u64,
    // Objects the framer skipped.
    skipped: u64,
    // Keys of unreadable objects that were logged; at most `UNREADABLE_LOGGED_MAX`.
    logged: BTreeSet<String>,
    confirmed_at: Option<Time>,
}

/// Number of unreadable objects logged by name. Further ones are only counted.
const UNREADABLE_LOGGED_MAX: usize = 64;

/// Longest key that is logged, in bytes: namespace, slash, name. A longer key is not a valid name.
const KEY_LOGGED_BYTES_MAX: usize = 63 + 1 + 253;

/// Returns the key as it is logged: empty above [`KEY_LOGGED_BYTES_MAX`].
const fn logged(key: &str) -> &str {
    if key.len() <= KEY_LOGGED_BYTES_MAX { key } else { "" }
}

impl Reporter {
    pub(super) const fn new(resource: String, progress: Outlet) -> Self {
        Self {
            resource,
            progress,
            bytes_received: 0,
            dropped: 0,
            skipped: 0,
            logged: BTreeSet::new(),
            confirmed_at: None,
        }
    }

    /// Name of the type, for logs.
    pub(super) fn resource(&self) -> &str {
        &self.resource
    }

    pub(super) const fn received(&mut self, bytes: usize) {
        self.bytes_received += bytes as u64;
    }

    /// `requested_at` is the time of the last request.
    pub(super) fn report<S: DriverSink>(
        &mut self,
        now: Time,
        report: SessionReport,
        requested_at: Instant,
        session: &mut Session<S, TypeVerdicts>,
    ) {
        let resource = &self.resource;
        let position = || session.reflector().position().map(tracing::field::display);
        match report {
            SessionReport::Reflector(report) => self.on_reflector(now, report, session),
            SessionReport::Moved { from, to } => {
                tracing::info!(resource, from, to, resource_version = position(), "endpoint failover");
                self.progress.send_modify(|progress| progress.stats.moves += 1);
            }
            SessionReport::Reverted { from, to } => {
                tracing::warn!(resource, from, to, "endpoint failover reverted");
                self.progress.send_modify(|progress| progress.stats.moves += 1);
            }
            SessionReport::Restored => {
                self.progress.send_modify(|progress| progress.confirmed = progress.restored);
                tracing::info!(resource, resource_version = position(), "saved position resumed");
            }
            SessionReport::Synced(position) => {
                tracing::info!(resource, resource_version = %position, "relist completed");
            }
            SessionReport::FirstObject => {
                self.progress.send_modify(|progress| progress.stats.first_object_after = Some(requested_at.elapsed()));
            }
            SessionReport::Unreadable { key, cause } => self.on_unreadable(key, cause, session),
        }
    }

    fn on_reflector<S: DriverSink>(&self, now: Time, report: Report, session: &mut Session<S, TypeVerdicts>) {
        let resource = &self.resource;
        match report {
            Report::Relist { cause } => tracing::info!(resource, cause = cause.as_str(), "relist started"),
            Report::FellBack { cause } => {
                tracing::info!(resource, cause = cause.as_str(), "fallback to pages");
                if cause == FallBack::Stalled {
                    self.note(Kind::Silent, session);
                }
            }
            Report::Waiting { until, cause } => {
                let delay = until.since(now);
                tracing::debug!(resource, cause = labels::ending_text(cause), ?delay, "request delayed");
                match cause {
                    // The failure was already recorded when it arrived.
                    Ending::Failed(_) | Ending::WatchForbidden => {}
                    Ending::Closed => self.note(Kind::Ended, session),
                    Ending::Unanswered => self.note(Kind::Silent, session),
                    Ending::WentBack | Ending::Unproven => self.note(Kind::History, session),
                    Ending::Unusable => self.note(Kind::Unusable, session),
                    Ending::Endless => self.note(Kind::Endless, session),
                }
            }
            Report::Healthy => tracing::debug!(resource, "backoff reset"),
            Report::Spread { until } => {
                tracing::debug!(resource, delay = ?until.since(now), "start delayed");
                self.progress.send_modify(|progress| progress.stage = InitialPhase::Spread);
            }
            Report::Proved => tracing::debug!(resource, "position proved"),
            Report::Foreign => tracing::warn!(resource, "foreign history detected"),
            Report::HistoryReset => tracing::warn!(resource, "history reset detected"),
            Report::Unordered => tracing::warn!(resource, "unordered resourceVersions detected"),
            Report::Expired => {
                tracing::warn!(resource, "exact resourceVersion expired");
                self.progress.send_modify(|progress| progress.is_final = true);
            }
        }
    }

    /// Logs each key once.
    fn on_unreadable<S: DriverSink>(
        &mut self,
        key: String,
        cause: UnreadableCause,
        session: &mut Session<S, TypeVerdicts>,
    ) {
        let shown = logged(&key);
        let is_new = self.logged.len() < UNREADABLE_LOGGED_MAX && !self.logged.contains(shown);
        let resource = &self.resource;
        match &cause {
            UnreadableCause::Nameless => {
                self.dropped += 1;
                if is_new {
                    tracing::warn!(resource, key = shown, "nameless object dropped");
                }
            }
            UnreadableCause::Unversioned if is_new => {
                tracing::warn!(resource, key = shown, "unversioned object kept");
            }
            UnreadableCause::Unversioned => {}
            UnreadableCause::Skipped { reason, at, .. } => {
                self.skipped += 1;
                if is_new {
                    tracing::warn!(resource, key = shown, offset = at, %reason, "object skipped");
                }
            }
            UnreadableCause::Dropped(error) => {
                self.dropped += 1;
                tracing::warn!(resource, key = shown, error = %Chain(error), "object dropped");
            }
        }
        if is_new && !matches!(cause, UnreadableCause::Dropped(_)) {
            self.logged.insert(shown.to_owned());
        }
        if let UnreadableCause::Skipped { reason, at, is_stale: true } = cause {
            let error = Error::new(Kind::Skipped { key, at, reason }, self.progress.borrow().request.as_ref());
            session.sink_mut().failed(&error);
        }
    }

    /// Records a failure without an error of the transport. The end of a watch is none.
    fn note<S: DriverSink>(&self, kind: Kind, session: &mut Session<S, TypeVerdicts>) {
        if session.is_incomplete() || !matches!(kind, Kind::Ended) {
            let error = Error::new(kind, self.progress.borrow().request.as_ref());
            self.record(error, session);
        }
    }

    /// Records a failed request or response.
    pub(super) fn failed<S: DriverSink>(&self, error: Error, session: &mut Session<S, TypeVerdicts>) {
        let class = error.class().as_str();
        tracing::warn!(resource = self.resource, class, error = %Chain(&error), "request failed");
        self.record(error, session);
    }

    /// Publishes a failure, and keeps it for callers of `ready` while state is incomplete.
    fn record<S: DriverSink>(&self, error: Error, session: &mut Session<S, TypeVerdicts>) {
        session.sink_mut().failed(&error);
        let is_incomplete = session.is_incomplete();
        self.progress.send_modify(|progress| {
            progress.failed(&error);
            if is_incomplete {
                progress.failure = Some(error);
            }
        });
    }

    /// Records that a read of initial state waits for its permit. A repeated page is not a new attempt.
    pub(super) fn queued(&self, request: Request, is_attempt: bool) {
        self.progress.send_modify(|progress| {
            progress.request = Some(request);
            progress.stage = InitialPhase::Queued;
            progress.attempts += u64::from(is_attempt);
        });
    }

    /// Records a request sent to an endpoint.
    pub(super) fn requested(&self, request: Request, endpoint: usize, stage: InitialPhase, strategy: Option<Strategy>) {
        self.progress.send_modify(|progress| {
            progress.request = Some(request);
            progress.endpoint = endpoint;
            progress.stage = stage;
            progress.stats.strategy = strategy.or(progress.stats.strategy);
        });
    }

    /// Sets the reason of the end, which is published when the driver has ended.
    pub(super) const fn ending(&mut self, reason: EndReason) {
        self.progress.ending(reason);
    }

    /// Counts a checkpoint that could not be opened or saved.
    pub(super) fn not_saved(&self) {
        self.progress.send_modify(|progress| progress.stats.checkpoint_failures += 1);
    }

    /// Publishes changes to readers.
    pub(super) fn publish<S: DriverSink>(&mut self, session: &mut Session<S, TypeVerdicts>) {
        session.sink_mut().flush();
        let is_confirmed = session.confirmed_at() != self.confirmed_at;
        self.confirmed_at = session.confirmed_at();
        self.progress.send_if_modified(|progress| {
            let reflector = session.reflector();
            progress.stats.reflector = reflector.stats().clone();
            progress.stats.bytes_received = self.bytes_received;
            progress.stats.unreadable = self.dropped;
            progress.stats.skipped = self.skipped;
            if is_confirmed {
                progress.confirmed = Some(ConfirmedTime::now());
            }
            let begins_polling = reflector.is_polling() && !progress.is_polling;
            progress.is_polling = reflector.is_polling();
            progress.is_sound = reflector.is_sound();
            let has_synced = session.is_synced() && !progress.is_synced;
            if has_synced {
                progress.stats.synced_after = Some(progress.started.elapsed());
            }
            if !session.is_incomplete() {
                progress.failure = None;
            }
            progress.is_synced |= has_synced;
            // Polling begins when a watch fails; the copy is then as current as the list before it.
            if has_synced || progress.is_synced && (is_confirmed || begins_polling) {
                progress.enter_confirmed();
            }
            // Copies derived from this one show its age and its phase.
            has_synced || is_confirmed || begins_polling
        });
    }
}
