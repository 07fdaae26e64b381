//! The budget of attempts at failing objects, shared by all objects of a controller.
//!
//! INVARIANT: attempts that fail spend at most `burst` tokens at once and one an `interval` after that, apart from those
//! that run when the budget closes. Knows no clock: time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// A token bucket, and the row of failures that closes it for every object.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryBudget {
    /// Time in which one token returns.
    interval: Duration,
    burst: u32,
    /// Time at which all tokens are back; `None` before the first one was spent.
    full_at: Option<Instant>,
    /// Failures of all objects since the last success.
    row: u32,
}

impl RetryBudget {
    /// At least one attempt in 1,000 s, and a burst of at least one.
    pub(super) fn new(per_second: f64, burst: u32) -> Self {
        // Not a number is not above it.
        let per_second = if per_second > 0.001 { per_second.min(1e6) } else { 0.001 };
        Self { interval: Duration::from_secs_f64(per_second.recip()), burst: burst.max(1), full_at: None, row: 0 }
    }

    /// True while all of the last attempts failed, as many as a burst has. Then objects that have not failed yet need a
    /// token too: the reason is likely to be the same, such as a webhook that is down.
    pub(super) const fn is_closed(&self) -> bool {
        self.row >= self.burst
    }

    /// Time from which a token can be spent; `None` if that is always so.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let all_but_one = self.interval.saturating_mul(self.burst.saturating_sub(1));
        self.full_at.and_then(|full_at| full_at.checked_sub(all_but_one))
    }

    pub(super) fn has_token(&self, now: Instant) -> bool {
        self.next_at().is_none_or(|at| at <= now)
    }

    pub(super) fn spend(&mut self, now: Instant) {
        self.full_at = Some(self.full_at.map_or(now, |full_at| full_at.max(now)) + self.interval);
    }

    /// Counts an attempt that succeeded.
    pub(super) const fn succeeded(&mut self) {
        self.row = 0;
    }

    /// Takes a token back: an attempt succeeded, so that a recovery is not held up, or none was made.
    pub(super) fn return_token(&mut self) {
        self.full_at = self.full_at.and_then(|full_at| full_at.checked_sub(self.interval));
    }

    /// Counts an attempt that failed.
    pub(super) fn failed(&mut self, now: Instant) {
        self.row = self.row.saturating_add(1);
        if self.row == self.burst {
            // These failures were the burst.
            self.full_at = Some(now + self.interval.saturating_mul(self.burst));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_and_then_one_an_interval() {
        let (mut budget, start) = (RetryBudget::new(10.0, 5), Instant::now());
        let mut spent = Vec::new();
        for step in 0..1_000 {
            let now = start + step * Duration::from_millis(10);
            if budget.has_token(now) {
                budget.spend(now);
                spent.push(now);
            }
        }
        assert_eq!(spent.iter().filter(|at| **at < start + SECOND).count(), 5 + 9);
        assert_eq!(spent.len(), 5 + 99, "ten seconds");
    }

    #[test]
    fn a_row_of_failures_closes_the_budget_and_a_success_opens_it() {
        let (mut budget, now) = (RetryBudget::new(10.0, 3), Instant::now());
        for _ in 0..3 {
            assert!(!budget.is_closed() && budget.has_token(now));
            budget.failed(now);
        }
        assert!(budget.is_closed() && !budget.has_token(now), "the burst is spent");
        let next = now + SECOND / 10;
        assert_eq!(budget.next_at(), Some(next));
        budget.spend(next);
        assert!(!budget.has_token(next));
        budget.succeeded();
        budget.return_token();
        assert!(!budget.is_closed() && budget.has_token(next), "the token is back");
    }
}
