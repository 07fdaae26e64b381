//! The heap memory of an idle watcher, in bytes.

#[path = "cache/common.rs"]
mod common;

use std::{
    sync::{Arc, Mutex},
    task::{Context, Wake, Waker},
};

use common::{PLENTY, at, drain, filter, pod, put, schema};
use informer_core::Objects;
use peak_alloc::PeakAlloc;
use watch_cache::{
    Cells, Change, Cursor, CursorStart, Draft, Filter, Form, Limits, MetaVersion, Row, RowObject, Rows, Slices, Step,
    cache,
};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Bytes per watcher: its cursor, its bucket, its waiters, and a filter of its own. 178 for a watch of all objects,
/// 620 for a node, 667 for an object, with names as short as here.
const BYTES_MAX: usize = 680;

/// Returns the filter of a watcher by its number.
type Make = fn(usize) -> Arc<Filter>;

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

/// Held by each test, because the heap is shared by the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Goal: ten thousand idle watches are cheap. Method: as many waiting cursors, of all objects, of a node each, and of
/// an object each; the total bytes divided by their number.
#[test]
fn an_idle_watcher_is_small() {
    const WATCHERS: usize = 10_000;
    let _alone = ALONE.lock();
    let waker = Waker::from(Arc::new(Nobody));
    let kinds: [(&str, Make); 3] = [
        ("all", |_| Filter::all()),
        ("node", |number| filter(None, "", &format!("spec.nodeName=node-{number}"))),
        ("name", |number| filter(Some("default"), "", &format!("metadata.name=settings-{number}"))),
    ];
    for (kind, filter) in kinds {
        let (mut writer, _waking, reader) = cache(schema(), Limits::default());
        writer.reset(Objects::new(), 100, at(0));
        let mut cursors: Vec<Cursor> = Vec::with_capacity(WATCHERS);
        let before = HEAP.current_usage();
        for number in 0..WATCHERS {
            let mut cursor = reader.cursor(CursorStart::Initial(reader.snapshot()), filter(number)).expect("now");
            while cursor.step(PLENTY, &mut Slices::new(), Some(&mut Context::from_waker(&waker))) != Step::Wait {}
            cursors.push(cursor);
        }
        let each = HEAP.current_usage().saturating_sub(before) / WATCHERS + size_of::<Cursor>();
        assert!(each <= BYTES_MAX, "{kind}: {each} bytes, {} of them the cursor", size_of::<Cursor>());
    }
}

/// Goal: the index for watchers that resume from far back is freed soon after. Method: many of them come and leave,
/// then two trims without another one.
#[test]
fn nothing_stays_of_watchers_that_came_back() {
    const EVENTS: u64 = 5_000;
    let _alone = ALONE.lock();
    let (mut writer, _waking, reader) = cache(schema(), Limits::default());
    writer.reset(Objects::new(), 100, at(0));
    for n in 101..=100 + EVENTS {
        writer.apply(put(&pod(&format!("a/{}", n % 100), &format!("node-{n}"), "", n)), at(0)).expect("in order");
    }
    let before = HEAP.current_usage();
    let come_and_leave = || {
        for number in 101..201 {
            let filter = filter(None, "", &format!("spec.nodeName=node-{number}"));
            drop(reader.cursor(CursorStart::After(100), filter).expect("in the window"));
        }
    };
    come_and_leave();
    let retained = HEAP.current_usage() - before;
    writer.trim(at(1));
    come_and_leave();
    writer.trim(at(2));
    assert!(retained > 8 << 10 && HEAP.current_usage() > before + retained / 2, "made once for all who come");
    writer.trim(at(3));
    let left = HEAP.current_usage().saturating_sub(before);
    assert!(left < retained / 10, "{left} bytes of {retained} are left");
}

/// Goal: watchers that keep resuming from far back, as in a large cluster, cost no more memory than the window.
/// Method: one resume between trims while the window turns over completely; node names never repeat.
#[test]
fn nothing_is_kept_of_what_the_window_lost() {
    const EVENTS: u64 = 1_000;
    let _alone = ALONE.lock();
    let limits = Limits { window_events_max: 1_000, ..Limits::default() };
    let (mut writer, _waking, reader) = cache(schema(), limits);
    writer.reset(Objects::new(), 100, at(0));
    let mut head = 100;
    let mut round = || {
        for _ in 0..EVENTS {
            head += 1;
            writer
                .apply(put(&pod(&format!("a/{}", head % 100), &format!("node-{head}"), "", head)), at(0))
                .expect("in order");
        }
        let far = head - EVENTS / 2;
        let filter = filter(None, "", &format!("spec.nodeName=node-{}", far + 1));
        let mut cursor = reader.cursor(CursorStart::After(far), filter).expect("in the window");
        assert_eq!(drain(&mut cursor).0.len(), 2, "the pod came to the node and left it");
        writer.trim(at(0));
    };
    (0..10).for_each(|_| round());
    let before = HEAP.current_usage();
    (0..100).for_each(|_| round());
    let grown = HEAP.current_usage().saturating_sub(before);
    assert!(grown < 100 << 10, "{grown} bytes more");
}

/// Goal: a client that reads nothing keeps its pending bytes, not the objects they were cut from. Method: objects of 1
/// MiB in a batch of metadata, rows or deletions; then the cache drops all other references.
#[test]
fn what_a_client_does_not_take_keeps_no_large_objects() {
    const LARGE: usize = 1 << 20;
    struct Names;
    impl Rows for Names {
        fn cells(&self, _: &[u8]) -> Cells {
            let mut cells = Cells::new();
            cells.push(r#"["a"]"#);
            cells
        }
    }
    let _alone = ALONE.lock();
    let row =
        Row { rows: Arc::new(Names), definitions: "[]".into(), object: RowObject::Metadata, meta: MetaVersion::V1 };
    let filler = "x".repeat(LARGE);
    for (form, filter) in [
        (Form::metadata(MetaVersion::V1), Filter::all()),
        (Form::row(row), Filter::all()),
        (Form::metadata(MetaVersion::V1), filter(None, "app=odd", "")),
    ] {
        let (mut writer, _waking, reader) = cache(schema(), Limits::default());
        writer.reset(Objects::new(), 100, at(0));
        let mut cursor = reader.cursor(CursorStart::After(100), filter).expect("now").shown_as(form);
        let before = HEAP.current_usage();
        for n in 101..=120 {
            let app = if n % 2 == 1 { "odd" } else { "even" };
            let object = format!(
                r#"{{"metadata":{{"name":"a","namespace":"a","labels":{{"app":"{app}"}}}},"data":{{"k":"{filler}"}}}}"#
            );
            let entry = Draft::new(&schema(), object.as_bytes()).expect("an object").commit(n);
            writer.apply(Change::Put(entry), at(0)).expect("in order");
        }
        let mut out = Slices::new();
        let _ = cursor.step(PLENTY, &mut out, None);
        let delivered = out.iter().filter(|slice| slice.starts_with(b"{\"type\"")).count();
        assert!(delivered >= 10, "{delivered} events in one batch");
        writer.reset(Objects::new(), 200, at(0));
        let retained = HEAP.current_usage().saturating_sub(before);
        assert!(retained < LARGE / 4, "{retained} bytes for {} in {delivered} events", out.bytes());
    }
}
