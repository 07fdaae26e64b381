//! Errors of caches and storages as a Status.
//!
//! INVARIANT: the storage's error texts are for operators: they go to the log, never to a client. But for those of
//! conversions, as in Kubernetes: only they say which webhook has to be mended.

use std::time::Duration;

use informer_serving::status::{Details, Reason, Status, StatusExt as _};

use crate::{
    budget::no_room,
    cacher::{CacheNotReady, FreshnessError},
    storage::{SourceError, WriteError},
};

/// Error 403 with a text of its own.
#[must_use]
pub fn forbidden(text: &'static str) -> Status {
    Status { status: "Failure".into(), message: text.into(), reason: Reason::Forbidden, code: 403, ..Status::default() }
}
/// Returns the seconds to wait for a cache that has not been ready for `since`: e^(0.06 s), from 1 to 30.
///
/// # Source
/// apiserver `storage/cacher/cacher.go`, KEP-4568.
fn retry_after_seconds(since: Duration) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=30")]
    let seconds = (0.06 * since.as_secs_f64()).exp().clamp(1.0, 30.0) as u32;
    seconds
}

impl From<CacheNotReady> for Status {
    fn from(error: CacheNotReady) -> Self {
        if error.lost {
            let details = Some(Details { retry_after_seconds: SOURCE_RETRY_SECONDS, ..Details::default() });
            return Self {
                details,
                ..Self::unavailable("the API server's history has changed: its state is being read")
            };
        }
        let text = if error.stopped { "apiserver cacher is stopped" } else { "storage is (re)initializing" };
        Self::too_many_requests(text, retry_after_seconds(error.since))
    }
}

impl From<FreshnessError> for Status {
    fn from(error: FreshnessError) -> Self {
        match error {
            FreshnessError::TooLarge { requested, current } => Self::too_large_resource_version(requested, current),
            FreshnessError::NotReady(error) => error.into(),
            FreshnessError::Source(error) => error.into(),
        }
    }
}

/// Seconds after which a client may repeat a request that the storage could not answer.
const SOURCE_RETRY_SECONDS: u32 = 1;

impl From<SourceError> for Status {
    fn from(error: SourceError) -> Self {
        tracing::warn!(%error, "storage request failed");
        match error {
            SourceError::Compacted { .. } => Self::internal("storage does not have the changes requested for"),
            // The code that says it; Kubernetes has no reason for it.
            SourceError::Full(_) => Self::insufficient_storage("storage is full: nothing was written"),
            // Only an operator can help, and has to know which folder.
            SourceError::Displaced(_) => Self::unavailable(error.to_string()),
            SourceError::TooLarge(text) => Self::request_entity_too_large(&text),
            SourceError::ReadOnly => {
                forbidden("this server only reads: the objects in etcd are another program's (see --etcd-allow-writes)")
            }
            SourceError::Conversion(text) => {
                Self { status: "Failure".into(), message: text, code: 500, ..Self::default() }
            }
            SourceError::Crowded => no_room(),
            SourceError::Undecided(_) => Self::timeout("the write may have happened or not", SOURCE_RETRY_SECONDS),
            SourceError::Unavailable(_)
            | SourceError::Restored { .. }
            | SourceError::Forbidden(_)
            | SourceError::Unsupported(_) => {
                let details = Some(Details { retry_after_seconds: SOURCE_RETRY_SECONDS, ..Details::default() });
                Self { details, ..Self::unavailable("storage is not available") }
            }
        }
    }
}

/// Fallback: handlers should map these errors themselves, because they know the object's name.
impl From<WriteError> for Status {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Source(error) => error.into(),
            WriteError::Exists | WriteError::NotFound | WriteError::Conflict { .. } | WriteError::CauseChanged => {
                Self::internal("a write raced")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_cache_gets_longer() {
        for (since, expected) in [(0, 1), (11, 1), (12, 2), (14, 2), (18, 2), (20, 3), (30, 6), (40, 11), (57, 30)] {
            assert_eq!(retry_after_seconds(Duration::from_secs(since)), expected, "{since} s");
        }
        assert_eq!(retry_after_seconds(Duration::MAX), 30);
    }

    #[test]
    fn every_error_has_its_code() {
        let not_ready =
            |stopped| CacheNotReady { resource: "pods".into(), since: Duration::ZERO, stopped, lost: false };
        let unavailable = || SourceError::Unavailable("password=x".into());
        for (status, code, text) in [
            (not_ready(false).into(), 429, "storage is (re)initializing"),
            (not_ready(true).into(), 429, "apiserver cacher is stopped"),
            (
                FreshnessError::TooLarge { requested: 9, current: 7 }.into(),
                504,
                "Timeout: Too large resource version: 9, current: 7",
            ),
            (FreshnessError::Source(unavailable()).into(), 503, "storage is not available"),
            (WriteError::Source(unavailable()).into(), 503, "storage is not available"),
        ] {
            let status: Status = status;
            assert_eq!((status.code, &*status.message), (code, text));
        }
    }
}
