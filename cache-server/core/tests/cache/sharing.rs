//! Work that is done once, independent of the number of watchers: verdicts of selectors, and bytes.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use informer_core::Objects;
use watch_cache::{
    Cells, Change, Cursor, CursorStart, Draft, Entry, Filter, Form, Limits, MetaVersion, Reader, Row, RowObject, Rows,
    Slices, Step, Writer, cache, limits,
};

use super::common::{PLENTY, at, drain, filter, pod, put, schema};

fn live(reader: &Reader, labels: &str) -> Cursor {
    reader.cursor(CursorStart::After(reader.applied()), filter(None, labels, "")).expect("a cursor")
}

fn started() -> (Writer, Reader) {
    let (mut writer, _waking, reader) = cache(schema(), Limits::default());
    writer.reset(Objects::new(), 9, at(0));
    (writer, reader)
}

/// Writes events for objects of three apps in turn; each object moves to the next app.
fn write(writer: &mut Writer, positions: std::ops::Range<u64>) {
    for position in positions {
        let app = ["red", "green", "blue"][usize::try_from(position % 3).expect("a small number")];
        let object = pod(&format!("ns/p{}", position % 7), "n", app, position);
        writer.apply(put(&object), at(0)).expect("in order");
    }
}

/// Goal: selectors cost per event and distinct selector, not per watcher. Method: count the evaluations of a thousand
/// watchers with three selectors, and compare their lines with the lines of watchers with unshared filters.
#[test]
fn selectors_are_asked_once_for_all_watchers_that_have_them() {
    const EVENTS: u64 = 60;
    let selectors = ["app=red", "app in (green,blue)", "app,app!=blue"];
    let (mut writer, reader) = started();
    let mut watchers: Vec<Cursor> = (0..1_000).map(|number| live(&reader, selectors[number % 3])).collect();
    write(&mut writer, 10..10 + EVENTS);
    let delivered: Vec<_> = watchers.iter_mut().map(|watcher| drain(watcher).0).collect();
    assert_eq!(reader.stats().selector_evaluations, 3 * EVENTS);
    for (number, selector) in selectors.into_iter().enumerate() {
        let (mut writer, reader) = started();
        let mut alone = live(&reader, selector);
        write(&mut writer, 10..10 + EVENTS);
        let expected = drain(&mut alone).0;
        assert!(expected.iter().any(|line| line.starts_with("ADDED")), "{selector}: {expected:?}");
        assert!(delivered.iter().skip(number).step_by(3).all(|delivered| *delivered == expected), "{selector}");
    }
}

/// Goal: order and lag of watchers change only the number of evaluations. Method: one watcher lags by more events than
/// verdicts are cached.
#[test]
fn who_lags_behind_asks_again_and_is_told_the_same() {
    let (mut writer, reader) = started();
    let (mut first, mut second, mut late) =
        (live(&reader, "app=red"), live(&reader, "app=red"), live(&reader, "app=red"));
    let events = 2 * limits::VERDICTS_KEPT as u64 + 10;
    let mut delivered = Vec::new();
    for position in 10..10 + events {
        write(&mut writer, position..position + 1);
        let new = drain(&mut first).0;
        assert_eq!(drain(&mut second).0, new);
        delivered.extend(new);
    }
    assert_eq!(reader.stats().selector_evaluations, events);
    assert_eq!(drain(&mut late).0, delivered);
    let evaluations = reader.stats().selector_evaluations;
    assert_eq!(evaluations, events + events - limits::VERDICTS_KEPT as u64, "a retained verdict is not computed again");
}

#[test]
fn watchers_without_selectors_ask_nothing() {
    let (mut writer, reader) = started();
    let mut watcher = live(&reader, "");
    write(&mut writer, 10..20);
    assert_eq!((drain(&mut watcher).0.len(), reader.stats().selector_evaluations), (10, 0));
}

/// Goal: a verdict belongs to an event, not to a position. Method: a new epoch with equal positions and other objects.
#[test]
fn a_history_that_begins_again_has_verdicts_of_its_own() {
    let (mut writer, reader) = started();
    let delivered = |writer: &mut Writer, app: &str| {
        let mut both = [live(&reader, "app=red"), live(&reader, "app=red")];
        writer.apply(put(&pod("ns/a", "n", app, 10)), at(0)).expect("in order");
        both.each_mut().map(|watcher| drain(watcher).0)
    };
    // Kept open, so that the filter stays in the table.
    let _open = [live(&reader, "app=red"), live(&reader, "app=red")];
    assert_eq!(delivered(&mut writer, "red"), [["ADDED ns/a@10"], ["ADDED ns/a@10"]]);
    writer.reset(Objects::new(), 9, at(0));
    assert_eq!(delivered(&mut writer, "blue"), [const { [""; 0] }; 2]);
}

/// Goal: filters are in the table only while they are used. Method: many that come and go one at a time, then pairs.
#[test]
fn filters_that_nobody_uses_are_forgotten() {
    let (mut writer, reader) = started();
    for number in 0..3 * limits::FILTERS_SHARED_MAX {
        drop(live(&reader, &format!("app=a{number}")));
    }
    let mut watchers: Vec<Cursor> = (0..200).map(|number| live(&reader, &format!("app!=b{}", number / 2))).collect();
    write(&mut writer, 10..11);
    assert!(watchers.iter_mut().all(|watcher| drain(watcher).0.len() == 1));
    assert_eq!(reader.stats().selector_evaluations, 100);
}

