//! Budgets that all requests share: memory of bodies, concurrent writes, connection slots.

mod crowd;
mod room;
mod work;

use informer_serving::status::{Status, StatusExt as _};

pub(crate) use crowd::Crowd;
pub(crate) use room::{Room, UNIT};
pub(crate) use work::{OffWorkers, Work};

/// Error if the budget for request bodies or for writes does not become free in time.
pub(crate) fn no_room() -> Status {
    Status::too_many_requests("Too many requests, please try again later.", 1)
}
