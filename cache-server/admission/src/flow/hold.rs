//! Seats of responses whose bodies are being sent.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use slab::Slab;

use super::{FlowControl, Seat};

/// The bodies with seats. At most as many as there are seats.
#[derive(Default)]
pub(super) struct HeldSeats {
    bodies: Mutex<Slab<Arc<HeldSeat>>>,
}

struct HeldSeat {
    /// `None` once the seats were given back.
    seat: Mutex<Option<Seat>>,
    /// Time of the last part that was handed to the socket, in milliseconds of the levels' clock.
    progress: AtomicU64,
}

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
            let is_parked = held.progress.load(Ordering::Relaxed) < limit;
            seats.extend(held.seat.lock().take_if(|_| is_parked));
            !is_parked
        });
        seats
    }
}

/// Holds seats until the body ends, its initial state is sent, or its client stops reading.
pub struct SeatHold {
    flow: Arc<FlowControl>,
    /// Place among the bodies with seats, until the seats are given back.
    place: usize,
    held: Arc<HeldSeat>,
}

impl SeatHold {
    /// Holds the seats of a response.
    pub fn new(seat: Seat) -> Self {
        let flow = Arc::clone(seat.flow());
        let progress = AtomicU64::new(milliseconds(flow.now()));
        let held = Arc::new(HeldSeat { seat: Mutex::new(Some(seat)), progress });
        let place = flow.held.bodies.lock().insert(Arc::clone(&held));
        Self { flow, place, held }
    }

    /// Called for each part of the body that is handed to the socket.
    pub fn on_progress(&self) {
        self.held.progress.store(milliseconds(self.flow.now()), Ordering::Relaxed);
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
