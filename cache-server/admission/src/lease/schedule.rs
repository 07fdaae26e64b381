//! Times at which the API server reviews the right of an open watch again.
//!
//! INVARIANT: followed roles only postpone reviews; the API server alone decides whether a right is held.
//! INVARIANT: without an answer, or without roles that explain the last one, the next question comes within
//! [`RIGHT_ASKED_EVERY`], and otherwise within [`EXPLAINED_RIGHT_ASKED_EVERY`].
//! INVARIANT: roles explain no right of a token that has expired.

use std::{mem, sync::Arc, time::Duration};

use access_rules::{rbac::allowed_subject, request_info::RequestInfo, user::User};
use informer_serving::status::Status;
use tokio::time::Instant;

use crate::{
    authorize::FollowedRoles,
    limits::{
        DOUBTED_RIGHT_RETRY_MAX, EXPIRED_TOKEN_LEEWAY, EXPIRY_MARGIN, EXPLAINED_RIGHT_ASKED_EVERY, RIGHT_AGE,
        RIGHT_ASKED_EVERY, RIGHT_RETRY,
    },
};

/// A reviewed right, at the start of its watch.
pub struct ReviewedRight {
    /// Reason of the answer by which the watch was allowed; `None` if there was none.
    pub reason: Option<Arc<str>>,
    /// Time at which the caller's token expires, by its own account.
    pub expires: Option<Instant>,
    /// True if roles do not explain the whole right.
    pub keeps_asking: bool,
}

/// The followed roles in one round of checks.
#[derive(Clone, Copy)]
pub(super) struct RolesView<'a> {
    pub(super) roles: &'a dyn FollowedRoles,
    pub(super) version: Option<u64>,
    /// Time at which they were last known to be up to date.
    pub(super) known: Instant,
}

/// The questions about one right.
pub(super) struct AskSchedule {
    /// The user or group to which RBAC allowed the right; `None` if another authorizer did.
    subject: Option<User>,
    /// Version of the roles that were last compared with the answer; `None` before, and while they are not followed.
    version: Option<u64>,
    /// True if these roles allow the right to the subject.
    is_explained: bool,
    /// Time of the last answer, or of the begin.
    answered: Instant,
    /// Time of the last outcome of a question, undecided ones included, or of the begin.
    reviewed: Instant,
    /// Questions and comparisons in a row that left the right undecided.
    failures: u32,
    /// Time of the next question, if roles explain nothing.
    due: Instant,
    /// Pause between two answers: equal for all rights of a caller, which share them.
    pause: Duration,
    /// Like `pause`, while roles explain the right.
    explained_pause: Duration,
    expires: Option<Instant>,
    keeps_asking: bool,
}

impl AskSchedule {
    /// `share` of the caller in 0 to 255 spreads the questions of all callers.
    pub(super) fn new(right: ReviewedRight, share: u8) -> Self {
        let now = Instant::now();
        let share = f64::from(share) / f64::from(u8::MAX);
        let mut schedule = Self {
            subject: None,
            version: None,
            is_explained: false,
            answered: now,
            reviewed: now,
            failures: 0,
            due: now,
            pause: RIGHT_ASKED_EVERY.mul_f64(0.75 + 0.2 * share),
            explained_pause: EXPLAINED_RIGHT_ASKED_EVERY.mul_f64(0.5 + 0.45 * share),
            expires: right.expires,
            keeps_asking: right.keeps_asking,
        };
        if let Some(reason) = right.reason {
            schedule.answer(&reason);
        }
        schedule
    }

    /// Returns the time of the next question, if no role changes before.
    pub(super) fn next(&mut self, info: &RequestInfo, view: RolesView<'_>) -> Instant {
        self.compare(info, view);
        // Later again: the other server may remember the token, accept it for some time, or both.
        let expiry = self.expires.and_then(|at| {
            let delays = [Duration::ZERO, RIGHT_AGE, EXPIRED_TOKEN_LEEWAY + RIGHT_AGE];
            delays.into_iter().map(|delay| at + delay + EXPIRY_MARGIN).find(|at| self.reviewed < *at)
        });
        let is_put_off = !self.keeps_asking && !self.has_expired();
        let due = if 0 < self.failures {
            self.due
        } else if is_put_off && self.is_explained {
            self.answered + self.explained_pause
        } else if is_put_off && self.subject.is_some() && view.version.is_none() {
            // All callers at once would be due when the roles are lost.
            self.due.max(view.known + self.pause)
        } else {
            self.due
        };
        expiry.map_or(due, |expiry| due.min(expiry))
    }

    /// Compares the last answer with roles that have changed since.
    fn compare(&mut self, info: &RequestInfo, view: RolesView<'_>) {
        let Some(subject) = &self.subject else { return };
        if view.version == self.version {
            return;
        }
        let before = mem::replace(&mut self.version, view.version);
        let is_explained = view.version.is_some() && view.roles.allow(subject, info);
        let was_explained = mem::replace(&mut self.is_explained, is_explained);
        if is_explained {
            self.failures = 0;
        } else if view.version.is_some() {
            // The roles or the API server may be stale. Review at once if roles explained the right before, otherwise
            // after a short pause.
            // Once for each answer, not for each change of other roles.
            self.failures += u32::from(was_explained || before.is_none());
            let pause = if was_explained { Duration::ZERO } else { self.retry() };
            self.due = self.due.min(Instant::now() + pause);
        }
    }

    /// Notes an allow, and its reason.
    pub(super) fn answer(&mut self, reason: &str) {
        let now = Instant::now();
        self.subject = allowed_subject(reason);
        (self.version, self.is_explained, self.due) = (None, false, now + self.pause);
        (self.answered, self.reviewed) = (now, now);
        if self.subject.is_none() {
            self.failures = 0;
        }
    }

    /// Notes an answer that neither allows nor refuses.
    pub(super) fn fail(&mut self, status: &Status) {
        let now = Instant::now();
        self.reviewed = now;
        self.failures += 1;
        let pause = status.retry_after().unwrap_or(Duration::from_secs(1));
        let pause = self.retry().max(pause);
        // The right may be gone, and its caller the reason. A server that does not answer at all is sent no questions.
        let is_doubted = self.has_expired() || self.version.is_some() && !self.is_explained;
        self.due = now + if is_doubted { pause.min(DOUBTED_RIGHT_RETRY_MAX) } else { pause };
    }

    /// True if the token had expired when the right was last asked about.
    fn has_expired(&self) -> bool {
        self.expires.is_some_and(|at| at <= self.reviewed)
    }

    fn retry(&self) -> Duration {
        (RIGHT_RETRY * (1 << self.failures.saturating_sub(1).min(DOUBLINGS_MAX))).min(self.pause)
    }
}

/// Largest number of doublings of the pause after questions that left a right undecided: it is longer than any pause then.
const DOUBLINGS_MAX: u32 = 12;
