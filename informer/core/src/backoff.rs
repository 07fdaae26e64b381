//! Delays between requests. They grow with every unhealthy end, and only a healthy session resets them. They grow slower
//! after attempts that cost the server next to nothing.
//!
//! INVARIANT: a delay is never below the server's `Retry-After`, and above `2 * max` only if `Retry-After` requires it.
//! Delays of a user-supplied policy may be longer, and are never below [`DELAY_MIN`].

use std::{fmt, time::Duration};

/// Parameters of the delays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Upper bound of the delay after a healthy end. Default 100 ms, which spreads the clients of a restarting server
    /// without a noticeable delay.
    pub healthy_max: Duration,
    /// Upper bound of the delay after the first unhealthy end, which is drawn from zero to this. Default 1 s.
    pub first_max: Duration,
    /// Base of the delay after the second unhealthy end: jittered in `[base, 2 * base)`. Doubles from there. Default
    /// 800 ms, as in client-go.
    pub base: Duration,
    /// Upper bound of the doubled delay, before jitter. Default 30 s, as in client-go: delays settle in `[30, 60)`
    /// seconds.
    pub max: Duration,
    /// Upper bound of an accepted `Retry-After`, before jitter. Default 5 minutes: a wrong header must not silence a
    /// client for a day.
    pub retry_after_max: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            healthy_max: Duration::from_millis(100),
            first_max: Duration::from_secs(1),
            base: Duration::from_millis(800),
            max: Duration::from_secs(30),
            retry_after_max: Duration::from_secs(5 * 60),
        }
    }
}

/// Lower bound of a user-supplied delay, so that a server that fails at once gets at most a hundred requests per
/// second.
pub const DELAY_MIN: Duration = Duration::from_millis(10);

/// A user-supplied delay policy that replaces [`Config`] after unhealthy sessions. `Retry-After` and [`DELAY_MIN`]
/// remain lower bounds.
pub trait Delays: Send {
    /// Returns the delay after one more unhealthy end, jitter included. `None` repeats the last delay, or
    /// [`Config::max`] if there was none.
    fn next(&mut self) -> Option<Duration>;
    /// Restarts the delays after a session proved healthy.
    fn reset(&mut self);
}

/// A user-supplied policy and the delay it returned last.
struct CustomDelays {
    delays: Box<dyn Delays>,
    last: Duration,
}

impl fmt::Debug for CustomDelays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Custom").field("last", &self.last).finish_non_exhaustive()
    }
}

#[cfg(test)]
impl Clone for CustomDelays {
    fn clone(&self) -> Self {
        unreachable!("tests that clone bring no delays of their own")
    }
}

/// Delays of one client, with the number of consecutive unhealthy ends.
///
/// Jitter is a low-discrepancy sequence instead of independent draws: each delay takes the next point of a golden-ratio
/// sequence with a random start. Clients are as scattered as with independent draws, but no client draws a streak of
/// short delays, so the number of requests during an outage is bounded for every seed and not only on average.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Backoff {
    config: Config,
    custom: Option<CustomDelays>,
    unhealthy: u32,
    /// Lower bound of the next delay; `None` before the first unhealthy end.
    next: Option<Duration>,
    /// Next point of the sequence, in `[0, 1)`.
    jitter: f64,
}

/// Growth of the delays after attempts that cost the server next to nothing.
const CHEAP_GROWTH: f64 = 1.35;

/// Jitter of the second of these delays, in parts of the delay. It sets where in the growth a client is, so that clients
/// whose connections broke at one moment do not return at one moment: the jitter of later delays adds up to the same for
/// all of them.
const CHEAP_PHASE: f64 = 0.8;

/// Jitter of these delays, in parts of the delay.
const CHEAP_JITTER: f64 = 0.5;

/// Bound of the delays without a connection, in parts of [`Config::max`]: by default they settle in 12.6 to 18.9 s. At
/// most 13 attempts in a minute and 47 in ten minutes. kube's watcher happens to try again just after two minutes; with a
/// longer bound such an outage would cost more than there.
const NO_CONNECTION_MAX: f64 = 0.42;

/// Step of the jitter sequence. Modulo one, its multiples are spread as evenly as possible.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

