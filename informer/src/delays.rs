//! Custom delay policies: adapters for policies of other crates, and the trait to write one.
//!
//! A policy returns the delay after an unhealthy end. The other rules remain: a healthy session resets the policy, its
//! last delay repeats after the policy has ended, and `Retry-After` is a lower bound to which jitter is added.

#[cfg(feature = "runtime")]
use std::time::Duration;

pub use informer_core::backoff::Delays;

/// Adapts a policy of `kube::runtime`, such as its `DefaultBackoff`.
#[cfg(feature = "runtime")]
pub fn from_kube(policy: impl kube::runtime::utils::Backoff + 'static) -> impl Delays + 'static {
    Kube(policy)
}

/// Adapts a policy of the crate `backoff` 0.4, such as its `ExponentialBackoff`. `max_elapsed_time`, by default 15
/// minutes, ends the policy; its last delay then repeats until a session is healthy.
#[cfg(feature = "backoff")]
pub fn from_backoff(policy: impl backoff::backoff::Backoff + Send + 'static) -> impl Delays + 'static {
    BackoffAdapter(policy)
}

#[cfg(feature = "runtime")]
struct Kube<B>(B);

#[cfg(feature = "runtime")]
impl<B: kube::runtime::utils::Backoff> Delays for Kube<B> {
    fn next(&mut self) -> Option<Duration> {
        self.0.next()
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}

#[cfg(feature = "backoff")]
struct BackoffAdapter<B>(B);

#[cfg(feature = "backoff")]
impl<B: backoff::backoff::Backoff + Send> Delays for BackoffAdapter<B> {
    fn next(&mut self) -> Option<Duration> {
        self.0.next_backoff()
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}
