//! Reads request bodies into memory, within a shared budget.
//!
//! A body of up to [`BODY_PIECEMEAL_BYTES`] reserves budget for the bytes that have arrived; a longer one reserves its
//! whole length. Small and large bodies have separate budgets, per server and per connection, so that large bodies
//! never delay small ones. A body that gets no budget in time is refused with 429. A small body that has arrived in one
//! piece never waits: its bytes are in memory either way. INVARIANT: a body costs its length in memory,
//! however many pieces it arrives in. INVARIANT: a client that holds back its body cannot block others: while other
//! bodies wait for the same budget, each body must arrive at [`BODY_RATE_MIN`] or more.

use std::{pin::Pin, time::Duration};

use bytes::{Buf as _, Bytes};
use futures::FutureExt as _;
use http_body::Frame;
use http_body_util::BodyExt as _;
use informer_serving::status::{Status, StatusExt as _};
use tokio::time::{Instant, timeout_at};

use crate::{
    budget::{ReservedBudget, Rooms},
    limits::{BODY_PIECEMEAL_BYTES, BODY_RATE_AFTER, BODY_RATE_MIN, REQUEST_BODY_BYTES_MAX},
    status,
};

/// Longest time for a request body to arrive. Equal to kube-apiserver's timeout for a whole request, which clients can
/// only shorten.
pub(crate) const BODY_WAIT: Duration = Duration::from_secs(60);

/// Interval at which a stalled body is checked against [`BODY_RATE_MIN`].
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A complete request body.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    /// Budget of the bytes while they are handled.
    pub(super) taken: ReservedBudget,
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
            return Ok(Whole { bytes: data, taken });
        }
        keep(&mut buffer, &data, if arrived > BODY_PIECEMEAL_BYTES { declared } else { None });
    }
    taken.shrink(buffer.len());
    Ok(Whole { bytes: buffer.into(), taken })
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

#[cfg(test)]
mod tests;
