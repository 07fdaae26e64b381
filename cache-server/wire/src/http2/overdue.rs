//! Resets HTTP/2 streams whose client does not read: watches once they are past their term, other responses after
//! [`HTTP2_STREAM_STUCK`]. Ends the connection of a client that does not read, if the caller already has its part of
//! the unread bytes of all connections ([`HTTP2_UNREAD_BYTES_MAX`](crate::limits::HTTP2_UNREAD_BYTES_MAX)).
//!
//! hyper polls a body only after the previous frame was accepted, so a body cannot end itself
//! while its stream's window is closed.
//!
//! hyper hands each stream to an executor as one future, which polls the service and later the body. [`run`] polls
//! that future beside a clock that service and body set from within. Dropping the future resets this stream only; bytes
//! that h2 already holds stay until the client takes them or leaves.

use std::{
    cell::{Cell, OnceCell, RefCell},
    convert::Infallible,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{FutureExt as _, future::try_join3};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    limits::{HTTP2_STREAM_BYTES, HTTP2_STREAM_STUCK, HTTP2_STREAM_STUCK_SHORT},
    shares::{StreamOwner, UnreadBytes, UnreadStream, UnreadStreams},
    term::WatchTerm,
};

tokio::task_local! {
    static CLOCK: StreamClock;
}

/// Times of the stream on this task.
#[derive(Default)]
struct StreamClock {
    /// Term of a watch. Empty for other requests.
    term: OnceCell<WatchTerm>,
    /// Owner of the response; unset before it, and for requests that are not answered by `http`.
    owner: OnceCell<StreamOwner>,
    /// Time since which the client has not accepted the next bytes, and their number; `None` while it waits for the
    /// server.
    given: Cell<Option<(Instant, usize)>>,
    /// These bytes in the owner's part, once the client did not accept them at once.
    unread: RefCell<Option<UnreadBytes>>,
    /// This stream among the unread ones; `None` while it waits for the server, and while its last page counts it.
    stream: RefCell<Option<UnreadStream>>,
    /// True once the last page counts this stream. hyper holds that page while the client's window is shut, then h2.
    is_last: Cell<bool>,
    /// The unread streams of the connection; unset for requests that were refused for them.
    streams: OnceCell<UnreadStreams>,
}

impl StreamClock {
    /// Takes the waiting bytes from the owner's part. Returns when they have waited for too long, and what ends then;
    /// `None` if none wait, or if the term of a watch decides.
    fn limit(&self) -> Option<(Instant, StreamCut)> {
        let (since, bytes) = self.given.get()?;
        let mut unread = self.unread.borrow_mut();
        if unread.is_none()
            && let Some(owner) = self.owner.get()
        {
            if self.stream.borrow().is_none() && !self.is_last.get() {
                self.stream.replace(self.streams.get().map(UnreadStreams::add));
            }
            *unread = owner.hold_unread(HTTP2_STREAM_BYTES + bytes);
            if unread.is_none() && owner.ends_connection() {
                // h2 has only the head of the response.
                return Some((since, StreamCut::Stream));
            }
            if unread.is_none() {
                return Some((since + HTTP2_STREAM_STUCK_SHORT, StreamCut::Connection));
            }
        }
        let ends_by_itself = self.term.get().is_some_and(WatchTerm::is_limited);
        (!ends_by_itself).then(|| (since + HTTP2_STREAM_STUCK, StreamCut::Stream))
    }
}

/// Sets the term of the watch on this task's stream. Has no effect outside of [`run`].
pub fn set_term(term: WatchTerm) {
    let _ = CLOCK.try_with(|clock| clock.term.set(term));
}

/// Sets the owner of the response on this task's stream. Has no effect outside of [`run`].
pub fn set_owner(owner: StreamOwner) {
    let _ = CLOCK.try_with(|clock| clock.owner.set(owner));
}

/// Notes that hyper polls the body of this task's stream: the client has accepted all bytes before.
pub fn note_polled() {
    let _ = CLOCK.try_with(|clock| {
        clock.given.set(None);
        clock.unread.take();
        clock.stream.take();
    });
}

/// Sets the unread stream of this task's request. Has no effect outside of [`run`].
pub fn set_stream(stream: UnreadStream) {
    let _ = CLOCK.try_with(|clock| {
        let _ = clock.streams.set(stream.streams().clone());
        clock.stream.replace(Some(stream));
    });
}

/// Counts this task's stream as unread for the life of its last page: h2 may hold that after the task has ended.
pub fn last_stream() -> Option<UnreadStream> {
    let counted = CLOCK.try_with(|clock| {
        clock.is_last.set(true);
        clock.streams.get().map(UnreadStreams::add)
    });
    counted.ok().flatten()
}

