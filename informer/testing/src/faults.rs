//! Faults injected into a fake server.

use std::time::Duration;

use informer_serving::status::{CauseExt as _, Reason, Status, StatusCause, StatusExt as _};

/// Default time between bookmarks, as kube-apiserver.
const BOOKMARKS_EVERY: Duration = Duration::from_secs(60);

/// Faults of one server, and counters that open watches compare with their value at the start.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    pub(super) refused_streams: Option<u16>,
    pub(super) watches_forbidden: bool,
    pub(super) shards_unknown: bool,
    /// Positions at or below this one are too old; zero for none.
    pub(super) expired: u64,
    pub(super) tokens_expire: bool,
    /// Number of requests still to fail, and their code.
    pub(super) failing: (usize, u16),
    pub(super) retry_after: Option<Duration>,
    pub(super) unreachable: bool,
    pub(super) watch_lifetime: Option<Duration>,
    pub(super) streams_stall: bool,
    pub(super) end_bookmark_withheld: bool,
    pub(super) break_next_body: Option<usize>,
    /// Objects between two marks of an initial state; `None` sends no marks, as kube-apiserver.
    pub(super) marks_every: Option<usize>,
    /// Changes when marks are forgotten: earlier marks become invalid.
    pub(super) marks_forgotten: u64,
    /// Number of objects after which a stream of initial state breaks.
    pub(super) streams_break_after: Option<usize>,
    /// Newest visible position.
    pub(super) horizon: Option<u64>,
    pub(super) bookmarks_every: Duration,
    /// Changes when watches are closed: watches opened before end.
    pub(super) closed: u64,
    /// Changes when the connections of watches break: watches opened before end with an error.
    pub(super) broken: u64,
    /// Changes when HTTP/2 connections get GOAWAY.
    pub(super) went_away: u64,
    /// Changes when watches are silenced: watches opened before send no further data.
    pub(super) silenced: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            refused_streams: None,
            watches_forbidden: false,
            shards_unknown: false,
            expired: 0,
            tokens_expire: false,
            failing: (0, 500),
            retry_after: None,
            unreachable: false,
            watch_lifetime: None,
            streams_stall: false,
            end_bookmark_withheld: false,
            break_next_body: None,
            marks_every: None,
            marks_forgotten: 0,
            streams_break_after: None,
            horizon: None,
            bookmarks_every: BOOKMARKS_EVERY,
            closed: 0,
            broken: 0,
            went_away: 0,
            silenced: 0,
        }
    }
}

impl Faults {
    /// Removes the faults; keeps settings, and the counters of past actions, which cannot be undone.
    pub(super) fn recovered(&self) -> Self {
        let Self { bookmarks_every, closed, broken, went_away, silenced, marks_every, marks_forgotten, .. } = *self;
        Self { bookmarks_every, closed, broken, went_away, silenced, marks_every, marks_forgotten, ..Self::default() }
    }

    /// The injected error of the next request, of any kind.
    pub(super) fn fails(&mut self) -> Option<Status> {
        let (left, code) = self.failing;
        self.failing.0 = left.checked_sub(1)?;
        Some(self.failure(code))
    }

    /// The error of a server that cannot stream initial state.
    pub(super) fn refused_stream(&self) -> Option<Status> {
        let code = self.refused_streams?;
        if code != 422 {
            return Some(self.failure(code));
        }
        let field = "sendInitialEvents";
        let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        Some(Status::invalid_options("ListOptions", vec![StatusCause::forbidden(field, why)]))
    }

    fn failure(&self, code: u16) -> Status {
        let seconds = self.retry_after.map_or(0, |time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
        let text = "the test wants it so";
        match code {
            401 => Status::unauthorized(),
            403 => Status::forbidden("", "requests", "", text),
            404 => Status::generic_not_found(),
            405 => Status::generic_method_not_allowed(),
            410 => Status::expired(text),
            422 => Status::generic_invalid(),
            429 => Status::too_many_requests(text, seconds),
            500 => Status::internal(text),
            503 => Status::unavailable(text),
            504 => Status::timeout(text, seconds),
            code => Status {
                status: "Failure".to_owned(),
                message: text.to_owned(),
                reason: Reason::Unknown,
                code,
                ..Status::default()
            },
        }
    }
}