/// Goal: filters above the sharing limit give correct results. Method: twice the limit, open at once.
#[test]
fn more_filters_than_are_shared_say_the_same() {
    let (mut writer, reader) = started();
    let labels = |number: usize| {
        if number.is_multiple_of(2) { "app!=x".to_owned() + &number.to_string() } else { "app=x".into() }
    };
    let mut watchers: Vec<Cursor> =
        (0..2 * limits::FILTERS_SHARED_MAX).map(|number| live(&reader, &labels(number))).collect();
    write(&mut writer, 10..11);
    for (number, watcher) in watchers.iter_mut().enumerate() {
        assert_eq!(drain(watcher).0.len(), 1 - number % 2, "{}", labels(number));
    }
}

/// Identifies the slices by their addresses.
fn places(out: &Slices) -> Vec<(usize, usize)> {
    out.iter().map(|slice| (slice.as_ptr().addr(), slice.len())).collect()
}

fn endpoints(ready: bool) -> Draft {
    let object = format!(
        r#"{{"metadata":{{"name":"s","namespace":"ns","managedFields":[{{"manager":"m"}}],"labels":{{"app":"x"}}}},"endpoints":[{{"ready":{ready}}}]}}"#
    );
    Draft::new(&schema(), object.as_bytes()).expect("an object")
}

/// Goal: one update is one text for thousands of watchers. Method: compare the addresses of the bytes that each
/// receives.
#[test]
fn an_update_is_the_same_bytes_for_every_watcher() {
    let (mut writer, reader) = started();
    writer.apply(Change::Put(endpoints(false).commit(10)), at(0)).expect("in order");
    let mut without = Form::whole();
    without.without_managed_fields = true;
    for (form, slices) in [(Form::whole(), 1), (without, 2), (Form::metadata(MetaVersion::V1), 3)] {
        let start = CursorStart::After(reader.applied());
        let cursor = || reader.cursor(start.clone(), Filter::all()).expect("a cursor").shown_as(form.clone());
        let mut watchers: Vec<Cursor> = (0..5_000).map(|_| cursor()).collect();
        let entry = endpoints(true).commit_update(reader.applied() + 1);
        writer.apply(Change::Put(Arc::clone(&entry)), at(0)).expect("in order");
        let sent: HashSet<Vec<(usize, usize)>> = watchers
            .iter_mut()
            .map(|watcher| {
                let mut out = Slices::new();
                assert_eq!(watcher.step(PLENTY, &mut out, None), Step::Sent);
                assert!(out.iter().next().is_some_and(|first| first.starts_with(br#"{"type":"MODIFIED""#)));
                places(&out)
            })
            .collect();
        assert_eq!(sent.len(), 1, "{form:?}");
        assert_eq!(sent.iter().next().map(Vec::len), Some(slices), "{form:?}");
        // All but constants lies in the entry, so those slices overlap with the object.
        let object = entry.object();
        let (start, end) = (object.as_ptr().addr(), object.as_ptr().addr() + object.len());
        let constants = sent.iter().flatten().filter(|(at, len)| end <= *at || at + len <= start);
        let bytes: usize = constants.map(|(_, len)| len).sum();
        assert!(bytes < 120, "{form:?}: {bytes} bytes that are not the object's");
    }
}

/// Counts the rows it computes.
#[derive(Default)]
struct Counted(AtomicUsize);

impl Rows for Counted {
    fn cells(&self, _object: &[u8]) -> Cells {
        self.0.fetch_add(1, Ordering::Relaxed);
        let mut cells = Cells::new();
        cells.push(r#"["s"]"#);
        cells
    }
}

/// Goal: cells are computed once per object version. Method: count them for watches and lists of two requests.
#[test]
fn a_row_is_made_once_for_everybody() {
    let (mut writer, reader) = started();
    let rows = Arc::new(Counted::default());
    let form = || {
        let rows: Arc<dyn Rows> = rows.clone();
        let (definitions, object, meta) = (Bytes::from_static(b"[]"), RowObject::Metadata, MetaVersion::V1);
        Form::row(Row { rows, definitions, object, meta })
    };
    let start = CursorStart::After(reader.applied());
    let mut watchers: Vec<Cursor> =
        (0..500).map(|_| reader.cursor(start.clone(), Filter::all()).expect("a cursor").shown_as(form())).collect();
    for (version, updated) in [(10, false), (11, true), (12, true)] {
        let draft = endpoints(updated);
        let entry: Arc<Entry> = if updated { draft.commit_update(version) } else { draft.commit(version) };
        writer.apply(Change::Put(entry), at(0)).expect("in order");
        for watcher in &mut watchers {
            let mut out = Slices::new();
            assert_eq!(watcher.step(PLENTY, &mut out, None), Step::Sent);
            assert_eq!(out.len(), 3, "a row, the metadata, and what closes them");
        }
    }
    assert_eq!(rows.0.load(Ordering::Relaxed), 3);
    let mut page = watch_cache::Page::new(reader.snapshot(), Filter::all(), None, None).shown_as(form(), 0);
    while page.step(PLENTY, &mut Slices::new()) {}
    assert_eq!(rows.0.load(Ordering::Relaxed), 3, "a list shows what watchers were shown");
}
