//! Answers WATCH: where it starts, what it is told, and how it ends.
//!
//! INVARIANT: an error before the stream is accepted is an HTTP status; what depends on the history (too old, too new)
//! is one ERROR event in a stream that then ends. An initial state that cannot be completed is cut, also when the watch's
//! own time is over, so that nobody takes it for the whole: its objects come in the order of their keys, so the last one
//! is no position to go on from. Everything else that ends a stream ends it cleanly and without a word: the client
//! resumes. INVARIANT: a watch costs its cursor and one timer; nothing is queued for it.
//!
//! Differences from kube-apiserver, on purpose: bookmarks come every minute even when nothing moved, as signs of life,
//! and more often when the window is short, so that their positions can always be resumed from. A watch that begins ahead
//! of the cache, and still is after [`FRESH_WAIT`](crate::limits::FRESH_WAIT), gets an error, see [`Ahead`].
//!
//! Source: apiserver `endpoints/handlers/watch.go`, `storage/cacher/{cacher,cache_watcher}.go`; KEP-3157.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderMap, StatusCode};
use informer_core::wire::{options::ListOptions, reads::WatchStart, status::Status, watch_event};
use tokio::time::{Instant, Sleep, sleep_until};
use watch_cache::{Cursor, Reader, Slices, Start, Step};

use super::{
    Response,
    body::{self, BATCH, Body, BodyError},
    list::unix_now,
    negotiate::{Answer, Of},
    query,
    resuming::{self, Asked, Marks},
    route::Target,
};
use crate::{app::App, cacher::Unfresh, metrics::Watching, registry::ResourceType};

/// How long a watch lasts that does not say: at random, so that those that came together do not return together.
const UNASKED_SECONDS: std::ops::Range<u64> = 1_800..3_600;

/// Longest time a watch may ask for. Longer ones end here; clients resume.
const SECONDS_MAX: u64 = 366 * 24 * 3_600;

/// How long before its end a watch is told where it is.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// Least pause between two bookmarks because of a short window.
const SHORT_WINDOW_BOOKMARKS: Duration = Duration::from_secs(5);

/// How often a watch that sleeps looks whether the window became shorter.
const WINDOW_LOOKS: Duration = Duration::from_secs(20);

/// How soon a bookmark is tried again that could not be told.
const RETRY: Duration = Duration::from_secs(1);

/// How long the ends of watches are spread when the storage was listed again: their clients return over that time.
const ENDS_SPREAD: Duration = Duration::from_secs(10);

/// Steps of the cursor in one turn, whether they find something or not. Bounds the time it holds a worker.
const STEPS_MAX: usize = 4;

/// `GET …/{plural}?watch=true`.
///
/// # Errors
/// The Status to answer with instead of a stream.
pub(super) async fn watch(
    app: &App,
    target: &Target,
    options: &ListOptions,
    answer: &Answer,
    headers: &HeaderMap,
) -> Result<Response, Status> {
    let arrived = Instant::now();
    let deadline = arrived + lifetime(options.timeout_seconds);
    let filter = query::filter(options, target)?;
    if !target.ty.verbs.contains(&"watch") {
        return Err(Status::method_not_supported(&target.ty.group, &target.ty.plural, "watch"));
    }
    let from = WatchStart::of(options)?;
    let form = answer.form(&target.ty, Of::Events)?;
    answer.check_stream()?;
    let asked = Asked::read(headers, target, options, &form);
    let found = match asked.as_ref().and_then(|asked| asked.rest(app, from)) {
        Some(found) => Ok(found),
        None => start(from, app, &target.ty).await,
    };
    let (reader, start) = match found {
        Ok(found) => found,
        Err(Unfresh::NotReady(error)) => return Err(error.into()),
        Err(error @ (Unfresh::TooLarge { .. } | Unfresh::Storage(_))) => return Ok(refused(&error.into())),
    };
    let (marks, answered) = asked.and_then(|asked| asked.marks(app, &reader, &start)).unzip();
    let cursor = match reader.cursor(start, filter) {
        Ok(cursor) => cursor.shown_as(form),
        Err(expired) => return Ok(refused(&Status::expired_watch(expired.asked, expired.oldest))),
    };
    let ahead = Ahead::of(app, &target.ty, &cursor, &reader);
    let bookmarks = options.allow_bookmarks.then(|| Bookmarks {
        reader,
        every: app.config.bookmark_interval,
        told: Instant::now(),
        before_the_end: deadline.checked_sub(LAST_BOOKMARK).filter(|&at| at > arrived),
    });
    let end_bookmark = options.allow_bookmarks && options.send_initial_events == Some(true);
    let watching = app.metrics.watch(target.ty.id());
    let mut watch = Watch::new(cursor, bookmarks, marks.map(Box::new), end_bookmark, deadline, watching);
    watch.ahead = ahead;
    let mut response = stream(Body::watch(watch));
    if let Some(answered) = answered {
        app.metrics.marked(target.ty.id(), answered);
        resuming::say(answered, &mut response);
    }
    Ok(response)
}

