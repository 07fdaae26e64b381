//! Tests of the positions that keep events, their deadlines, and the readers that are cut.

use std::time::Duration;

use informer_core::Objects;

use super::*;

fn at(seconds: u64) -> Time {
    Time(Duration::from_secs(seconds))
}

fn limits() -> Limits {
    Limits { read_time_max: Duration::from_secs(60), stream_rate_min: 1_000, ..Limits::default() }
}

/// Returns true if some reader keeps the event at `version` at `now`.
fn is_retained(epoch: &Epoch, version: u64, now: Time) -> bool {
    epoch.look(now, &limits());
    !epoch.let_go(version, false, now, &mut Vec::new())
}

fn stream(pin: &Arc<Pin>) -> FrozenState {
    FrozenState::new(Objects::new(), pin.position(), Arc::clone(pin), true)
}

#[test]
fn the_oldest_open_snapshot_or_held_page_counts() {
    let epoch = Epoch::new(1);
    let (first, again, later) = (epoch.pin(5, 0), epoch.pin(5, 0), epoch.pin(9, 0));
    epoch.hold(7, at(75), 0);
    let oldest = |now| epoch.needs.lock().oldest(at(now));
    assert_eq!(oldest(0), Some(5));
    drop(first);
    assert_eq!(oldest(0), Some(5));
    drop(again);
    assert_eq!(oldest(74), Some(7));
    assert_eq!(oldest(75), Some(9));
    drop(later);
    assert_eq!(oldest(75), None);
}

#[test]
fn a_snapshot_needs_what_happened_after_it() {
    let epoch = Epoch::new(1);
    let pin = epoch.pin(5, 0);
    assert!(!is_retained(&epoch, 5, at(0)) && is_retained(&epoch, 6, at(0)));
    assert!(!pin.is_cut());
}

#[test]
fn a_cut_leaves_newer_snapshots_alone() {
    let epoch = Epoch::new(1);
    let (old, new) = (epoch.pin(5, 0), epoch.pin(9, 0));
    let mut cut = Vec::new();
    assert!(!epoch.let_go(8, false, at(0), &mut cut) && cut.is_empty());
    assert!(epoch.let_go(8, true, at(0), &mut cut));
    assert!(old.is_cut() && !new.is_cut());
    assert_eq!(cut.len(), 1);
    drop(old);
    let same_place_again = epoch.pin(9, 0);
    drop(new);
    assert!(is_retained(&epoch, 10, at(0)) && !same_place_again.is_cut());
}

/// Goal: the objects of a reader that never runs again are freed. Method: objects without other references.
#[test]
fn who_is_cut_keeps_no_objects() {
    let epoch = Epoch::new(1);
    let state = stream(&epoch.pin(5, 0));
    assert!(state.objects().is_some());
    let mut cut = Vec::new();
    epoch.let_go(8, true, at(0), &mut cut);
    let cuts = CutCounts::default();
    cut.into_iter().for_each(|cut| cut.release(&cuts));
    assert!(state.is_cut() && state.objects().is_none());
    assert_eq!(cuts.streams_for_bytes.load(Ordering::Relaxed), 1);
    // A reader that starts after the cut notices it as well.
    let pin = Arc::clone(&state.pin);
    assert!(stream(&pin).objects().is_none());
}

#[test]
fn nobody_is_late_who_costs_nothing() {
    let epoch = Epoch::new(1);
    let pin = epoch.pin(5, 0);
    assert!(is_retained(&epoch, 6, at(0)));
    for second in 1..1_000 {
        epoch.look(at(second), &limits());
    }
    assert!(!pin.is_cut());
    assert!(!is_retained(&epoch, 6, at(1_000)), "it keeps nothing any more");
    assert!(pin.is_cut(), "and is cut by the first event that goes");
}

#[test]
fn a_list_has_a_minute_and_a_stream_as_long_as_it_moves() {
    let epoch = Epoch::new(1);
    let (list, moving, stuck) = (epoch.pin(5, 0), epoch.pin(6, 0), epoch.pin(7, 0));
    let (moving, stuck) = (stream(&moving), stream(&stuck));
    assert!(is_retained(&epoch, 6, at(0)));
    moving.read(100_000);
    stuck.read(59_000);
    assert!(is_retained(&epoch, 6, at(59)));
    let mut cut = Vec::new();
    epoch.look(at(60), &limits());
    assert!(epoch.let_go(6, false, at(60), &mut cut));
    assert!(list.is_cut() && !moving.is_cut() && !stuck.is_cut());
    assert!(!epoch.let_go(8, false, at(60), &mut cut), "the moving one is in front of the one that is stuck");
    epoch.look(at(101), &limits());
    assert!(epoch.let_go(8, false, at(101), &mut cut), "too slow by then");
    assert_eq!((moving.is_cut(), stuck.is_cut()), (true, true));
    assert!(cut.iter().all(|cut| cut.late));
}

#[test]
fn who_was_slow_and_got_everything_has_as_long_to_come_back() {
    for (read_for, comes_back_within) in [(10, 10), (50, 30)] {
        let epoch = Epoch::new(1);
        let state = stream(&epoch.pin(5, 0));
        epoch.look(at(1), &limits());
        epoch.look(at(1 + read_for), &limits());
        state.done();
        drop(state);
        let until = 1 + read_for + comes_back_within;
        assert!(is_retained(&epoch, 6, at(until)), "{read_for}");
        assert!(!is_retained(&epoch, 6, at(until + 1)), "{read_for}");
    }
    let epoch = Epoch::new(1);
    let left_early = stream(&epoch.pin(5, 0));
    epoch.look(at(1), &limits());
    epoch.look(at(11), &limits());
    drop(left_early);
    assert!(!is_retained(&epoch, 6, at(11)));
}

#[test]
fn of_a_history_that_is_over_lists_are_read_to_their_end_within_their_time() {
    let epoch = Epoch::new(1);
    let list = FrozenState::new(Objects::new(), 5, epoch.pin(5, 0), false);
    let stream = stream(&epoch.pin(5, 0));
    epoch.end();
    epoch.release_streams();
    assert!(stream.objects().is_none() && !stream.is_cut(), "it ends cleanly");
    let mut cut = Vec::new();
    for second in [0, 59] {
        epoch.cut_late(at(second), &limits(), &mut cut);
        assert!(cut.is_empty() && list.objects().is_some());
    }
    epoch.cut_late(at(60), &limits(), &mut cut);
    assert_eq!(cut.len(), 1);
    assert!(list.is_cut());
}

#[test]
fn held_positions_are_bounded() {
    let epoch = Epoch::new(1);
    for position in 1..=u64::try_from(HELD_POSITIONS_MAX).expect("small") + 3 {
        epoch.hold(position, at(position), 0);
    }
    let needs = &mut *epoch.needs.lock();
    assert_eq!(needs.held.len(), HELD_POSITIONS_MAX);
    assert_eq!(needs.oldest(at(0)), Some(4), "what would end first went");
}

#[test]
fn an_owner_of_many_positions_takes_none_from_others() {
    let epoch = Epoch::new(1);
    epoch.hold(1, at(1), 7);
    for position in 2..=2 * u64::try_from(HELD_POSITIONS_MAX).expect("small") {
        epoch.hold(position, at(position), 8);
    }
    let needs = &mut *epoch.needs.lock();
    assert_eq!(needs.held.len(), HELD_POSITIONS_MAX);
    assert_eq!(needs.oldest(at(0)), Some(1), "the position of the other owner stays");
}
