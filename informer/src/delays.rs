//! Custom delay policies: adapters for policies of other crates, and the trait to write one.
//!
//! A policy returns the delay after an unhealthy end. The other rules remain: a healthy session resets the policy, its
//! last delay repeats after the policy has ended, and `Retry-After` is a lower bound to which jitter is added.
//!
//! # Policies of the crates `backon` and `backoff`
//!
//! [`from_fn`] adapts any iterator of durations, such as those that `backon`'s builders build. A closure makes one of a
//! policy of `backoff` 0.4 (unmaintained, RUSTSEC-2025-0012). Its `max_elapsed_time`, by default 15 minutes, ends the
//! policy; its last delay then repeats until a session is healthy.
//!
//! ```
//! use backoff::{ExponentialBackoff, backoff::Backoff as _};
//!
//! let delays = informer::delays::from_fn(|| {
//!     let mut policy = ExponentialBackoff::default();
//!     std::iter::from_fn(move || policy.next_backoff())
//! });
//! # fn doc(cluster: informer::Cluster, delays: impl informer::delays::Delays + 'static) {
//! let pods = cluster.informer::<k8s_openapi::api::core::v1::Pod>().delays(delays);
//! # }
//! ```

use std::time::Duration;

pub use informer_core::backoff::Delays;

/// Adapts a closure that starts a policy: it returns the policy's delays. It is called at the first failure, and again
/// at the first failure after each healthy session.
pub fn from_fn<I>(start: impl FnMut() -> I + Send + 'static) -> impl Delays + 'static
where
    I: Iterator<Item = Duration> + Send + 'static,
{
    RestartedPolicy { start, delays: None }
}

struct RestartedPolicy<F, I> {
    start: F,
    /// `None` before the first failure of an outage.
    delays: Option<I>,
}

impl<F: FnMut() -> I + Send, I: Iterator<Item = Duration> + Send> Delays for RestartedPolicy<F, I> {
    fn next(&mut self) -> Option<Duration> {
        self.delays.get_or_insert_with(&mut self.start).next()
    }

    fn reset(&mut self) {
        self.delays = None;
    }
}
