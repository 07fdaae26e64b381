//! Failures of reconciles and of controllers, and the delays after them.

use std::{error::Error as StdError, fmt, time::Duration};

use super::Requeue;
use crate::{decode::DecodeError, ended::EndReason, readiness::InformersNotReady};

/// Default delay after the first failure of an object. Each further failure in a row doubles it, as client-go's
/// `ItemExponentialFailureRateLimiter` does.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(5);

/// Longest default delay after a failure, before up to a half of it is added at random.
pub const BACKOFF_MAX: Duration = Duration::from_secs(1000);

/// Longest time that a server can delay a reconcile by `Retry-After`, before up to a tenth is added at random.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Delay after a 429 whose `Retry-After` kube's client did not read: the least that kube-apiserver sends.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// A reconcile that failed, for the error policy.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReconcileFailure<'a, E> {
    /// The object: `namespace/name`, or `name`.
    pub key: &'a str,
    /// Failures of this object in a row, including this one. A policy that returns [`Requeue::await_change`] ends the row.
    pub failures: u32,
    /// The reason.
    pub error: &'a ReconcileError<E>,
}

impl<E: StdError + 'static> ReconcileFailure<'_, E> {
    /// A delay that doubles with each failure in a row, from [`BACKOFF_FIRST`] to [`BACKOFF_MAX`], plus up to a half of
    /// it at random, and not less than [`retry_after`](Self::retry_after) plus up to a tenth. An object that does not
    /// decode waits for its next change.
    ///
    /// The delay may be longer: all failing objects of a controller share one
    /// [budget](super::Controller::retry_budget) of attempts.
    #[must_use]
    pub fn backoff(&self) -> Requeue {
        if matches!(self.error, ReconcileError::Undecodable(_)) {
            return Requeue::await_change();
        }
        let factor = 2_u32.checked_pow(self.failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let delay = BACKOFF_FIRST.saturating_mul(factor).min(BACKOFF_MAX);
        let delay = delay.mul_f64(1.0 + fastrand::f64() / 2.0);
        let requested = self.retry_after().unwrap_or_default().mul_f64(1.0 + fastrand::f64() / 10.0);
        Requeue::after(delay.max(requested))
    }

    /// Time that the server requested this client to wait, if the error or one of its sources is an error of kube with a
    /// `Status` that has it; at most [`RETRY_AFTER_MAX`]. One second for a 429 without it.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let ReconcileError::Failed(error) = self.error else { return None };
        let (code, seconds) = answer_of(error)?;
        let requested = Duration::from_secs(seconds.into());
        let least = if code == 429 { RETRY_AFTER_MIN } else { Duration::ZERO };
        Some(requested.max(least).min(RETRY_AFTER_MAX)).filter(|delay| !delay.is_zero())
    }
}

/// [`answer_of`] an error of one version of kube, without its sources.
#[cfg(any(feature = "kube-3", feature = "kube-4", feature = "kube-5"))]
macro_rules! answer_of_kube {
    ($kube:ident, $error:expr) => {{
        let status: Option<&$kube::core::Status> = match $error.downcast_ref() {
            Some($kube::Error::Api(status)) => Some(status),
            // An error that is transparent to kube's has the status as its source.
            _ => {
                let boxed = || $error.downcast_ref::<Box<$kube::core::Status>>().map(|status| &**status);
                $error.downcast_ref().or_else(boxed)
            }
        };
        status.map(|status| (status.code, status.details.as_ref().map_or(0, |details| details.retry_after_seconds)))
    }};
}
/// Code and `retryAfterSeconds` that a server answered with, if this or one of its sources is an error of kube that has
/// its `Status`.
fn answer_of(error: &(dyn StdError + 'static)) -> Option<(u16, u32)> {
    // Errors of kube 1 have the code alone.
    #[cfg(feature = "kube-1")]
    {
        let answer: Option<&kube_1::core::ErrorResponse> = match error.downcast_ref() {
            Some(kube_1::Error::Api(answer)) => Some(answer),
            _ => error.downcast_ref(),
        };
        if let Some(answer) = answer {
            return Some((answer.code, 0));
        }
    }
    #[cfg(feature = "kube-3")]
    if let Some(answer) = answer_of_kube!(kube_3, error) {
        return Some(answer);
    }
    #[cfg(feature = "kube-4")]
    if let Some(answer) = answer_of_kube!(kube_4, error) {
        return Some(answer);
    }
    #[cfg(feature = "kube-5")]
    if let Some(answer) = answer_of_kube!(kube, error) {
        return Some(answer);
    }
    answer_of(error.source()?)
}

impl<E: StdError> fmt::Display for ReconcileFailure<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reconcile {} of {} in a row failed: {}", self.failures, self.key, self.error)
    }
}

