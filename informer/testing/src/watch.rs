//! WATCH: start, events and end.
//!
//! INVARIANT: an open watch holds a position and one list of initial objects; it reads other state when it is polled.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use informer_serving::{
    marks,
    options::ListOptions,
    reads::WatchStart,
    status::{Status, StatusExt as _},
    watch_event::{self, ADDED_HEAD, DELETED_HEAD, MODIFIED_HEAD, TAIL},
};
use tokio::time::{Instant, sleep_until};

use super::{
    Body, FakeApiServer, body,
    filter::FakeFilter,
    form::FakeForm,
    history::{FakeChange, StoredObject},
    marking::MarkSchedule,
    types::{FakeType, PathTarget},
};

/// Lifetime of a watch without `timeoutSeconds`.
const UNASKED: Duration = Duration::from_secs(1_800);

/// Time before its end at which a watch gets a last bookmark.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Parts of a watch request that are not list options.
#[derive(Clone, Copy, Debug)]
pub(super) struct WatchRequest<'a> {
    /// True if the request asks for initial state explicitly.
    pub(super) for_state: bool,
    /// Value of the header that requests marks; empty without it.
    pub(super) marks: &'a str,
}

/// `GET .../{plural}?watch=true`.
pub(super) async fn watch(
    server: &FakeApiServer,
    target: &PathTarget,
    options: &ListOptions,
    request: WatchRequest<'_>,
    form: FakeForm,
) -> Result<Body, Status> {
    let arrived = Instant::now();
    // Read before the position, so that a restore in between ends the watch.
    let epoch = server.history().epoch;
    let filter = FakeFilter::new(options, target)?;
    let start = WatchStart::of(options)?;
    let waited = match start {
        WatchStart::State(Some(at)) => server.reach(at).await,
        WatchStart::State(None) | WatchStart::Now(_) | WatchStart::After(_) => Ok(()),
    };
    let refused = |status: &Status| Ok(Body::whole(watch_event::error(status)));
    if let Err(too_large) = waited {
        return refused(&too_large);
    }
    let is_state = matches!(start, WatchStart::State(_));
    let marks = (is_state && request.for_state)
        .then(|| MarkSchedule::new(server, target, options, form, request.marks))
        .flatten();
    let (marks, rest) = marks.map_or((None, None), |(marks, rest)| (Some(marks), rest));
    let position = rest.as_ref().map_or_else(|| server.position(), |rest| rest.position);
    let after = match start {
        WatchStart::State(_) | WatchStart::Now(_) => position,
        WatchStart::After(after) if server.is_expired(after) => {
            return refused(&Status::expired_watch(after, server.faults().expired.saturating_add(1)));
        }
        WatchStart::After(after) => after,
    };
    let faults = server.faults();
    let mut initial: VecDeque<(String, Arc<StoredObject>)> = VecDeque::new();
    if is_state {
        let objects = server.history().at(&target.ty, position);
        let first = rest.map_or_else(String::new, |rest| rest.key);
        let objects = objects.into_iter().skip_while(|(key, _)| *key < first);
        initial.extend(objects.filter(|(_, it)| filter.matches(it)));
    }
    // A server without watch-list sends state to requests that always got it, but never marks its end.
    let marks_end = is_state && options.allow_bookmarks && (request.for_state || faults.refused_streams.is_none());
    let requested = match options.timeout_seconds {
        None | Some(0) => UNASKED,
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0)),
    };
    let lifetime = faults.watch_lifetime.map_or(requested, |lifetime| lifetime.min(requested));
    let watch = FakeWatch {
        server: server.clone(),
        ty: Arc::clone(&target.ty),
        filter,
        form,
        breaks_after: faults.streams_break_after.filter(|_| is_state),
        next_line: None,
        marks,
        initial,
        end: if marks_end { EndBookmark::Owed } else { EndBookmark::NotOwed },
        stalled: is_state && faults.streams_stall,
        began_at: after,
        cursor: after,
        bookmarks: options.allow_bookmarks.then(|| FakeBookmarks::new(arrived, faults.bookmarks_every, requested)),
        // "Never" is a duration beyond the clock's range: no deadline then.
        deadline: arrived.checked_add(lifetime),
        epoch,
        closed: faults.closed,
        broken: faults.broken,
        silenced: faults.silenced,
    };
    Ok(watch.into_body())
}

/// State of the bookmark that ends the initial state: owed until it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndBookmark {
    Owed,
    NotOwed,
}

/// Schedule of a watch's bookmarks.
#[derive(Debug)]
struct FakeBookmarks {
    every: Duration,
    /// `None` for never.
    next: Option<Instant>,
    before_the_end: Option<Instant>,
}

impl FakeBookmarks {
    fn new(now: Instant, every: Duration, lifetime: Duration) -> Self {
        let before_the_end = lifetime.checked_sub(LAST_BOOKMARK).filter(|left| !left.is_zero());
        // With bookmarks turned off, there is no last one either.
        let before_the_end = before_the_end.and_then(|left| now.checked_add(left)).filter(|_| every != Duration::MAX);
        Self { every, next: now.checked_add(every), before_the_end }
    }

    fn take(&mut self, now: Instant) -> bool {
        let due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        let (regular, last) = (due(self.next), due(self.before_the_end));
        if regular {
            self.next = now.checked_add(self.every);
        }
        if last {
            self.before_the_end = None;
        }
        regular || last
    }

    fn due(&self) -> Option<Instant> {
        self.next.into_iter().chain(self.before_the_end).min()
    }
}

