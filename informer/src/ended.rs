//! Why an informer has ended, as its handles, stores and subscriptions report it.

use std::time::Duration;

/// Reason why an informer has ended. An ended informer is never restarted; its last state stays readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EndReason {
    /// Its last handle and its last subscription were dropped.
    #[error("the informer has ended: its last handle or subscription was dropped")]
    Dropped,
    /// [`shutdown`](crate::Informer::shutdown), [`stop`](crate::Informer::stop) or a signal
    /// ([`shutdown_on`](crate::Informer::shutdown_on)) ended it.
    #[error("the informer has ended: it was shut down")]
    ShutDown,
    /// A function of the program panicked in its task: an index, a transform, or
    /// [`Delays`](crate::delays::Delays). The panic hook printed the message.
    #[error("the informer has ended: a function of the program panicked in its task")]
    Panicked,
    /// Its tokio runtime was shut down.
    #[error("the informer has ended: its tokio runtime was shut down")]
    RuntimeGone,
}

/// An informer that did not end before the deadline of [`shutdown`](crate::Informer::shutdown). It ends later: after
/// the event being processed and, with a checkpoint, after one save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the informer did not end within {deadline:?}")]
#[non_exhaustive]
pub struct ShutdownTimeout {
    /// The deadline of the call.
    pub deadline: Duration,
}
