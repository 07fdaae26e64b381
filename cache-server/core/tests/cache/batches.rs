//! Revisions with many changes: transactions, and leases of etcd that expire. Delivered as a batch or one by one.

use std::{sync::Arc, thread};

use informer_core::Objects;
use watch_cache::{
    BucketWaker, Budget, Change, Cursor, CursorStart, ExpiredPosition, Filter, Limits, OutOfOrder, Reader, Slices,
    Step, Writer, cache,
};

use super::common::{PLENTY, Pod, at, deleted, drain, filter, lines, pod, put, schema};

const ONE: Budget = Budget { slices: 1, bytes: 1 };

/// Creates an empty cache listed at 100.
fn listed(limits: Limits) -> (Writer, BucketWaker, Reader) {
    let (mut writer, waking, reader) = cache(schema(), limits);
    writer.reset(Objects::new(), 100, at(0));
    (writer, waking, reader)
}

fn window(events: usize) -> Limits {
    Limits { window_events_max: events, ..Limits::default() }
}

/// Returns puts of `a/0`, `a/1` and so on, on node n.
fn puts(count: usize, position: u64) -> Vec<Change> {
    (0..count).map(|index| put(&pod(&format!("a/{index}"), "n", "", position))).collect()
}

fn deletions(count: usize, position: u64) -> Vec<Change> {
    (0..count).map(|index| deleted(&format!("a/{index}"), position)).collect()
}

fn after(reader: &Reader, position: u64, filter: &Arc<Filter>) -> Result<Cursor, ExpiredPosition> {
    reader.cursor(CursorStart::After(position), Arc::clone(filter))
}

/// Filters of every scope that has all objects of `puts`; the last one has only `a/0`.
fn scopes() -> [Arc<Filter>; 4] {
    [
        Filter::all(),
        filter(Some("a"), "", ""),
        filter(None, "", "spec.nodeName=n"),
        filter(Some("a"), "", "metadata.name=0"),
    ]
}

#[test]
fn a_batch_wakes_each_watcher_once_and_is_read_whole() {
    let (mut writer, mut waking, reader) = listed(Limits::default());
    let mut watchers = scopes().map(|scope| after(&reader, 100, &scope).expect("now"));
    let waker = std::task::Waker::noop();
    for watcher in &mut watchers {
        let mut cx = std::task::Context::from_waker(waker);
        assert_eq!(watcher.step(PLENTY, &mut Slices::new(), Some(&mut cx)), Step::Wait);
    }
    assert_eq!(writer.apply_batch(puts(5, 103), at(0)), Ok(5));
    assert_eq!((waking.wake(), reader.applied(), reader.stats().events), (4, 103, 5));
    assert_eq!(writer.apply_batch(deletions(7, 104), at(0)), Ok(5), "two are missing");
    for (watcher, count) in watchers.iter_mut().zip([5, 5, 5, 1]) {
        let (lines, step) = drain(watcher);
        let names = |kind: &str, at: u64| (0..count).map(move |index| format!("{kind} a/{index}@{at}")).collect();
        let expected: Vec<Vec<String>> = vec![names("ADDED", 103), names("DELETED", 104)];
        assert_eq!((lines, step, watcher.bookmark()), (expected.concat(), Step::Wait, Some(104)));
    }
}

#[test]
fn a_batch_that_is_refused_changes_nothing() {
    let (mut writer, _waking, reader) = listed(Limits::default());
    assert_eq!(writer.apply_batch([], at(0)), Ok(0));
    writer.apply(Change::Progress(110), at(0)).expect("progress");
    assert_eq!(writer.apply_batch(puts(3, 109), at(0)), Err(OutOfOrder { got: 109, applied: 110 }));
    assert_eq!((reader.applied(), reader.stats().objects, reader.stats().events), (110, 0, 0));
    assert_eq!(writer.apply_batch([Change::Progress(109)], at(0)), Ok(0), "late progress is no news");
    assert_eq!(writer.apply_batch([Change::Progress(111), Change::Progress(111)], at(0)), Ok(0));
    assert_eq!(reader.applied(), 111);
}

