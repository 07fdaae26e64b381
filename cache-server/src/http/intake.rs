//! Reads request bodies into memory, within a budget that all of them share.
//!
//! A body takes room for what has arrived, and for all of it once it is longer than [`BODY_PIECEMEAL_BYTES`]. Small and
//! large bodies have separate budgets, of the server and of each connection, so that large bodies never keep small ones
//! waiting. Without room a body waits for [`ROOM_WAIT`] and is then answered 429. A small body that is complete already
//! does not wait: its bytes are in memory whether it has room or not. INVARIANT: bodies cost what they have bytes, however
//! many pieces they come in. INVARIANT: a client that holds its bodies back keeps nobody out: while others wait for the
//! same budget, a body must come at [`BODY_RATE_MIN`].

use std::{
    ops::Deref,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use futures::FutureExt as _;
use http_body::Frame;
use http_body_util::BodyExt as _;
use informer_core::wire::status::Status;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::status;
use crate::limits::{
    BODIES_BYTES_MAX, BODY_PIECEMEAL_BYTES, BODY_RATE_AFTER, BODY_RATE_MIN, CONNECTION_BODIES_BYTES_MAX,
    CONNECTION_SMALL_BODIES_BYTES_MAX, REQUEST_BODY_BYTES_MAX, ROOM_WAIT, SMALL_BODIES_BYTES_MAX,
};

/// How long the body of a request may take to arrive; kube-apiserver's time for a whole request, which clients can only
/// make shorter.
pub(super) const BODY_WAIT: Duration = Duration::from_secs(60);

/// Pause between two looks at a body that does not come, while others may wait for its room.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Bytes of one permit.
const UNIT: usize = 1 << 10;

/// Room for bodies: of all requests, or of one connection. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// For bodies up to [`BODY_PIECEMEAL_BYTES`], and for the beginnings of longer ones.
    small: Pool,
    large: Pool,
}

#[derive(Clone, Debug)]
struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    units: Arc<Semaphore>,
    /// Bodies that wait for room.
    waiting: AtomicUsize,
}

/// The room that a body needs: the server's, and its connection's where that may have several at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rooms<'a> {
    pub(super) server: &'a Room,
    pub(super) connection: Option<&'a Room>,
}

impl Room {
    /// For the bodies of all requests.
    pub(crate) fn of_server() -> Self {
        Self { small: Pool::new(SMALL_BODIES_BYTES_MAX), large: Pool::new(BODIES_BYTES_MAX) }
    }

    /// For the bodies of one connection.
    pub(crate) fn of_connection() -> Self {
        Self { small: Pool::new(CONNECTION_SMALL_BODIES_BYTES_MAX), large: Pool::new(CONNECTION_BODIES_BYTES_MAX) }
    }

    const fn pool(&self, is_large: bool) -> &Pool {
        if is_large { &self.large } else { &self.small }
    }
}

impl Pool {
    fn new(bytes: usize) -> Self {
        let units = Arc::new(Semaphore::new(bytes / UNIT));
        Self(Arc::new(Shared { units, waiting: AtomicUsize::new(0) }))
    }

    /// Bytes that are free now.
    #[cfg(test)]
    fn free(&self) -> usize {
        self.0.units.available_permits() * UNIT
    }

    fn try_take(&self, units: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.units).try_acquire_many_owned(units).ok()
    }

    async fn take(&self, units: u32) -> OwnedSemaphorePermit {
        if let Some(permit) = self.try_take(units) {
            return permit;
        }
        let _waiting = Waiting::new(&self.0.waiting);
        Arc::clone(&self.0.units).acquire_many_owned(units).await.expect("room is never closed")
    }
}

impl Rooms<'_> {
    /// True while another body waits for the room that a body of so many bytes has.
    fn are_wanted(self, arrived: usize) -> bool {
        let is_large = arrived > BODY_PIECEMEAL_BYTES;
        let is_wanted = |room: &Room| room.pool(is_large).0.waiting.load(Ordering::Relaxed) > 0;
        is_wanted(self.server) || self.connection.is_some_and(is_wanted)
    }
}

