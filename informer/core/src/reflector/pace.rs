//! Pace of the requests around sessions that delivered something, or lived for half a second, and then broke.
//!
//! Such sessions reset the delays however short they were. INVARIANT: the pace alone bounds the requests that reach a
//! server that sends one event and closes, whatever fails in between; attempts without a connection are bounded by their
//! own delays too. Each request adds its own jitter, so clients cut at one moment drift apart.

use std::time::Duration;

use super::Memory;
use crate::time::Time;

/// Least time between these requests on average. With up to 20 % jitter, 3.5 s allow a watch every five seconds with a
/// proof for every second one.
const REQUEST_PACE: Duration = Duration::from_millis(3_200);

/// Time that they may be ahead of their pace: eight requests, which resume at once after an outage, a 410 and five resets.
const REQUEST_BURST: Duration = Duration::from_secs(28);

/// Time that they may be behind their pace. A server that was away for long costs no more than that afterwards.
const REQUEST_DEBT_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct RequestPace {
    /// When the requests so far are paid for, plus [`REQUEST_BURST`]: times before the start cannot be written.
    paid_at: Time,
}

impl RequestPace {
    fn charge(&mut self, now: Time, cost: Duration) {
        self.paid_at = (self.paid_at.max(now) + cost).min(now + REQUEST_BURST + REQUEST_DEBT_MAX);
    }

    /// Returns true while a quarter of the burst is used up: attempts without a connection count too then. Before, they do
    /// not, so that a plain outage delays nothing once the server is back.
    pub(super) fn is_ahead(&self, now: Time) -> bool {
        self.paid_at > now + REQUEST_BURST / 4
    }

    fn due(&self, now: Time) -> Time {
        Time(self.paid_at.0.saturating_sub(REQUEST_BURST)).max(now)
    }
}

impl Memory {
    /// Counts a request, or an attempt at one, for the pace.
    pub(super) fn charge(&mut self, now: Time) {
        let cost = self.around(REQUEST_PACE);
        self.pace.charge(now, cost);
    }

    /// Returns when the next request is due after a session that delivered something: at once, unless such sessions come
    /// faster than the pace allows.
    pub(super) fn after_delivery(&mut self, now: Time, retry_after: Option<Duration>) -> Time {
        let spread = self.backoff.after_healthy(retry_after);
        self.pace.due(now) + spread
    }
}
