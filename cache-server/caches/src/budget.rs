//! Budgets that all requests share: memory of bodies, concurrent writes, connection slots.

mod crowd;
mod reserved;
mod room;
mod work;

use informer_serving::status::{Status, StatusExt as _};

pub use crowd::Crowd;
pub use reserved::{ReservedBudget, Rooms};
pub use room::{Pool, Room, UNIT};
pub use work::{OffWorkers, WaitingMemory, Work, WorkTurn, current_turn};

/// Error if the budget for request bodies or for writes does not become free in time.
pub fn no_room() -> Status {
    Status::too_many_requests("Too many requests, please try again later.", 1)
}
