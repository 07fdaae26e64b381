//! Answers WATCH: start position, events, bookmarks, and how the stream ends.
//!
//! INVARIANT: an error before the stream is accepted is an HTTP status; one that depends on the history (position too
//! old or too new) is a single ERROR event in a stream that then ends. An initial state that cannot be completed is cut
//! (the connection is reset), also when the watch's deadline passes, so that no client takes it for complete: its
//! objects come in key order, so the last one is no position to resume from. Every other end is clean and without an
//! event: the client resumes. INVARIANT: a watch costs its cursor and one timer; no events are queued for it.
//!
//! Differences from kube-apiserver, on purpose: bookmarks come every minute even without events, as signs of life, and
//! more often when the window is short, so that a client can always resume from their positions. A watch that begins
//! ahead of the storage of this process gets an error at once, and one that is ahead of the cache of another storage for
//! [`FRESH_WAIT`](crate::limits::FRESH_WAIT), see [`AheadCheck`].
//!
//! Source: apiserver `endpoints/handlers/watch.go`, `storage/cacher/{cacher,cache_watcher}.go`; KEP-3157.

use std::{
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, StatusCode, header};
use informer_serving::{
    options::ListOptions,
    protobuf,
    reads::WatchStart,
    status::{Reason, Status, StatusExt as _},
};
use tokio::time::{Instant, Sleep, sleep_until};
use watch_cache::{Cursor, CursorStart, Filter, Reader, Slices, Step};

use super::{
    body::{self, BATCH, Body, BodyError, Response},
    encode::{self, GzipStream, RequestedEncoding},
    negotiate::{AnswerFormat, AnswerSubject},
    query,
    resuming::{self, ResumeRequest, StreamMarks},
};
use crate::{
    app::App,
    cacher::FreshnessError,
    clock,
    limits::{ENDS_SPREAD, WATCH_END_WAIT, WITHDRAWN_END_WAIT},
    metrics::{
        RequestClass,
        watches::{WatchEndCause, WatchGauge, WatchOrigin, WatchPause},
    },
    registry::ResourceType,
    route::Target,
    traces::RequestSpan,
};

/// Range of the lifetime of a watch without `timeoutSeconds`: random, so that clients that came together reconnect
/// spread out.
const UNASKED_SECONDS: Range<u64> = 1_800..3_600;

/// Upper bound on a requested lifetime; longer watches end here, and clients resume.
const SECONDS_MAX: u64 = 366 * 24 * 3_600;

/// Time between the last bookmark of a watch and its end.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Lower bound on the bookmark interval of a short window.
const SHORT_WINDOW_BOOKMARKS: Duration = Duration::from_secs(5);

/// Interval at which an idle watch checks whether the window became shorter.
const WINDOW_LOOKS: Duration = Duration::from_secs(20);

/// Delay before another attempt at a bookmark that could not be sent.
const RETRY: Duration = Duration::from_secs(1);

/// Cursor steps per poll, whether they find events or not. Bounds the time that a poll holds a worker.
const STEPS_MAX: usize = 4;

