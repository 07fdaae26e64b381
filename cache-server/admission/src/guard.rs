//! Guard of a response: what is held until its body ends, however it ends.

use std::task::{Context, Poll};

use super::{
    audit::AuditRecord,
    flow::{FlowRefusal, SeatHold},
    lease::WatchLease,
};
use cache_server_caches::shares::UserPlace;

/// Belongs to a response body, and is dropped with it.
#[derive(Default)]
pub struct ResponseGuard {
    /// The right of an open watch; `None` for other responses, and if rights are never withdrawn.
    lease: Option<WatchLease>,
    /// The seats of the request, until they are given back.
    seats: Option<SeatHold>,
    /// The user's place for an open watch, or for a request that is passed on.
    place: Option<UserPlace>,
    /// Makes the last record of the request when it is dropped; `None` without an audit log.
    audit: Option<Box<AuditRecord>>,
}

impl ResponseGuard {
    /// Holds the right of an open watch.
    pub fn lend(&mut self, lease: WatchLease) {
        self.lease = Some(lease);
    }

    /// Holds the user's place.
    pub fn occupy(&mut self, place: UserPlace) {
        self.place = Some(place);
    }

    /// Holds the seats of the request.
    pub fn hold(&mut self, seats: SeatHold) {
        self.seats = Some(seats);
    }

    /// Holds the records of the request.
    pub fn record(&mut self, audit: Box<AuditRecord>) {
        self.audit = Some(audit);
    }

    /// The right of an open watch.
    pub const fn lease(&self) -> Option<&WatchLease> {
        self.lease.as_ref()
    }

    /// Ready once the caller may not read the body any more. Registers the waker.
    pub fn poll_withdrawn(&self, cx: &Context<'_>) -> Poll<()> {
        self.lease.as_ref().map_or(Poll::Pending, |lease| lease.poll_withdrawn(cx))
    }

    /// Ready once the body has the seats to make its next part.
    ///
    /// # Errors
    /// It gave them back, and they did not come again in time.
    pub fn poll_seats(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowRefusal>> {
        self.seats.as_mut().map_or(Poll::Ready(Ok(())), |seats| seats.poll_seats(cx))
    }

    /// Called once all of the body was handed to the socket.
    pub fn on_complete(&mut self) {
        if let Some(audit) = &mut self.audit {
            audit.note_complete();
        }
    }

    /// Called for each part of the body that is handed to the socket.
    pub fn on_progress(&mut self) {
        if let Some(seats) = &self.seats {
            seats.on_progress();
        }
    }

    /// Called once the initial state of a watch was handed to the socket, or at the first poll of one without it.
    pub fn on_initial_done(&mut self) {
        self.seats = None;
    }
}
