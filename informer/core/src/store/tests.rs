//! Scripted tests of the store: events as data, and the state that readers see afterwards.

use super::*;

mod keeping;
mod model;

/// An object of a script: key, uid, version.
type Object = (&'static str, &'static str, u64);

#[derive(Clone, Copy)]
enum Step {
    Init,
    InitApply(Object),
    InitDone(u64),
    Apply(Object),
    Delete(Object),
    Bookmark(u64),
    Abandon,
}

use Step::{Abandon, Apply, Bookmark, Delete, Init, InitApply, InitDone};

fn json((name, uid, version): Object) -> Vec<u8> {
    format!(
        r#"{{"kind":"Pod","metadata":{{"name":"{name}","namespace":"ns","uid":"{uid}","resourceVersion":"{version}","labels":{{"app":"web"}}}},"spec":{{"nodeName":"n-1"}}}}"#
    )
    .into_bytes()
}

fn step(store: &mut Store, step: Step) {
    let bytes = match step {
        InitApply(object) | Apply(object) | Delete(object) => json(object),
        Init | InitDone(_) | Bookmark(_) | Abandon => json(("", "", 1)),
    };
    let meta = Meta::read(&bytes).unwrap();
    let event = match step {
        Init => Event::Init { trusts_versions: true },
        InitApply(_) => Event::InitApply(&bytes, &meta),
        InitDone(at) => Event::InitDone(at.into()),
        Apply(_) => Event::Apply(&bytes, &meta),
        Delete(_) => Event::Delete(&meta),
        Bookmark(at) => Event::Bookmark(at.into()),
        Abandon => Event::Abandon,
    };
    store.handle(Time::ZERO, event).unwrap();
}

fn synced(objects: &[Object]) -> Store {
    let mut store = Store::default();
    step(&mut store, Init);
    for object in objects {
        step(&mut store, InitApply(*object));
    }
    step(&mut store, InitDone(10));
    store
}

fn show(snapshot: &Snapshot) -> String {
    let mut shown: Vec<String> = snapshot.objects.iter().map(|entry| format!("{entry:?}")).collect();
    shown.push(snapshot.resource_version.as_ref().map_or_else(|| "never".into(), |at| format!("at {at}")));
    shown.join(" ").replace("ns/", "")
}

fn show_diff(old: &Snapshot, new: &Snapshot) -> String {
    let shown: Vec<String> = diff(old, new)
        .map(|change| match change {
            StoreChange::Added(new) => format!("+{new:?}"),
            StoreChange::Updated { old, new } => format!("{old:?}>{}", new.resource_version()),
            StoreChange::Deleted { last_known, missed: false } => format!("-{last_known:?}"),
            StoreChange::Deleted { last_known, missed: true } => format!("?{last_known:?}"),
        })
        .collect();
    shown.join(" ").replace("ns/", "")
}

/// Runs `script` on `a`, `b`, `c` at 10 and compares the resulting state and the subscriber's changes.
#[track_caller]
fn check(script: &[Step], state: &str, diff: &str) {
    let mut store = synced(&[("a", "u1", 1), ("b", "u2", 2), ("c", "u3", 3)]);
    let before = store.snapshot();
    for each in script {
        step(&mut store, *each);
    }
    assert_eq!((show(&store.snapshot()).as_str(), show_diff(&before, &store.snapshot()).as_str()), (state, diff));
}

#[test]
fn nothing_shows_before_the_first_state_is_complete() {
    let mut store = Store::default();
    for each in [Init, InitApply(("b", "u", 4)), InitApply(("a", "u", 9))] {
        step(&mut store, each);
        assert_eq!(show(&store.snapshot()), "never");
    }
    assert!(store.is_staging() && !store.snapshot().synced);
    step(&mut store, InitDone(12));
    assert_eq!(show(&store.snapshot()), "a@9 b@4 at 12");
    assert!(store.snapshot().synced);
}

#[test]
fn live_changes_show_at_once() {
    check(
        &[Apply(("b", "u2", 11)), Delete(("c", "u3", 12)), Apply(("d", "u4", 13)), Bookmark(20)],
        "a@1 b@11 d@13 at 20",
        "b@2>11 -c@3 +d@13",
    );
    check(&[Apply(("b", "u2", 2)), Delete(("x", "u", 11))], "a@1 b@2 c@3 at 11", "");
}

