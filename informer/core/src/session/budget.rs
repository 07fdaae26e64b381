//! The beginning and the end of a session's turn in the relist budget. A turn may end before its read.

use std::time::Duration;

use crate::{reflector::Reflector, time::Time};

/// Longest time one session holds a permit of the relist budget. A longer read, such as 100,000 large objects,
/// continues without its permit, so that a server that trickles items cannot keep the other informers from starting.
/// kube-apiserver ends an ordinary LIST after the same time.
pub const TURN_MAX: Duration = Duration::from_secs(60);

/// A permit of the relist budget, held from the grant until initial state is complete, the attempt ends, the read
/// stalls, or [`TURN_MAX`] has passed.
#[derive(Debug, Default)]
pub(super) struct RelistTurn {
    until: Option<Time>,
}

impl RelistTurn {
    pub(super) fn begin(&mut self, now: Time) {
        self.until = Some(now + TURN_MAX);
    }

    /// Returns true if a turn ended by this.
    pub(super) const fn end(&mut self) -> bool {
        self.until.take().is_some()
    }

    pub(super) const fn is_held(&self) -> bool {
        self.until.is_some()
    }

    /// When the permit passes to the next session: when the read stalls, so that one sick API does not keep the others
    /// from starting, and at the latest after [`TURN_MAX`].
    pub(super) fn ends_at(&self, reflector: &Reflector) -> Option<Time> {
        let until = self.until?;
        Some(reflector.stands_still_at().map_or(until, |at| at.min(until)))
    }
}
