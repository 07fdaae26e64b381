//! Entries are those of Kubernetes' own field manager.

use std::{env, fs};

use super::*;
use crate::registry::Registry;

fn object(value: &Value) -> Option<Object> {
    value.as_object().cloned()
}

/// The entries without times, and without the status of types that have it as a subresource: the rows know no subresources.
fn shown(entries: &Value, has_status: bool) -> Vec<Value> {
    let entries = entries.as_array().cloned().unwrap_or_default().into_iter().map(|mut entry| {
        entry.as_object_mut().expect("an entry").remove("time");
        if has_status {
            entry["fieldsV1"].as_object_mut().map(|fields| fields.remove("f:status"));
        }
        entry["fieldsV1"] = fields_of(&entry).write();
        entry
    });
    entries.filter(|entry| entry["fieldsV1"] != json!({})).collect()
}

/// Goal: each writer owns what it changed last. Method: what apimachinery's field manager records of random objects that one
/// writer creates and another one updates, of each kind; those in the file that `MANAGED_ROWS` names, if it is set.
#[test]
fn writers_own_what_they_changed() {
    let rows = env::var("MANAGED_ROWS").map_or_else(
        |_| include_str!("../rows.txt").to_owned(),
        |file| fs::read_to_string(file).expect("a file of rows"),
    );
    let registry = Registry::builtin();
    let (mut count, mut wrong) = (0, Vec::new());
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row).expect("a row");
        let (stored, mut next) = (object(&row["live"]), object(&row["next"]).expect("an object"));
        let [version, kind] = ["apiVersion", "kind"].map(|member| next[member].as_str().expect("a text").to_owned());
        // Their data have no schema here, and one owner there.
        let Some(ty) = registry.by_kind(&version, &kind).filter(|ty| ty.kind != "ControllerRevision") else { continue };
        let place = WriteTarget { ty: &ty, namespace: "", name: "a", part: Part::Main };
        let manager = if stored.is_some() { "updater" } else { "creator" };
        record(
            &place,
            stored.as_ref(),
            &mut next,
            RecordedWrite { manager, now: "2026-01-01T00:00:00Z", is_scale: false },
        );
        let found = shown(&next["metadata"]["managedFields"], ty.has_status);
        let expected = shown(&row["managed"], ty.has_status);
        count += 1;
        if found != expected {
            wrong.push(format!("{version} {kind}\n found {}\n expected {}", json!(found), json!(expected)));
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
    assert!(count > 50, "{count} rows");
}

#[test]
fn writers_without_a_name_have_their_programs() {
    for (stated, agent, expected) in [
        ("me", "kubectl/v1.36", "me"),
        ("", "kubectl/v1.36 (linux/amd64)", "kubectl"),
        ("", "curl", "curl"),
        ("", "", "unknown"),
        ("", "/1", "unknown"),
    ] {
        assert_eq!(manager(stated, agent), expected);
    }
    assert_eq!(manager("", &"\u{e9}".repeat(100)).len(), 128);
}

/// Goal: old entries lose their names, and no field its owner. Method: more writers than entries.
#[test]
fn many_writers_share_an_entry() {
    let registry = Registry::builtin();
    let ty = registry.by_kind("v1", "ConfigMap").expect("is built in");
    let place = WriteTarget { ty: &ty, namespace: "n", name: "a", part: Part::Main };
    let mut stored = Object::new();
    for number in 0..30 {
        let mut next = stored.clone();
        crate::object::put(&mut next, &format!("data.k{number}"), "v".into());
        let (manager, now) = (format!("m{number}"), format!("2026-01-01T00:00:{number:02}Z"));
        let before = if number == 0 { None } else { Some(&stored) };
        record(&place, before, &mut next, RecordedWrite { manager: &manager, now: &now, is_scale: false });
        stored = next;
    }
    let entries = stored["metadata"]["managedFields"].as_array().expect("entries");
    assert_eq!(
        (entries.len(), text(&entries[0], "manager"), text(&entries[0], "time")),
        (10, ANCIENT, "2026-01-01T00:00:20Z")
    );
    let mut all = FieldSet::default();
    entries.iter().for_each(|entry| all.add(&fields_of(entry)));
    assert_eq!(all.inside["f:data"].inside.len(), 30);
}
