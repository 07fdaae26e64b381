//! Inputs and actions of the reflector. Inputs are facts in the past tense, actions are imperatives; both enums are
//! closed.

use std::time::Duration;

use crate::{resource_version::ResourceVersion, semantics::Read, time::Time};

/// An event that the driver reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// Begin. Ignored when repeated.
    Start,
    /// The headers of the open response arrived with a 2xx status.
    Accepted,
    /// Headers (2xx) of a stream that sends the initial state from its beginning, with marks (resume tokens) in it.
    AcceptedWithMarks,
    /// Headers (2xx) of a stream that continues the initial state behind the mark in the request.
    Resumed,
    /// A mark: the server has sent everything before it, and a later stream can resume behind it.
    Mark {
        /// Its token, as sent.
        token: &'a str,
    },
    /// One item of a list or one event of a watch, with readable metadata.
    Object(ObservedObject<'a>),
    /// A bookmark.
    Bookmark {
        /// Its position, as sent.
        resource_version: &'a str,
        /// True if the annotation `k8s.io/initial-events-end` is exactly `"true"`.
        initial_events_end: bool,
    },
    /// A list body was complete. This ends the response: no [`Input::Ended`] follows for it.
    PageEnd {
        /// The list's position, as sent.
        resource_version: &'a str,
        /// The continue token if more pages follow; `None` if it was empty.
        continue_token: Option<&'a str>,
    },
    /// A frame without a position: an unreadable object or an unknown event type. Counts as a sign of life.
    Ignored,
    /// The open response ended.
    Ended(End),
    /// The result of the read that [`Action::Prove`] ordered. A failed read arrives as [`Input::Ended`] instead.
    Proof(Testimony<'a>),
    /// Requests go to another endpoint from now on. No watch resumes there before a proof. The action that follows
    /// drops the open response, if any.
    Moved {
        /// True if this endpoint's history is the position's, by the last value of [`Reflector::is_settled`]. There is
        /// no endpoint to return to, so a failed proof here is final, as after an outage.
        ///
        /// [`Reflector::is_settled`]: super::Reflector::is_settled
        home: bool,
    },
    /// The time that [`Reflector::poll_timeout`](super::Reflector::poll_timeout) returned has come.
    TimedOut,
}

/// The metadata of one object received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedObject<'a> {
    /// The kind of event or item.
    pub change: ObservedKind,
    /// `namespace/name`, or `name`.
    pub key: &'a str,
    /// Its uid; empty if it has none.
    pub uid: &'a str,
    /// Its resourceVersion as sent; empty if it has none.
    pub resource_version: &'a str,
    /// True if the copy lacks this state of the object, see [`proof::is_news`](crate::proof::is_news). Read only if
    /// [`Reflector::is_behind`](super::Reflector::is_behind) returns true for its version.
    pub is_news: bool,
}

/// Result of reading one stored object again: evidence about the history behind an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Testimony<'a> {
    /// The verdict.
    pub proof: Proof,
    /// The key of the stored object; empty for [`Proof::Nothing`].
    pub key: &'a str,
    /// Its uid; empty if it has none.
    pub uid: &'a str,
}

impl Testimony<'_> {
    /// A testimony without an object.
    #[must_use]
    pub const fn without_object(proof: Proof) -> Self {
        Self { proof, key: "", uid: "" }
    }
}

/// Kind of an object received: type of the watch event, or list item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedKind {
    /// A watch event ADDED.
    Added,
    /// A watch event MODIFIED.
    Modified,
    /// A watch event DELETED.
    Deleted,
    /// An item of a list.
    Item,
}

/// Evidence of one stored object about the history behind an endpoint. See [`proof::compare`](crate::proof::compare).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The server has exactly the stored version: one history.
    Same,
    /// The server has the object, changed after the position: not foreign, and no evidence against a reset.
    Changed,
    /// Another object had this name at the position: another history.
    Foreign,
    /// The server's version of the object is older than at the position, or differs from it: restored to an older
    /// state.
    Reset,
    /// Deleted or replaced since. In the history of the position, the deletion follows the position.
    Missing,
    /// No stored object is left to read.
    Nothing,
}

/// Request that reads one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofBy {
    /// GET of the object.
    Get,
    /// LIST of one object by `metadata.name`, if GET is not allowed.
    List,
}

