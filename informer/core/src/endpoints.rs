//! Which endpoint requests go to: a list in order of preference whose members share resourceVersions. Does no I/O.
//!
//! INVARIANT: leaving and returning are spread at random, so that the clients of one endpoint do not move together; and
//! each of them is rarer the more often it led nowhere.

use std::{ops::RangeInclusive, time::Duration};

use crate::{reflector::Class, time::Time};

/// Settings of the choice. `Default` is what production should use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// An endpoint that fails for this long is left, drawn from this range. Default 5 to 30 s: readers keep what they
    /// have meanwhile, and an endpoint that only restarts is not abandoned by all at once. Up to four times as long
    /// while endpoint after endpoint fails.
    pub leave_after: RangeInclusive<Duration>,
    /// The preferred endpoint is tried again after a random part of this. Default 10 minutes. Up to eight times as
    /// long while it fails or is refused.
    pub return_within: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { leave_after: Duration::from_secs(5)..=Duration::from_secs(30), return_within: Duration::from_mins(10) }
    }
}

/// How often a delay doubles: for leaving, and for returning.
const LEAVE_DOUBLINGS_MAX: u32 = 2;
const RETURN_DOUBLINGS_MAX: u32 = 3;

/// The choice of one client. The preferred endpoint has index 0.
///
/// Tell it what requests came to, call [`Self::handle_timeout`] when [`Self::poll_timeout`] says so, and let requests
/// go to the index it answers with; the reflector hears of each such move as `Input::Moved`.
#[derive(Clone, Debug)]
pub struct Endpoints {
    config: Config,
    rng: fastrand::Rng,
    current: usize,
    /// The endpoint whose history the copy has: where a refused move leads back to.
    home: usize,
    /// For each endpoint, before when it is not tried again.
    not_before: Vec<Time>,
    /// When the current endpoint is left, if it does not work before.
    leave_at: Option<Time>,
    /// When the preferred endpoint is tried again.
    return_at: Option<Time>,
    /// Whether the last move left an endpoint that worked, for a better one.
    by_choice: bool,
    /// Endpoints left in a row.
    leaves: u32,
    /// Attempts in a row to return that failed or were refused.
    returns: u32,
}

impl Endpoints {
    /// A choice among `count` endpoints that begins with the preferred one.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn new(count: usize, config: Config, seed: u64) -> Self {
        assert!(count > 0, "no endpoint");
        Self {
            config,
            rng: fastrand::Rng::with_seed(seed),
            current: 0,
            home: 0,
            not_before: vec![Time::ZERO; count],
            leave_at: None,
            return_at: None,
            by_choice: false,
            leaves: 0,
            returns: 0,
        }
    }

    /// Where requests go.
    #[must_use]
    pub const fn current(&self) -> usize {
        self.current
    }

    /// A request failed. Positions that are too old or too new are no failure of the endpoint. Nor is 429: a server that
    /// has too much to do, or fills its cache, works, and its clients would take the load along to the next one.
    pub fn failed(&mut self, now: Time, class: Class) {
        match class {
            Class::Expired | Class::TooLarge => {}
            Class::TooMany => self.leave_at = None,
            Class::Refused | Class::Forbidden | Class::Connection | Class::Server | Class::Malformed => {
                if self.leave_at.is_none() && self.not_before.len() > 1 {
                    // What was left by choice still works.
                    let patience = if self.by_choice { Duration::ZERO } else { self.draw_patience() };
                    self.leave_at = Some(now + patience);
                }
            }
        }
    }

    /// A list or watch was accepted. Not for proofs: an endpoint of another history answers them, and is of no use.
    pub fn worked(&mut self, now: Time) {
        self.leave_at = None;
        self.leaves = 0;
        self.by_choice = false;
        if self.current == 0 {
            self.returns = 0;
            self.return_at = None;
        } else if self.return_at.is_none() {
            self.return_at = Some(now + self.draw_return());
        }
    }

    /// Whether requests go to the endpoint whose history the copy has, as [`settle`](Self::settle) was told last.
    #[must_use]
    pub const fn is_home(&self) -> bool {
        self.current == self.home
    }

    /// The position belongs to the history of the current endpoint, as `Reflector::is_settled` says.
    pub const fn settle(&mut self) {
        self.home = self.current;
    }

    /// When to call [`Self::handle_timeout`]. `None` while nothing is to be decided.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        [self.leave_at, self.return_at].into_iter().flatten().min()
    }

    /// Moves if it is time to. Where requests go from now on; `None` when nothing changes.
    pub fn handle_timeout(&mut self, now: Time) -> Option<usize> {
        if self.leave_at.is_some_and(|at| now >= at) {
            return self.leave(now);
        }
        if self.return_at.is_some_and(|at| now >= at) {
            return Some(self.return_to_preferred());
        }
        None
    }

    /// The reflector refused the endpoint it was moved to. Where requests go from now on: back.
    pub fn refuse(&mut self, now: Time) -> usize {
        if self.is_home() {
            return self.current;
        }
        let delay = self.shun(now, self.current);
        self.leave_at = None;
        self.by_choice = false;
        self.current = self.home;
        self.return_at = (self.current != 0).then(|| self.not_before[0].max(now + delay));
        self.current
    }

    /// The position is too old for a fallback. `Some`: the preferred endpoint may still have it; requests go there.
    pub fn expired(&mut self, now: Time) -> Option<usize> {
        let may_try = self.current != 0 && now >= self.not_before[0];
        may_try.then(|| self.return_to_preferred())
    }

    fn leave(&mut self, now: Time) -> Option<usize> {
        let from = self.current;
        if self.by_choice {
            self.shun(now, from);
        }
        let count = self.not_before.len();
        let others = (1..count).map(|step| (from + step) % count);
        let Some(to) = others.clone().find(|to| now >= self.not_before[*to]) else {
            self.leave_at = others.map(|to| self.not_before[to]).min();
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

    /// Leaves `endpoint` alone for a time, longer each time; for how long.
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

    /// Never at once: who has just left would find the same.
    fn draw_return(&mut self) -> Duration {
        let least = (*self.config.leave_after.end()).min(self.config.return_within);
        let drawn = least + (self.config.return_within - least).mul_f64(self.rng.f64());
        drawn.saturating_mul(1 << self.returns.min(RETURN_DOUBLINGS_MAX))
    }
}

#[cfg(test)]
mod tests;
