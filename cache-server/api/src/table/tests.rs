//! Rows of objects, compared with kube-apiserver's rows.

use std::sync::Arc;

use serde_json::{Value, json};
use watch_cache::Rows as _;

use super::*;
use crate::registry::Registry;

mod custom;
mod kinds;
mod pods;
mod workloads;

/// 2026-01-01T00:10:00Z: five minutes after [`CREATED_AT`].
const NOW: i64 = 1_767_226_200;
const CREATED_AT: &str = "2026-01-01T00:05:00Z";

/// Builds an object with a fixed name and `rest`.
fn object(rest: Value) -> Value {
    let mut object = json!({"metadata": {"name": "a", "namespace": "n", "creationTimestamp": CREATED_AT}});
    merge(&mut object, rest);
    object
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn columns(id: &str) -> Arc<Columns> {
    Columns::of(&Registry::builtin().by_id(id).unwrap_or_else(|| panic!("{id} is no type")))
}

/// Returns a row without its object: `{"cells":[…]}`, with conditions if there are any.
fn row(columns: &Columns, object: &[u8]) -> Value {
    let mut text = br#"{"cells":"#.to_vec();
    columns.cells(object).write(NOW, &mut text);
    text.push(b'}');
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text)))
}

/// Checks the cells of an object of a built-in type.
#[track_caller]
fn check(id: &str, rest: Value, expected: &[&str]) {
    let columns = columns(id);
    let rest_text = rest.to_string();
    let row = row(&columns, object(rest).to_string().as_bytes());
    let cells: Vec<String> = row["cells"].as_array().expect("cells").iter().map(plain).collect();
    assert_eq!(cells, expected, "{id} {rest_text}");
}

/// Formats a cell like kubectl.
fn plain(cell: &Value) -> String {
    cell.as_str().map_or_else(|| cell.to_string(), ToOwned::to_owned)
}

fn definitions(columns: &Columns) -> Vec<Value> {
    serde_json::from_slice::<Value>(columns.definitions()).expect("JSON").as_array().expect("a list").clone()
}

#[test]
fn each_row_has_a_cell_for_each_column() {
    let registry = Registry::builtin();
    let ids: Vec<&str> = FAMILIES.into_iter().flatten().map(|kind| kind.id).collect();
    for ty in registry.iter() {
        let columns = Columns::of(ty);
        let definitions = definitions(&columns);
        assert!(definitions.iter().any(|column| column["name"] == "Name" && column["format"] == "name"), "{}", ty.id());
        for object in ["{}", "null", "", "{\"metadata\":{\"name\":\"a\"},\"spec\":{},\"status\":{}}"] {
            let row = row(&columns, object.as_bytes());
            assert_eq!(row["cells"].as_array().map(Vec::len), Some(definitions.len()), "{} {object}", ty.id());
        }
        for column in &definitions {
            assert_eq!(column.as_object().map(serde_json::Map::len), Some(5), "{column}");
            assert_ne!(column["description"], "", "{column}");
        }
        assert!(ids.iter().filter(|id| **id == ty.id()).count() <= 1, "{} has one place", ty.id());
    }
}

#[test]
fn definitions_say_what_kubernetes_says_of_a_column() {
    let definitions = definitions(&columns("pods"));
    let names: Vec<_> =
        definitions.iter().map(|it| (it["name"].as_str().unwrap(), it["priority"].as_i64().unwrap())).collect();
    let expected = [
        ("Name", 0),
        ("Ready", 0),
        ("Status", 0),
        ("Restarts", 0),
        ("Age", 0),
        ("IP", 1),
        ("Node", 1),
        ("Nominated Node", 1),
        ("Readiness Gates", 1),
    ];
    assert_eq!(names, expected);
    assert_eq!((&definitions[0]["type"], &definitions[0]["format"]), (&json!("string"), &json!("name")));
    assert_eq!((&definitions[4]["type"], &definitions[4]["format"]), (&json!("string"), &json!("")));
}

