//! Inputs and actions of a session, and what it asks of its surroundings. All enums are closed.

use std::sync::Arc;

use crate::{
    limits,
    object::Meta,
    reflector::{End, Input, ObservedObject, ProofBy, Report, Testimony, Verdict},
    resource_version::ResourceVersion,
    semantics::Read,
    store::{Entry, StoreError},
    time::Time,
    wire::{framer::SkipReason, marks::MarksReply, status::Status},
};

/// An event that the driver reports. Frames go to [`Session::handle_frame`](super::Session::handle_frame).
#[derive(Clone, Copy, Debug)]
pub enum SessionInput<'a> {
    /// Begin.
    Start,
    /// The relist budget granted the permit that [`SessionAction::Queue`] waits for.
    Granted,
    /// The headers of the open response arrived with a 2xx status, and what they say about marks.
    Accepted(Option<MarksReply>),
    /// The result of the read that [`SessionAction::Prove`] ordered. A failed read arrives as [`Self::Ended`].
    Proved(Testimony<'a>),
    /// The open request or response ended. Not for a list whose last frame was handled.
    Ended(End),
    /// The time that [`Session::poll_timeout`](super::Session::poll_timeout) returned has come.
    TimedOut,
}

/// The reflector's input for 2xx headers.
pub(super) const fn accepted(marks: Option<MarksReply>) -> Input<'static> {
    match marks {
        None => Input::Accepted,
        Some(MarksReply::Accepted | MarksReply::Restarted) => Input::AcceptedWithMarks,
        Some(MarksReply::Resumed) => Input::Resumed,
    }
}

/// An order to the driver; orders are executed in sequence. The unread rest of a response that an order drops is
/// discarded.
#[derive(Debug)]
pub enum SessionAction {
    /// Drop any open response, and wait for a permit of the relist budget. A queue position already held is kept.
    Queue {
        /// The read that waits.
        read: Read,
        /// True if it begins an attempt at initial state, false for a repeated page.
        is_attempt: bool,
    },
    /// Drop any open response and send this read.
    Send {
        /// Index of the endpoint.
        endpoint: usize,
        /// The read.
        read: Read,
    },
    /// Drop any open response and read one stored object, "not older than `at`"; then report
    /// [`SessionInput::Proved`] with the verdict of [`proof::compare`](crate::proof::compare).
    Prove {
        /// Index of the endpoint.
        endpoint: usize,
        /// The stored object.
        witness: Arc<Entry>,
        /// The position whose history is in question.
        at: ResourceVersion,
        /// Request to use.
        by: ProofBy,
    },
    /// Drop the open request or response, or leave the queue; no request follows now.
    Close,
    /// Release the permit of the relist budget.
    Release,
    /// Report an event: for logs, metrics, `explain` and the reason for not being ready.
    Report(SessionReport),
}

/// Events that a session reports.
#[derive(Debug)]
pub enum SessionReport {
    /// An event of the reflector.
    Reflector(Report),
    /// Requests go to another endpoint from now on.
    Moved {
        /// Index of the endpoint left.
        from: usize,
        /// Index of the new one.
        to: usize,
    },
    /// The endpoint just moved to was refused; requests go to the previous one.
    Reverted {
        /// Index of the refused endpoint.
        from: usize,
        /// Index of the previous one.
        to: usize,
    },
    /// The restored state is current.
    Restored,
    /// Initial state is complete at this position.
    Synced(ResourceVersion),
    /// The first object of all arrived.
    FirstObject,
    /// An object without a readable name or version, or one that the store does not take.
    Unreadable {
        /// `namespace/name`, or `name`; empty if unknown.
        key: String,
        /// The reason.
        cause: UnreadableCause,
    },
}

/// Reason why an object is not stored, or not as it should be.
#[derive(Debug)]
pub enum UnreadableCause {
    /// It has no readable name. It is left out.
    Nameless,
    /// It has no readable resourceVersion. It is kept without a position, as client-go and kube do.
    Unversioned,
    /// The framer skipped it.
    Skipped {
        /// The reason.
        reason: SkipReason,
        /// Position of its first byte in the body.
        at: u64,
        /// True if the reader's version of the object is stale now. False if the response ends with an error for it.
        is_stale: bool,
    },
    /// The store could not take it. It is left out.
    Dropped(StoreError),
}

