//! Chooses the endpoint for requests from a list in order of preference. Its members share resourceVersions. Does no
//! I/O.
//!
//! INVARIANT: leaving and returning happen at random times, so that the clients of one endpoint do not move together;
//! each unsuccessful move doubles the delay before the next one, up to a bound.

use std::{ops::RangeInclusive, time::Duration};

use crate::{reflector::Class, time::Time};

/// Settings of the choice. The default suits production.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Time for which an endpoint must fail before the client leaves it, drawn from this range. Default 5 to 30 s:
    /// readers keep their state meanwhile, and clients do not all leave an endpoint that only restarts. Doubles up to
    /// four times this while one endpoint after another fails.
    pub leave_after: RangeInclusive<Duration>,
    /// Upper bound of the random time before the preferred endpoint is tried again; the lower bound is the end of
    /// `leave_after`. Default 10 minutes. Doubles up to eight times this while the endpoint fails or is refused.
    pub return_within: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let leave_after = Duration::from_secs(5)..=Duration::from_secs(30);
        Self { leave_after, return_within: Duration::from_secs(10 * 60) }
    }
}

/// Bounds on doublings of a delay: for leaving, and for returning.
const LEAVE_DOUBLINGS_MAX: u32 = 2;
const RETURN_DOUBLINGS_MAX: u32 = 3;

/// The choice of one client. The preferred endpoint has index 0.
///
/// Report the results of requests, call [`Self::handle_timeout`] when [`Self::poll_timeout`] is due, and send requests
/// to the index it returns; report each such move to the reflector as `Input::Moved`.
#[derive(Clone, Debug)]
pub struct Endpoints {
    config: Config,
    rng: fastrand::Rng,
    current: usize,
    /// The endpoint whose history the copy has: a refused move returns there.
    home: usize,
    /// For each endpoint, the time before which it is not tried again while another one works.
    not_before: Vec<Time>,
    /// For each endpoint, the time before which it is not tried again at all, since its history is another one.
    refused_until: Vec<Time>,
    /// For each endpoint, the time until which it counts as one that forbids the request.
    forbids_until: Vec<Time>,
    /// When to leave the current endpoint, unless a request succeeds before.
    leave_at: Option<Time>,
    /// When to try the preferred endpoint again.
    return_at: Option<Time>,
    /// True if the last move left a working endpoint for the preferred one.
    by_choice: bool,
    /// Endpoints left in a row.
    leaves: u32,
    /// Attempts in a row to return that failed or were refused.
    returns: u32,
}

impl Endpoints {
    /// Creates a choice among `count` endpoints, starting with the preferred one.
    ///
    /// # Panics
    /// If `count` is zero.
    #[must_use]
    pub fn new(count: usize, config: Config, seed: u64) -> Self {
        assert!(count > 0, "no endpoint");
        Self {
            config,
            rng: fastrand::Rng::with_seed(seed),
            current: 0,
            home: 0,
            not_before: vec![Time::ZERO; count],
            refused_until: vec![Time::ZERO; count],
            forbids_until: vec![Time::ZERO; count],
            leave_at: None,
            return_at: None,
            by_choice: false,
            leaves: 0,
            returns: 0,
        }
    }

    /// Index of the endpoint for requests.
    #[must_use]
    pub const fn current(&self) -> usize {
        self.current
    }

    /// Notes a failed request. Positions that are too old or too new are no failure of the endpoint. Neither is 429: an
    /// overloaded server, or one that fills its cache, works, and its clients would only carry the load to the next
    /// one. A client that every endpoint forbids to watch polls where it is.
    pub fn failed(&mut self, now: Time, class: Class) {
        match class {
            Class::Expired | Class::TooLarge => {}
            Class::TooMany => self.leave_at = None,
            Class::Forbidden => {
                self.forbids_until[self.current] = now + self.draw_return();
                if self.forbids_until.iter().all(|until| now < *until) {
                    self.leave_at = None;
                } else {
                    self.leave_soon(now);
                }
            }
            Class::Refused | Class::NotFound | Class::Connection | Class::Server | Class::Malformed => {
                self.leave_soon(now);
            }
        }
    }

    fn leave_soon(&mut self, now: Time) {
        // A single endpoint is never left.
        if self.leave_at.is_none() && self.not_before.len() > 1 {
            // The endpoint left by choice still works, so return there at once.
            let patience = if self.by_choice { Duration::ZERO } else { self.draw_patience() };
            self.leave_at = Some(now + patience);
        }
    }