impl Backoff {
    /// Creates delays that start small. Two seeds give two independent starts.
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        Self { config, custom: None, unhealthy: 0, next: None, jitter: fastrand::Rng::with_seed(seed).f64() }
    }

    /// Creates delays that come from `delays` after unhealthy ends, and from `config` otherwise.
    #[must_use]
    pub fn with_delays(config: Config, seed: u64, delays: Box<dyn Delays>) -> Self {
        let last = config.max;
        Self { custom: Some(CustomDelays { delays, last }), ..Self::new(config, seed) }
    }

    /// Unhealthy ends since the last healthy session.
    #[must_use]
    pub const fn unhealthy(&self) -> u32 {
        self.unhealthy
    }

    /// Resets the delays after a session proved healthy.
    pub fn reset(&mut self) {
        (self.unhealthy, self.next) = (0, None);
        if let Some(custom) = &mut self.custom {
            custom.delays.reset();
        }
    }

    /// Returns the delay after a healthy session.
    pub fn after_healthy(&mut self, retry_after: Option<Duration>) -> Duration {
        self.requested(retry_after) + self.config.healthy_max.mul_f64(self.draw())
    }

    /// Returns a short delay that does not grow, up to `first_max`: for ends that are not the server's fault.
    pub fn brief(&mut self) -> Duration {
        self.config.first_max.mul_f64(self.draw())
    }

    /// Returns the delay after an unhealthy end; each call increases the next one. `Retry-After` is a lower bound, with
    /// jitter added so that clients with equal values do not return together.
    pub fn after_unhealthy(&mut self, retry_after: Option<Duration>) -> Duration {
        let least = self.next.unwrap_or(self.config.base).min(self.config.max);
        self.after(retry_after, least, least, least.saturating_mul(2))
    }

    /// Like [`Self::after_unhealthy`], after an attempt without a connection, which cost the server nothing. These delays
    /// grow slower and less far, so that clients notice a recovery sooner.
    pub fn after_no_connection(&mut self, retry_after: Option<Duration>) -> Duration {
        self.after_cheap(retry_after, self.config.max.mul_f64(NO_CONNECTION_MAX))
    }

    /// Like [`Self::after_no_connection`], after a watch that a server refuses while it answers lists. It may do so for
    /// ever, so these delays grow as far as those of other failures.
    pub fn after_refused_watch(&mut self, retry_after: Option<Duration>) -> Duration {
        self.after_cheap(retry_after, self.config.max)
    }

    fn after_cheap(&mut self, retry_after: Option<Duration>, most: Duration) -> Duration {
        let phase = 1.0 + CHEAP_PHASE * self.jitter;
        let is_first = self.next.is_none();
        let least = self.next.unwrap_or(self.config.base).min(most);
        let delay = self.after(retry_after, least, least.mul_f64(CHEAP_JITTER), least.mul_f64(CHEAP_GROWTH));
        if is_first {
            self.next = self.next.map(|next| next.mul_f64(phase));
        }
        delay
    }

    /// Returns a delay in `[least, least + spread)`, and keeps `next` as the lower bound of the one after it. The first
    /// delay starts at zero instead.
    fn after(&mut self, retry_after: Option<Duration>, least: Duration, spread: Duration, next: Duration) -> Duration {
        let (jitter, requested) = (self.draw(), self.requested(retry_after));
        self.unhealthy = self.unhealthy.saturating_add(1);
        if let Some(custom) = &mut self.custom {
            custom.last = custom.delays.next().unwrap_or(custom.last).max(DELAY_MIN);
            let last = custom.last;
            // The policy's delay includes jitter, `Retry-After` does not.
            return if last >= requested { last } else { requested + self.config.first_max.mul_f64(jitter) };
        }
        if self.next.is_none() {
            self.next = Some(self.config.base);
            return requested + self.config.first_max.mul_f64(jitter);
        }
        self.next = Some(next);
        least.max(requested) + spread.mul_f64(jitter)
    }

    fn requested(&self, retry_after: Option<Duration>) -> Duration {
        retry_after.unwrap_or_default().min(self.config.retry_after_max)
    }

    fn draw(&mut self) -> f64 {
        let drawn = self.jitter;
        self.jitter = (self.jitter + GOLDEN).fract();
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_from_nothing_to_the_cap_and_only_a_reset_shrinks_them() {
        let mut backoff = Backoff::new(Config::default(), 1);
        for (least, most) in [
            (0.0, 1.0),
            (0.8, 1.6),
            (1.6, 3.2),
            (3.2, 6.4),
            (6.4, 12.8),
            (12.8, 25.6),
            (25.6, 51.2),
            (30.0, 60.0),
            (30.0, 60.0),
        ] {
            let delay = backoff.after_unhealthy(None).as_secs_f64();
            assert!(least <= delay && delay < most, "{delay} not in [{least}, {most})");
        }
        assert!(backoff.after_healthy(None) < Duration::from_millis(100));
        assert!(backoff.after_unhealthy(None) >= Duration::from_secs(30), "a healthy pause alone resets nothing");
        backoff.reset();
        assert!(backoff.after_unhealthy(None) < Duration::from_secs(1));
    }

    #[test]
    fn cheap_delays_grow_slower_and_the_two_kinds_continue_each_other() {
        let mut backoff = Backoff::new(Config::default(), 1);
        let within = |delay: Duration, least: f64, most: f64| {
            let delay = delay.as_secs_f64();
            assert!(least <= delay && delay < most, "{delay} not in [{least}, {most})");
        };
        let first = backoff.after_no_connection(None);
        within(first, 0.0, 1.0);
        let second = 0.8 * (1.0 + CHEAP_PHASE * first.as_secs_f64());
        within(backoff.after_no_connection(None), second, second * 1.5);
        within(backoff.after_no_connection(None), second * 1.35, second * 1.35 * 1.5);
        let third = second * 1.35 * 1.35;
        within(backoff.after_unhealthy(None), third, third * 2.0);
        within(backoff.after_no_connection(None), third * 2.0, third * 3.0);
        for _ in 0..10 {
            backoff.after_unhealthy(None);
        }
        within(backoff.after_no_connection(None), 12.6, 18.9);
        within(backoff.after_unhealthy(None), 17.0, 34.1);
        within(backoff.after_refused_watch(None), 30.0, 45.0);
        let delay = backoff.after_no_connection(Some(Duration::from_secs(100)));
        within(delay, 100.0, 106.3);
    }

    /// Goal: an outage costs a bounded number of attempts for every client. Method: 10,000 seeds of the jitter.
    #[test]
    fn the_attempts_of_an_outage_are_bounded_for_every_seed() {
        let attempts = |seed, minutes| {
            let mut backoff = Backoff::new(Config::default(), seed);
            let (mut now, mut attempts) = (Duration::ZERO, 0);
            while now <= Duration::from_mins(minutes) {
                attempts += 1;
                now += backoff.after_no_connection(None);
            }
            attempts
        };
        for (minutes, most) in [(1, 13), (10, 47)] {
            let found: u32 = (0..10_000).map(|seed| attempts(seed, minutes)).max().unwrap();
            assert!(found <= most, "{found} in {minutes} minutes");
        }
    }

    #[test]
    fn retry_after_is_a_lower_bound_and_a_day_is_not_believed() {
        let mut backoff = Backoff::new(Config::default(), 2);
        let delay = backoff.after_unhealthy(Some(Duration::from_secs(7)));
        assert!(Duration::from_secs(7) <= delay && delay < Duration::from_secs(8), "{delay:?}");
        let delay = backoff.after_unhealthy(Some(Duration::from_hours(24)));
        assert!(delay < Duration::from_mins(6), "{delay:?}");
    }

    /// Goal: the bound on requests holds for every client, not only on average. Method: 10,000 seeds of the jitter.
    #[test]
    fn ten_minutes_of_refusal_are_at_most_twenty_requests_for_every_seed() {
        let requests = (0..10_000).map(|seed| {
            let mut backoff = Backoff::new(Config::default(), seed);
            let mut now = Duration::ZERO;
            let mut requests = 0;
            while now <= Duration::from_mins(10) {
                requests += 1;
                now += backoff.after_unhealthy(None);
            }
            requests
        });
        let most: u32 = requests.max().unwrap();
        assert!(most <= 20, "{most}");
    }
}