/// `GET …/{plural}?watch=true`.
///
/// # Errors
/// The Status to answer with instead of a stream.
pub(crate) async fn watch(
    app: &App,
    target: &Target,
    options: &ListOptions,
    answer: &AnswerFormat,
    headers: &HeaderMap,
    origin: WatchOrigin,
) -> Result<Response, Status> {
    let arrived = Instant::now();
    let deadline = arrived + lifetime(options.timeout_seconds);
    let filter = query::filter(options, target)?;
    if !target.ty.verbs.contains(&"watch") {
        return Err(Status::method_not_supported(&target.ty.group, &target.ty.plural, "watch"));
    }
    let from = WatchStart::of(options)?;
    let refused = |status: &Status| refused(app, &target.ty, answer, status);
    if let WatchStart::After(position) = from
        && let Some(status) = foreign(app, position)
    {
        return Ok(refused(&status));
    }
    let form = answer.form(&target.ty, AnswerSubject::Events)?;
    answer.check_stream()?;
    if options.timeout_seconds.is_some_and(i64::is_negative)
        && matches!(from, WatchStart::State(None) | WatchStart::Now(true))
    {
        return Ok(refused(&out_of_time()));
    }
    let resume = ResumeRequest::read(headers, target, options, &form);
    let found = match resume.as_ref().and_then(|resume| resume.rest(app, from)) {
        Some((reader, rest)) => Ok((reader, None, rest)),
        None => start(from, app, &target.ty, &filter, origin.owner).await,
    };
    let (reader, age, start) = match found {
        Ok(found) => found,
        Err(FreshnessError::NotReady(error)) => return Err(error.into()),
        Err(error) => return Ok(refused(&error.into())),
    };
    let (marks, answered) = resume.and_then(|resume| resume.marks(app, &reader, &start)).unzip();
    let cursor = match reader.cursor(start, filter) {
        Ok(cursor) => cursor.shown_as(form),
        Err(expired) => return Ok(refused(&Status::expired_watch(expired.requested, expired.oldest))),
    };
    let ahead = AheadCheck::of(app, &target.ty, &cursor, &reader);
    let bookmarks = options.allow_bookmarks.then(|| Bookmarks::new(app, reader, arrived..deadline));
    let end_bookmark = options.allow_bookmarks && options.send_initial_events == Some(true);
    let watching = app.metrics.watch(RequestClass::of("WATCH", target), origin, cursor.filter());
    // A WebSocket message is one line, and a mark too.
    let is_compressible = answer.gzip && end_bookmark && marks.is_none() && !headers.contains_key(header::UPGRADE);
    let mut watch = Watch::new(cursor, bookmarks, marks.map(Box::new), end_bookmark, deadline, watching);
    watch.ahead = ahead;
    watch.gzip = watch.cursor.as_ref().filter(|_| is_compressible).and_then(GzipStream::of).map(Box::new);
    let is_compressed = watch.gzip.is_some();
    let mut response = stream(Body::watch(watch), RequestedEncoding::of(answer));
    if is_compressed {
        body::set_gzip(&mut response);
    }
    body::set_age(&mut response, age);
    if let Some(answered) = answered {
        app.metrics.marked(target.ty.id(), answered);
        resuming::say(answered, &mut response);
    }
    Ok(response)
}

/// Returns the 410 for a position that is known to belong to another history.
fn foreign(app: &App, position: u64) -> Option<Status> {
    match app.caches.newest() {
        // Not awaited: this history would give the position to another change.
        Some(newest) if newest < position => Some(Status::unknown_position(position, newest)),
        _ if !app.caches.knows(position) => Some(Status::foreign_position(position)),
        _ => None,
    }
}

/// Answers with a stream of one ERROR event. Counts positions that are too old or unknown.
fn refused(app: &App, ty: &ResourceType, answer: &AnswerFormat, status: &Status) -> Response {
    if status.reason == Reason::Expired {
        app.metrics.refused_watch(ty.id());
    }
    let encoding = RequestedEncoding::of(answer);
    let mut slices = Slices::new();
    slices.push(encode::error_event(status, encoding == RequestedEncoding::Protobuf));
    stream(Body::last(slices), encoding)
}

fn stream(body: Body, encoding: RequestedEncoding) -> Response {
    body::typed(StatusCode::OK, encoding.stream_type(), body)
}

/// The error of a watch whose time is over before it begins, and that needs the current position: kube-apiserver asks etcd
/// for it within that time.
fn out_of_time() -> Status {
    let (status, message) = ("Failure".to_owned(), "context deadline exceeded".to_owned());
    Status { status, message, reason: Reason::InternalError, code: 500, ..Status::default() }
}

/// Returns the lifetime of a watch, counted from the arrival of its request. Negative timeouts mean zero.
fn lifetime(timeout_seconds: Option<i64>) -> Duration {
    match timeout_seconds {
        None | Some(0) => Duration::from_secs(fastrand::u64(UNASKED_SECONDS)),
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(SECONDS_MAX)),
    }
}

