//! What the reflector is told and what it orders. Facts are in the past tense, orders in the imperative; both are closed.

use std::time::Duration;

use crate::{resource_version::ResourceVersion, semantics::Read, time::Time};

/// What happened, as the driver reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// Begin. Later ones mean nothing.
    Start,
    /// The headers of the open answer arrived with a 2xx status.
    Accepted,
    /// The same of a stream that sends the initial state from its beginning, with marks in it.
    AcceptedWithMarks,
    /// The same of a stream that sends the rest of the initial state behind the mark it was asked with.
    Resumed,
    /// A mark: everything before it was sent, and a stream can go on behind it.
    Mark {
        /// Its token as sent.
        token: &'a str,
    },
    /// One item of a list or one event of a watch, with readable metadata.
    Object(Observed<'a>),
    /// A bookmark.
    Bookmark {
        /// Its position as sent.
        resource_version: &'a str,
        /// Whether the annotation `k8s.io/initial-events-end` is exactly `"true"`.
        initial_events_end: bool,
    },
    /// A list body was complete. The answer is over: no [`Input::Ended`] follows for it.
    PageEnd {
        /// The list's position as sent.
        resource_version: &'a str,
        /// The token, when more pages follow; `None` for an empty one.
        continue_token: Option<&'a str>,
    },
    /// A sign of life without a position: an unreadable object, an unknown event type.
    Ignored,
    /// The open answer ended.
    Ended(End),
    /// What the read that [`Action::Prove`] ordered has shown. One that failed comes as [`Input::Ended`].
    Proof(Testimony<'a>),
    /// Requests go to another endpoint from now on: nothing is resumed there before a proof. The open answer, if any,
    /// is dropped by the order that follows.
    Moved {
        /// Whether it is the endpoint whose history the position is of, as [`Reflector::is_settled`] said last: there is
        /// none to go back to, so what it proves to be counts, as after an outage.
        ///
        /// [`Reflector::is_settled`]: super::Reflector::is_settled
        home: bool,
    },
    /// The time that [`Reflector::poll_timeout`](super::Reflector::poll_timeout) named has come.
    TimedOut,
}

/// The metadata of one object received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed<'a> {
    /// What it says about the object.
    pub change: Change,
    /// `namespace/name`, or `name`.
    pub key: &'a str,
    /// Its uid; empty when it has none.
    pub uid: &'a str,
    /// Its resourceVersion as sent; empty when it has none.
    pub resource_version: &'a str,
    /// True if the copy lacks what it says, see [`proof::is_news`](crate::proof::is_news). Read only where
    /// [`Reflector::is_behind`](super::Reflector::is_behind) is true for its version.
    pub is_news: bool,
}

/// What one stored object, read again, says about the history behind an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Testimony<'a> {
    /// What it says.
    pub proof: Proof,
    /// The key of the stored object; empty for [`Proof::Nothing`].
    pub key: &'a str,
    /// Its uid; empty when it has none.
    pub uid: &'a str,
}

impl Testimony<'_> {
    /// What is said without an object.
    #[must_use]
    pub const fn without_object(proof: Proof) -> Self {
        Self { proof, key: "", uid: "" }
    }
}

/// What became of an object received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A watch event ADDED.
    Added,
    /// A watch event MODIFIED.
    Modified,
    /// A watch event DELETED.
    Deleted,
    /// An item of a list.
    Item,
}

/// What one stored object says about the history behind an endpoint. See [`proof::judge`](crate::proof::judge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The server has the very version that is stored: one history.
    Same,
    /// The server has the object, and changed it after the position: not foreign, and no proof against a reset.
    Changed,
    /// At the position there was another object: another history.
    Foreign,
    /// The server has an older or another version of it than there was at the position: restored to an older state.
    Reset,
    /// Deleted or replaced since. In the history of the position, its deletion follows that.
    Missing,
    /// There is no stored object to ask about, or none that was not asked about.
    Nothing,
}

/// How one object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofBy {
    /// GET of the object.
    Get,
    /// LIST of one object by `metadata.name`, where GET is not allowed.
    List,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, between two frames.
    Closed,
    /// By an error: instead of an answer, in the stream, or of the connection.
    Failed(Failure),
}

/// An error as the server or the network told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it means for the next request.
    pub class: Class,
    /// How long the server asked to be left alone.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure without `Retry-After`.
    #[must_use]
    pub const fn new(class: Class) -> Self {
        Self { class, retry_after: None }
    }
}

/// Errors by what they mean for the next request. The same whether they came as HTTP status or in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// 410: the position or token is older than the server's history.
    Expired,
    /// The position lies ahead of the server (504 with one of three dialects).
    TooLarge,
    /// 400, 404, 422: this request is not answered here.
    Refused,
    /// 403, and 405: this verb may not be used here.
    Forbidden,
    /// 429.
    TooMany,
    /// No answer, or one that broke off.
    Connection,
    /// 5xx, and 401: credentials that are not accepted now say nothing about what may be asked with others.
    Server,
    /// An answer that is not what the protocol says.
    Malformed,
}

