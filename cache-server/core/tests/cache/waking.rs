//! No watcher misses a wake-up, and none is woken by an event that does not concern it.

use std::{
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use informer_core::Objects;
use watch_cache::{BucketWaker, Cursor, CursorStart, Filter, Limits, Reader, Slices, Step, Writer, cache};

use super::common::{Counting, PLENTY, at, deleted, filter, lines, pod, put, schema};

fn listed() -> (Writer, BucketWaker, Reader) {
    let (mut writer, waking, reader) = cache(schema(), Limits::default());
    writer.reset(Objects::new(), 100, at(0));
    (writer, waking, reader)
}

/// Returns a waiting watcher and the counter of its wake-ups.
fn parked(reader: &Reader, filter: Arc<Filter>) -> (Cursor, Arc<Counting>) {
    let mut cursor = reader.cursor(CursorStart::After(reader.applied()), filter).expect("at the head");
    let counting = Arc::new(Counting::default());
    park(&mut cursor, &counting);
    (cursor, counting)
}

fn park(cursor: &mut Cursor, counting: &Arc<Counting>) {
    let waker = Waker::from(Arc::clone(counting));
    let mut out = Slices::new();
    while cursor.step(PLENTY, &mut out, Some(&mut Context::from_waker(&waker))) != Step::Wait {}
}

#[test]
fn only_those_it_concerns_are_woken() {
    let (mut writer, mut waking, reader) = listed();
    let watch = |namespace, fields| parked(&reader, filter(namespace, "", fields));
    let all = watch(None, "");
    let (a, b) = (watch(Some("a"), ""), watch(Some("b"), ""));
    let (n1, n2) = (watch(None, "spec.nodeName=n1"), watch(None, "spec.nodeName=n2"));
    let name = watch(Some("a"), "metadata.name=p");
    let counts = || [&all, &a, &b, &n1, &n2, &name].map(|(_, counting)| counting.count());
    writer.apply(put(&pod("a/q", "n1", "", 101)), at(0)).expect("in order");
    assert_eq!(counts(), [0; 6], "waking is a step of its own");
    assert_eq!((waking.wake(), counts()), (3, [1, 1, 0, 1, 0, 0]));
    assert_eq!(waking.wake(), 0, "nobody parked again");
    writer.apply(put(&pod("a/p", "n2", "", 102)), at(0)).expect("in order");
    assert_eq!((waking.wake(), counts()), (2, [1, 1, 0, 1, 1, 1]));
}

/// Goal: without an event, each watcher is woken once, some at a time. Method: watchers of all kinds, in three parts.
#[test]
fn all_are_woken_part_by_part() {
    let (_writer, mut waking, reader) = listed();
    let watch = |namespace, fields| parked(&reader, filter(namespace, "", fields));
    let (all, a, b) = (watch(None, ""), watch(Some("a"), ""), watch(Some("b"), ""));
    let (node, name) = (watch(None, "spec.nodeName=n1"), watch(Some("a"), "metadata.name=p"));
    let mut watchers = reader.watchers();
    let woken = [3, 2, 1].map(|parts| {
        watchers.wake_part(parts);
        waking.wake()
    });
    assert_eq!(woken, [2, 2, 1]);
    assert_eq!([&all, &a, &b, &node, &name].map(|(_, counting)| counting.count()), [1; 5]);
    watchers.wake_part(1);
    assert_eq!(waking.wake(), 0, "nobody is left");
}

#[test]
fn an_object_that_moves_wakes_its_old_node_too() {
    let (mut writer, mut waking, reader) = listed();
    writer.apply(put(&pod("a/p", "n1", "", 101)), at(0)).expect("in order");
    let old = parked(&reader, filter(None, "", "spec.nodeName=n1"));
    let new = parked(&reader, filter(None, "", "spec.nodeName=n2"));
    writer.apply(put(&pod("a/p", "n2", "", 102)), at(0)).expect("in order");
    assert_eq!(waking.wake(), 2);
    writer.apply(deleted("a/p", 103), at(0)).expect("in order");
    assert_eq!((old.1.count(), new.1.count()), (1, 1));
}

/// Goal: a watcher is registered once. Method: poll it repeatedly, from one task and from another.
#[test]
fn a_watcher_that_parks_again_is_woken_once() {
    let (mut writer, mut waking, reader) = listed();
    let (mut cursor, first) = parked(&reader, Filter::all());
    for _ in 0..3 {
        park(&mut cursor, &first);
    }
    let second = Arc::new(Counting::default());
    park(&mut cursor, &second);
    let (gone, third) = parked(&reader, Filter::all());
    drop(gone);
    let (_stays, fourth) = parked(&reader, Filter::all());
    writer.apply(put(&pod("a/p", "", "", 101)), at(0)).expect("in order");
    assert_eq!(waking.wake(), 2);
    assert_eq!([&first, &second, &third, &fourth].map(|counting| counting.count()), [0, 1, 0, 1]);
}

#[test]
fn progress_alone_wakes_no_watcher() {
    let (mut writer, mut waking, reader) = listed();
    let (mut cursor, counting) = parked(&reader, Filter::all());
    writer.apply(watch_cache::Change::Progress(200), at(0)).expect("progress");
    assert_eq!((waking.wake(), counting.count(), cursor.bookmark()), (0, 0, Some(200)));
}

/// Blocks the thread until a future is ready: a minimal runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Goal: no wake-up is lost between looking and parking. Method: real threads, one of them waking; a lost wake-up
/// hangs.
#[test]
fn every_watcher_on_every_thread_gets_everything() {
    const EVENTS: u64 = 3_000;
    let (mut writer, mut waking, reader) = listed();
    let filters = ["", "spec.nodeName=n0", "spec.nodeName=n1", "metadata.namespace=a"];
    thread::scope(|threads| {
        for fields in filters {
            let filter = filter(None, "", fields);
            let mut cursor = reader.cursor(CursorStart::After(100), filter).expect("at the head");
            let expected = (101..=100 + EVENTS).filter(|n| fields != format!("spec.nodeName=n{}", 1 - n % 2)).count();
            threads.spawn(move || {
                let mut seen = 0;
                while seen < expected {
                    let mut out = Slices::new();
                    block_on(poll_fn(|cx| match cursor.step(PLENTY, &mut out, Some(cx)) {
                        Step::Wait => Poll::Pending,
                        Step::Sent => Poll::Ready(()),
                        step @ (Step::InitialDone(_) | Step::Expired(_) | Step::EpochEnded) => panic!("{step:?}"),
                    }));
                    seen += lines(&out).len();
                }
                assert_eq!(seen, expected, "{fields}");
            });
        }
        let waiting = reader.clone();
        threads.spawn(move || {
            for position in 101..=100 + EVENTS {
                block_on(waiting.reached(position)).expect("not closed before the end");
                assert!(position <= waiting.applied());
            }
        });
        threads.spawn(move || {
            while block_on(poll_fn(|cx| waking.poll_touched(cx))).is_ok() {
                waking.wake();
            }
        });
        for n in 101..=100 + EVENTS {
            // A new object each time: only creations, so that no node sees another node's events.
            writer.apply(put(&pod(&format!("a/{n}"), &format!("n{}", n % 2), "", n)), at(0)).expect("in order");
        }
        block_on(reader.reached(100 + EVENTS)).expect("written");
        assert_eq!(reader.applied(), 100 + EVENTS);
        // Move the writer into a last thread that drops it after all watchers have finished.
        threads.spawn(move || {
            while 0 < reader.stats().watchers() {
                thread::yield_now();
            }
            drop(writer);
        });
    });
}

#[test]
fn a_wait_ends_when_the_position_is_reached_or_never_can_be() {
    let (mut writer, _waking, reader) = listed();
    let poll = |reached: &mut std::pin::Pin<&mut watch_cache::PositionWait>, counting: &Arc<Counting>| {
        let waker = Waker::from(Arc::clone(counting));
        reached.as_mut().poll(&mut Context::from_waker(&waker))
    };
    let [first, second, third] = [(); 3].map(|()| Arc::new(Counting::default()));
    let mut at_101 = pin!(reader.reached(101));
    let mut at_150 = pin!(reader.reached(150));
    assert!(poll(&mut at_101, &first).is_pending() && poll(&mut at_150, &second).is_pending());
    {
        let mut dropped = pin!(reader.reached(101));
        assert!(poll(&mut dropped, &third).is_pending());
    }
    writer.apply(watch_cache::Change::Progress(120), at(0)).expect("progress");
    assert_eq!([&first, &second, &third].map(|counting| counting.count()), [1, 0, 0]);
    assert_eq!(poll(&mut at_101, &first), Poll::Ready(Ok(())));
    writer.close();
    assert_eq!(second.count(), 1);
    assert_eq!(poll(&mut at_150, &second), Poll::Ready(Err(watch_cache::ClosedCache)));
}