    /// Notes that a list or watch was accepted. Not for proofs, which an endpoint of another history answers as well.
    pub fn worked(&mut self, now: Time) {
        self.leave_at = None;
        self.leaves = 0;
        self.by_choice = false;
        self.forbids_until[self.current] = Time::ZERO;
        if self.current == 0 {
            self.returns = 0;
            self.return_at = None;
        } else if self.return_at.is_none() {
            self.return_at = Some(now + self.draw_return());
        }
    }

    /// Returns true if requests go to the endpoint whose history the copy has, by the last call of
    /// [`settle`](Self::settle).
    #[must_use]
    pub const fn is_home(&self) -> bool {
        self.current == self.home
    }

    /// Notes that the position belongs to the current endpoint's history, as returned by `Reflector::is_settled`.
    pub const fn settle(&mut self) {
        self.home = self.current;
    }

    /// Returns when to call [`Self::handle_timeout`]. `None` if no decision is pending.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        [self.leave_at, self.return_at].into_iter().flatten().min()
    }

    /// Moves if it is time to. Returns the new endpoint; `None` if it stays the same.
    pub fn handle_timeout(&mut self, now: Time) -> Option<usize> {
        if self.leave_at.is_some_and(|at| now >= at) {
            return self.leave(now);
        }
        if self.return_at.is_some_and(|at| now >= at) {
            return Some(self.return_to_preferred());
        }
        None
    }

    /// Handles the reflector's refusal of the endpoint it was moved to. Returns the endpoint to go back to.
    pub fn refuse(&mut self, now: Time) -> usize {
        if self.is_home() {
            return self.current;
        }
        let delay = self.shun(now, self.current);
        self.refused_until[self.current] = self.not_before[self.current];
        self.leave_at = None;
        self.by_choice = false;
        self.current = self.home;
        self.return_at = (self.current != 0).then(|| self.not_before[0].max(now + delay));
        self.current
    }

    /// Notes that the position expired at a fallback endpoint. Returns the preferred endpoint if it may be tried, since
    /// it may still have the position.
    pub fn expired(&mut self, now: Time) -> Option<usize> {
        let may_try = self.current != 0 && now >= self.not_before[0];
        may_try.then(|| self.return_to_preferred())
    }

    fn leave(&mut self, now: Time) -> Option<usize> {
        let from = self.current;
        // The attempt to return failed, so the next one waits longer.
        if self.by_choice {
            self.shun(now, from);
        }
        let count = self.not_before.len();
        let others = (1..count).map(|step| (from + step) % count);
        // An endpoint that failed earlier may work by now, and this one does not.
        let by_exclusion = |to: &usize| self.not_before[*to].max(now);
        let allowed = others.clone().filter(|to| now >= self.refused_until[*to]);
        let Some(to) = allowed.min_by_key(by_exclusion) else {
            // Every other endpoint has refused the position: wait for the first to be allowed again.
            self.leave_at = others.map(|to| self.refused_until[to]).min();
            return None;
        };
        self.leaves = self.leaves.saturating_add(1);
        self.leave_at = None;
        self.by_choice = false;
        self.current = to;
        self.return_at = (to != 0).then(|| self.not_before[0].max(now + self.draw_return()));
        Some(to)
    }

    const fn return_to_preferred(&mut self) -> usize {
        self.by_choice = self.leave_at.is_none();
        self.leave_at = None;
        self.return_at = None;
        self.current = 0;
        0
    }

    /// Excludes `endpoint` for a time that grows with each call. Returns that time.
    fn shun(&mut self, now: Time, endpoint: usize) -> Duration {
        self.returns = self.returns.saturating_add(1);
        let delay = self.draw_return();
        self.not_before[endpoint] = now + delay;
        delay
    }

    fn draw_patience(&mut self) -> Duration {
        let (least, most) = (*self.config.leave_after.start(), *self.config.leave_after.end());
        let drawn = least + most.saturating_sub(least).mul_f64(self.rng.f64());
        drawn.saturating_mul(1 << self.leaves.min(LEAVE_DOUBLINGS_MAX))
    }

    /// Never zero: a client that has just left would find the endpoint in the same condition.
    fn draw_return(&mut self) -> Duration {
        // `return_within` may be configured shorter.
        let least = (*self.config.leave_after.end()).min(self.config.return_within);
        let drawn = least + (self.config.return_within - least).mul_f64(self.rng.f64());
        drawn.saturating_mul(1 << self.returns.min(RETURN_DOUBLINGS_MAX))
    }
}

#[cfg(test)]
mod tests;