/// Expected texts are JSON, as on the wire: `["",0,"\u003cunknown\u003e"]`.
#[test]
fn the_row_of_a_bookmark_is_of_an_object_without_fields() {
    for (id, expected) in [
        ("configmaps", r#"["",0,"\u003cunknown\u003e"]"#),
        (
            "pods",
            r#"["","0/0","","0","\u003cunknown\u003e","\u003cnone\u003e","\u003cnone\u003e","\u003cnone\u003e","\u003cnone\u003e"]"#,
        ),
        ("deployments.apps", r#"["","0/0",0,0,"\u003cunknown\u003e","","",""]"#),
        ("roles.rbac.authorization.k8s.io", r#"["","0001-01-01T00:00:00Z"]"#),
    ] {
        let mut text = Vec::new();
        columns(id).cells(b"{}").write(NOW, &mut text);
        assert_eq!(String::from_utf8(text).expect("UTF-8"), expected, "{id}");
    }
}

#[test]
fn texts_are_escaped_as_go_escapes_them() {
    let object = json!({"metadata": {"name": "<a>&\"b\\\n\u{1}\u{2028}é"}});
    let mut text = Vec::new();
    columns("namespaces").cells(object.to_string().as_bytes()).write(NOW, &mut text);
    let expected = r#"["\u003ca\u003e\u0026\"b\\\n\u0001\u2028é","","\u003cunknown\u003e"]"#;
    assert_eq!(String::from_utf8(text).expect("UTF-8"), expected);
}

#[test]
fn a_type_keeps_its_columns() {
    let registry = Registry::builtin();
    let pods = registry.by_id("pods").expect("pods");
    assert!(Arc::ptr_eq(&Columns::of(&pods), &Columns::of(&pods)));
}

/// Returns a random value of any type, whatever type a column expects.
fn any_value(random: &mut fastrand::Rng, depth: usize, names: &[&str]) -> Value {
    let leaf = |random: &mut fastrand::Rng| match random.u8(0..9) {
        0 => Value::Null,
        1 => json!(random.bool()),
        2 => json!(random.i64(..)),
        3 => json!(random.u64(..)),
        4 => json!(random.f64() * 1e300),
        5 => json!(CREATED_AT),
        6 => json!("9999-99-99T99:99:99Z"),
        7 => json!(""),
        _ => {
            json!(["Ready", "True", "Running", "Completed", "In", "<>", "é\u{2028}", "LoadBalancer"][random.usize(..8)])
        }
    };
    match random.u8(0..10) {
        0..5 if depth > 0 => {
            let members = (0..random.usize(0..8))
                .map(|_| (names[random.usize(..names.len())].to_owned(), any_value(random, depth - 1, names)));
            Value::Object(members.collect())
        }
        5..8 if depth > 0 => {
            Value::Array((0..random.usize(0..4)).map(|_| any_value(random, depth - 1, names)).collect())
        }
        _ => leaf(random),
    }
}

/// Goal: no object breaks a table. Method: random objects with the names that columns use and values of any type; each
/// row must be JSON with all its cells.
#[test]
fn no_object_breaks_a_row() {
    const NAMES: &str = "metadata name creationTimestamp deletionTimestamp labels annotations ownerReferences controller \
        spec status template containers initContainers containerStatuses initContainerStatuses state waiting terminated \
        running reason exitCode signal ready restartCount lastState finishedAt started restartPolicy conditions type \
        phase podIPs ip readinessGates conditionType nodeName addresses address nodeInfo replicas readyReplicas selector \
        matchLabels matchExpressions key operator values completions parallelism startTime completionTime succeeded \
        metrics currentMetrics resource target current averageUtilization averageValue value ports port nodePort protocol \
        clusterIPs externalIPs loadBalancer ingress hostname subsets endpoints rules host tls capacity storage \
        accessModes claimRef hard used data binaryData subjects kind namespace roleRef involvedObject series count \
        firstTimestamp lastObservedTime message limited limitResponse queuing parentRef parameters apiGroup";
    let names: Vec<&str> = NAMES.split_whitespace().collect();
    let registry = Registry::builtin();
    let mut random = fastrand::Rng::with_seed(4);
    for ty in registry.iter() {
        let columns = Columns::of(ty);
        let count = definitions(&columns).len();
        for _ in 0..40 {
            let object = any_value(&mut random, 6, &names);
            let row = row(&columns, object.to_string().as_bytes());
            assert_eq!(row["cells"].as_array().map(Vec::len), Some(count), "{} {object}", ty.id());
        }
    }
}