/// A frame that ends its response with an error.
#[derive(Debug)]
pub enum BadFrame {
    /// An ERROR event, or a Status in place of a list.
    Status(Box<Status>),
    /// Not part of the protocol, or an error that cannot be read.
    Malformed,
    /// An object without a name was changed or deleted, and could not be read: some stored object is now stale and
    /// cannot be identified.
    Unidentified {
        /// Position of its first byte in the body.
        at: u64,
    },
}

impl BadFrame {
    /// The error that an ERROR event carries, or a Status in place of a list. `Malformed` if it reports success or
    /// cannot be read.
    #[must_use]
    pub fn read(object: &[u8]) -> Self {
        // Decoding takes many times the bytes, and no real Status is as large as an object may be.
        let readable = object.len() <= limits::ERROR_BODY_BYTES_MAX;
        let status = readable.then(|| Status::read(object)).flatten();
        status.map_or(Self::Malformed, |status| Self::Status(Box::new(status)))
    }
}

/// One order about the copy, with its object as JSON and as parsed metadata.
#[derive(Clone, Debug)]
pub enum Order<'a> {
    /// The state present from the start is the server's state at its position.
    Restored,
    /// Initial state begins.
    Init {
        /// True if an equal uid and resourceVersion mean an unchanged object.
        trusts_versions: bool,
        /// False if the server may have another history, in which objects of a restored state never existed.
        continues_history: bool,
    },
    /// An object of the initial state.
    InitApply(&'a [u8], &'a Meta<'a>),
    /// Initial state is complete at this position.
    InitDone(ResourceVersion),
    /// An object was added or changed.
    Apply(&'a [u8], &'a Meta<'a>),
    /// An object was deleted; while initial state is gathered, from that.
    Delete(&'a [u8], &'a Meta<'a>),
    /// A new, changed or initial object of whose newest version only the names are known: JSON of them. Its stored state
    /// is stale.
    Skip(&'a [u8], &'a Meta<'a>),
    /// No event at or below this position follows.
    Bookmark(ResourceVersion),
    /// Initial state broke off: discard what arrived of it.
    Abandon,
}

impl<'a> Order<'a> {
    /// Metadata of the object that the order is about, if any.
    #[must_use]
    pub const fn meta(&self) -> Option<&'a Meta<'a>> {
        match self {
            Self::InitApply(_, meta) | Self::Apply(_, meta) | Self::Delete(_, meta) | Self::Skip(_, meta) => {
                Some(*meta)
            }
            Self::Restored | Self::Init { .. } | Self::InitDone(_) | Self::Bookmark(_) | Self::Abandon => None,
        }
    }
}

/// Evidence a sink has about the history it is filled from.
#[derive(Clone, Debug)]
pub enum Evidence {
    /// One stored object.
    Witness(Arc<Entry>),
    /// No object, but the holder of the state vouches for its history.
    Word,
    /// No evidence, or no further evidence.
    Nothing,
}

/// Receives a session's objects: a store, or the reader of a raw stream.
pub trait Sink {
    /// Takes one order.
    ///
    /// # Errors
    /// The object cannot be stored. It is left out.
    fn take(&mut self, now: Time, order: Order<'_>) -> Result<(), StoreError>;

    /// Returns evidence to hold against a server, after `skip` witnesses that proved nothing. `moved` is true if the
    /// endpoint is not the one known to have this history.
    fn evidence(&self, skip: usize, moved: bool) -> Evidence;

    /// Returns false only if the state is known to contain what `event` says; see
    /// [`proof::is_news`](crate::proof::is_news).
    fn is_news(&self, event: &ObservedObject<'_>) -> bool;

    /// When to call [`handle_timeout`](Self::handle_timeout).
    fn poll_timeout(&self) -> Option<Time>;

    /// Drops lingering objects whose time is over.
    fn handle_timeout(&mut self, now: Time);
}

/// Verdicts on the streams of each endpoint for one resource type. Several sessions may share them.
pub trait VerdictTable {
    /// Returns the verdict on an endpoint; [`Verdict::Streams`] if none is stored.
    fn verdict(&self, endpoint: usize) -> Verdict;

    /// Stores the verdict found, so that the next session of the type need not probe.
    fn set_verdict(&mut self, endpoint: usize, verdict: Verdict);
}
