//! Reads request bodies into memory, within a shared budget.
//!
//! A body of up to [`BODY_PIECEMEAL_BYTES`] reserves budget for the bytes that have arrived; a longer one reserves its
//! whole length. Small and large bodies have separate budgets, per server and per connection, so that large bodies
//! never delay small ones. A body that gets no budget within [`ROOM_WAIT`] is refused with 429. A small body that has
//! arrived in one piece never waits: its bytes are in memory either way. INVARIANT: a body costs its length in memory,
//! however many pieces it arrives in. INVARIANT: a client that holds back its body cannot block others: while other
//! bodies wait for the same budget, each body must arrive at [`BODY_RATE_MIN`] or more.

use std::{ops::Deref, pin::Pin, time::Duration};

use bytes::{Buf as _, Bytes};
use futures::FutureExt as _;
use http_body::Frame;
use http_body_util::BodyExt as _;
use informer_serving::status::{Status, StatusExt as _};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    budget::{Room, UNIT, no_room},
    limits::{BODY_PIECEMEAL_BYTES, BODY_RATE_AFTER, BODY_RATE_MIN, REQUEST_BODY_BYTES_MAX, ROOM_WAIT},
    status,
};

/// Longest time for a request body to arrive. Equal to kube-apiserver's timeout for a whole request, which clients can
/// only shorten.
pub(crate) const BODY_WAIT: Duration = Duration::from_secs(60);

/// Interval at which a stalled body is checked against [`BODY_RATE_MIN`].
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The budgets that a body draws from: the server's, and its connection's if that can carry several requests at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rooms<'a> {
    pub(super) server: &'a Room,
    pub(super) connection: Option<&'a Room>,
}

impl Rooms<'_> {
    /// Returns true if another body waits for the budget that a body with `arrived` bytes draws from.
    fn have_waiters(self, arrived: usize) -> bool {
        let is_large = arrived > BODY_PIECEMEAL_BYTES;
        let has_waiters = |room: &Room| room.pool(is_large).has_waiters();
        has_waiters(self.server) || self.connection.is_some_and(has_waiters)
    }
}

/// A complete request body. Returns its budget when dropped.
#[derive(Debug)]
pub(super) struct Whole {
    bytes: Bytes,
    _taken: ReservedBudget,
}

