//! The guarantees of single watchers, one per test.

use std::{sync::Arc, task::Context};

use informer_core::{Objects, Time};
use watch_cache::{
    Budget, Change, Cursor, CursorStart, Entry, ExpiredPosition, Filter, Limits, Page, Reader, Slices, Step, Total,
    Writer, cache, cache_within,
};

use super::common::{Counting, PLENTY, at, deleted, drain, filter, pod, put, schema};

/// Creates an empty cache listed at 100.
fn listed(limits: Limits) -> (Writer, watch_cache::BucketWaker, Reader) {
    let (mut writer, waking, reader) = cache(schema(), limits);
    writer.reset(Objects::new(), 100, at(0));
    (writer, waking, reader)
}

fn write(writer: &mut Writer, changes: impl IntoIterator<Item = Change>) {
    for change in changes {
        writer.apply(change, at(0)).expect("in order");
    }
}

fn open(reader: &Reader, start: CursorStart, filter: &Arc<Filter>) -> Cursor {
    reader.cursor(start, Arc::clone(filter)).expect("within the window")
}

/// Goal: a quiet watch stays resumable. Method: a watch of one node, ten windows of events on others, then one of its
/// own.
#[test]
fn others_traffic_never_expires_a_watcher() {
    let (mut writer, _waking, reader) = listed(Limits { window_events_max: 10, ..Limits::default() });
    for (namespace, fields) in [
        (None, "spec.nodeName=quiet"),
        (Some("quiet"), ""),
        (Some("quiet"), "metadata.name=p"),
        (Some("quiet"), "spec.nodeName=quiet"),
    ] {
        let before = reader.applied();
        let filter = filter(namespace, "", fields);
        let mut watcher = open(&reader, CursorStart::After(before), &filter);
        write(&mut writer, (1..=100).map(|n| put(&pod("loud/p", "loud", "", before + n))));
        assert!(before < reader.oldest(), "the window of all moved on");
        assert_eq!(watcher.bookmark(), Some(before + 100), "{fields}: nothing unread is at the head");

        // A resume from that bookmark yields exactly the next event, and so does the watcher itself.
        let mut resumed = open(&reader, CursorStart::After(before + 100), &filter);
        let next = before + 101;
        write(&mut writer, [put(&pod("quiet/p", "quiet", "", next))]);
        assert_eq!(watcher.bookmark(), None, "{fields}: something is unread");
        for cursor in [&mut watcher, &mut resumed] {
            assert_eq!(drain(cursor), (vec![format!("ADDED quiet/p@{next}")], Step::Wait), "{fields}");
            assert_eq!(cursor.position(), next);
        }
        write(&mut writer, [deleted("quiet/p", next + 1)]);
    }
}

#[test]
fn a_watcher_behind_the_window_is_over_once_its_own_events_are_lost() {
    let (mut writer, _waking, reader) = listed(Limits { window_events_max: 4, ..Limits::default() });
    let node = filter(None, "", "spec.nodeName=n");
    let mut of_node = open(&reader, CursorStart::After(100), &node);
    let mut of_all = open(&reader, CursorStart::After(100), &Filter::all());
    write(&mut writer, [put(&pod("a/p", "n", "", 101))]);
    write(&mut writer, (102..=104).map(|n| put(&pod("a/q", "m", "", n))));
    write(&mut writer, [put(&pod("a/q", "m", "", 105))]);
    let expired = Step::Expired(ExpiredPosition { requested: 100, oldest: 101 });
    assert_eq!(drain(&mut of_all), (vec![], expired));
    assert_eq!(drain(&mut of_node), (vec![], expired));
    assert_eq!(drain(&mut of_node), (vec![], expired), "and stays so");
    assert_eq!(
        reader.cursor(CursorStart::After(100), node).err(),
        Some(ExpiredPosition { requested: 100, oldest: 101 })
    );
    assert_eq!(reader.stats().watchers_expired, 2);
}