/// A whole body. Gives its room back when it is dropped.
#[derive(Debug)]
pub(super) struct Whole {
    bytes: Bytes,
    _taken: Taken,
}

impl Deref for Whole {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Room that one body has.
#[derive(Debug, Default)]
struct Taken {
    is_large: bool,
    units: usize,
    server: Option<OwnedSemaphorePermit>,
    connection: Option<OwnedSemaphorePermit>,
}

/// Room that a body lacks.
#[derive(Clone, Copy)]
struct Wanted {
    is_large: bool,
    units: u32,
}

/// Reads the whole body of a request.
///
/// # Errors
/// 413 for a longer one than [`REQUEST_BODY_BYTES_MAX`], 429 without room, 504 for one that does not arrive in time.
pub(super) async fn read<B>(mut body: Pin<&mut B>, rooms: Rooms<'_>) -> Result<Whole, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut pace = Pace::new();
    let declared = body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let mut taken = Taken::default();
    let (mut kept, mut arrived) = (Vec::new(), 0);
    loop {
        let Some(data) = next(body.as_mut(), rooms, &mut pace, arrived).await? else { break };
        arrived += data.len();
        if arrived > REQUEST_BODY_BYTES_MAX {
            return Err(status::body_too_large(REQUEST_BODY_BYTES_MAX));
        }
        // What will be refused is read, so that its client reads the answer, but not kept.
        if declared.is_some_and(|declared| declared > REQUEST_BODY_BYTES_MAX) {
            continue;
        }
        let wanted = match declared {
            _ if arrived <= BODY_PIECEMEAL_BYTES => arrived,
            Some(declared) => declared.max(arrived),
            None => REQUEST_BODY_BYTES_MAX,
        };
        let is_whole = declared == Some(arrived);
        if is_whole && arrived <= BODY_PIECEMEAL_BYTES {
            taken.try_grow(wanted, rooms);
        } else {
            taken.grow(wanted, rooms).await?;
        }
        if kept.is_empty() && is_whole {
            return Ok(Whole { bytes: data, _taken: taken });
        }
        keep(&mut kept, &data, if arrived > BODY_PIECEMEAL_BYTES { declared } else { None });
    }
    taken.shrink(kept.len());
    Ok(Whole { bytes: kept.into(), _taken: taken })
}

/// The next bytes of a body; `None` at its end.
async fn next<B>(
    mut body: Pin<&mut B>,
    rooms: Rooms<'_>,
    pace: &mut Pace,
    arrived: usize,
) -> Result<Option<Bytes>, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    loop {
        // Many small pieces lie ready mostly, and need no timer.
        let frame = match body.frame().now_or_never() {
            Some(frame) => frame,
            None => wait(body.as_mut(), rooms, pace, arrived).await?,
        };
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(Status::bad_request("the body of the request did not arrive")),
            // Trailers say nothing that is asked for.
            Some(Ok(frame)) => {
                if let Ok(mut data) = frame.into_data()
                    && data.has_remaining()
                {
                    return Ok(Some(data.copy_to_bytes(data.remaining())));
                }
            }
        }
    }
}

/// Waits for the next frame, as long as its body has time.
async fn wait<B: http_body::Body>(
    mut body: Pin<&mut B>,
    rooms: Rooms<'_>,
    pace: &mut Pace,
    arrived: usize,
) -> Result<Option<Result<Frame<B::Data>, B::Error>>, Status> {
    loop {
        let now = Instant::now();
        let is_slow = pace.is_slow(now, arrived);
        if now >= pace.end || (is_slow && rooms.are_wanted(arrived)) {
            return Err(Status::timeout("request did not complete within the allotted timeout", 0));
        }
        if let Ok(frame) = timeout_at(pace.end.min(now + LOOK_EVERY), body.frame()).await {
            return Ok(frame);
        }
    }
}