#[test]
fn changes_never_cross_uids() {
    check(&[Apply(("b", "new", 11))], "a@1 b@11 c@3 at 11", "-b@2 +b@11");
    check(
        &[Init, InitApply(("a", "u1", 1)), InitApply(("b", "new", 2)), InitApply(("c", "u3", 3)), InitDone(12)],
        "a@1 b@2 c@3 at 12",
        "?b@2 +b@2",
    );
}

#[test]
fn a_relist_tells_only_what_differs_and_what_was_missed() {
    check(
        &[Init, InitApply(("c", "u3", 3)), InitApply(("d", "u4", 12)), InitApply(("a", "u1", 11)), InitDone(12)],
        "a@11 c@3 d@12 at 12",
        "a@1>11 ?b@2 +d@12",
    );
    check(&[Init, InitDone(12)], "at 12", "?a@1 ?b@2 ?c@3");
}

#[test]
fn deletes_while_staging_count_for_the_stage_alone() {
    check(
        &[
            Init,
            InitApply(("a", "u1", 1)),
            InitApply(("b", "u2", 11)),
            InitApply(("d", "u4", 9)),
            Delete(("a", "u1", 12)),
            Delete(("b", "u2", 13)),
            Delete(("d", "u4", 14)),
            InitApply(("c", "u3", 3)),
        ],
        "a@1 b@2 c@3 at 10",
        "",
    );
    check(
        &[Init, InitApply(("a", "u1", 1)), Delete(("a", "u1", 12)), InitApply(("b", "u2", 2)), InitDone(13)],
        "b@2 at 13",
        "?a@1 ?c@3",
    );
    check(
        &[Init, InitApply(("a", "u1", 1)), Delete(("a", "u1", 12)), InitApply(("a", "new", 13)), InitDone(13)],
        "a@13 at 13",
        "?a@1 +a@13 ?b@2 ?c@3",
    );
    // Changed and changed back: the last version received counts.
    check(&[Init, InitApply(("a", "u1", 12)), InitApply(("a", "u1", 1)), InitDone(13)], "a@1 at 13", "?b@2 ?c@3");
}

#[test]
fn a_broken_relist_leaves_no_trace() {
    check(
        &[Init, InitApply(("a", "u1", 11)), InitApply(("d", "u4", 12)), Delete(("b", "u2", 13)), Abandon],
        "a@1 b@2 c@3 at 10",
        "",
    );
    check(
        &[
            Init,
            InitApply(("d", "u4", 12)),
            Abandon,
            Init,
            InitApply(("a", "u1", 1)),
            InitApply(("b", "u2", 2)),
            InitApply(("c", "u3", 3)),
            InitDone(14),
        ],
        "a@1 b@2 c@3 at 14",
        "",
    );
}

/// Goal: a relist costs only its differences. Method: count the staged objects and compare the entries' addresses.
#[test]
fn a_relist_stages_only_what_differs_and_shares_the_rest() {
    let names: Vec<&'static str> = (0..1_000).map(|n| &*format!("p-{n:04}").leak()).collect();
    let objects: Vec<Object> = names.iter().map(|name| (*name, "u", 5)).collect();
    let mut store = synced(&objects);
    let before = store.snapshot();
    step(&mut store, Init);
    for (at, object) in objects.iter().enumerate() {
        let changed = at % 100 == 0;
        step(&mut store, InitApply(if changed { (object.0, "u", 11) } else { *object }));
        let left = store.stage.as_ref().unwrap().unseen_len();
        assert_eq!(left, objects.len() - at - 1);
    }
    assert_eq!(store.stage.as_ref().unwrap().staged_len(), 10);
    step(&mut store, InitDone(12));
    let after = store.snapshot();
    assert_eq!(after.objects.len(), 1_000);
    let shared = names.iter().filter(|name| {
        let key = format!("ns/{name}");
        Arc::ptr_eq(before.get(&key).unwrap(), after.get(&key).unwrap())
    });
    assert_eq!(shared.count(), 990);
    assert_eq!(diff(&before, &after).count(), 10);
}

