//! Who waits for which bucket, and the step that wakes them.

use std::task::{Context, Poll};

use crate::cache::Closed;

/// Wakes the watchers of touched buckets. One task drives it; meanwhile the next events gather.
#[derive(Debug)]
pub struct Waking {}

impl Waking {
    /// Ready when a bucket with somebody parked was touched since the last round.
    ///
    /// # Errors
    /// [`Closed`] when the cache is closed and everybody was woken.
    pub fn poll_touched(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        todo!("{cx:?}")
    }

    /// Wakes whoever is parked at a touched bucket. Returns how many. Cost: one waker each.
    pub fn wake(&mut self) -> usize {
        todo!()
    }
}
