//! Seats of responses whose bodies are being sent.
//!
//! INVARIANT: a body makes its next part only with its seats. One that gave them back, because its client did not read, takes
//! them again as a new request of its flow would, for at most [`SEAT_WAIT`], and holds none meanwhile.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use access_rules::flow::levels::LevelId;
use parking_lot::Mutex;
use slab::Slab;
use tokio::time::{Instant, sleep};

use super::{FlowAdmission, FlowControl, FlowRefusal, Seat, rules::SchemaRules};
use crate::limits::{SEAT_RETRY, SEAT_WAIT};

/// The bodies with seats. At most as many as there are seats.
#[derive(Default)]
pub(super) struct HeldSeats {
    bodies: Mutex<Slab<Arc<HeldSeat>>>,
}

struct HeldSeat {
    /// `None` once the seats were given back.
    seat: Mutex<Option<Seat>>,
    /// Time of the last part that was handed to the socket, in milliseconds of the levels' clock; [`WORKING`] while the body
    /// makes the next one.
    progress: AtomicU64,
}

/// Progress of a body that waits for this server, and not for its client.
const WORKING: u64 = u64::MAX;

impl HeldSeats {
    /// True while no body has seats.
    pub(super) fn is_empty(&self) -> bool {
        self.bodies.lock().is_empty()
    }

    /// Takes the seats of bodies without progress since `limit`.
    pub(super) fn parked_since(&self, limit: Duration) -> Vec<Seat> {
        let limit = milliseconds(limit);
        let mut seats = Vec::new();
        self.bodies.lock().retain(|_, held| {
            // Under the lock of the seat, so that the body does not begin to work without it.
            let parked = held.seat.lock().take_if(|_| held.progress.load(Ordering::Relaxed) < limit);
            let is_parked = parked.is_some();
            seats.extend(parked);
            !is_parked
        });
        seats
    }
}

/// The seats of a body, as far as it needs to take them again.
#[derive(Clone)]
pub(super) struct SeatTerms {
    pub(super) schema: Arc<SchemaRules>,
    pub(super) level: LevelId,
    /// Hash of the flow.
    pub(super) flow: u64,
    pub(super) width: u32,
}

/// Seats that a body takes again; `None` if its level was removed.
type ReturningSeats = Pin<Box<dyn Future<Output = Result<Option<Seat>, FlowRefusal>> + Send + Sync>>;

/// Holds seats until the body ends, its initial state is sent, or its client stops reading.
pub struct SeatHold {
    flow: Arc<FlowControl>,
    /// `None` if the body needs no seats any more: its level was removed.
    terms: Option<SeatTerms>,
    /// Place among the bodies with seats, until the seats are given back.
    place: usize,
    held: Arc<HeldSeat>,
    /// The seats that the body waits for.
    returning: Option<ReturningSeats>,
}

impl SeatHold {
    /// Holds the seats of a response.
    pub fn new(seat: Seat) -> Self {
        let (flow, terms) = (Arc::clone(seat.flow()), seat.terms());
        let progress = AtomicU64::new(milliseconds(flow.now()));
        let held = Arc::new(HeldSeat { seat: Mutex::new(Some(seat)), progress });
        let place = flow.held.bodies.lock().insert(Arc::clone(&held));
        Self { flow, terms, place, held, returning: None }
    }

    /// Ready once the body may make its next part.
    ///
    /// # Errors
    /// The body gave its seats back, and waited for too long to have them again.
    pub fn poll_seats(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowRefusal>> {
        if self.returning.is_none() {
            let seat = self.held.seat.lock();
            self.held.progress.store(WORKING, Ordering::Relaxed);
            let Some(terms) = self.terms.as_ref().filter(|_| seat.is_none()) else { return Poll::Ready(Ok(())) };
            self.returning = Some(Box::pin(take_again(Arc::clone(&self.flow), terms.clone())));
        }
        let Some(returning) = &mut self.returning else { return Poll::Ready(Ok(())) };
        let seat = ready!(returning.as_mut().poll(cx));
        self.returning = None;
        match seat {
            Ok(Some(seat)) => {
                let mut bodies = self.flow.held.bodies.lock();
                *self.held.seat.lock() = Some(seat);
                self.place = bodies.insert(Arc::clone(&self.held));
            }
            Ok(None) => self.terms = None,
            Err(refusal) => return Poll::Ready(Err(refusal)),
        }
        Poll::Ready(Ok(()))
    }

    /// Called for each part of the body that is handed to the socket.
    pub fn on_progress(&self) {
        self.held.progress.store(milliseconds(self.flow.now()), Ordering::Relaxed);
    }
}

/// Takes seats for a body that continues. Tries again if the queues are full: its response has begun.
async fn take_again(flow: Arc<FlowControl>, terms: SeatTerms) -> Result<Option<Seat>, FlowRefusal> {
    let began = Instant::now();
    loop {
        let left = SEAT_WAIT.saturating_sub(began.elapsed());
        match flow.arrive_at(&terms.schema, terms.level, terms.flow, terms.width) {
            None => return Ok(None),
            Some(FlowAdmission::Seated(seat)) => return Ok(Some(seat)),
            Some(FlowAdmission::Waits(wait)) => return wait.seated(left).await.map(Some),
            Some(FlowAdmission::Refused(refused)) if left.is_zero() => return Err(flow.refuse(&refused.0, refused.1)),
            Some(FlowAdmission::Refused(_)) => sleep(left.min(SEAT_RETRY)).await,
        }
    }
}

impl Drop for SeatHold {
    fn drop(&mut self) {
        let mut bodies = self.flow.held.bodies.lock();
        let seat = self.held.seat.lock().take();
        if seat.is_some() {
            bodies.remove(self.place);
        }
        drop(bodies);
        // Outside of the lock of the bodies.
        drop(seat);
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
