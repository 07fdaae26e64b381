//! Status of an informer, for people, probes and alerts.

use std::{fmt, time::Duration};

use crate::{
    ended::EndReason,
    error::{Chain, Error},
};

/// Status of an informer, from [`Informer::status`](crate::Informer::status). `Display` prints it in one line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InformerStatus {
    /// The current phase.
    pub phase: InformerPhase,
    /// Time since the phase began.
    pub since: Duration,
    /// Requests sent in this phase.
    pub requests: u64,
    /// The last request or response that failed since the start, and the time since then.
    pub last_error: Option<(Error, Duration)>,
}

/// Phase of an informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InformerPhase {
    /// Initial state is not complete.
    Starting,
    /// Changes arrive as they happen.
    Watching,
    /// The server forbids watches: the informer lists every few minutes.
    Polling,
    /// A request failed after initial state was complete, and the server has confirmed no state since. The copy is
    /// readable, and may be stale.
    Disconnected,
    /// The informer has ended.
    Ended(EndReason),
}

impl InformerPhase {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Watching => "watching",
            Self::Polling => "polling",
            Self::Disconnected => "disconnected",
            Self::Ended(_) => "ended",
        }
    }
}

impl fmt::Display for InformerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {:.1?}, {} requests", self.phase.as_str(), self.since, self.requests)?;
        if let InformerPhase::Ended(reason) = self.phase {
            write!(f, ": {reason}")?;
        }
        match &self.last_error {
            Some((error, ago)) => write!(f, "; last error {ago:.1?} ago: {}", Chain(error)),
            None => Ok(()),
        }
    }
}