/// End of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Closed by the server between two frames.
    Closed,
    /// An error: in place of a response, inside the stream, or of the connection.
    Failed(Failure),
}

/// An error from the server or the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its meaning for the next request.
    pub class: Class,
    /// `Retry-After`: the delay that the server requested.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure without `Retry-After`.
    #[must_use]
    pub const fn new(class: Class) -> Self {
        Self { class, retry_after: None }
    }
}

/// Errors by their meaning for the next request, whether sent as HTTP status or in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// 410: the position or token is older than the server's history.
    Expired,
    /// The position is ahead of the server (504 with one of three messages).
    TooLarge,
    /// 400 and 422: the server does not answer this request.
    Refused,
    /// 404: the type does not exist. Its definition may be installed at any time, so this is no verdict.
    NotFound,
    /// 403 and 405: the verb is not allowed.
    Forbidden,
    /// 429.
    TooMany,
    /// No response, or one that broke off.
    Connection,
    /// 5xx, and 401: rejected credentials say nothing about the request itself.
    Server,
    /// A response that violates the protocol.
    Malformed,
}

impl Class {
    /// All classes, in the order of their declaration.
    pub(crate) const ALL: [Self; 9] = [
        Self::Expired,
        Self::TooLarge,
        Self::Refused,
        Self::NotFound,
        Self::Forbidden,
        Self::TooMany,
        Self::Connection,
        Self::Server,
        Self::Malformed,
    ];

    /// Returns all classes, in the order of their declaration.
    pub fn all() -> impl ExactSizeIterator<Item = Self> + Clone {
        Self::ALL.into_iter()
    }

    /// Name in metrics and logs, such as `too_many`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::TooLarge => "too_large",
            Self::Refused => "refused",
            Self::NotFound => "not_found",
            Self::Forbidden => "forbidden",
            Self::TooMany => "too_many",
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Malformed => "malformed",
        }
    }
}

/// An order to the driver; orders are executed in sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Drop any open response and send this request.
    Send(Read),
    /// Drop any open response and read one stored object, "not older than `at`"; then report [`Input::Proof`].
    Prove {
        /// The position to prove.
        at: ResourceVersion,
        /// Request to use.
        by: ProofBy,
        /// Number of objects read already: [`proof::witness`](crate::proof::witness) chooses the next.
        skip: usize,
    },
    /// The proof failed at the endpoint just moved to: return to the previous one. No [`Input::Moved`] follows.
    Refuse,
    /// Drop the open response; no request follows now.
    Close,
    /// The restored state is current: its position is proved and the server accepted a watch from it.
    Restored,
    /// Initial state begins: open a stage. Sent only while no stage is open.
    Init {
        /// True if equal uid and resourceVersion prove that an object is unchanged. False after a history reset, and in
        /// a foreign history.
        trusts_versions: bool,
        /// False if the server may have another history, in which objects of a restored state never existed.
        continues_history: bool,
    },
    /// Put the object just passed in into the stage.
    InitApply,
    /// The stage is complete at this position: make it the state.
    InitDone(ResourceVersion),
    /// The object just passed in is the newest version of its key.
    Apply,
    /// Delete the object just passed in: from the stage while one is open, from the state otherwise.
    Delete,
    /// No event at or below this position will follow.
    Bookmark(ResourceVersion),
    /// Initial state broke off: drop the stage. Readers keep the previous state.
    Abandon,
    /// Report an event: for logs, metrics, `explain` and the reason for not being ready.
    Report(Report),
}

/// Events that the reflector reports. Each is counted in [`ReflectorStats`](crate::stats::ReflectorStats).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Initial state is requested.
    Relist {
        /// The cause.
        cause: RelistCause,
    },
    /// Streams were replaced by pages.
    FellBack {
        /// The cause.
        cause: FallBack,
    },
    /// The next request is due at `until`.
    Waiting {
        /// When it is due.
        until: Time,
        /// End of the last session.
        cause: Ending,
    },
    /// The session proved healthy and delays are reset.
    Healthy,
    /// The first request is due at `until`, because starts are spread.
    Spread {
        /// When it is due.
        until: Time,
    },
    /// The position belongs to the server's history.
    Proved,
    /// The server has another history: the position is useless there.
    Foreign,
    /// The server's history went back: it was restored to an older state.
    HistoryReset,
    /// The resourceVersions of this type have no order: from now on events are applied in order of arrival.
    Unordered,
    /// The state requested by [`ListSemantic::Exact`](crate::ListSemantic::Exact) has expired. Final: no request
    /// follows.
    Expired,
}

