//! The part of the budgets that one request body has.

use informer_serving::status::Status;
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use super::{Room, UNIT, no_room};
use crate::limits::{BODY_PIECEMEAL_BYTES, ROOM_WAIT};

/// The budgets that a body draws from: the server's, and its connection's if that can carry several requests at once.
#[derive(Clone, Copy, Debug)]
pub struct Rooms<'a> {
    /// For the requests of the server.
    pub server: &'a Room,
    /// For those of the connection.
    pub connection: Option<&'a Room>,
}

impl Rooms<'_> {
    /// Returns true if another body waits for the budget that a body with `arrived` bytes draws from.
    pub fn have_waiters(self, arrived: usize) -> bool {
        let is_large = arrived > BODY_PIECEMEAL_BYTES;
        let has_waiters = |room: &Room| room.pool(is_large).has_waiters();
        has_waiters(self.server) || self.connection.is_some_and(has_waiters)
    }
}

/// Budget reserved by one body. Returns it when dropped.
#[derive(Debug, Default)]
pub struct ReservedBudget {
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

impl ReservedBudget {
    /// Reserves budget for a body of `bytes` in total. A body that becomes large returns its budget for small bodies.
    ///
    /// # Errors
    /// 429 if none is free within [`ROOM_WAIT`].
    pub async fn grow(&mut self, bytes: usize, rooms: Rooms<'_>) -> Result<(), Status> {
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

    /// Like [`grow`](Self::grow), without waiting; reserves what is free.
    pub fn try_grow(&mut self, bytes: usize, rooms: Rooms<'_>) {
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
    pub fn shrink(&mut self, bytes: usize) {
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