#[test]
#[should_panic(expected = "a batch has one revision")]
fn a_batch_of_several_revisions_is_a_mistake_of_its_caller() {
    let (mut writer, _waking, _reader) = listed(Limits::default());
    let changes = vec![put(&pod("a/p", "", "", 101)), put(&pod("a/q", "", "", 102))];
    let _ = writer.apply_batch(changes, at(0));
}

/// Goal: no reader sees a part of a batch. Method: two threads read states, lists at exact positions and initial
/// streams while batches create and delete the same ten objects.
#[test]
fn no_reader_sees_a_part_of_a_batch() {
    const BATCHES: u64 = 600;
    const OBJECTS: usize = 10;
    let (mut writer, _waking, reader) = listed(Limits::default());
    let last = 100 + BATCHES;
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while reader.applied() < last {
                    let now = reader.snapshot();
                    let count = |position: u64| if position % 2 == 1 { OBJECTS } else { 0 };
                    assert_eq!(now.objects.len(), count(now.resource_version), "at {}", now.resource_version);
                    let before = now.resource_version.saturating_sub(7).max(100);
                    assert_eq!(reader.at(before).expect("in the window").objects.len(), count(before), "at {before}");
                    let mut stream = reader.cursor(CursorStart::Initial(now), Filter::all()).expect("now");
                    assert_eq!(drain(&mut stream).1, Step::Wait);
                    if let Some(position) = stream.bookmark() {
                        assert_eq!(reader.at(position).expect("in the window").objects.len(), count(position));
                    }
                }
            });
        }
        for position in 101..=last {
            let changes = if position % 2 == 1 { puts(OBJECTS, position) } else { deletions(OBJECTS, position) };
            assert_eq!(writer.apply_batch(changes, at(0)), Ok(OBJECTS));
        }
    });
}

/// Goal: a cursor that has read a part of a batch gets exactly the rest, unless an event of that rest was evicted.
/// Method: every number of read events and of evicted events, for every scope.
#[test]
fn the_rest_of_a_batch_is_neither_missed_nor_repeated() {
    const BATCH: usize = 6;
    for scope in scopes().iter().take(3) {
        for read in 0..=BATCH {
            for evicted in 0..=BATCH {
                let (mut writer, _waking, reader) = listed(window(BATCH));
                writer.apply(put(&pod("a/before", "n", "", 101)), at(0)).expect("in order");
                let mut watcher = after(&reader, 101, scope).expect("now");
                assert_eq!(writer.apply_batch(puts(BATCH, 110), at(0)), Ok(BATCH));
                for index in 0..read {
                    let mut out = Slices::new();
                    assert_eq!(watcher.step(ONE, &mut out, None), Step::Sent);
                    assert_eq!(lines(&out)[0].1, pod(&format!("a/{index}"), "n", "", 110));
                    let (position, bookmark) = if index + 1 < BATCH { (109, None) } else { (110, Some(110)) };
                    assert_eq!((watcher.position(), watcher.bookmark()), (position, bookmark), "{index}");
                }
                for other in 0..evicted {
                    writer.apply(put(&pod("b/q", "m", "", 111 + other as u64)), at(0)).expect("in order");
                }
                let context = format!("{scope:?}: {read} read, {evicted} evicted");
                let oldest = if evicted == 0 { 101 } else { 110 };
                assert_eq!(reader.oldest(), oldest, "{context}");
                let (lines, step) = drain(&mut watcher);
                if read < evicted {
                    let requested = if read == 0 { 101 } else { 109 };
                    assert_eq!(
                        (lines, step),
                        (vec![], Step::Expired(ExpiredPosition { requested, oldest })),
                        "{context}"
                    );
                } else {
                    let rest: Vec<String> = (read..BATCH).map(|index| format!("ADDED a/{index}@110")).collect();
                    let lines: Vec<String> = lines.into_iter().filter(|line| line.contains("a/")).collect();
                    assert_eq!((lines, step), (rest, Step::Wait), "{context}");
                }
                check_positions(&reader, scope, evicted, BATCH);
            }
        }
    }
}

