//! Pace of the requests around sessions that delivered something, or lived for half a second, and then broke.
//!
//! Such sessions reset the delays however short they were. INVARIANT: the pace alone bounds a server that sends one event
//! and closes, whatever fails in between.

use std::time::Duration;

use crate::time::Time;

/// Average time between these requests. It allows a watch every five seconds with a proof for every second one.
const REQUEST_PACE: Duration = Duration::from_millis(3_500);

/// Time that they may be ahead of their pace: eight requests, which resume at once after an outage, a 410 and five resets.
const REQUEST_BURST: Duration = REQUEST_PACE.saturating_mul(8);

/// Time that they may be behind their pace. A server that was away for long costs no more than that afterwards.
const REQUEST_DEBT_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct RequestPace {
    /// When the requests so far are paid for, plus [`REQUEST_BURST`]: times before the start cannot be written.
    paid_at: Time,
}

impl RequestPace {
    /// Counts a request, or an attempt at one.
    pub(super) fn charge(&mut self, now: Time) {
        self.paid_at = (self.paid_at.max(now) + REQUEST_PACE).min(now + REQUEST_BURST + REQUEST_DEBT_MAX);
    }

    /// Returns when the next request may follow a delivery.
    pub(super) fn due(&self, now: Time) -> Time {
        Time(self.paid_at.0.saturating_sub(REQUEST_BURST)).max(now)
    }
}