impl Class {
    /// All classes, for labels.
    pub const ALL: [Self; 8] = [
        Self::Expired,
        Self::TooLarge,
        Self::Refused,
        Self::Forbidden,
        Self::TooMany,
        Self::Connection,
        Self::Server,
        Self::Malformed,
    ];
}

/// What the driver has to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Drop any open answer and ask this.
    Send(Read),
    /// Drop any open answer and read one stored object, "not older than `at`"; then [`Input::Proof`].
    Prove {
        /// The position that needs the proof.
        at: ResourceVersion,
        /// How to read it.
        by: ProofBy,
        /// How many objects were asked about already: [`proof::witness`](crate::proof::witness) names the next.
        skip: usize,
    },
    /// The proof failed at the endpoint just moved to: go back to the one before. No [`Input::Moved`] follows.
    Refuse,
    /// Drop the open answer; nothing is asked for now.
    Close,
    /// The restored state is the state: its position is proved and the server accepted a watch from it.
    Restored,
    /// Initial state begins: open a stage. Never while one is open.
    Init {
        /// Whether equal uid and resourceVersion prove that an object is unchanged. Not after a history reset, and not
        /// in a foreign history.
        trusts_versions: bool,
    },
    /// The object just handed in belongs to the stage.
    InitApply,
    /// The stage is complete at this position and becomes the state.
    InitDone(ResourceVersion),
    /// The object just handed in is the newest of its key.
    Apply,
    /// The object just handed in is gone: from the stage while one is open, from the state otherwise.
    Delete,
    /// Nothing at or below this position will follow.
    Bookmark(ResourceVersion),
    /// Initial state broke off: forget the stage. Readers keep what they have.
    Abandon,
    /// Something worth telling: for logs, metrics, `explain` and the reason why nothing is ready.
    Report(Report),
}

/// What the reflector tells about itself. Each is counted in [`Stats`](crate::stats::Stats).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// Initial state is asked for.
    Relist {
        /// Why.
        cause: RelistCause,
    },
    /// Streams were given up for pages.
    FellBack {
        /// Why.
        cause: FallBack,
    },
    /// The next request goes out at `until`.
    Waiting {
        /// When.
        until: Time,
        /// What the last session ended with.
        cause: Ending,
    },
    /// The session proved healthy: delays are small again.
    Healthy,
    /// The first request goes out at `until`: starts are spread.
    Spread {
        /// When.
        until: Time,
    },
    /// The position belongs to the history of the server.
    Proved,
    /// The server has another history: the position is worth nothing there.
    Foreign,
    /// The server's history went back: it was restored to an older state.
    HistoryReset,
    /// Events of this type carry resourceVersions without an order: from now on they are taken in the order they come.
    Unordered,
    /// The state asked for by [`ListSemantic::Exact`](crate::ListSemantic::Exact) is no longer there. Final: nothing
    /// is asked any more.
    Expired,
}

/// Why initial state is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelistCause {
    /// It never was.
    Start,
    /// The position is older than the server's history.
    Expired,
    /// The position lies ahead of the server.
    TooLarge,
    /// A page after the first had expired.
    PageExpired,
    /// The attempt before did not reach its end.
    Interrupted,
    /// The attempt before was a stream, and streams were given up.
    FellBack,
    /// The position cannot be resumed from: the server failed to, several times in a row.
    NotResumable,
    /// The server allows lists and refuses watches: polling.
    WatchForbidden,
    /// The position could not be proved: there was nothing to prove it with, or the server did not let us.
    Unproven,
    /// The server has another history.
    Foreign,
    /// The server was restored to an older state.
    HistoryReset,
    /// The server does not take the position: 400, 422.
    Refused,
    /// An event with something new lay behind the position.
    WentBack,
}

impl RelistCause {
    /// All causes, for labels.
    pub const ALL: [Self; 13] = [
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
}

/// Why streams were given up for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FallBack {
    /// The server does not know them.
    Refused,
    /// The server refuses watches and allows lists.
    Forbidden,
    /// A stream was accepted and then stood still.
    Stalled,
    /// Several streams in a row were accepted and broke: one attempt with pages, no verdict.
    Failures,
}

impl FallBack {
    /// All causes, for labels.
    pub const ALL: [Self; 4] = [Self::Refused, Self::Forbidden, Self::Stalled, Self::Failures];
}

/// What a session ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The server closed it.
    Closed,
    /// An error.
    Failed(Class),
    /// Nothing came for too long, not even headers.
    Unanswered,
    /// A position went back.
    WentBack,
    /// Complete, and of no use: initial state without a position, or pages that lead in circles.
    Unusable,
    /// A list that did not end within [`LIST_OBJECTS_MAX`](crate::limits::LIST_OBJECTS_MAX) or
    /// [`LIST_TIME_MAX`](crate::limits::LIST_TIME_MAX).
    Endless,
    /// The position could not be proved to belong to the server's history.
    Unproven,
    /// Watches are refused: the next poll.
    WatchForbidden,
}

/// What is known about a server's streams for one resource type. Outlives a reflector: whoever keeps several of them
/// reads it with [`Reflector::verdict`](super::Reflector::verdict) and hands it to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// They are worth asking for.
    #[default]
    Streams,
    /// They were given up.
    Pages(FallBack),
}