#[test]
fn a_bucket_that_begins_later_is_filled_from_the_window() {
    let (mut writer, _waking, reader) = listed(Limits::default());
    let node = filter(None, "", "spec.nodeName=n");
    let mut late = open(&reader, CursorStart::After(100), &node);
    write(
        &mut writer,
        [put(&pod("a/p", "n", "", 101)), put(&pod("a/q", "m", "", 102)), put(&pod("a/p", "m", "", 103))],
    );
    drop(open(&reader, CursorStart::After(103), &node));
    let mut early = open(&reader, CursorStart::After(100), &node);
    let seen = vec!["ADDED a/p@101".to_owned(), "DELETED a/p@103".to_owned()];
    assert_eq!(drain(&mut late), (seen.clone(), Step::Wait));
    assert_eq!(drain(&mut early), (seen, Step::Wait));
    drop((late, early));
    assert_eq!(reader.stats().buckets, 0, "buckets go with their last watcher");
    let mut again = open(&reader, CursorStart::After(102), &node);
    assert_eq!(drain(&mut again), (vec!["DELETED a/p@103".to_owned()], Step::Wait));
}

#[test]
fn a_start_in_the_future_is_accepted_and_sends_nothing_at_or_below() {
    let (mut writer, _waking, reader) = listed(Limits::default());
    let filter = filter(Some("a"), "", "");
    let mut ahead = open(&reader, CursorStart::After(103), &filter);
    let mut beside = open(&reader, CursorStart::After(100), &filter);
    assert_eq!(ahead.bookmark(), None, "a bookmark may not run ahead of the cache");
    write(&mut writer, [put(&pod("a/p", "", "", 102)), put(&pod("a/p", "", "", 103)), put(&pod("a/p", "", "", 104))]);
    assert_eq!(drain(&mut ahead), (vec!["MODIFIED a/p@104".to_owned()], Step::Wait));
    assert_eq!(ahead.bookmark(), Some(104));
    assert_eq!(drain(&mut beside).0.len(), 3, "others in the bucket miss nothing");
}

#[test]
fn the_initial_state_ends_at_its_own_position_and_goes_on_from_there() {
    let (mut writer, _waking, reader) = listed(Limits::default());
    write(&mut writer, [put(&pod("a/p", "", "", 101)), put(&pod("a-b/p", "", "", 102)), Change::Progress(110)]);
    let mut watcher = open(&reader, CursorStart::Initial(reader.snapshot()), &Filter::all());
    assert!(watcher.is_initial() && watcher.bookmark().is_none());
    write(&mut writer, [put(&pod("a/p", "", "", 111)), deleted("a-b/p", 112)]);
    let expected = ["ADDED a-b/p@102", "ADDED a/p@101", "done 110", "MODIFIED a/p@111", "DELETED a-b/p@112"];
    assert_eq!(drain(&mut watcher), (expected.map(str::to_owned).to_vec(), Step::Wait));
}

/// Goal: no end bookmark at a position whose resume would get 410. Method: the window evicts events while the state is
/// sent.
#[test]
fn a_slow_initial_state_ends_before_it_is_called_complete() {
    let limits = Limits { window_bytes_max: 2_000, snapshot_bytes_max: 6_000, ..Limits::default() };
    let (mut writer, _waking, reader) = listed(limits);
    write(&mut writer, (1..=9).map(|n| put(&pod(&format!("a/{n}"), "", "", 100 + n))));
    let one = Budget { slices: 1, bytes: 1 };
    let mut slow = open(&reader, CursorStart::Initial(reader.snapshot()), &Filter::all());
    let page = Page::new(reader.snapshot(), Filter::all(), None, None);
    let mut out = Slices::new();
    assert_eq!(slow.step(one, &mut out, None), Step::Sent);
    write(&mut writer, (110..=118).map(|n| put(&pod("a/1", "", "", n))));
    assert!(2_000 < reader.stats().window_bytes, "kept for the snapshot");
    assert_eq!(reader.oldest(), 109, "all that an open snapshot needs");
    assert!(!page.is_cut());
    write(&mut writer, (119..=150).map(|n| put(&pod("a/1", "", "", n))));
    assert!(page.is_cut(), "a list is cut as well");
    assert!(matches!(slow.step(one, &mut out, None), Step::Expired(_)));
    assert!(reader.stats().window_bytes <= 2_000, "nobody needs more any more");
}