#[test]
fn entries_are_small_and_answer_without_decoding() {
    assert!(size_of::<Entry>() <= 80, "{}", size_of::<Entry>());
    let store = synced(&[("a", "u1", 7)]);
    let snapshot = store.snapshot();
    let entry = snapshot.get("ns/a").unwrap();
    assert_eq!((entry.namespace(), entry.name(), entry.uid(), entry.resource_version()), ("ns", "a", "u1", "7"));
    assert_eq!(entry.label("app").as_deref(), Some("web"));
    assert_eq!(entry.field("spec.nodeName").as_deref(), Some("n-1"));
    assert_eq!(*entry.json(), *json(("a", "u1", 7)));
    assert_eq!(format!("{entry:?}"), "ns/a@7", "never the body");
}

#[test]
fn names_are_read_without_escapes_and_cluster_scoped_objects_have_no_slash() {
    let bytes = br#"{"metadata":{"name":"n\u002d1","uid":"\u0075","resourceVersion":"\u0037"}}"#;
    let meta = Meta::read(bytes).unwrap();
    let mut store = Store::default();
    store.handle(Time::ZERO, Event::Apply(bytes, &meta)).unwrap();
    let snapshot = store.snapshot();
    let entry = snapshot.get("n-1").unwrap();
    assert_eq!((entry.key(), entry.namespace(), entry.name()), ("n-1", "", "n-1"));
    assert_eq!((entry.uid(), entry.resource_version(), entry.label("x")), ("u", "7", None));
}

#[test]
fn an_object_that_cannot_be_kept_is_an_error_and_changes_no_other() {
    let mut store = synced(&[("a", "u1", 1)]);
    let nameless = br#"{"metadata":{"uid":"u","resourceVersion":"11"}}"#;
    let meta = Meta::read(nameless).unwrap();
    assert_eq!(store.handle(Time::ZERO, Event::Apply(nameless, &meta)), Err(StoreError::Nameless));
    let uid = "u".repeat(70_000);
    let huge = format!(r#"{{"metadata":{{"name":"b","uid":"{uid}","resourceVersion":"11"}}}}"#).into_bytes();
    let meta = Meta::read(&huge).unwrap();
    assert!(matches!(store.handle(Time::ZERO, Event::Apply(&huge, &meta)), Err(StoreError::TooLarge { .. })));
    assert_eq!(show(&store.snapshot()), "a@1 at 11");
}

/// Goal: the store never shows an old version at a new position. Method: a uid too long for an entry, live and in a
/// relist, of an object whose previous version fits.
#[test]
fn an_object_that_cannot_be_kept_takes_its_old_version_with_it() {
    let mut store = synced(&[("a", "u1", 1), ("b", "u2", 2)]);
    let huge = json(("a", Box::leak("u".repeat(1 << 16).into_boxed_str()), 11));
    let meta = Meta::read(&huge).unwrap();
    let before = store.snapshot();
    assert!(matches!(store.handle(Time::ZERO, Event::Apply(&huge, &meta)), Err(StoreError::TooLarge { .. })));
    assert_eq!(show(&store.snapshot()), "b@2 at 11");
    assert_eq!(show_diff(&before, &store.snapshot()), "-a@1");
    let mut store = synced(&[("a", "u1", 1), ("b", "u2", 2)]);
    for each in [Init, InitApply(("a", "u1", 11)), InitApply(("b", "u2", 2))] {
        step(&mut store, each);
    }
    assert!(matches!(store.handle(Time::ZERO, Event::InitApply(&huge, &meta)), Err(StoreError::TooLarge { .. })));
    step(&mut store, InitDone(12));
    assert_eq!(show(&store.snapshot()), "b@2 at 12");
}

/// Goal: a relist does not report unchanged objects as changed. Method: an object without a version, equal and
/// different.
#[test]
fn an_object_without_a_version_is_compared_by_what_it_shows() {
    let unversioned = |node: &str| {
        format!(r#"{{"metadata":{{"name":"a","namespace":"ns","uid":"u"}},"spec":{{"nodeName":"{node}"}}}}"#)
            .into_bytes()
    };
    let mut store = Store::default();
    for (node, at, diff) in [("n", 10, "+a@"), ("n", 11, ""), ("m", 12, "a@>")] {
        let before = store.snapshot();
        let object = unversioned(node);
        let meta = Meta::read(&object).unwrap();
        step(&mut store, Init);
        store.handle(Time::ZERO, Event::InitApply(&object, &meta)).unwrap();
        step(&mut store, InitDone(at));
        assert_eq!(show_diff(&before, &store.snapshot()), diff, "at {at}");
    }
}