impl Whole {
    /// Returns the bytes, which then outlive the budget.
    pub(super) fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

impl Deref for Whole {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Budget reserved by one body.
#[derive(Debug, Default)]
struct ReservedBudget {
    is_large: bool,
    units: usize,
    server: Option<OwnedSemaphorePermit>,
    connection: Option<OwnedSemaphorePermit>,
}

/// Budget that a body still needs.
#[derive(Clone, Copy)]
struct MissingBudget {
    is_large: bool,
    units: u32,
}

/// Reads the whole body of a request.
///
/// # Errors
/// 413 for a body longer than [`REQUEST_BODY_BYTES_MAX`], 429 if no budget is free in time, 504 if it does not arrive
/// in time.
pub(super) async fn read<B>(mut body: Pin<&mut B>, rooms: Rooms<'_>) -> Result<Whole, Status>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut pace = Pace::new();
    let declared = body.size_hint().exact().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let mut taken = ReservedBudget::default();
    let (mut buffer, mut arrived) = (Vec::new(), 0);
    loop {
        let Some(data) = next(body.as_mut(), rooms, &mut pace, arrived).await? else { break };
        arrived += data.len();
        if arrived > REQUEST_BODY_BYTES_MAX {
            return Err(status::body_too_large(REQUEST_BODY_BYTES_MAX));
        }
        // An oversized body is drained but not kept: the client reads the answer only after sending it.
        if declared.is_some_and(|declared| declared > REQUEST_BODY_BYTES_MAX) {
            continue;
        }
        let needed = match declared {
            _ if arrived <= BODY_PIECEMEAL_BYTES => arrived,
            Some(declared) => declared.max(arrived),
            None => REQUEST_BODY_BYTES_MAX,
        };
        let is_whole = declared == Some(arrived);
        if is_whole && arrived <= BODY_PIECEMEAL_BYTES {
            taken.try_grow(needed, rooms);
        } else {
            taken.grow(needed, rooms).await?;
        }
        if buffer.is_empty() && is_whole {
            return Ok(Whole { bytes: data, _taken: taken });
        }
        keep(&mut buffer, &data, if arrived > BODY_PIECEMEAL_BYTES { declared } else { None });
    }
    taken.shrink(buffer.len());
    Ok(Whole { bytes: buffer.into(), _taken: taken })
}

/// Returns the next bytes of a body; `None` at its end.
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
        // Small pieces are usually ready already; polling once avoids a timer for each.
        let frame = match body.frame().now_or_never() {
            Some(frame) => frame,
            None => wait(body.as_mut(), rooms, pace, arrived).await?,
        };
        match frame {
            None => return Ok(None),
            Some(Err(_)) => return Err(Status::bad_request("the body of the request did not arrive")),
            // Skip trailers; no handler uses them.
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

/// Waits for the next frame until the deadline. Fails earlier if the body is slow while others wait for its budget.
async fn wait<B: http_body::Body>(
    mut body: Pin<&mut B>,
    rooms: Rooms<'_>,
    pace: &mut Pace,
    arrived: usize,
) -> Result<Option<Result<Frame<B::Data>, B::Error>>, Status> {
    loop {
        let now = Instant::now();
        let is_slow = pace.is_slow(now, arrived);
        if now >= pace.end || (is_slow && rooms.have_waiters(arrived)) {
            return Err(Status::timeout("request did not complete within the allotted timeout", 0));
        }
        if let Ok(frame) = timeout_at(pace.end.min(now + LOOK_EVERY), body.frame()).await {
            return Ok(frame);
        }
    }
}

/// Arrival rate of a body.
struct Pace {
    /// Deadline for the whole body.
    end: Instant,
    /// Time at which the body was last fast enough, and the bytes that had arrived by then.
    since: Instant,
    then: usize,
}

impl Pace {
    fn new() -> Self {
        let now = Instant::now();
        Self { end: now + BODY_WAIT, since: now, then: 0 }
    }

    /// Returns true once the body arrived at less than [`BODY_RATE_MIN`] for [`BODY_RATE_AFTER`], until it has caught
    /// up.
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

/// Appends a copy of `data`, which may be a slice of a much larger buffer. `whole` is the length of the body, if known.
fn keep(buffer: &mut Vec<u8>, data: &[u8], whole: Option<usize>) {
    let len = buffer.len() + data.len();
    if len > buffer.capacity() {
        let capacity = whole.unwrap_or(2 * len).clamp(len, REQUEST_BODY_BYTES_MAX.max(len));
        buffer.reserve_exact(capacity - buffer.len());
    }
    buffer.extend_from_slice(data);
}

impl ReservedBudget {
    /// Reserves budget for a body of `bytes` in total. A body that becomes large returns its budget for small bodies.
    async fn grow(&mut self, bytes: usize, rooms: Rooms<'_>) -> Result<(), Status> {
        let Some(missing) = self.missing(bytes) else { return Ok(()) };
        let waiting = timeout(ROOM_WAIT, async {
            // The connection's budget comes first: a body that waits for its own connection must not hold the server's
            // budget.
            let connection = match rooms.connection {
                Some(room) => Some(room.pool(missing.is_large).take(missing.units).await),
                None => None,
            };
            (connection, Some(rooms.server.pool(missing.is_large).take(missing.units).await))
        });
        let (connection, server) = waiting.await.map_err(|_| no_room())?;
        self.add(missing, connection, server);
        Ok(())
    }

    /// Like `grow`, without waiting; reserves what is free.
    fn try_grow(&mut self, bytes: usize, rooms: Rooms<'_>) {
        let Some(missing) = self.missing(bytes) else { return };
        let take = |room: &Room| room.pool(missing.is_large).try_take(missing.units);
        if let Some(server) = take(rooms.server) {
            self.add(missing, rooms.connection.and_then(take), Some(server));
        }
    }

    /// Returns the budget missing for a body of `bytes` in total.
    fn missing(&self, bytes: usize) -> Option<MissingBudget> {
        let is_large = bytes > BODY_PIECEMEAL_BYTES;
        let has = if is_large == self.is_large { self.units } else { 0 };
        let more = bytes.div_ceil(UNIT).saturating_sub(has);
        let units = u32::try_from(more).expect("a body has fewer units");
        (units > 0).then_some(MissingBudget { is_large, units })
    }

    fn add(
        &mut self,
        missing: MissingBudget,
        connection: Option<OwnedSemaphorePermit>,
        server: Option<OwnedSemaphorePermit>,
    ) {
        if missing.is_large != self.is_large {
            // Now a large body: drop the permits for small ones.
            *self = Self { is_large: missing.is_large, ..Self::default() };
        }
        merge(&mut self.connection, connection);
        merge(&mut self.server, server);
        self.units += missing.units as usize;
    }

    /// Returns the budget that a body of `bytes` does not need.
    fn shrink(&mut self, bytes: usize) {
        let less = self.units.saturating_sub(bytes.div_ceil(UNIT));
        for permit in [&mut self.connection, &mut self.server].into_iter().flatten() {
            drop(permit.split(less));
        }
        self.units -= less;
    }
}

fn merge(held: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    match (held.as_mut(), more) {
        (Some(held), Some(more)) => held.merge(more),
        (None, more) => *held = more,
        (Some(_), None) => {}
    }
}

#[cfg(test)]
mod tests;
