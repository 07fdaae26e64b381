//! Maps every error to a Status. The only file that maps errors to HTTP.
//!
//! INVARIANT: the storage's error texts are for operators: they go to the log, never to a client.

use std::time::Duration;

use http::Method;
use informer_serving::status::{Details, Reason, Status, StatusCause, StatusExt as _};

use crate::{
    cacher::{CacheNotReady, FreshnessError},
    limits::MESSAGE_BYTES_MAX,
    registry::ResourceType,
    storage::{SourceError, WriteError},
};

/// Returns the status with each text cut to [`MESSAGE_BYTES_MAX`], and only the causes that fit into that size
/// together: these texts repeat client input. `None` if the status is short already.
pub(crate) fn bounded(status: &Status) -> Option<Status> {
    let length = |cause: &StatusCause| cause.message.len() + cause.field.len();
    let causes = status.details.as_ref().map_or(&[][..], |details| &details.causes[..]);
    let name = status.details.as_ref().map_or(0, |details| details.name.len());
    let longest = status.message.len().max(name).max(causes.iter().map(length).sum());
    if longest <= MESSAGE_BYTES_MAX {
        return None;
    }
    let mut short = status.clone();
    cut(&mut short.message);
    if let Some(details) = &mut short.details {
        cut(&mut details.name);
        let mut taken = 0;
        details.causes.retain(|cause| {
            taken += length(cause);
            taken <= MESSAGE_BYTES_MAX
        });
    }
    Some(short)
}

fn cut(text: &mut String) {
    if text.len() > MESSAGE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(MESSAGE_BYTES_MAX));
        text.push('…');
    }
}

/// Error for a request body longer than `limit` bytes.
pub(crate) fn body_too_large(limit: usize) -> Status {
    Status::request_entity_too_large(&format!("limit is {limit}"))
}

/// Error if the client accepts only unknown media types. `available` are the media types of this server.
pub(crate) fn no_representation(available: &[&str]) -> Status {
    let message = format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", "));
    Status { message, details: Some(Details::default()), ..Status::not_acceptable(&[]) }
}

/// Error for the metadata form of one object where the answer is a list, or the other way round. `go_type` names the
/// answer's type.
pub(crate) fn not_that_form(form: &str, what_it_is: &str, go_type: &str) -> Status {
    let message = format!("you requested {form}, but the requested object {what_it_is} ({go_type})");
    Status { message, ..Status::not_acceptable(&[]) }
}

/// Error for a create while the type's definition is being deleted.
pub(crate) fn terminating(ty: &ResourceType, name: &str) -> Status {
    let why = "create not allowed while custom resource definition is terminating";
    Status::forbidden(&ty.group, &ty.plural, name, why)
}

/// Error of custom resources for a method that a path does not support.
pub(crate) fn method_not_supported(ty: &ResourceType, method: &Method) -> Status {
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    };
    Status::method_not_supported(&ty.group, &ty.plural, verb)
}

/// Error for a request whose Host header names another server.
pub(crate) fn foreign_host() -> Status {
    forbidden("the Host header names another server")
}

/// Error for a write or a WebSocket that a page of another site may have sent.
pub(crate) fn foreign_origin() -> Status {
    forbidden("requests of pages of another origin are not served")
}

/// Error for logs, exec and other requests that need a kubelet. Clients do not repeat a request after 405, and do not
/// conclude that the pod was deleted.
pub(crate) fn runs_no_pods() -> Status {
    let message = "this server keeps objects and runs no pods: there are no logs, and no process to connect to".into();
    Status { message, ..Status::generic_method_not_allowed() }
}

/// Error for a path that may be that of a custom resource, while the definitions are not known. Clients take 404 for the
/// deletion of the type, and repeat the request after this one.
///
/// # Source
/// apiserver `pkg/util/notfoundhandler`.
pub(crate) fn definitions_unknown() -> Status {
    let text = "the request has been made before all known HTTP paths have been installed, please try again";
    let details = Some(Details { retry_after_seconds: DEFINITIONS_RETRY_SECONDS, ..Details::default() });
    Status { details, ..Status::unavailable(text) }
}

fn forbidden(text: &'static str) -> Status {
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
            FreshnessError::TooLarge { asked, current } => Self::too_large_resource_version(asked, current),
            FreshnessError::NotReady(error) => error.into(),
            FreshnessError::Source(error) => error.into(),
        }
    }
}

/// Seconds after which a client may repeat a request for a path that is not known yet, as in kube-apiserver.
const DEFINITIONS_RETRY_SECONDS: u32 = 5;

/// Seconds after which a client may repeat a request that the storage could not answer.
const SOURCE_RETRY_SECONDS: u32 = 1;

impl From<SourceError> for Status {
    fn from(error: SourceError) -> Self {
        tracing::warn!(%error, "storage request failed");
        match error {
            SourceError::Compacted { .. } => Self::internal("storage does not have the changes asked for"),
            // The code that says it; Kubernetes has no reason for it.
            SourceError::Full(_) => Self::insufficient_storage("storage is full: nothing was written"),
            // Only an operator can help, and has to know which folder.
            SourceError::Displaced(_) => Self::unavailable(error.to_string()),
            SourceError::TooLarge(text) => Self::request_entity_too_large(&text),
            SourceError::ReadOnly => {
                forbidden("this server only reads: the objects in etcd are another program's (see --etcd-allow-writes)")
            }
            SourceError::Undecided(_) => Self::timeout("the write may have happened or not", SOURCE_RETRY_SECONDS),
            SourceError::Unavailable(_) | SourceError::Forbidden(_) | SourceError::Unsupported(_) => {
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
                FreshnessError::TooLarge { asked: 9, current: 7 }.into(),
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
