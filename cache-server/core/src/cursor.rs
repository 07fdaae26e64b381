//! One watcher's place in the history: in the initial snapshot, live, or expired.
//!
//! INVARIANT: its memory does not depend on objects, events or other watchers. INVARIANT: a position is only told when
//! nothing before it is unread.

use std::task::Context;

use crate::{
    cache::{Expired, Snapshot},
    slices::{Budget, Slices},
};

/// Where a watch begins.
#[derive(Clone, Debug)]
pub enum Start {
    /// With the objects of the snapshot as ADDED, in key order, then what happened after it.
    Initial(Snapshot),
    /// With the first change after the position. One ahead of the cache is accepted: nothing at or below it is
    /// delivered.
    After(u64),
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// The cursor moved; slices may have been pushed, or nothing matched so far. Step again, perhaps after letting
    /// others run.
    Sent,
    /// The initial state is complete at this position, which can be resumed from: the end bookmark goes here, before
    /// the next step. Comes once, and only for [`Start::Initial`].
    InitialDone(u64),
    /// Nothing to do. The waker given is called at the next change that may concern the filter.
    Wait,
    /// The cursor fell behind the window, or its snapshot was cut: end the stream without another word.
    Expired(Expired),
    /// The history ended: the storage was listed again or the server shuts down. End the stream cleanly.
    EpochEnded,
}

/// One watcher's place. Pulls: nothing is queued for it. At most about 1 KiB with everything it owns, whatever the
/// number of objects.
#[derive(Debug)]
pub struct Cursor {}

impl Cursor {
    /// Pushes what comes next into `out`, within `budget`. Without a context, [`Step::Wait`] registers nothing.
    /// Cost: short read locks; selectors and slices are done outside.
    pub fn step(&mut self, budget: Budget, out: &mut Slices, cx: Option<&mut Context<'_>>) -> Step {
        todo!("{budget:?} {out:?} {cx:?}")
    }

    /// The position a bookmark may carry now, or `None` while something is unread or the initial state is incomplete.
    /// Write it before the next step.
    pub fn bookmark(&mut self) -> Option<u64> {
        todo!()
    }

    /// Everything that matches at or below was pushed. The start's position during the initial state.
    #[must_use]
    pub fn position(&self) -> u64 {
        todo!()
    }

    /// Whether the initial state is still being sent.
    #[must_use]
    pub fn is_initial(&self) -> bool {
        todo!()
    }
}