/// Finds the cache and the start position of a watch, and the age of that state if it was not confirmed for this watch.
async fn start(
    from: WatchStart,
    app: &App,
    ty: &Arc<ResourceType>,
    filter: &Filter,
    owner: u64,
) -> Result<(Reader, Option<Duration>, CursorStart), FreshnessError> {
    let (reader, age) = match from {
        WatchStart::State(None) | WatchStart::Now(true) => app.caches.recent(ty).await?,
        WatchStart::State(Some(0)) | WatchStart::Now(false) | WatchStart::After(_) => {
            (app.caches.reader(ty).await?, None)
        }
        WatchStart::State(Some(at)) => (app.caches.at_least(ty, at).await?, None),
    };
    let reader = reader.owned_by(owner);
    let start = match from {
        WatchStart::State(_) => CursorStart::Initial(reader.selected(filter)),
        WatchStart::Now(_) => CursorStart::After(reader.applied()),
        WatchStart::After(after) => CursorStart::After(after),
    };
    Ok((reader, age, start))
}

/// Pending check of a watch that begins ahead of the cache, and its error if the cache does not catch up. Allocated
/// only for such watches. The storage of this process needs none for positions ahead of it, see [`foreign`].
///
/// A position that the storage itself has not reached belongs to another history: it was restored. Silence would hide this
/// history's events up to that position. The error is 410, as for every position that cannot be resumed from, because
/// clients relist on 410 while many repeat the watch on anything else. If the storage does not report its position, the
/// cache may just lag: 504.
struct AheadCheck(Pin<Box<dyn Future<Output = Option<Status>> + Send>>);

impl AheadCheck {
    fn of(app: &App, ty: &Arc<ResourceType>, cursor: &Cursor, reader: &Reader) -> Option<Self> {
        let position = cursor.position();
        if position <= reader.applied() {
            return None;
        }
        let (caches, ty) = (Arc::clone(&app.caches), Arc::clone(ty));
        Some(Self(Box::pin(async move {
            let error = caches.at_least(&ty, position).await.err()?;
            // A cache that stopped meanwhile ends the cursor as well.
            let FreshnessError::TooLarge { requested, .. } = error else { return None };
            match caches.committed(&ty).await {
                Some(current) if current < requested => Some(Status::unknown_position(requested, current)),
                Some(_) | None => Some(error.into()),
            }
        })))
    }
}

/// Bookmark schedule of a watch.
struct Bookmarks {
    reader: Reader,
    /// Longest interval between two bookmarks.
    every: Duration,
    /// Time of the last bookmark, or of the start.
    last_sent: Instant,
    /// Time of the last bookmark, shortly before the end; `None` once it was sent, or if the watch is too short for it.
    before_the_end: Option<Instant>,
}

impl Bookmarks {
    /// Plans the bookmarks of a watch from the arrival of its request to its deadline.
    fn new(app: &App, reader: Reader, Range { start: arrived, end: deadline }: Range<Instant>) -> Self {
        let before_the_end = deadline.checked_sub(LAST_BOOKMARK).filter(|&at| at > arrived);
        Self { reader, every: app.config.bookmark_interval, last_sent: Instant::now(), before_the_end }
    }

    /// Returns the current interval: at least three bookmarks while the window covers a position.
    fn pause(&self) -> Duration {
        let window = self.reader.covers().map(|covered| (covered / 3).max(SHORT_WINDOW_BOOKMARKS));
        window.map_or(self.every, |pause| pause.min(self.every))
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.last_sent + self.pause() || self.before_the_end.is_some_and(|at| now >= at)
    }

    fn tell(&mut self, now: Instant) {
        self.last_sent = now;
        self.before_the_end = self.before_the_end.filter(|&at| at > now);
    }

    /// Returns when to check again.
    fn next(&self, now: Instant) -> Instant {
        if self.is_due(now) {
            // The bookmark was due but events were unread, so it could not be sent.
            return now + RETRY;
        }
        let regular = (self.last_sent + self.pause()).min(now + WINDOW_LOOKS);
        self.before_the_end.map_or(regular, |at| at.min(regular))
    }
}