/// Cause of a request for initial state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RelistCause {
    /// The first request.
    Start,
    /// The position is older than the server's history.
    Expired,
    /// The position is ahead of the server.
    TooLarge,
    /// A page after the first had expired.
    PageExpired,
    /// The previous attempt did not complete.
    Interrupted,
    /// The previous attempt was a stream, and pages replace streams now.
    FellBack,
    /// The server failed to resume from the position several times in a row.
    NotResumable,
    /// The server allows lists and refuses watches: a poll.
    WatchForbidden,
    /// The position could not be proved: no stored object could prove it, or the server refused the reads.
    Unproven,
    /// The server has another history.
    Foreign,
    /// The server was restored to an older state.
    HistoryReset,
    /// The server refuses requests with the position (400, 422).
    Refused,
    /// An event behind the position contained a change that the copy lacks.
    WentBack,
}

impl RelistCause {
    /// All causes, in the order of their declaration.
    pub(crate) const ALL: [Self; 13] = [
        Self::Start,
        Self::Expired,
        Self::TooLarge,
        Self::PageExpired,
        Self::Interrupted,
        Self::FellBack,
        Self::NotResumable,
        Self::WatchForbidden,
        Self::Unproven,
        Self::Foreign,
        Self::HistoryReset,
        Self::Refused,
        Self::WentBack,
    ];

    /// Returns all causes, in the order of their declaration.
    pub fn all() -> impl ExactSizeIterator<Item = Self> + Clone {
        Self::ALL.into_iter()
    }

    /// Name in metrics and logs, such as `page_expired`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Expired => "expired",
            Self::TooLarge => "too_large",
            Self::PageExpired => "page_expired",
            Self::Interrupted => "interrupted",
            Self::FellBack => "fell_back",
            Self::NotResumable => "not_resumable",
            Self::WatchForbidden => "watch_forbidden",
            Self::Unproven => "unproven",
            Self::Foreign => "foreign",
            Self::HistoryReset => "history_reset",
            Self::Refused => "refused",
            Self::WentBack => "went_back",
        }
    }
}

/// Cause of a fallback from streams to pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FallBack {
    /// The server does not support streams.
    Refused,
    /// The server refuses watches and allows lists.
    Forbidden,
    /// A stream was accepted and then stalled.
    Stalled,
    /// Several streams in a row were accepted and broke: one attempt with pages, without a verdict.
    Failures,
}

impl FallBack {
    /// All causes, in the order of their declaration.
    pub(crate) const ALL: [Self; 4] = [Self::Refused, Self::Forbidden, Self::Stalled, Self::Failures];

    /// Returns all causes, in the order of their declaration.
    pub fn all() -> impl ExactSizeIterator<Item = Self> + Clone {
        Self::ALL.into_iter()
    }

    /// Name in metrics and logs, such as `stalled`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Forbidden => "forbidden",
            Self::Stalled => "stalled",
            Self::Failures => "failures",
        }
    }
}

/// End of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Closed by the server.
    Closed,
    /// An error.
    Failed(Class),
    /// Silent for too long, or no headers in time.
    Unanswered,
    /// A position went backwards.
    WentBack,
    /// Complete but unusable: initial state without a position, or pages that repeat.
    Unusable,
    /// A list that exceeded [`LIST_OBJECTS_MAX`](crate::limits::LIST_OBJECTS_MAX) or
    /// [`LIST_TIME_MAX`](crate::limits::LIST_TIME_MAX).
    Endless,
    /// The position could not be proved to belong to the server's history.
    Unproven,
    /// Watches are refused; a poll follows.
    WatchForbidden,
}

/// Verdict on a server's streams for one resource type. Outlives a reflector: read it with
/// [`Reflector::verdict`](super::Reflector::verdict) and pass it to the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Try streams.
    #[default]
    Streams,
    /// Use pages, for this reason.
    Pages(FallBack),
}
