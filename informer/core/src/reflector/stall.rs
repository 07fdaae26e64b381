//! Detects stalled initial state, by telling its objects from live changes: the end bookmark may never come.
//!
//! Servers send initial state at once, as fast as they can, with versions in no order. A live ADDED is newer than
//! everything sent before it. So an ADDED below the newest version seen is certainly initial state, and one above it
//! may be either. INVARIANT: a type with constant creations does not hide a stalled stream.

use std::{cmp::Ordering, time::Duration};

use crate::{resource_version::ResourceVersion, time::Time};

/// A pause of this fraction of the stall time suggests that the stream is live: after it, objects that may be live
/// count as progress only once a certain one arrives.
const PAUSE_DIVISOR: u32 = 2;

/// Stall times after which a stream counts as stalled that sends, without a pause, only objects that may be live.
const UNCERTAIN_STALLS: u32 = 2;

/// Objects in a row that may be live and then count as initial state: no type has so many creations in this time.
const UNCERTAIN_OBJECTS_MAX: u32 = 1_000;

/// Progress of one stream's initial state.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Stall {
    /// When the request was sent, the stream was accepted, or an object that counts arrived.
    progress: Time,
    /// When the request was sent, the stream was accepted, or an object arrived that is certainly initial state.
    certain: Time,
    /// When the last object arrived.
    last: Time,
    /// The newest version seen, or the requested position, which the state is not older than.
    newest: Option<ResourceVersion>,
    /// Objects in a row that may be live.
    uncertain: u32,
    phase: StallPhase,
}

/// Meaning of an ADDED that may be live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StallPhase {
    /// Objects arrive without a pause.
    Flowing,
    /// There was a pause, or a change that initial state never contains.
    Paused,
    /// After an ordinary bookmark: no event at or below it follows, so no initial state either.
    Live,
}

impl Stall {
    /// Starts with a request for a state not older than `requested`.
    pub(super) fn new(now: Time, requested: Option<ResourceVersion>) -> Self {
        Self { progress: now, certain: now, last: now, newest: requested, uncertain: 0, phase: StallPhase::Flowing }
    }

    /// Notes that the stream was accepted, or sent a mark, which shows that more follows.
    pub(super) const fn progressed(&mut self, now: Time) {
        (self.progress, self.certain, self.last) = (now, now, now);
        self.uncertain = 0;
    }

    /// Notes an ADDED, with its version if it has one.
    pub(super) fn added(&mut self, now: Time, version: Option<ResourceVersion>, stall: Duration) {
        let is_older =
            self.newest.as_ref().zip(version.as_ref()).is_some_and(|(newest, version)| {
                matches!(version.compare(newest), Some(Ordering::Less | Ordering::Equal))
            });
        let has_paused = now.since(self.last) >= stall / PAUSE_DIVISOR;
        self.last = now;
        if !is_older {
            self.newest = version.or_else(|| self.newest.take());
            self.uncertain += 1;
        }
        let is_certain = is_older || self.uncertain >= UNCERTAIN_OBJECTS_MAX;
        self.phase = match self.phase {
            // No initial state follows a bookmark.
            StallPhase::Live => return,
            StallPhase::Flowing | StallPhase::Paused if is_certain => StallPhase::Flowing,
            StallPhase::Flowing if has_paused => StallPhase::Paused,
            StallPhase::Flowing => StallPhase::Flowing,
            StallPhase::Paused => StallPhase::Paused,
        };
        if is_certain {
            self.progressed(now);
        } else if self.phase == StallPhase::Flowing {
            self.progress = now;
        }
    }

    /// Notes a MODIFIED or DELETED, with its version if it has one. Initial state contains neither, so the stream may
    /// be past it.
    pub(super) fn changed(&mut self, now: Time, version: Option<ResourceVersion>) {
        self.last = now;
        if self.phase == StallPhase::Flowing {
            self.phase = StallPhase::Paused;
        }
        let Some(version) = version else { return };
        let is_newer = |newest: &ResourceVersion| version.compare(newest) != Some(Ordering::Less);
        if self.newest.as_ref().is_none_or(is_newer) {
            self.newest = Some(version);
        }
    }

    /// Notes an ordinary bookmark.
    pub(super) const fn bookmark(&mut self) {
        self.phase = StallPhase::Live;
    }

    /// Returns when the stream counts as stalled, unless initial state arrives before.
    pub(super) fn at(&self, stall: Duration) -> Time {
        (self.progress + stall).min(self.certain + stall.saturating_mul(UNCERTAIN_STALLS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(10);

    const fn at(ms: u64) -> Time {
        Time(Duration::from_millis(ms))
    }

    /// Accepts a stream at once, then adds these versions at these milliseconds. Returns when it stalls, in seconds.
    fn stands_still(requested: Option<u64>, objects: impl IntoIterator<Item = (u64, u64)>) -> u64 {
        let mut stall = Stall::new(at(0), requested.map(ResourceVersion::from));
        stall.progressed(at(0));
        for (ms, version) in objects {
            if at(ms) >= stall.at(STALL) {
                break;
            }
            stall.added(at(ms), Some(version.into()), STALL);
        }
        stall.at(STALL).0.as_secs()
    }

    #[test]
    fn creations_do_not_put_the_stall_off() {
        let state = [(0, 40), (1, 12), (2, 30)];
        assert_eq!(stands_still(None, state), 10);
        // One creation every nine seconds, one per second, ten per second.
        for (every, most) in [(9_000, 10), (1_000, 20), (100, 20)] {
            let created = (1..10_000).map(|number| (number * every, 40 + number));
            let stood = stands_still(None, state.into_iter().chain(created));
            assert!((10..=most).contains(&stood), "one every {every} ms: {stood} s");
        }
    }

    #[test]
    fn a_slow_server_is_waited_for() {
        // Versions in no order, with long pauses.
        let slow = [(9_000, 40), (9_100, 30), (19_000, 60), (19_050, 35), (28_000, 20)];
        assert_eq!(stands_still(None, slow), 38);
        // Oldest first, large objects over a slow line, for ten seconds.
        assert_eq!(stands_still(None, (0..80).map(|number| (number * 125, 1 + number))), 19);
        // Oldest first, small objects for a minute.
        assert_eq!(stands_still(None, (0..60_000).map(|number| (number, 1 + number))), 69);
        // Objects not newer than the requested position are initial state, whatever came before.
        assert_eq!(stands_still(Some(100), (1..9).map(|number| (number * 9_000, number))), 82);
    }

    #[test]
    fn versions_without_an_order_give_a_stream_two_stall_times() {
        let mut stall = Stall::new(at(0), None);
        for number in 0..100_u64 {
            let now = at(number * 1_000);
            if now < stall.at(STALL) {
                let version = format!("v{number}").parse().ok().filter(|_| number % 2 == 0);
                stall.added(now, version, STALL);
            }
        }
        assert_eq!(stall.at(STALL), at(20_000));
    }

    #[test]
    fn what_follows_a_bookmark_or_a_change_is_no_progress() {
        let mut stall = Stall::new(at(0), None);
        stall.added(at(1_000), Some(50.into()), STALL);
        stall.changed(at(2_000), Some(60.into()));
        stall.added(at(3_000), Some(70.into()), STALL);
        assert_eq!(stall.at(STALL), at(11_000));
        stall.added(at(4_000), Some(55.into()), STALL);
        assert_eq!(stall.at(STALL), at(14_000), "the server sends state and changes side by side");
        stall.bookmark();
        stall.added(at(5_000), Some(55.into()), STALL);
        assert_eq!(stall.at(STALL), at(14_000));
    }
}
