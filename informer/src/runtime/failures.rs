//! What went wrong, in kube's shape: a Status as such, everything else as the error of a service.

use informer_core::wire::status::Status;
use kube::{core::Status as KubeStatus, runtime::watcher};

use crate::error::Error;

/// An error of the stream.
pub(super) fn from_error(error: Error) -> watcher::Error {
    match error.status() {
        Some(status) => watcher::Error::WatchError(Box::new(from_status(status, error.code()))),
        None => other(error),
    }
}

/// Anything that no server said.
pub(super) fn other(error: impl std::error::Error + Send + Sync + 'static) -> watcher::Error {
    watcher::Error::WatchFailed(kube::Error::Service(Box::new(error)))
}

/// The same Status as kube decodes it. `code` is the answer's own, for a Status without.
fn from_status(status: &Status, code: Option<u16>) -> KubeStatus {
    let read = serde_json::from_slice(&status.to_json());
    // A summary that is neither Success nor Failure is no Status to kube.
    let read: KubeStatus =
        read.unwrap_or_else(|_| KubeStatus::failure(&status.message, status.reason.as_str()).with_code(status.code));
    let code = if read.code == 0 { code.unwrap_or_default() } else { read.code };
    read.with_code(code)
}
