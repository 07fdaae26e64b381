//! Tells initial state that still comes from live changes, in a stream whose end bookmark may never come.
//!
//! Servers send initial state at once, as fast as they can, and its objects in no order of versions. A live ADDED is newer
//! than everything sent before it, and comes when somebody creates an object. So an ADDED below what was seen is initial
//! state for certain, and one above it may be either. INVARIANT: a type in which objects are created all the time does
//! not keep a stream from standing still.

use std::{cmp::Ordering, time::Duration};

use crate::{resource_version::ResourceVersion, time::Time};

/// A stream that paused for this part of the stall time sends what is new: an object that may be live counts for nothing
/// until one comes that is initial state for certain.
const PAUSE_DIVISOR: u32 = 2;

/// How many stall times a stream may go on that sends, without a pause, nothing but objects that may be live.
const UNCERTAIN_STALLS: u32 = 2;

/// Objects in a row that may be live and are taken for initial state: of one type, nobody creates so many in the time.
const UNCERTAIN_OBJECTS_MAX: u32 = 1_000;

/// Progress of the initial state of one stream.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Stall {
    /// When the request went, the stream was accepted, or an object came that counts.
    progress: Time,
    /// The same, for objects that are initial state for certain.
    certain: Time,
    /// When any object came last.
    last: Time,
    /// The newest version seen, or the position asked for, which the state is not older than.
    newest: Option<ResourceVersion>,
    /// Objects in a row that may be live.
    uncertain: u32,
    phase: Phase,
}

/// What an ADDED that may be live counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Objects come without a pause.
    Flowing,
    /// There was a pause, or a change that no initial state has.
    Paused,
    /// An ordinary bookmark: nothing at or below it follows, so no initial state does.
    Live,
}

impl Stall {
    /// A request goes out, for a state not older than `asked`.
    pub(super) fn new(now: Time, asked: Option<ResourceVersion>) -> Self {
        Self { progress: now, certain: now, last: now, newest: asked, uncertain: 0, phase: Phase::Flowing }
    }

    /// The stream was accepted, or shows by a mark that more is to come.
    pub(super) const fn progressed(&mut self, now: Time) {
        (self.progress, self.certain, self.last) = (now, now, now);
        self.uncertain = 0;
    }

    /// ADDED, of this version if it has one.
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
            Phase::Live => return,
            Phase::Flowing | Phase::Paused if is_certain => Phase::Flowing,
            Phase::Flowing if has_paused => Phase::Paused,
            Phase::Flowing => Phase::Flowing,
            Phase::Paused => Phase::Paused,
        };
        if is_certain {
            self.progressed(now);
        } else if self.phase == Phase::Flowing {
            self.progress = now;
        }
    }

    /// MODIFIED or DELETED, of this version if it has one: initial state has none of them, so the stream may be past it.
    pub(super) fn changed(&mut self, now: Time, version: Option<ResourceVersion>) {
        self.last = now;
        if self.phase == Phase::Flowing {
            self.phase = Phase::Paused;
        }
        let Some(version) = version else { return };
        let is_newer = |newest: &ResourceVersion| version.compare(newest) != Some(Ordering::Less);
        if self.newest.as_ref().is_none_or(is_newer) {
            self.newest = Some(version);
        }
    }

    /// An ordinary bookmark.
    pub(super) const fn bookmark(&mut self) {
        self.phase = Phase::Live;
    }

    /// When the stream stands still, unless initial state comes before.
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

    /// A stream that is accepted at once, then sends these versions at these milliseconds; when it stands still, in seconds.
    fn stands_still(asked: Option<u64>, objects: impl IntoIterator<Item = (u64, u64)>) -> u64 {
        let mut stall = Stall::new(at(0), asked.map(ResourceVersion::from));
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
        // One every nine seconds, one a second, ten a second.
        for (every, most) in [(9_000, 10), (1_000, 20), (100, 20)] {
            let created = (1..10_000).map(|number| (number * every, 40 + number));
            let stood = stands_still(None, state.into_iter().chain(created));
            assert!((10..=most).contains(&stood), "one every {every} ms: {stood} s");
        }
    }

    #[test]
    fn a_slow_server_is_waited_for() {
        // In no order of versions: whatever the pauses.
        let slow = [(9_000, 40), (9_100, 30), (19_000, 60), (19_050, 35), (28_000, 20)];
        assert_eq!(stands_still(None, slow), 38);
        // Oldest first, large objects over a slow line, ten seconds of them.
        assert_eq!(stands_still(None, (0..80).map(|number| (number * 125, 1 + number))), 19);
        // Oldest first, a minute of small ones.
        assert_eq!(stands_still(None, (0..60_000).map(|number| (number, 1 + number))), 69);
        // What is not newer than the position asked for is initial state, whatever comes before it.
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