/// Goal: a relist starts another history. Method: watchers opened and positions taken before it.
#[test]
fn a_new_epoch_ends_watches_before_anything_newer_is_sent() {
    let (mut writer, _waking, reader) = listed(Limits::default());
    write(&mut writer, [put(&pod("a/p", "n", "", 101))]);
    let filters = [Filter::all(), filter(None, "", "spec.nodeName=n")];
    let mut cursors: Vec<_> = filters.iter().map(|filter| open(&reader, CursorStart::After(100), filter)).collect();
    cursors.push(open(&reader, CursorStart::Initial(reader.snapshot()), &Filter::all()));
    let old = reader.snapshot();
    let state = Objects::from_iter([pod("a/q", "n", "", 102).entry(&schema())]);
    writer.reset(state, 105, at(1));
    write(&mut writer, [put(&pod("a/q", "n", "", 106))]);
    for cursor in &mut cursors {
        assert_eq!(drain(cursor), (vec![], Step::EpochEnded));
        assert_eq!(cursor.bookmark(), None);
    }
    let too_old = Some(ExpiredPosition { requested: 104, oldest: 105 });
    for filter in filters {
        assert_eq!(reader.cursor(CursorStart::After(104), Arc::clone(&filter)).err(), too_old);
        assert_eq!(drain(&mut open(&reader, CursorStart::After(105), &filter)).0, ["MODIFIED a/q@106"]);
    }
    assert_eq!(reader.at(104).err(), too_old);
    let mut of_old = open(&reader, CursorStart::Initial(old), &Filter::all());
    assert_eq!(drain(&mut of_old), (vec![], Step::EpochEnded), "a snapshot of the old history leads nowhere");
    assert_eq!(reader.stats().epochs, 2);
}

#[test]
fn a_closed_cache_ends_watches_and_still_reads() {
    let (mut writer, mut waking, reader) = listed(Limits::default());
    write(&mut writer, [put(&pod("a/p", "", "", 101))]);
    let mut watcher = open(&reader, CursorStart::After(101), &Filter::all());
    let counting = Arc::new(Counting::default());
    let waker = Arc::clone(&counting).into();
    let mut cx = Context::from_waker(&waker);
    assert_eq!(watcher.step(PLENTY, &mut Slices::new(), Some(&mut cx)), Step::Wait);
    let mut late = open(&reader, CursorStart::After(100), &Filter::all());
    drop(writer);
    assert_eq!(drain(&mut late), (vec!["ADDED a/p@101".to_owned()], Step::EpochEnded), "told before the end");
    assert!(waking.poll_touched(&mut cx).is_ready());
    assert_eq!((waking.wake(), counting.count()), (1, 1));
    assert_eq!(waking.poll_touched(&mut cx), std::task::Poll::Ready(Err(watch_cache::ClosedCache)));
    assert_eq!(watcher.step(PLENTY, &mut Slices::new(), None), Step::EpochEnded);
    assert_eq!((reader.snapshot().objects.len(), reader.get("a/p").is_some()), (1, true));
}