/// Body of a watch.
pub(super) struct Watch {
    /// Resume tokens, while the initial state is sent to a client that requested them. Declared before the cursor:
    /// dropping it holds the position before the cursor releases it.
    marks: Option<Box<StreamMarks>>,
    /// `None` once the stream is over.
    cursor: Option<Cursor>,
    /// Encoder, if the stream is compressed and not over.
    gzip: Option<Box<GzipStream>>,
    bookmarks: Option<Bookmarks>,
    /// `None` once the cache has reached the cursor's position.
    ahead: Option<AheadCheck>,
    /// True until the bookmark `initial-events-end` is sent, if the client requested it.
    end_bookmark: bool,
    deadline: Instant,
    /// True if the deadline is the expiry of the caller's credentials.
    expires: bool,
    /// True once the history ended and the watch only waits for its deadline.
    ending: bool,
    /// True once the deadline is that of a server whose clients another process serves.
    leaving: bool,
    /// True if the history ended before the initial state was sent.
    partial: bool,
    /// True until the cut of the initial state is reported.
    cut: bool,
    /// Rings at the earlier of the next bookmark check and the deadline.
    timer: Pin<Box<Sleep>>,
    watching: WatchGauge,
}

/// Outcome of one poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// More events may be ready.
    More,
    /// Caught up; the cursor wakes the task.
    Waiting,
    /// The stream is over.
    Over,
    /// The initial state cannot be completed.
    Cut,
}

impl Watch {
    fn new(
        cursor: Cursor,
        bookmarks: Option<Bookmarks>,
        marks: Option<Box<StreamMarks>>,
        end_bookmark: bool,
        deadline: Instant,
        watching: WatchGauge,
    ) -> Self {
        let first = bookmarks.as_ref().map_or(deadline, |bookmarks| bookmarks.next(bookmarks.last_sent));
        let timer = Box::pin(sleep_until(first.min(deadline)));
        let (ending, leaving, partial, cut) = (false, false, false, false);
        let (cursor, gzip, ahead, expires) = (Some(cursor), None, None, false);
        let watch = Self {
            marks,
            cursor,
            gzip,
            bookmarks,
            ahead,
            end_bookmark,
            deadline,
            expires,
            ending,
            leaving,
            partial,
            cut,
            timer,
            watching,
        };
        // A client that gives no room from the beginning is never polled.
        watch.note(WatchPause::Turn);
        watch
    }

    /// Time at which the watch must have ended, whatever its client reads.
    pub(super) fn overdue(&self) -> Instant {
        self.deadline + if self.expires { WITHDRAWN_END_WAIT } else { WATCH_END_WAIT }
    }

    /// Ends `span` with the watch.
    pub(super) fn trace(&mut self, span: RequestSpan) {
        self.watching.trace(span);
    }

    /// Ends the watch at `at`, when its caller's credentials expire, unless its deadline comes first.
    pub(super) fn expire_at(&mut self, at: Instant) {
        if at < self.deadline {
            (self.deadline, self.expires) = (at, true);
            let next = self.timer.deadline().min(at);
            self.timer.as_mut().reset(next);
        }
    }

    /// Ends the watch at a random time within [`ENDS_SPREAD`]: another process serves its client then. Until then it goes
    /// on.
    fn leave(&mut self) {
        self.leaving = true;
        self.watching.end(WatchEndCause::Shutdown);
        self.deadline = self.deadline.min(Instant::now() + ENDS_SPREAD.mul_f64(fastrand::f64()));
        let next = self.timer.deadline().min(self.deadline);
        self.timer.as_mut().reset(next);
    }

    /// Ends the watch at the next poll: its caller may not read on.
    pub(super) fn withdraw(&mut self) {
        self.deadline = Instant::now();
        self.watching.end(WatchEndCause::Withdrawn);
    }

    /// Notes that the watch waits for its seats.
    pub(super) fn waits_for_seats(&self) {
        self.note(WatchPause::Seats);
    }

    /// Notes that the seats did not come back, and the watch ends.
    pub(super) fn loses_seats(&mut self) {
        self.watching.end(WatchEndCause::Cut);
    }

    fn note(&self, pause: WatchPause) {
        if let Some(cursor) = &self.cursor {
            self.watching.note(cursor.position(), self.is_initial(), pause);
        }
    }

    /// True until the initial state was handed out.
    pub(super) fn is_initial(&self) -> bool {
        self.cursor.as_ref().is_some_and(Cursor::is_initial) || self.gzip.as_ref().is_some_and(|gzip| gzip.is_initial())
    }

    /// True once the stream is over and everything was handed out.
    pub(super) const fn is_over(&self) -> bool {
        self.cursor.is_none() && !self.cut
    }