/// How fast a body comes.
struct Pace {
    /// When it must have come.
    end: Instant,
    /// When it last was fast enough, and the bytes that had come by then.
    since: Instant,
    then: usize,
}

impl Pace {
    fn new() -> Self {
        let now = Instant::now();
        Self { end: now + BODY_WAIT, since: now, then: 0 }
    }

    /// True once it came at less than [`BODY_RATE_MIN`] for [`BODY_RATE_AFTER`], until it has caught up.
    fn is_slow(&mut self, now: Instant, arrived: usize) -> bool {
        let took = now - self.since;
        if took < BODY_RATE_AFTER {
            return false;
        }
        let due = took.as_millis() * BODY_RATE_MIN as u128 / 1_000;
        let is_slow = ((arrived - self.then) as u128) < due;
        if !is_slow {
            (self.since, self.then) = (now, arrived);
        }
        is_slow
    }
}

/// Appends `data`, which may be shared with a much larger buffer. `whole` is the length of the body, where it is known.
fn keep(kept: &mut Vec<u8>, data: &[u8], whole: Option<usize>) {
    let len = kept.len() + data.len();
    if len > kept.capacity() {
        let capacity = whole.unwrap_or(2 * len).clamp(len, REQUEST_BODY_BYTES_MAX.max(len));
        kept.reserve_exact(capacity - kept.len());
    }
    kept.extend_from_slice(data);
}

impl Taken {
    /// Takes room for a body of `bytes` in all, if it has less. What becomes a large body gives back its small one's room.
    async fn grow(&mut self, bytes: usize, rooms: Rooms<'_>) -> Result<(), Status> {
        let Some(wanted) = self.wants(bytes) else { return Ok(()) };
        let waiting = timeout(ROOM_WAIT, async {
            // The connection's first: a body that waits for its own connection keeps nothing of the others'.
            let connection = match rooms.connection {
                Some(room) => Some(room.pool(wanted.is_large).take(wanted.units).await),
                None => None,
            };
            (connection, Some(rooms.server.pool(wanted.is_large).take(wanted.units).await))
        });
        let (connection, server) = waiting.await.map_err(|_| status::no_room())?;
        self.add(wanted, connection, server);
        Ok(())
    }

    /// The same without waiting, as far as there is room.
    fn try_grow(&mut self, bytes: usize, rooms: Rooms<'_>) {
        let Some(wanted) = self.wants(bytes) else { return };
        let take = |room: &Room| room.pool(wanted.is_large).try_take(wanted.units);
        if let Some(server) = take(rooms.server) {
            self.add(wanted, rooms.connection.and_then(take), Some(server));
        }
    }

    /// The room that is lacking for a body of `bytes` in all.
    fn wants(&self, bytes: usize) -> Option<Wanted> {
        let is_large = bytes > BODY_PIECEMEAL_BYTES;
        let has = if is_large == self.is_large { self.units } else { 0 };
        let more = bytes.div_ceil(UNIT).saturating_sub(has);
        let units = u32::try_from(more).expect("a body has fewer units");
        (units > 0).then_some(Wanted { is_large, units })
    }

    fn add(&mut self, wanted: Wanted, connection: Option<OwnedSemaphorePermit>, server: Option<OwnedSemaphorePermit>) {
        if wanted.is_large != self.is_large {
            *self = Self { is_large: wanted.is_large, ..Self::default() };
        }
        merge(&mut self.connection, connection);
        merge(&mut self.server, server);
        self.units += wanted.units as usize;
    }

    /// Gives back what a body of `bytes` does not need.
    fn shrink(&mut self, bytes: usize) {
        let less = self.units.saturating_sub(bytes.div_ceil(UNIT));
        for permit in [&mut self.connection, &mut self.server].into_iter().flatten() {
            drop(permit.split(less));
        }
        self.units -= less;
    }
}

fn merge(kept: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    match (kept.as_mut(), more) {
        (Some(kept), Some(more)) => kept.merge(more),
        (None, more) => *kept = more,
        (Some(_), None) => {}
    }
}

/// Counts a body that waits, for as long as it does.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