/// Goal: a watch that arrives after the end of its history gets no event, whatever it watches and wherever it starts: the
/// window holds changes that its client has seen. Method: a cache with events, closed or relisted, with and without
/// earlier watchers, with and without evicted events; new watchers of each scope from each kind of start.
#[test]
fn a_watch_that_arrives_after_the_end_gets_no_event() {
    let scopes = [
        Filter::all(),
        filter(None, "app=x", ""),
        filter(Some("a"), "", ""),
        filter(Some("a"), "", "metadata.name=p"),
        filter(None, "", "spec.nodeName=n"),
    ];
    for window_events_max in [4, 1_000] {
        for (filter, has_earlier, is_relisted) in
            scopes.iter().flat_map(|one| [(one, false, false), (one, true, false), (one, true, true)])
        {
            let (mut writer, _waking, reader) = listed(Limits { window_events_max, ..Limits::default() });
            // Their bucket stays while they live.
            let mut earlier = has_earlier.then(|| open(&reader, CursorStart::After(100), filter));
            write(&mut writer, (101..=110).map(|n| put(&pod("a/p", "n", "x", n))));
            write(&mut writer, [put(&pod("a/q", "n", "x", 111)), deleted("a/q", 112)]);
            let old = reader.snapshot();
            let starts = [
                CursorStart::Initial(old.clone()),
                CursorStart::Rest(old.clone(), String::new()),
                CursorStart::Rest(old, "a/p".to_owned()),
                CursorStart::After(100),
                CursorStart::After(106),
                CursorStart::After(112),
                CursorStart::After(200),
            ];
            if is_relisted {
                writer.reset(Objects::new(), 112, at(1));
            } else {
                writer.close();
            }
            // After a relist, only a snapshot belongs to the old history.
            let ended = starts.into_iter().filter(|start| !is_relisted || !matches!(start, CursorStart::After(_)));
            for start in ended {
                let scope = scopes.iter().position(|one| Arc::ptr_eq(one, filter));
                let name = format!("scope {scope:?}, earlier: {has_earlier}, from {start:?}");
                let mut late = open(&reader, start, filter);
                assert_eq!(drain(&mut late), (vec![], Step::EpochEnded), "{name}");
                assert_eq!((late.bookmark(), late.is_initial(), late.behind()), (None, false, None), "{name}");
                assert_eq!(reader.stats().watchers(), u64::from(has_earlier), "{name}");
            }
            let drained = earlier.as_mut().map(drain);
            if let Some((lines, step)) = drained.filter(|_| window_events_max > 100 && !is_relisted) {
                let first = "ADDED a/p@101".to_owned();
                assert_eq!((lines.first(), step), (Some(&first), Step::EpochEnded), "an earlier watch gets its events");
            }
        }
    }
}

#[test]
fn a_change_out_of_order_is_refused_and_changes_nothing() {
    let (mut writer, _waking, reader) = listed(Limits::default());
    write(&mut writer, [put(&pod("a/p", "", "", 105))]);
    for change in [put(&pod("a/q", "", "", 104)), deleted("a/p", 104)] {
        assert!(writer.apply(change, at(0)).is_err());
    }
    assert!(writer.apply(Change::Progress(3), at(0)).is_ok_and(|event| event.is_none()), "late progress is no news");
    assert_eq!((reader.applied(), reader.stats().objects), (105, 1));
    assert!(writer.apply(deleted("a/none", 107), at(0)).is_ok_and(|event| event.is_none()), "nobody missed it");
    assert_eq!(reader.applied(), 107);
}