    /// Returns the next lines; `None` once the stream is over. Registers the waker with the cursor and the timer.
    ///
    /// # Errors
    /// [`BodyError::Cut`] behind the last part of an initial state that cannot be completed: the stream must not end
    /// cleanly. No frame follows.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Slices, BodyError>>> {
        if std::mem::take(&mut self.cut) {
            return Poll::Ready(Some(Err(BodyError::Cut)));
        }
        if !self.leaving && self.watching.is_left() && !self.is_initial() {
            self.leave();
        }
        let mut out = Slices::new();
        let rang = self.timer.as_mut().poll(cx).is_ready();
        let turn = if Instant::now() >= self.deadline {
            self.watching.end(if self.expires { WatchEndCause::CredentialsExpired } else { WatchEndCause::Deadline });
            self.over()
        } else if let Some(status) = self.poll_ahead(cx) {
            let is_protobuf = self.cursor.as_ref().is_some_and(Cursor::is_protobuf);
            out.push(encode::error_event(&status, is_protobuf));
            self.watching.end(WatchEndCause::Ahead);
            Turn::Over
        } else {
            self.read(&mut out, cx)
        };
        match turn {
            Turn::Over | Turn::Cut => (self.marks, self.cursor) = (None, None),
            // No event matched in `STEPS_MAX` steps: yield to other tasks.
            Turn::More if out.is_empty() => cx.waker().wake_by_ref(),
            // Bookmarks wait until the cursor has caught up; the timer stays ready until then.
            Turn::Waiting if rang => self.on_timer(&mut out, cx),
            Turn::More | Turn::Waiting => {}
        }
        if let Some(mut gzip) = self.gzip.take() {
            let (compressed, objects) = gzip.take(&out, turn == Turn::Over);
            out = compressed;
            self.watching.sent(objects);
            self.gzip = (!matches!(turn, Turn::Over | Turn::Cut)).then_some(gzip);
        }
        self.note(match (out.is_empty(), turn) {
            (false, _) => WatchPause::Socket,
            (true, Turn::Waiting) => WatchPause::Events,
            (true, Turn::More | Turn::Over | Turn::Cut) => WatchPause::Turn,
        });
        match (out.is_empty(), turn) {
            (true, Turn::Cut) => Poll::Ready(Some(Err(BodyError::Cut))),
            (true, Turn::Over) => Poll::Ready(None),
            (true, Turn::More | Turn::Waiting) => Poll::Pending,
            (false, _) => {
                self.cut = turn == Turn::Cut;
                self.watching.handed_out(out.bytes());
                Poll::Ready(Some(Ok(out)))
            }
        }
    }

    /// Returns the error of a watch whose position the cache did not reach in time.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        let Poll::Ready(error) = self.ahead.as_mut()?.0.as_mut().poll(cx) else { return None };
        self.ahead = None;
        error
    }

    /// Reads up to a batch of events from the cursor.
    fn read(&mut self, out: &mut Slices, cx: &mut Context<'_>) -> Turn {
        let Some(mut cursor) = self.cursor.take() else { return Turn::Over };
        if cursor.tells_time() {
            cursor.set_now(clock::unix_seconds());
        }
        let mut turn = Turn::More;
        let mut bookmarks = self.marks.as_mut().map_or(0, |marks| marks.open(out));
        for _ in 0..STEPS_MAX {
            // Before each step: the one before may have given its objects to another thread, which must wake this task.
            if self.gzip.as_mut().is_some_and(|gzip| gzip.poll_ready(cx).is_pending()) {
                turn = Turn::Waiting;
                break;
            }
            let (before, initial) = (out.bytes(), cursor.is_initial());
            let step = match &mut self.gzip {
                Some(gzip) if gzip.is_initial() => gzip.step(&mut cursor),
                Some(_) | None => cursor.step(BATCH, out, Some(cx)),
            };
            if let Some(object) = cursor.failed() {
                tracing::warn!(object, "watch ended at object not encoded");
                let status = Status::internal("an object could not be encoded");
                out.push(encode::error_event(&status, cursor.is_protobuf()));
                self.watching.end(WatchEndCause::NotEncoded);
                turn = Turn::Over;
                break;
            }
            match step {
                Step::Sent => {
                    if let Some(marks) = &mut self.marks {
                        bookmarks += marks.step(out.bytes() - before, &cursor, out);
                    }
                }
                Step::InitialDone(at) => {
                    if let Some(marks) = self.marks.take() {
                        marks.done();
                    }
                    if std::mem::take(&mut self.end_bookmark) {
                        cursor.push_bookmark(at, true, out);
                        self.bookmark_sent();
                        self.watching.initial_done();
                        bookmarks += 1;
                    }
                }
                Step::Wait => turn = Turn::Waiting,
                Step::EpochEnded => {
                    self.partial |= initial;
                    turn = if cursor.is_closed() {
                        self.watching.closed();
                        self.over()
                    } else {
                        self.end_soon(out, cx)
                    };
                }
                Step::Expired(_) => {
                    let (cause, last) =
                        if initial { (WatchEndCause::Cut, Turn::Cut) } else { (WatchEndCause::Expired, Turn::Over) };
                    self.watching.end(cause);
                    turn = last;
                }
            }
            let has_output = self.gzip.as_ref().is_some_and(|gzip| gzip.has_output());
            if turn != Turn::More || out.reached(BATCH) || has_output {
                break;
            }
        }
        let sent = if cursor.is_protobuf() { changes(out) } else { lines(out).saturating_sub(bookmarks) };
        self.cursor = Some(cursor);
        self.watching.sent(sent);
        turn
    }

    /// Ends the stream: cut if only a part of the initial state was sent, clean otherwise.
    fn over(&mut self) -> Turn {
        // The deadline passed during the initial state: the client must not take the part for the whole.
        let is_part = self.gzip.as_ref().is_some_and(|gzip| gzip.is_initial())
            || self.cursor.as_ref().is_some_and(|cursor| cursor.behind().is_some());
        // Report the cut once.
        if std::mem::replace(&mut self.partial, false) || is_part { Turn::Cut } else { Turn::Over }
    }

    /// Stops sending after a relist of the storage, and moves the deadline to a random time within `ENDS_SPREAD`.
    fn end_soon(&mut self, out: &mut Slices, cx: &mut Context<'_>) -> Turn {
        if !self.ending {
            self.ending = true;
            self.watching.end(WatchEndCause::HistoryEnded);
            self.bookmarks = None;
            self.deadline = self.deadline.min(Instant::now() + ENDS_SPREAD.mul_f64(fastrand::f64()));
            self.on_timer(out, cx);
        }
        Turn::Waiting
    }

    fn on_timer(&mut self, out: &mut Slices, cx: &mut Context<'_>) {
        let now = Instant::now();
        if self.bookmarks.as_ref().is_some_and(|bookmarks| bookmarks.is_due(now))
            && !self.is_initial()
            && let Some(cursor) = &mut self.cursor
            && let Some(at) = cursor.bookmark()
        {
            cursor.push_bookmark(at, false, out);
            self.bookmark_sent();
        }
        let next = self.bookmarks.as_ref().map_or(self.deadline, |bookmarks| bookmarks.next(now));
        self.timer.as_mut().reset(next.min(self.deadline));
        if self.timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    /// Records that a bookmark was sent.
    fn bookmark_sent(&mut self) {
        if let Some(bookmarks) = &mut self.bookmarks {
            bookmarks.tell(Instant::now());
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Not polled to its end: the client left, or was reset because it did not read.
        match &self.cursor {
            Some(cursor) if cursor.is_closed() => self.watching.closed(),
            Some(_) if self.deadline <= Instant::now() => self.watching.end(WatchEndCause::Slow),
            Some(_) | None => {}
        }
    }
}

/// Counts the lines that begin in `slices`. Later slices of a line begin with the object's kind, a comma or digits.
fn lines(slices: &Slices) -> u64 {
    slices.iter().filter(|slice| slice.starts_with(br#"{"type":"#)).count() as u64
}

/// Counts the changes that begin in `slices` of protobuf. Later slices of an event begin with fields of an object.
fn changes(slices: &Slices) -> u64 {
    slices.iter().filter(|slice| protobuf::begins_change(slice)).count() as u64
}

#[cfg(test)]
mod tests;