/// An accepted stream that only says why it is over.
fn refused(status: &Status) -> Response {
    let mut slices = Slices::new();
    slices.push(watch_event::error(status).into());
    stream(Body::last(slices))
}

fn stream(body: Body) -> Response {
    body::json(StatusCode::OK, body)
}

/// How long a watch lasts, from the arrival of its request. Less than nothing is nothing.
fn lifetime(timeout_seconds: Option<i64>) -> Duration {
    match timeout_seconds {
        None | Some(0) => Duration::from_secs(fastrand::u64(UNASKED_SECONDS)),
        Some(seconds) => Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(SECONDS_MAX)),
    }
}

/// Where a watch reads, and from where on.
async fn start(from: WatchStart, app: &App, ty: &Arc<ResourceType>) -> Result<(Reader, Start), Unfresh> {
    let reader = match from {
        WatchStart::State(None) | WatchStart::Now(true) => app.caches.fresh(ty).await?,
        WatchStart::State(Some(0)) | WatchStart::Now(false) | WatchStart::After(_) => app.caches.reader(ty).await?,
        WatchStart::State(Some(at)) => app.caches.at_least(ty, at).await?,
    };
    let start = match from {
        WatchStart::State(_) => Start::Initial(reader.snapshot()),
        WatchStart::Now(_) => Start::After(reader.applied()),
        WatchStart::After(after) => Start::After(after),
    };
    Ok((reader, start))
}

/// A watch that begins ahead of the cache, and the error that it gets if it stays ahead. Memory: none for other watches.
///
/// A position that the storage itself has not reached is of another history: of a server whose clock was ahead, or whose
/// store was restored. Silence would hide what happens in this history up to there. The error is 410, as for every position
/// that nothing can be resumed from, because clients relist on 410 and many repeat the watch on anything else. Where the
/// storage does not say where it is, the cache may just be late: 504.
struct Ahead(Pin<Box<dyn Future<Output = Option<Status>> + Send>>);

impl Ahead {
    fn of(app: &App, ty: &Arc<ResourceType>, cursor: &Cursor, reader: &Reader) -> Option<Self> {
        let position = cursor.position();
        if position <= reader.applied() {
            return None;
        }
        let (caches, ty) = (Arc::clone(&app.caches), Arc::clone(ty));
        Some(Self(Box::pin(async move {
            let error = caches.at_least(&ty, position).await.err()?;
            match error {
                Unfresh::TooLarge { asked, .. } => match caches.committed(&ty).await {
                    Some(current) if current < asked => Some(Status::unknown_position(asked, current)),
                    Some(_) | None => Some(error.into()),
                },
                // A cache that ended meanwhile ends the cursor as well.
                Unfresh::NotReady(_) | Unfresh::Storage(_) => None,
            }
        })))
    }
}