/// Checks resumes and exact states around the batch at 110.
fn check_positions(reader: &Reader, scope: &Arc<Filter>, evicted: usize, batch: usize) {
    for position in 101..110 {
        let (resumed, state) = (after(reader, position, scope), reader.at(position));
        if evicted == 0 {
            assert_eq!(drain(&mut resumed.expect("in the window")).0.len(), batch);
            assert_eq!(state.expect("in the window").objects.len(), 1);
        } else {
            let expired = ExpiredPosition { requested: position, oldest: 110 };
            assert_eq!((resumed.err(), state.err()), (Some(expired), Some(expired)));
        }
    }
    assert_eq!(reader.at(110).expect("the whole batch").objects.len(), 1 + batch);
    let lines = drain(&mut after(reader, 110, scope).expect("after the batch")).0;
    assert!(lines.iter().all(|line| line.contains("b/q")), "{lines:?}");
}

/// Goal: changes of one revision that come one by one reach every open watch once. Method: watchers that have read
/// none, some and all of the earlier ones, in every scope.
#[test]
fn changes_of_one_revision_may_come_one_by_one() {
    let (mut writer, mut waking, reader) = listed(Limits::default());
    for scope in scopes().iter().take(3) {
        let base = reader.applied();
        let change = |writer: &mut Writer, index: usize| {
            let event = writer.apply(put(&pod(&format!("a/{index}"), "n", "", base + 1)), at(0)).expect("in order");
            assert!(event.is_some());
        };
        let mut watchers: Vec<Cursor> = (0..3).map(|_| after(&reader, base, scope).expect("now")).collect();
        let mut delivered: Vec<Vec<String>> = vec![Vec::new(); 3];
        for index in 0..9 {
            change(&mut writer, index);
            delivered[0].extend(drain(&mut watchers[0]).0);
            assert_eq!(watchers[0].bookmark(), Some(base + 1));
            if index % 4 == 3 {
                delivered[1].extend(drain(&mut watchers[1]).0);
            }
        }
        delivered[1].extend(drain(&mut watchers[1]).0);
        delivered[2].extend(drain(&mut watchers[2]).0);
        for lines in &delivered {
            let expected: Vec<String> = (0..9).map(|index| format!("a/{index}@{}", base + 1)).collect();
            let pods: Vec<&str> = lines.iter().filter_map(|line| line.split_once(' ')).map(|(_, pod)| pod).collect();
            assert_eq!(pods, expected);
        }
        assert!(after(&reader, base + 1, scope).is_ok_and(|mut watcher| drain(&mut watcher).0.is_empty()));
        waking.wake();
    }
}

#[test]
fn a_change_that_is_repeated_is_ignored() {
    let (mut writer, _waking, reader) = listed(Limits::default());
    let mut watcher = after(&reader, 100, &Filter::all()).expect("now");
    assert_eq!(writer.apply_batch(puts(2, 101), at(0)), Ok(2));
    assert!(writer.apply(put(&pod("a/1", "n", "", 101)), at(0)).is_ok_and(|event| event.is_none()));
    assert_eq!(writer.apply_batch(puts(3, 101), at(0)), Ok(1), "one of three is new");
    assert_eq!(writer.apply_batch([puts(1, 102), puts(1, 102)].concat(), at(0)), Ok(1));
    assert!(writer.apply(deleted("a/1", 102), at(0)).is_ok_and(|event| event.is_some()));
    assert!(writer.apply(deleted("a/1", 102), at(0)).is_ok_and(|event| event.is_none()));
    let expected =
        ["ADDED a/0@101", "ADDED a/1@101", "ADDED a/2@101", "MODIFIED a/0@102", "DELETED a/1@102"].map(str::to_owned);
    assert_eq!(drain(&mut watcher), (expected.to_vec(), Step::Wait));
}