/// Notes that the head and `bytes` of the response on this task's stream wait for the client.
pub fn note_given(bytes: usize) {
    let _ = CLOCK.try_with(|clock| clock.given.set(Some((Instant::now(), bytes))));
}

/// True while the unread responses of all connections are many.
pub fn is_short() -> bool {
    CLOCK.try_with(|clock| clock.owner.get().is_some_and(StreamOwner::is_short)).unwrap_or_default()
}

/// Why a stream ended before its response was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamCut {
    /// The stream alone: its watch is over, its client has not read for [`HTTP2_STREAM_STUCK`], or its caller was
    /// refused.
    Stream,
    /// Its connection: the caller has no part left.
    Connection,
}

/// Runs the future of a stream until it ends, or has to.
///
/// An `async fn` would have room for `stream` twice: as its argument, and while it waits.
pub fn run<F: Future>(stream: F) -> impl Future<Output = Option<StreamCut>> + use<F> {
    // The first error ends all three, which are polled in this order.
    let stream = stream.map(|_| Err::<Infallible, _>(None));
    let over = over().map(|()| Err::<Infallible, _>(Some(StreamCut::Stream)));
    let unread = unread().map(|cut| Err::<Infallible, _>(Some(cut)));
    CLOCK.scope(StreamClock::default(), try_join3(stream, over, unread)).map(|ended| ended.err().flatten())
}

/// Resolves at the end of this task's term, once one is set. No timer exists before that.
async fn over() {
    // The service sets the term while this task is polled, so checking at each poll needs no waker.
    let term =
        poll_fn(|_| CLOCK.with(|clock| clock.term.get().map_or(Poll::Pending, |term| Poll::Ready(term.clone()))));
    // Boxed, because most streams are no watches.
    Box::pin(term.await.over()).await;
}

/// Resolves once the client has left the next bytes unread for too long. A timer exists only for clients that do not
/// read at once.
async fn unread() -> StreamCut {
    let mut timer = None;
    poll_fn(|cx| poll_unread(&mut timer, cx)).await
}

fn poll_unread(timer: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> Poll<StreamCut> {
    loop {
        let Some((at, cut)) = CLOCK.with(StreamClock::limit) else {
            timer.take_if(|timer| timer.is_elapsed());
            return Poll::Pending;
        };
        if at <= Instant::now() {
            return Poll::Ready(cut);
        }
        let sleep = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if at < sleep.deadline() {
            sleep.as_mut().reset(at);
        }
        // Moved to a later time only when it fires, because the time moves with each frame.
        ready!(sleep.as_mut().poll(cx));
        sleep.as_mut().reset(at.max(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use access_rules::user::User;
    use tokio::time::Duration;

    use super::*;
    use crate::{
        limits::HTTP2_UNREAD_BYTES_MAX,
        shares::{StreamCaller, UserShares},
    };

    /// Runs a stream whose client reads nothing. Returns its end, and the time until then.
    async fn unread(owner: &StreamOwner) -> (Option<StreamCut>, Duration) {
        let begun = Instant::now();
        let stream = async {
            set_owner(owner.clone());
            note_given(1);
            pending::<()>().await;
        };
        (run(stream).await, begun.elapsed())
    }

    /// Goal: while unread bytes are short, a user with its part is cut soon, and others have their time. Method: one user that
    /// holds half of all bytes, another one, and a caller that was refused.
    #[tokio::test(start_paused = true)]
    async fn unread_streams_of_a_user_that_has_its_part_end_soon() {
        let shares = Arc::<UserShares>::default();
        let limited = |name| {
            let share = shares.of(&User::authenticated(name, [])).expect("a limited user");
            StreamOwner::new(Arc::clone(&shares), StreamCaller::Limited(share))
        };
        let (greedy, modest) = (limited("greedy"), limited("modest"));
        let refused = StreamOwner::new(Arc::clone(&shares), StreamCaller::Refused);
        let _held = greedy.hold_unread(HTTP2_UNREAD_BYTES_MAX / 2).expect("half of all");
        for (owner, cut, after) in [
            (&greedy, StreamCut::Connection, HTTP2_STREAM_STUCK_SHORT),
            (&modest, StreamCut::Stream, HTTP2_STREAM_STUCK),
            (&refused, StreamCut::Stream, Duration::ZERO),
        ] {
            let (found, took) = unread(owner).await;
            assert_eq!(found, Some(cut));
            assert!(after <= took && took <= after + Duration::from_millis(2), "{cut:?} after {took:?}");
        }
    }
}
