//! How far an informer is, as its handles read it.

use informer_core::Request;
use tokio::time::Instant;

use crate::{
    error::{Cause, Error, NotReady},
    stats::Stats,
};

/// Written by the driver, read by handles. Stays readable when the driver has ended.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) started: Instant,
    /// The request in flight, else the last one.
    pub(crate) request: Option<Request>,
    /// Whether that request waits for its turn.
    pub(crate) is_queued: bool,
    /// Requests for initial state, pages after the first not counted.
    pub(crate) attempts: u64,
    /// What the last attempt at initial state failed with; none once it is complete.
    pub(crate) failure: Option<Error>,
    pub(crate) is_synced: bool,
    /// Nothing is asked any more: what was asked for does not exist.
    pub(crate) is_final: bool,
    pub(crate) is_stopped: bool,
    /// When the server last confirmed what the store holds.
    pub(crate) confirmed: Option<Instant>,
    pub(crate) stats: Stats,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            request: None,
            is_queued: false,
            attempts: 0,
            failure: None,
            is_synced: false,
            is_final: false,
            is_stopped: false,
            confirmed: None,
            stats: Stats::default(),
        }
    }

    /// Whether waiting for the first sync is over, well or badly.
    pub(crate) const fn is_decided(&self) -> bool {
        self.is_synced || self.is_final || self.is_stopped
    }

    pub(crate) fn not_ready(&self) -> NotReady {
        let cause = match &self.failure {
            _ if self.is_stopped => Cause::Stopped,
            Some(error) => Cause::Failed(error.clone()),
            None if self.is_queued => Cause::Queued,
            None => Cause::Receiving,
        };
        NotReady { cause, attempts: self.attempts, since: self.started.elapsed() }
    }
}