/// Goal: an initial state between two changes of one revision is complete at the position before, and the rest
/// follows. Method: changes at the snapshot's revision while the state is sent; then resume from the end bookmark.
#[test]
fn a_state_between_changes_of_one_revision_ends_at_the_position_before() {
    for scope in scopes().iter().take(3) {
        let (mut writer, _waking, reader) = listed(Limits::default());
        for change in puts(4, 105).into_iter().take(2) {
            writer.apply(change, at(0)).expect("in order");
        }
        let start = CursorStart::Initial(reader.snapshot());
        let mut watcher = reader.cursor(start, Arc::clone(scope)).expect("now");
        assert_eq!(watcher.position(), 105);
        for change in puts(4, 105).into_iter().skip(2) {
            writer.apply(change, at(0)).expect("in order");
        }
        let expected =
            ["ADDED a/0@105", "ADDED a/1@105", "done 104", "ADDED a/2@105", "ADDED a/3@105"].map(str::to_owned);
        assert_eq!(drain(&mut watcher), (expected.to_vec(), Step::Wait));
        assert_eq!(watcher.bookmark(), Some(105));
        assert_eq!(drain(&mut after(&reader, 104, scope).expect("resumable")).0.len(), 4, "none is missing");
    }
}

/// Goal: an end bookmark is resumable in this case too. Method: evict the changes of the revision that the snapshot
/// has.
#[test]
fn a_state_between_changes_whose_position_before_is_lost_expires() {
    let (mut writer, _waking, reader) = listed(window(2));
    for change in puts(2, 105) {
        writer.apply(change, at(0)).expect("in order");
    }
    let mut watcher = reader.cursor(CursorStart::Initial(reader.snapshot()), Filter::all()).expect("now");
    assert_eq!(watcher.step(ONE, &mut Slices::new(), None), Step::Sent);
    for index in 2..4 {
        writer.apply(put(&pod(&format!("a/{index}"), "n", "", 105)), at(0)).expect("in order");
    }
    let mut steps = std::iter::repeat_with(|| watcher.step(PLENTY, &mut Slices::new(), None));
    let end = steps.find(|step| *step != Step::Sent);
    assert_eq!(end, Some(Step::Expired(ExpiredPosition { requested: 104, oldest: 105 })));
}

/// Goal: a start ahead of the cache skips every change at its position, but none above. Method: batches and single
/// changes below, at and above it, with and without steps in between.
#[test]
fn a_start_in_the_future_skips_its_whole_revision() {
    for scope in scopes().iter().take(3) {
        for is_eager in [false, true] {
            let (mut writer, _waking, reader) = listed(Limits::default());
            let mut ahead = after(&reader, 103, scope).expect("ahead");
            let mut lines = Vec::new();
            let mut apply = |changes: Vec<Change>| {
                assert_eq!(writer.apply_batch(changes, at(0)), Ok(2));
                if is_eager {
                    lines.extend(drain(&mut ahead).0);
                    let bookmark = ahead.bookmark();
                    assert_eq!(bookmark, (103 <= reader.applied()).then(|| reader.applied()));
                }
            };
            apply(puts(2, 102));
            apply(puts(2, 103));
            apply(deletions(2, 103));
            apply(puts(2, 104));
            apply(deletions(2, 104));
            lines.extend(drain(&mut ahead).0);
            let expected = ["ADDED a/0@104", "ADDED a/1@104", "DELETED a/0@104", "DELETED a/1@104"].map(str::to_owned);
            assert_eq!((lines, ahead.bookmark()), (expected.to_vec(), Some(104)), "{scope:?}, {is_eager}");
        }
    }
}

