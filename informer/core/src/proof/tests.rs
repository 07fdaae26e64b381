//! Tables of evidence that stored objects give about a history.

use super::*;
use crate::{
    store::{Event, Store, StoreConfig},
    time::Time,
};

fn json(name: &str, uid: &str, version: &str, more: &str) -> String {
    format!(
        r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","uid":"{uid}","resourceVersion":"{version}"{more}}}}}"#
    )
}

/// A state of the objects (name, version, more metadata).
fn stored(objects: &[(&str, &str, &str)]) -> Snapshot {
    let mut store = Store::new(StoreConfig::default());
    for (name, version, more) in objects {
        let json = json(name, "u1", version, more);
        let meta = Meta::read(json.as_bytes()).unwrap();
        store.handle(Time::ZERO, Event::Apply(json.as_bytes(), &meta)).unwrap();
    }
    store.snapshot()
}

/// The objects that a proof reads, in order.
fn witnesses(snapshot: &Snapshot) -> Vec<Arc<Entry>> {
    (0..WITNESSES_MAX).map_while(|requested| witness(snapshot, requested)).collect()
}

fn names(snapshot: &Snapshot) -> Vec<String> {
    witnesses(snapshot).iter().map(|entry| entry.name().to_owned()).collect()
}

/// Goal: cover every case of one object read again. Method: stored as u1 at 40, in the state at 50.
#[test]
fn only_what_cannot_be_in_one_history_is_held_against_a_server() {
    let snapshot = stored(&[("a", "40", "")]);
    let entry = snapshot.get("a").unwrap();
    for (uid, version, expected) in [
        ("u1", "40", Proof::Same),
        ("u1", "51", Proof::Changed),
        ("u1", "100", Proof::Changed),
        ("u1", "39", Proof::Reset),
        ("u1", "9", Proof::Reset),
        ("u1", "41", Proof::Reset),
        ("u1", "50", Proof::Reset),
        ("u2", "40", Proof::Foreign),
        ("u2", "50", Proof::Foreign),
        ("u2", "9", Proof::Foreign),
        ("u2", "51", Proof::Missing),
        ("", "40", Proof::Foreign),
        ("u1", "x", Proof::Changed),
        ("u2", "x", Proof::Missing),
    ] {
        let found = json("a", uid, version, "");
        let found = Meta::read(found.as_bytes()).unwrap();
        assert_eq!(compare(entry, &50.into(), Some(&found)), expected, "{uid} at {version}");
    }
    assert_eq!(compare(entry, &50.into(), None), Proof::Missing);
}

#[test]
fn versions_without_an_order_only_prove_sameness() {
    let snapshot = stored(&[("a", "x1", "")]);
    let position = ResourceVersion::parse("x5").unwrap();
    for (uid, version, expected) in [
        ("u1", "x1", Proof::Same),
        ("u1", "x2", Proof::Changed),
        ("u2", "x1", Proof::Missing),
        ("u2", "x2", Proof::Missing),
    ] {
        let found = json("a", uid, version, "");
        let found = Meta::read(found.as_bytes()).unwrap();
        assert_eq!(compare(snapshot.get("a").unwrap(), &position, Some(&found)), expected, "{uid} at {version}");
    }
}

#[test]
fn the_newest_versions_are_asked_about_first_and_objects_being_deleted_last() {
    let gone = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
    let snapshot = stored(&[("a", "9", ""), ("b", "100", ""), ("c", "30", ""), ("d", "101", gone), ("e", "31", "")]);
    assert_eq!(names(&snapshot), ["b", "e", "c", "a", "d"]);
    assert!(names(&Snapshot::default()).is_empty());
}

#[test]
fn of_many_objects_the_newest_are_asked_and_then_older_ones() {
    let objects: Vec<(String, String)> =
        (1..=500).map(|number: u32| (format!("pod-{number}"), (number * 7919 % 503 + 1).to_string())).collect();
    let given: Vec<(&str, &str, &str)> =
        objects.iter().map(|(name, version)| (name.as_str(), version.as_str(), "")).collect();
    let snapshot = stored(&given);
    let mut versions: Vec<u64> = objects.iter().map(|(_, version)| version.parse().unwrap()).collect();
    versions.sort_unstable_by(|left, right| right.cmp(left));
    let found: Vec<u64> = witnesses(&snapshot).iter().map(|entry| entry.resource_version().parse().unwrap()).collect();
    assert_eq!(found, [0, 1, 2, 5, 11, 23, 47, 95].map(|rank| versions[rank]));
}
