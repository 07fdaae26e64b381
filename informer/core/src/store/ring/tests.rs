//! Tests of the ring alone: memory it keeps alive, start states of listeners, overruns.

use std::sync::{Arc, Weak};

use super::*;
use crate::{
    object::Meta,
    store::{Event, Store},
    time::Time,
};

fn json(name: &str, version: u64) -> Vec<u8> {
    format!(r#"{{"metadata":{{"name":"{name}","uid":"uid-{name}","resourceVersion":"{version}"}}}}"#).into_bytes()
}

fn apply(store: &mut Store, name: &str, version: u64) {
    let json = json(name, version);
    store.handle(Time::default(), Event::Apply(&json, &Meta::read(&json).unwrap())).unwrap();
}

fn delete(store: &mut Store, name: &str, version: u64) {
    let json = json(name, version);
    store.handle(Time::default(), Event::Delete(&Meta::read(&json).unwrap())).unwrap();
}

fn relist(store: &mut Store, objects: &[(&str, u64)], at: u64) {
    store.handle(Time::default(), Event::Init { trusts_versions: true }).unwrap();
    for (name, version) in objects {
        let json = json(name, *version);
        store.handle(Time::default(), Event::InitApply(&json, &Meta::read(&json).unwrap())).unwrap();
    }
    store.handle(Time::default(), Event::InitDone(at.into())).unwrap();
}

fn synced(objects: &[(&str, u64)]) -> Store {
    let mut store = Store::default();
    relist(&mut store, objects, 10);
    store
}

fn show(record: &Record) -> String {
    match record {
        Record::Change(StoreChange::Added(new)) => format!("+{new:?}"),
        Record::Change(StoreChange::Updated { old, new }) => format!("{old:?}>{}", new.resource_version()),
        Record::Change(StoreChange::Deleted { last_known, missed: false }) => format!("-{last_known:?}"),
        Record::Change(StoreChange::Deleted { last_known, missed: true }) => format!("?{last_known:?}"),
        Record::Synced(position) => format!("={position}"),
    }
}

/// Records that a listener at `after` reads now.
fn read(listener: &Listener, after: u64, store: &Store) -> Result<String, Overrun> {
    let records = listener.read(after, store.snapshot().sequence, usize::MAX)?;
    Ok(records.iter().map(show).collect::<Vec<_>>().join(" "))
}

fn started(listener: &Listener, store: &Store) -> Result<String, Overrun> {
    let start = listener.start(&store.snapshot()).expect("there is a state to start from")?;
    let objects: Vec<String> = start.objects.iter().map(|entry| format!("{entry:?}")).collect();
    Ok(format!("{} at {} in {}", objects.join(" "), start.position.unwrap(), start.relists))
}

#[test]
fn changes_are_kept_in_order_and_vanished_objects_are_missed() {
    let mut store = synced(&[("a", 1), ("b", 2), ("c", 3)]);
    let listener = store.ring().listen(100, &store.snapshot());
    let after = store.snapshot().sequence;
    apply(&mut store, "b", 11);
    delete(&mut store, "a", 12);
    apply(&mut store, "a", 13);
    relist(&mut store, &[("b", 11), ("c", 14), ("d", 15)], 20);
    apply(&mut store, "d", 21);
    let expected = "b@2>11 -a@1 +a@13 ?a@13 c@3>14 +d@15 =20 d@15>21";
    assert_eq!(read(&listener, after, &store).unwrap(), expected);
    assert_eq!(read(&listener, store.snapshot().sequence, &store).unwrap(), "", "it has read them all");
    assert_eq!(started(&listener, &store).unwrap(), "a@1 b@2 c@3 at 10 in 1", "and it can go back to its start");
}

/// A version already stored, and a deletion of an unknown object, change nothing and get no number.
#[test]
fn what_changes_nothing_is_no_change() {
    let mut store = synced(&[("a", 1)]);
    let listener = store.ring().listen(100, &store.snapshot());
    let after = store.snapshot().sequence;
    apply(&mut store, "a", 1);
    delete(&mut store, "b", 11);
    relist(&mut store, &[("a", 1)], 20);
    assert_eq!(read(&listener, after, &store).unwrap(), "=20");
}

#[test]
fn a_listener_is_overrun_when_more_came_than_the_largest_capacity() {
    let mut store = synced(&[("a", 1)]);
    let small = store.ring().listen(2, &store.snapshot());
    let large = store.ring().listen(4, &store.snapshot());
    let after = store.snapshot().sequence;
    for version in 11..=14 {
        apply(&mut store, "a", version);
    }
    assert_eq!(read(&small, after, &store).unwrap(), "a@1>11 a@11>12 a@12>13 a@13>14", "one ring for both");
    drop(large);
    assert_eq!(read(&small, after, &store), Err(Overrun));
    assert_eq!(started(&small, &store), Err(Overrun));
    assert_eq!(read(&small, after + 2, &store).unwrap(), "a@12>13 a@13>14");
}

#[test]
fn a_listener_starts_with_the_first_complete_state_or_where_it_came() {
    let mut store = Store::default();
    let early = store.ring().listen(5, &store.snapshot());
    assert!(early.start(&store.snapshot()).is_none(), "nothing is complete");
    relist(&mut store, &[("a", 1), ("b", 2)], 10);
    assert_eq!(started(&early, &store).unwrap(), "a@1 b@2 at 10 in 1");
    let published = store.snapshot();
    apply(&mut store, "a", 11);
    // The store is ahead of what readers see: the listener starts after the changes recorded before it was added.
    let ahead = store.ring().listen(5, &published);
    assert!(ahead.start(&published).is_none());
    apply(&mut store, "a", 12);
    assert_eq!(started(&ahead, &store).unwrap(), "a@11 b@2 at 10 in 1");
    assert_eq!(started(&early, &store).unwrap(), "a@1 b@2 at 10 in 1");
}

/// Goal: a reader that never reads costs the documented memory. Method: count the live entries of all ever made.
#[test]
fn what_a_listener_keeps_alive_is_bounded_by_the_ring_and_goes_with_it() {
    const CAPACITY: usize = 50;
    let names: Vec<String> = (0..20).map(|number| format!("p-{number}")).collect();
    let objects: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 1)).collect();
    let mut store = synced(&objects);
    let mut made: Vec<Weak<Entry>> = Vec::new();
    let alive = |made: &[Weak<Entry>]| made.iter().filter(|entry| entry.strong_count() > 0).count();
    let change = |store: &mut Store, made: &mut Vec<Weak<Entry>>, from: u64| {
        for version in from..from + 1000 {
            let name = &*names[usize::try_from(version % 20).unwrap()];
            apply(store, name, version);
            made.push(Arc::downgrade(store.snapshot().get(name).unwrap()));
        }
    };
    change(&mut store, &mut made, 100);
    assert_eq!(alive(&made), 20, "nobody listens: only what is");
    let never_reads = store.ring().listen(CAPACITY, &store.snapshot());
    change(&mut store, &mut made, 2_000);
    assert_eq!(alive(&made), 20 + CAPACITY);
    drop(never_reads);
    assert_eq!(alive(&made), 20, "the ring went with who wanted it");
    assert_eq!(store.ring().lock().records.capacity(), 0);
}

#[test]
fn records_are_small() {
    assert!(size_of::<Record>() <= 24, "{}", size_of::<Record>());
}

#[test]
fn a_capacity_is_bounded_at_both_ends() {
    let store = synced(&[]);
    let listeners = [0, 7, usize::MAX].map(|capacity| store.ring().listen(capacity, &store.snapshot()));
    assert_eq!(listeners.map(|listener| listener.capacity), [1, 7, RING_CHANGES_MAX]);
}
