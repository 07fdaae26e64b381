//! Log of a fake server's requests.

use std::{fmt, time::Duration};

use http::request::Parts;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RequestKind {
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
pub struct LoggedRequest {
    /// Time of the request by tokio's clock, since the server was created.
    pub at: Duration,
    /// Its kind.
    pub kind: RequestKind,
    /// Method and URI: `GET /api/v1/pods?limit=500`.
    pub request: String,
}

impl fmt::Display for LoggedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3?} {}", self.at, self.request)
    }
}

/// Log of every request, in the order of arrival.
pub(super) struct RequestLog {
    began: Instant,
    seen: Mutex<Vec<LoggedRequest>>,
}

impl RequestLog {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), seen: Mutex::default() }
    }

    pub(super) fn add(&self, kind: RequestKind, parts: &Parts) {
        let request = format!("{} {}", parts.method, parts.uri);
        self.seen.lock().push(LoggedRequest { at: self.began.elapsed(), kind, request });
    }

    pub(super) fn all(&self) -> Vec<LoggedRequest> {
        self.seen.lock().clone()
    }
}