/// When a watch is told where it is.
struct Bookmarks {
    reader: Reader,
    /// Longest pause.
    every: Duration,
    /// When it was told last, or started.
    told: Instant,
    /// Once more, shortly before the end; `None` when that was done, or the watch is too short for it.
    before_the_end: Option<Instant>,
}

impl Bookmarks {
    /// The pause as of now: at least three bookmarks while a position can be resumed from.
    fn pause(&self) -> Duration {
        let window = self.reader.covers().map(|covered| (covered / 3).max(SHORT_WINDOW_BOOKMARKS));
        window.map_or(self.every, |pause| pause.min(self.every))
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.told + self.pause() || self.before_the_end.is_some_and(|at| now >= at)
    }

    fn tell(&mut self, now: Instant) {
        self.told = now;
        self.before_the_end = self.before_the_end.filter(|&at| at > now);
    }

    /// When to look again.
    fn next(&self, now: Instant) -> Instant {
        if self.is_due(now) {
            // It could not be told: something was unread.
            return now + RETRY;
        }
        let regular = (self.told + self.pause()).min(now + WINDOW_LOOKS);
        self.before_the_end.map_or(regular, |at| at.min(regular))
    }
}

/// The body of a watch.
pub(super) struct Watch {
    /// While the initial state is sent, for a client that asked for them. Goes before the cursor, so that the position is
    /// held without a gap.
    marks: Option<Box<Marks>>,
    /// `None` once the stream is over.
    cursor: Option<Cursor>,
    bookmarks: Option<Bookmarks>,
    /// `None` once the cache has reached the position of the cursor.
    ahead: Option<Ahead>,
    /// Whether the end of the initial state is still to be told.
    end_bookmark: bool,
    deadline: Instant,
    /// Whether the history is over and only the deadline is waited for.
    ending: bool,
    /// Whether it was over before the initial state was sent.
    partial: bool,
    /// Whether it is still to be said that the initial state was cut.
    cut: bool,
    /// The earlier of the next look at bookmarks and the deadline.
    timer: Pin<Box<Sleep>>,
    watching: Watching,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// There may be more right now.
    More,
    /// The cursor will wake us.
    Waiting,
    /// The stream is over.
    Over,
    /// The initial state will not be complete.
    Cut,
}

impl Watch {
    fn new(
        cursor: Cursor,
        bookmarks: Option<Bookmarks>,
        marks: Option<Box<Marks>>,
        end_bookmark: bool,
        deadline: Instant,
        watching: Watching,
    ) -> Self {
        let first = bookmarks.as_ref().map_or(deadline, |bookmarks| bookmarks.next(bookmarks.told));
        let timer = Box::pin(sleep_until(first.min(deadline)));
        let (cursor, ahead, ending, partial, cut) = (Some(cursor), None, false, false, false);
        Self { marks, cursor, bookmarks, ahead, end_bookmark, deadline, ending, partial, cut, timer, watching }
    }

    /// When it ends by itself.
    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether everything was said.
    pub(super) const fn is_over(&self) -> bool {
        self.cursor.is_none() && !self.cut
    }

