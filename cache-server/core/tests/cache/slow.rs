//! Slow readers of a frozen state, in virtual time: the events that the window keeps for them, and for how long.

use informer_core::Objects;
use watch_cache::{Budget, Cursor, CursorStart, Filter, Limits, Page, Reader, Slices, Step, Writer, cache};

use super::common::{at, drain, pod, put, schema};

const ONE: Budget = Budget { slices: 1, bytes: 1 };

/// Creates a cache of ten objects at 110 whose window keeps ten events.
fn small() -> (Writer, Reader) {
    let limits = Limits { window_events_max: 10, ..Limits::default() };
    let (mut writer, _waking, reader) = cache(schema(), limits);
    let objects: Objects<_> = (1..=10).map(|n| pod(&format!("a/{n:02}"), "", "", 100 + n).entry(&schema())).collect();
    writer.reset(objects, 110, at(0));
    (writer, reader)
}

/// Writes once at `second`, at position 110 + `second`.
fn write(writer: &mut Writer, second: u64) {
    let position = 110 + second;
    writer.apply(put(&pod("a/01", "", "", position)), at(second)).expect("in order");
}

fn stream(reader: &Reader) -> Cursor {
    reader.cursor(CursorStart::Initial(reader.snapshot()), Filter::all()).expect("now")
}

/// Goal: a slow stream that received everything can catch up, and can resume. Method: an object every five seconds, a
/// write every second, with a window of ten events.
#[test]
fn a_stream_that_was_slow_has_time_to_catch_up_and_to_resume() {
    let (mut writer, reader) = small();
    let mut slow = stream(&reader);
    let mut second = 0;
    let mut out = Slices::new();
    let end = loop {
        if let Step::InitialDone(end) = slow.step(ONE, &mut out, None) {
            break end;
        }
        for _ in 0..5 {
            second += 1;
            write(&mut writer, second);
        }
    };
    assert_eq!((end, out.iter().filter(|slice| slice.starts_with(b"{\"type\"")).count()), (110, 10));
    assert!(second >= 45, "{second} s");
    let resumed = |reader: &Reader| reader.cursor(CursorStart::After(end), Filter::all()).is_ok();
    for _ in 0..29 {
        second += 1;
        write(&mut writer, second);
        assert!(resumed(&reader), "at {second} s");
    }
    let (lines, step) = drain(&mut slow);
    assert_eq!((lines.len() as u64, step), (second, Step::Wait), "nothing was lost");
    second += 10;
    write(&mut writer, second);
    assert!(!resumed(&reader), "long enough");
    assert_eq!(reader.stats().window_events, 10);
    assert_eq!((reader.stats().streams_cut_for_bytes, reader.stats().streams_cut_for_time), (0, 0));
}

/// Goal: a slow reader is cut only when the window must move past it. Method: a LIST and a stream stop for minutes;
/// then the window moves on.
#[test]
fn readers_that_stop_are_cut_when_the_window_moves_past_them() {
    let (mut writer, reader) = small();
    let list = Page::new(reader.snapshot(), Filter::all(), None, None);
    let mut stopped = stream(&reader);
    let mut out = Slices::new();
    assert_eq!(stopped.step(ONE, &mut out, None), Step::Sent);
    for second in 1..=10 {
        write(&mut writer, second);
    }
    for second in (20..290).step_by(5) {
        writer.trim(at(second));
    }
    assert!(!list.is_cut(), "they keep nothing that the window would not keep");
    assert_eq!(stopped.step(ONE, &mut out, None), Step::Sent);
    write(&mut writer, 290);
    assert!(list.is_cut());
    assert!(matches!(stopped.step(ONE, &mut out, None), Step::Expired(_)));
    assert_eq!((reader.stats().lists_cut_for_time, reader.stats().streams_cut_for_time), (1, 1));
}

/// Goal: a state of an ended epoch is freed after `read_time_max`. Method: a relist while a LIST reads.
#[test]
fn a_list_of_a_history_that_is_over_has_its_time() {
    let (mut writer, reader) = small();
    let mut list = Page::new(reader.snapshot(), Filter::all(), None, None);
    let mut out = Slices::new();
    assert!(list.step(ONE, &mut out));
    writer.reset(Objects::new(), 200, at(1));
    for second in (5..=60).step_by(5) {
        writer.trim(at(second));
        assert!(list.step(ONE, &mut out) || second > 45, "it goes on at {second} s");
        assert!(!list.is_cut(), "{second} s");
    }
    writer.trim(at(65));
    assert!(list.is_cut());
}

/// Goal: a reader that received no data keeps no position. Method: a page with a known end, whose client leaves after
/// a while before its first byte.
#[test]
fn a_page_that_nobody_took_lengthens_no_window() {
    let (mut writer, reader) = small();
    let page = Page::new(reader.snapshot(), Filter::all(), None, Some(3));
    assert_eq!(page.remaining(), Some(7), "counted to the end");
    for second in 1..=40 {
        write(&mut writer, second);
    }
    assert_eq!(reader.stats().window_events, 40, "it may still be taken");
    drop(page);
    write(&mut writer, 41);
    assert_eq!(reader.stats().window_events, 10);
}