/// Goal: undoing events equals replaying them. Method: every position of a history whose beginning was evicted.
#[test]
fn an_exact_state_equals_the_history_replayed() {
    let (mut writer, _waking, reader) = listed(Limits { window_events_max: 300, ..Limits::default() });
    let mut rng = fastrand::Rng::with_seed(7);
    let mut states: Vec<(u64, Objects<Entry>)> = vec![(100, Objects::new())];
    for n in 0..500 {
        let position = 102 + 2 * n;
        let key = format!("a/{}", rng.u32(0..40));
        let change = if rng.u8(0..4) == 0 { deleted(&key, position) } else { put(&pod(&key, "", "", position)) };
        write(&mut writer, [change]);
        states.push((position, reader.snapshot().objects));
    }
    let retained = |reader: &Reader, position: u64| reader.at(position).map(|state| state.objects);
    let oldest = reader.oldest();
    for (position, expected) in &states {
        // A position between two events has the state of the older one.
        for requested in [*position, position + 1] {
            match retained(&reader, requested) {
                Ok(objects) => {
                    assert_eq!(expected.diff(&objects).count(), 0, "at {requested}");
                    assert_eq!(
                        reader.at(requested).expect("just read").resource_version,
                        requested.min(reader.applied())
                    );
                }
                Err(expired) => assert!(requested < oldest && expired.oldest == oldest, "at {requested}"),
            }
        }
    }
    let held = reader.oldest();
    reader.hold(held, at(10));
    write(&mut writer, (2_000..2_400).map(|n| put(&pod("a/0", "", "", n))));
    assert!(reader.at(held).is_ok(), "held for the next page");
    writer.trim(at(10));
    assert!(reader.at(held).is_err(), "and then let go");
}

#[test]
fn bounds_hold_by_bytes_count_and_age() {
    let object = pod("a/p", "", "", 100).entry(&schema()).cost();
    let bytes = 20 * object;
    let cases = [
        (Limits { window_bytes_max: bytes, ..Limits::default() }, 5..=19),
        (Limits { window_events_max: 7, ..Limits::default() }, 7..=7),
        (Limits { window_bytes_total_max: bytes, ..Limits::default() }, 5..=19),
        (Limits { window_bytes_max: 1, ..Limits::default() }, 1..=1),
    ];
    for (limits, events) in cases {
        let total = Total::default();
        let (mut writer, _waking, reader) = cache_within(schema(), limits.clone(), total.clone());
        writer.reset(Objects::new(), 100, at(0));
        for n in 1..=200 {
            writer.apply(put(&pod("a/p", "", "", 100 + n)), at(n)).expect("in order");
        }
        let stats = reader.stats();
        assert!(events.contains(&stats.window_events), "{limits:?}: {stats:?}");
        assert!(stats.window_bytes <= bytes.max(2 * object), "{limits:?}: {stats:?}");
        assert_eq!(total.bytes(), stats.window_bytes);
        let covers = stats.window_covers.expect("something was evicted").as_secs();
        assert_eq!(covers, stats.window_events as u64, "one event a second");
        writer.trim(at(100_000));
        assert_eq!((reader.stats().window_events, total.bytes()), (0, 0), "old events go even when there is room");
        let epoch_later = reader.oldest();
        assert_eq!(epoch_later, 300);
    }
}

/// Goal: the memory of a watcher does not depend on the number of objects. Method: the sizes of cursor, page and
/// filter.
#[test]
fn a_cursor_is_small() {
    assert!(size_of::<Cursor>() <= 256, "{}", size_of::<Cursor>());
    assert!(size_of::<Page>() <= 256, "{}", size_of::<Page>());
    assert!(size_of::<Filter>() <= 256, "{}", size_of::<Filter>());
    assert!(size_of::<Time>() <= 16);
}

/// Goal: a selective watch of many objects does not block its worker. Method: count the steps.
#[test]
fn a_step_looks_at_a_bounded_number_of_objects() {
    let (mut writer, _waking, reader) = cache(schema(), Limits::default());
    let objects = (0..10_000).map(|n| pod(&format!("a/{n}"), "", "x", 1).entry(&schema())).collect();
    writer.reset(objects, 100, at(0));
    let mut watcher = open(&reader, CursorStart::Initial(reader.snapshot()), &filter(None, "app=y", ""));
    let mut steps = 1;
    let mut out = Slices::new();
    while watcher.step(PLENTY, &mut out, None) == Step::Sent {
        steps += 1;
    }
    assert_eq!((steps, out.is_empty()), (5, true));
}