    /// The next lines; `None` once the stream is over. Registers the waker with the cursor and the timer.
    ///
    /// # Errors
    /// [`BodyError::Cut`] behind the last of what is sent of an initial state that will not be complete: the stream must
    /// not end cleanly. Nothing follows.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Slices, BodyError>>> {
        if std::mem::take(&mut self.cut) {
            return Poll::Ready(Some(Err(BodyError::Cut)));
        }
        let mut out = Slices::new();
        let rang = self.timer.as_mut().poll(cx).is_ready();
        let turn = if Instant::now() >= self.deadline {
            self.over()
        } else if let Some(status) = self.poll_ahead(cx) {
            out.push(watch_event::error(&status).into());
            Turn::Over
        } else {
            self.read(&mut out, cx)
        };
        match turn {
            Turn::Over | Turn::Cut => (self.marks, self.cursor) = (None, None),
            // Others first: nothing was found in a while.
            Turn::More if out.is_empty() => cx.waker().wake_by_ref(),
            // Not before the cursor waits: until then a bookmark has nothing to say, and the timer stays rung.
            Turn::Waiting if rang => self.on_timer(&mut out, cx),
            Turn::More | Turn::Waiting => {}
        }
        match (out.is_empty(), turn) {
            (true, Turn::Cut) => Poll::Ready(Some(Err(BodyError::Cut))),
            (true, Turn::Over) => Poll::Ready(None),
            (true, Turn::More | Turn::Waiting) => Poll::Pending,
            (false, _) => {
                self.cut = turn == Turn::Cut;
                Poll::Ready(Some(Ok(out)))
            }
        }
    }

    /// The error of a watch whose position the cache did not reach in time.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        let Poll::Ready(error) = self.ahead.as_mut()?.0.as_mut().poll(cx) else { return None };
        self.ahead = None;
        error
    }

    /// Takes what the cursor has, up to a batch.
    fn read(&mut self, out: &mut Slices, cx: &mut Context<'_>) -> Turn {
        let Some(mut cursor) = self.cursor.take() else { return Turn::Over };
        if cursor.tells_time() {
            cursor.set_now(unix_now());
        }
        let mut turn = Turn::More;
        let mut bookmarks = self.marks.as_mut().map_or(0, |marks| marks.open(out));
        for _ in 0..STEPS_MAX {
            let (before, initial) = (out.bytes(), cursor.is_initial());
            match cursor.step(BATCH, out, Some(cx)) {
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
                        self.told();
                        bookmarks += 1;
                    }
                }
                Step::Wait => turn = Turn::Waiting,
                Step::EpochEnded => {
                    self.partial |= initial;
                    turn = if cursor.is_closed() { self.over() } else { self.end_soon(out, cx) };
                }
                Step::Expired(_) => turn = if initial { Turn::Cut } else { Turn::Over },
            }
            if turn != Turn::More || out.reached(BATCH) {
                break;
            }
        }
        self.cursor = Some(cursor);
        self.watching.sent(lines(out).saturating_sub(bookmarks));
        turn
    }

    /// The end, of a part of a state or of a stream.
    fn over(&mut self) -> Turn {
        // Nobody takes the part that was sent until the deadline for the whole state either.
        let is_part = self.cursor.as_ref().is_some_and(|cursor| cursor.behind().is_some());
        // Said once.
        if std::mem::replace(&mut self.partial, false) || is_part { Turn::Cut } else { Turn::Over }
    }

    /// The storage was listed again. Nothing more is sent, and the stream ends at a time of its own.
    fn end_soon(&mut self, out: &mut Slices, cx: &mut Context<'_>) -> Turn {
        if !self.ending {
            self.ending = true;
            self.bookmarks = None;
            self.deadline = self.deadline.min(Instant::now() + ENDS_SPREAD.mul_f64(fastrand::f64()));
            self.on_timer(out, cx);
        }
        Turn::Waiting
    }

    fn on_timer(&mut self, out: &mut Slices, cx: &mut Context<'_>) {
        let now = Instant::now();
        if self.bookmarks.as_ref().is_some_and(|bookmarks| bookmarks.is_due(now))
            && let Some(cursor) = &mut self.cursor
            && let Some(at) = cursor.bookmark()
        {
            cursor.push_bookmark(at, false, out);
            self.told();
        }
        let next = self.bookmarks.as_ref().map_or(self.deadline, |bookmarks| bookmarks.next(now));
        self.timer.as_mut().reset(next.min(self.deadline));
        if self.timer.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
    }

    /// A bookmark was written.
    fn told(&mut self) {
        if let Some(bookmarks) = &mut self.bookmarks {
            bookmarks.tell(Instant::now());
        }
    }
}

/// Lines that begin in `slices`. The rest of a line begins with the object's kind, a comma or digits.
fn lines(slices: &Slices) -> u64 {
    slices.iter().filter(|slice| slice.starts_with(br#"{"type":"#)).count() as u64
}

#[cfg(test)]
mod tests;
