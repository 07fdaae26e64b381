//! What a fake server was asked.

use std::{fmt, time::Duration};

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Asked {
    /// A LIST, or the first page of one.
    List,
    /// A page after the first.
    Page,
    /// A watch that asks for initial state.
    Stream,
    /// A watch from a position.
    Watch,
    /// One object, by path or by a LIST of `metadata.name`.
    Get,
    /// Anything that is not a GET.
    Write,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// When, by tokio's clock, since the server was made.
    pub at: Duration,
    /// What kind it was.
    pub asked: Asked,
    /// Method and URI: `GET /api/v1/pods?limit=500`.
    pub request: String,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3?} {}", self.at, self.request)
    }
}