/// Goal: the metrics show the phase of each watcher. Method: one watcher goes through every phase.
#[test]
fn the_stage_of_a_watcher_is_counted() {
    let (mut writer, _waking, reader) = listed(Limits { window_events_max: 10, ..Limits::default() });
    write(&mut writer, (101..=103).map(|n| put(&pod(&format!("a/{n}"), "", "", n))));
    let counts = || {
        let stats = reader.stats();
        [
            stats.watchers_initial,
            stats.watchers_catching_up,
            stats.watchers_parked,
            stats.watchers_live,
            stats.watchers_expired,
        ]
    };
    let one = Budget { slices: 1, bytes: usize::MAX };
    let mut watcher = open(&reader, CursorStart::Initial(reader.snapshot()), &Filter::all());
    assert_eq!(counts(), [1, 0, 0, 0, 0], "it sends its initial state");
    let mut step = || watcher.step(one, &mut Slices::new(), None);
    while step() != Step::InitialDone(103) {}
    assert_eq!(counts(), [0, 1, 0, 0, 0], "what happened meanwhile is still to be looked at");
    assert_eq!((step(), counts()), (Step::Wait, [0, 0, 0, 1, 0]), "nothing did");
    write(&mut writer, (104..=105).map(|n| put(&pod("a/p", "", "", n))));
    assert_eq!((step(), counts()), (Step::Sent, [0, 0, 1, 0, 0]), "it was asked for one event of two");
    assert_eq!((step(), counts()), (Step::Sent, [0, 0, 0, 1, 0]), "that was the last");
    write(&mut writer, (106..=120).map(|n| put(&pod("a/p", "", "", n))));
    assert!(matches!(step(), Step::Expired(_)));
    assert_eq!((counts(), reader.stats().watchers()), ([0, 0, 0, 0, 1], 0));
}

/// Returns true if the event at a position concerns a watcher.
type Concerns = fn(u64) -> bool;

/// Goal: a bucket that begins far back has all its events, with concurrent writes and with or without earlier
/// watchers. Method: watchers of nodes, namespaces and objects resume from positions all over a long window while a
/// thread keeps writing; objects move between nodes.
#[test]
fn a_bucket_that_begins_far_back_has_every_event() {
    const BEFORE: u64 = 2_000;
    const MEANWHILE: u64 = 2_000;
    let end = 100 + BEFORE + MEANWHILE;
    // Nine objects in three namespaces; each update moves an object to the next of three nodes.
    let (key, node) = (|n: u64| format!("ns-{}/{}", n % 3, n % 9), |n: u64| (n / 9) % 3);
    let (mut writer, _waking, reader) = listed(Limits::default());
    let event = |n: u64| put(&pod(&key(n), &format!("node-{}", node(n)), "", n));
    write(&mut writer, (101..=100 + BEFORE).map(event));
    let of_node: Concerns = |n| (n / 9) % 3 == 1 || (n - 9) / 9 % 3 == 1 && n > 109;
    let of_namespace: Concerns = |n| n % 3 == 1;
    let of_name: Concerns = |n| n % 9 == 4;
    let scopes = [
        (filter(None, "", "spec.nodeName=node-1"), of_node),
        (filter(Some("ns-1"), "", ""), of_namespace),
        (filter(Some("ns-1"), "", "metadata.name=4"), of_name),
    ];
    std::thread::scope(|threads| {
        threads.spawn(|| write(&mut writer, (101 + BEFORE..=end).map(event)));
        for from in (100..100 + BEFORE).rev().step_by(131).chain([150, 1_000]) {
            for (filter, concerns) in &scopes {
                let mut watcher = open(&reader, CursorStart::After(from), filter);
                let mut lines = Vec::new();
                while watcher.position() < end {
                    lines.extend(drain(&mut watcher).0);
                }
                let positions: Vec<u64> =
                    lines.iter().filter_map(|line| line.rsplit_once('@')?.1.parse().ok()).collect();
                let expected: Vec<u64> = (from + 1..=end).filter(|&n| concerns(n)).collect();
                assert_eq!(positions, expected, "from {from}");
            }
        }
    });
}