/// Goal: undoing, and buckets that begin far back, hold for revisions with many changes. Method: exact states, pages
/// held for later, and resumes at every position of a long history whose beginning was evicted, beside a model.
#[test]
fn every_position_of_a_history_of_batches_is_right() {
    let (mut writer, _waking, reader) = listed(window(700));
    let mut rng = fastrand::Rng::with_seed(11);
    // Events as (position, key, the node after it and before it).
    let mut events: Vec<(u64, String, String, String)> = Vec::new();
    let mut states: Vec<Vec<Pod>> = vec![Vec::new()];
    for position in 101..=250 {
        let mut state = states.last().expect("the first").clone();
        let mut changes = Vec::new();
        for key in 0..rng.u64(0..12) {
            let key = format!("ns-{}/{key}", key % 3);
            let before = state.iter().position(|pod| pod.key == key).map(|place| state.swap_remove(place));
            let node_before = before.as_ref().map_or(String::new(), |pod| pod.node.clone());
            let node = format!("node-{}", rng.u32(0..3));
            let (change, node) = if before.is_some() && rng.bool() {
                (deleted(&key, position), node_before.clone())
            } else {
                let pod = pod(&key, &node, "", position);
                state.push(pod.clone());
                (put(&pod), node)
            };
            events.push((position, key, node, node_before));
            changes.push(change);
        }
        assert_eq!(writer.apply_batch(changes, at(0)), Ok(events.iter().filter(|event| event.0 == position).count()));
        states.push(state);
    }
    let oldest = reader.oldest();
    assert_eq!(events.iter().filter(|(at, ..)| *at > oldest).count() + cut(&events, oldest), 700);
    for position in (100..=250).rev() {
        check_state(&reader, position, &states[usize::try_from(position - 100).expect("small")]);
        for (name, filter) in [
            ("", Filter::all()),
            ("ns-1", filter(Some("ns-1"), "", "")),
            ("ns-1/4", filter(Some("ns-1"), "", "metadata.name=4")),
            ("node-1", filter(None, "", "spec.nodeName=node-1")),
        ] {
            let concerns = |key: &str, node: &str, before: &str| {
                name.is_empty()
                    || key == name
                    || key.split_once('/').expect("a key").0 == name
                    || node == name
                    || before == name
            };
            match after(&reader, position, &filter) {
                Ok(mut watcher) => {
                    let expected: Vec<u64> = events
                        .iter()
                        .filter(|(at, key, node, before)| *at > position && concerns(key, node, before))
                        .map(|(at, ..)| *at)
                        .collect();
                    let lines = drain(&mut watcher).0;
                    let positions = lines.iter().filter_map(|line| line.rsplit_once('@')?.1.parse().ok());
                    assert_eq!(positions.collect::<Vec<u64>>(), expected, "{name} from {position}");
                }
                Err(expired) => {
                    assert_eq!((expired.requested, expired.oldest, position < oldest), (position, oldest, true))
                }
            }
        }
    }
}

/// Returns the number of events at `oldest` that are still in a window of 700.
fn cut(events: &[(u64, String, String, String)], oldest: u64) -> usize {
    let (above, at) = events.iter().fold((0, 0), |(above, at), event| {
        (above + usize::from(event.0 > oldest), at + usize::from(event.0 == oldest))
    });
    (700 - above).min(at)
}

fn check_state(reader: &Reader, position: u64, expected: &[Pod]) {
    match reader.at(position) {
        Ok(state) => {
            let mut expected = expected.to_vec();
            expected.sort_by(|one, other| one.key.cmp(&other.key));
            let read =
                |entry: &Arc<watch_cache::Entry>| Pod::read(&serde_json::from_slice(&entry.object()).expect("JSON"));
            assert_eq!(state.objects.iter().map(read).collect::<Vec<_>>(), expected, "at {position}");
            reader.hold(position, at(75));
        }
        Err(expired) => assert!(position < reader.oldest(), "{expired:?}"),
    }
}