/// Reason why a reconcile failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileError<E> {
    /// The reconciler returned this error.
    #[error(transparent)]
    Failed(E),
    /// The object is no `K`. The reconciler was not called.
    #[error(transparent)]
    Undecodable(DecodeError),
    /// The reconciler panicked.
    #[error("the reconciler panicked")]
    Panicked,
}

/// Reason why a controller ended, other than a shutdown in which all reconciles ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// Informers were not ready within [`Controller::sync_deadline`](super::Controller::sync_deadline), or ended before.
    #[error(transparent)]
    NotReady(InformersNotReady),
    /// An informer ended: it was stopped, or a function of the program panicked in its task.
    #[error("the informer of {request} has ended")]
    InformerEnded {
        /// Its last request; see [`Informer::explain`](crate::Informer::explain).
        request: String,
        /// The reason of its end.
        #[source]
        reason: EndReason,
    },
    /// Reconciles still ran at the end of the grace period, or at a second signal, and were aborted.
    #[error("{reconciles} reconciles were aborted before they ended")]
    Aborted {
        /// Number of reconciles.
        reconciles: usize,
    },
}

#[cfg(test)]
#[cfg(feature = "kube-5")]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum ProgramError {
        #[error(transparent)]
        Transparent(kube::Error),
        #[error("the write failed")]
        Source(#[source] kube::Error),
    }

    /// Goal: a server that asks for time gets it, however the program wraps kube's error. Method: one status in each
    /// wrapping, and statuses with and without a time.
    #[test]
    fn retry_after_is_obeyed_through_the_errors_of_a_program() {
        let status = |code, seconds| {
            let status = json!({"code": code, "details": {"retryAfterSeconds": seconds}});
            kube::Error::Api(serde_json::from_value::<Status>(status).expect("a Status").boxed())
        };
        for (code, requested, expected) in [(429, 7, 7), (503, 7, 7), (429, 0, 1), (503, 0, 0), (503, 9_000, 300)] {
            for error in
                [ProgramError::Transparent(status(code, requested)), ProgramError::Source(status(code, requested))]
            {
                let error = ReconcileError::Failed(error);
                let failure = ReconcileFailure { key: "a/x", failures: 1, error: &error };
                assert_eq!(
                    failure.retry_after().unwrap_or_default().as_secs(),
                    expected,
                    "{code} {requested} {error:?}"
                );
                let delay = failure.backoff().delay().expect("a delay");
                assert!(delay >= Duration::from_secs(expected).max(BACKOFF_FIRST), "{delay:?}");
            }
        }
    }

    #[cfg(feature = "kube-1")]
    #[test]
    fn a_429_of_kube_1_takes_a_second_through_the_error_of_a_program() {
        #[derive(Debug, thiserror::Error)]
        #[error(transparent)]
        struct Transparent(kube_1::Error);

        let (status, message, reason) = (String::new(), String::new(), String::new());
        let answer = kube_1::core::ErrorResponse { status, message, reason, code: 429 };
        let error = ReconcileError::Failed(Transparent(kube_1::Error::Api(answer)));
        let failure = ReconcileFailure { key: "a/x", failures: 1, error: &error };
        assert_eq!(failure.retry_after(), Some(RETRY_AFTER_MIN));
    }

    #[test]
    fn delays_double_up_to_the_longest_and_differ() {
        let error = ReconcileError::Failed(ProgramError::Source(kube::Error::LinesCodecMaxLineLengthExceeded));
        let delay = |failures| {
            let failure = ReconcileFailure { key: "a/x", failures, error: &error };
            failure.backoff().delay().expect("a delay")
        };
        for failures in 1..=64 {
            let least = BACKOFF_FIRST.saturating_mul(1 << (failures - 1).min(30)).min(BACKOFF_MAX);
            let delays: Vec<Duration> = (0..16).map(|_| delay(failures)).collect();
            assert!(delays.iter().all(|delay| (least..least.mul_f64(1.5)).contains(delay)), "{failures}: {delays:?}");
            assert!(delays.iter().any(|delay| *delay != delays[0]), "{failures}: {delays:?}");
        }
    }
}
