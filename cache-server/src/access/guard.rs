//! Guard of a response: what is held until its body ends, however it ends.

use std::task::{Context, Poll};

use super::lease::WatchLease;

/// Belongs to a response body, and is dropped with it.
#[derive(Default)]
pub(crate) struct ResponseGuard {
    /// The right of an open watch; `None` for other responses, and if rights are never withdrawn.
    lease: Option<WatchLease>,
}

impl ResponseGuard {
    /// Holds the right of an open watch.
    pub(crate) fn lend(&mut self, lease: WatchLease) {
        self.lease = Some(lease);
    }

    /// True if the guard holds nothing.
    pub(crate) const fn is_idle(&self) -> bool {
        self.lease.is_none()
    }

    /// The right of an open watch.
    pub(crate) const fn lease(&self) -> Option<&WatchLease> {
        self.lease.as_ref()
    }

    /// Ready once the caller may not read the body any more. Registers the waker.
    pub(crate) fn poll_withdrawn(&self, cx: &Context<'_>) -> Poll<()> {
        self.lease.as_ref().map_or(Poll::Pending, |lease| lease.poll_withdrawn(cx))
    }

    /// Called for each part of the body that is handed to the socket.
    pub(crate) const fn on_progress(&mut self) {}

    /// Called once the initial state of a watch was handed to the socket, or at the first part of one without it.
    pub(crate) const fn on_initial_done(&mut self) {}
}