struct FakeWatch {
    server: FakeApiServer,
    ty: Arc<FakeType>,
    filter: FakeFilter,
    form: FakeForm,
    /// Objects of the initial state not sent yet.
    initial: VecDeque<(String, Arc<StoredObject>)>,
    marks: Option<MarkSchedule>,
    /// The mark after the object sent last.
    next_line: Option<Vec<u8>>,
    /// Number of initial objects after which the connection breaks.
    breaks_after: Option<usize>,
    end: EndBookmark,
    /// True if the stream was accepted but sends no data.
    stalled: bool,
    /// Position at the start: bookmarks are sent only above it.
    began_at: u64,
    cursor: u64,
    bookmarks: Option<FakeBookmarks>,
    deadline: Option<Instant>,
    /// Values of these counters when the watch was opened.
    epoch: u64,
    closed: u64,
    broken: u64,
    silenced: u64,
}

/// Result of one step.
enum StreamStep {
    Send(Vec<u8>),
    /// The connection breaks.
    Break,
    /// Wait for a change, or until this time.
    Wait(Option<Instant>),
    Over,
}

impl FakeWatch {
    fn into_body(mut self) -> Body {
        let moved = self.server.moved();
        let answered = self.marks.as_ref().map(|marks| marks.answered);
        self.next_line = self.echo();
        let chunks = stream::unfold(Some((self, moved)), |open| async {
            let (mut watch, mut moved) = open?;
            loop {
                // Marked as seen before the state is read, so that a change in between is not missed.
                moved.borrow_and_update();
                match watch.step(Instant::now()) {
                    StreamStep::Send(line) => return Some((Ok(Bytes::from(line)), Some((watch, moved)))),
                    StreamStep::Break => return Some((Err(body::broken()), None)),
                    StreamStep::Over => return None,
                    StreamStep::Wait(until) => {
                        let timer = async {
                            match until {
                                Some(until) => sleep_until(until).await,
                                None => std::future::pending().await,
                            }
                        };
                        tokio::select! {
                            // `changed` cannot fail: the sender lives in the server, which the watch holds.
                            _ = moved.changed() => {}
                            () = timer => {}
                        }
                    }
                }
            }
        });
        let mut body = Body::perhaps_broken(chunks);
        body.marks = answered;
        body
    }

    fn echo(&mut self) -> Option<Vec<u8>> {
        let token = self.marks.as_mut()?.echo.take()?;
        let (kind, api_version) = self.form.object_type(&self.ty);
        Some(marks::mark(kind, api_version, &token))
    }

    fn step(&mut self, now: Instant) -> StreamStep {
        let faults = self.server.faults();
        if faults.silenced != self.silenced {
            return StreamStep::Wait(None);
        }
        if faults.broken != self.broken {
            return StreamStep::Break;
        }
        let closed = (self.server.history().epoch, faults.closed) != (self.epoch, self.closed);
        if closed || self.deadline.is_some_and(|deadline| now >= deadline) {
            return StreamStep::Over;
        }
        if self.stalled {
            return StreamStep::Wait(self.deadline);
        }
        if let Some(step) = self.initial() {
            return step;
        }
        if self.end == EndBookmark::Owed && !faults.end_bookmark_withheld {
            self.end = EndBookmark::NotOwed;
            return StreamStep::Send(self.bookmark(self.cursor, true));
        }
        let history = self.server.history();
        let horizon = faults.horizon.unwrap_or(u64::MAX);
        while let Some(change) = history.next(&self.ty, self.cursor).filter(|change| change.version <= horizon) {
            self.cursor = change.version;
            if let Some(line) = self.tell(change) {
                return StreamStep::Send(line);
            }
        }
        let position = history.position().min(horizon);
        drop(history);
        let moved = position > self.began_at && self.end == EndBookmark::NotOwed;
        if let Some(bookmarks) = &mut self.bookmarks
            && bookmarks.take(now)
            && moved
        {
            self.cursor = self.cursor.max(position);
            return StreamStep::Send(self.bookmark(self.cursor, false));
        }
        let due = self.bookmarks.as_ref().and_then(FakeBookmarks::due);
        StreamStep::Wait(self.deadline.into_iter().chain(due).min())
    }

    /// The next step of the initial state.
    fn initial(&mut self) -> Option<StreamStep> {
        if let Some(line) = self.next_line.take() {
            return Some(StreamStep::Send(line));
        }
        let (key, stored) = self.initial.pop_front()?;
        if let Some(left) = &mut self.breaks_after {
            match left.checked_sub(1) {
                None => return Some(StreamStep::Break),
                Some(fewer) => *left = fewer,
            }
        }
        let of = self.form.object_type(&self.ty);
        self.next_line = self.marks.as_mut().and_then(|marks| marks.after(&key, of));
        Some(StreamStep::Send(line(ADDED_HEAD, &self.form.object(&stored.json))))
    }

    /// The event of a change for a client that sees only the selected objects.
    fn tell(&self, change: &FakeChange) -> Option<Vec<u8>> {
        let seen = |stored: &Option<Arc<StoredObject>>| stored.clone().filter(|stored| self.filter.matches(stored));
        match (seen(&change.before), seen(&change.after)) {
            (None, None) => None,
            (None, Some(after)) => Some(line(ADDED_HEAD, &self.form.object(&after.json))),
            (Some(_), Some(after)) => Some(line(MODIFIED_HEAD, &self.form.object(&after.json))),
            (Some(before), None) => Some(line(DELETED_HEAD, &self.form.object(&before.json_at(change.version)))),
        }
    }

    fn bookmark(&self, position: u64, ends_state: bool) -> Vec<u8> {
        let (kind, api_version) = self.form.object_type(&self.ty);
        watch_event::bookmark(kind, api_version, position, ends_state)
    }
}

fn line(head: &[u8], object: &[u8]) -> Vec<u8> {
    [head, object, TAIL].concat()
}
