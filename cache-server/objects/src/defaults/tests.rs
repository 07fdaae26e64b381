//! Objects as kube-apiserver's own functions complete them.

use std::{fs, io::BufRead as _};

use api_rules::registry::{Registry, ResourceType};
use serde_json::json;

use super::*;

const NOW: &str = "2026-01-01T00:00:00Z";

fn ty(object: &Object) -> std::sync::Arc<ResourceType> {
    let (api_version, kind) = (text(object, "apiVersion"), text(object, "kind"));

    Registry::of_cluster().by_kind(api_version, kind).expect(kind)
}

fn filled(sent: &Value) -> Value {
    let mut object = sent.as_object().expect("an object").clone();
    fill(&ty(&object), &mut object, &|| NOW.to_owned()).expect("is small");
    Value::Object(object)
}

/// Adds the paths at which two values differ.
fn compare(path: &str, ours: Option<&Value>, theirs: Option<&Value>, differences: &mut Vec<String>) {
    match (ours, theirs) {
        (Some(Value::Object(ours)), Some(Value::Object(theirs))) => {
            let names = ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name)));
            for name in names {
                compare(&format!("{path}.{name}"), ours.get(name), theirs.get(name), differences);
            }
        }
        (Some(Value::Array(ours)), Some(Value::Array(theirs))) if ours.len() == theirs.len() => {
            for (ours, theirs) in ours.iter().zip(theirs) {
                compare(&format!("{path}[]"), Some(ours), Some(theirs), differences);
            }
        }
        (ours, theirs) if ours == theirs => {}
        (ours, theirs) => {
            let shown = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), Value::to_string);
            differences.push(format!("{path}: {}, not {}", shown(ours), shown(theirs)));
        }
    }
}

/// Compares rows that `tests/clients/defaults` printed. Returns the number of rows, and the differences.
fn compare_rows(rows: impl Iterator<Item = String>) -> (usize, Vec<String>) {
    let (mut count, mut differences) = (0, Vec::new());
    for row in rows {
        let row: Value = serde_json::from_str(&row).expect("JSON");
        let mut found = Vec::new();
        let ours = filled(&row["sent"]);
        compare(row["sent"]["kind"].as_str().expect("a kind"), Some(&ours), Some(&row["filled"]), &mut found);
        count += 1;
        differences.append(&mut found);
    }
    (count, differences)
}

/// Goal: defaults are those of kube-apiserver. Method: rows of objects before and after its own functions, of all kinds,
/// empty and random: those beside this file, and those in the file that `DEFAULTS_ROWS` names.
#[test]
fn objects_are_completed_as_by_kube_apiserver() {
    let given = std::env::var("DEFAULTS_ROWS").ok();
    let (count, differences) = match &given {
        Some(path) => {
            let file = fs::File::open(path).expect("a file of rows");
            compare_rows(std::io::BufReader::new(file).lines().map(|line| line.expect("a row")))
        }
        None => compare_rows(include_str!("rows.txt").lines().map(str::to_owned)),
    };
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    assert!(100 <= count, "{count} rows");
    println!("{count} rows");
}

#[test]
fn defaults_of_many_objects_are_bounded() {
    let mut pod = json!({"kind": "Pod", "apiVersion": "v1", "spec": {}});
    pod["spec"]["containers"] = Value::Array(vec![json!({}); 500_000]);
    let mut object = pod.as_object().expect("an object").clone();
    let refused = fill(&ty(&object), &mut object, &|| NOW.to_owned()).expect_err("is large");
    assert_eq!(refused.code, 413);
}

#[test]
fn members_of_a_wrong_type_are_left_alone() {
    for sent in [
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": 1, "spec": {"containers": {"a": 1}, "volumes": [1]}}),
        json!({"kind": "Job", "apiVersion": "batch/v1", "spec": [], "metadata": "x"}),
        json!({"kind": "Service", "apiVersion": "v1", "spec": {"ports": [{"port": {}}], "type": 3}, "status": []}),
        json!({"kind": "Node", "apiVersion": "v1", "status": {"capacity": {"cpu": 1, "memory": "x"}}}),
    ] {
        filled(&sent);
    }
}
