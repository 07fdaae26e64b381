//! Converts errors to kube's types: a Status as `WatchError`, other errors as a service error.

use super::super::{
    differences,
    kube::{self, core::Status as KubeStatus, runtime::watcher},
};
use crate::error::Error;
use informer_core::wire::status::Status;

/// Converts an error of the raw stream.
pub(super) fn from_error(error: Error) -> watcher::Error {
    match error.status() {
        Some(status) => watcher::Error::WatchError(differences::answer(from_status(status, error.code()))),
        None => other(error),
    }
}

/// Wraps an error that did not come from a server.
pub(super) fn other(error: impl std::error::Error + Send + Sync + 'static) -> watcher::Error {
    watcher::Error::WatchFailed(kube::Error::Service(Box::new(error)))
}

/// Converts a Status to kube's type. `code` is the response's own code, for a Status without one.
fn from_status(status: &Status, code: Option<u16>) -> KubeStatus {
    let read = serde_json::from_slice(&status.to_json());
    // kube does not decode a Status whose `status` is neither Success nor Failure.
    let read: KubeStatus =
        read.unwrap_or_else(|_| KubeStatus::failure(&status.message, status.reason.as_str()).with_code(status.code));
    let code = if read.code == 0 { code.unwrap_or_default() } else { read.code };
    read.with_code(code)
}
