//! Causes as kube-apiserver's own strategies find them.

use std::{collections::HashMap, fs};

use api_rules::{
    object::validation,
    registry::{Registry, ResourceType},
};
use serde_json::{Map, Value, json};

use super::*;
use crate::defaults;

const NOW: &str = "2026-01-01T00:00:00Z";

fn ty(object: &Value) -> std::sync::Arc<ResourceType> {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    Registry::of_cluster().by_kind(text("apiVersion"), text("kind")).expect("a built-in kind")
}

/// Completes an object as the server does before it checks it.
fn completed(object: &Value) -> Map<String, Value> {
    let (ty, mut object) = (ty(object), object.as_object().expect("an object").clone());
    assert_eq!(validation::check(&ty, &mut object).mistyped, None);
    defaults::fill(&ty, &mut object, &|| NOW.to_owned()).expect("is small");
    object
}

/// Sets the value at a path of JSON Pointer; null removes. Nothing changes where the path leads nowhere.
fn put(value: &mut Value, steps: &[String], to: &Value) {
    let Some((step, further)) = steps.split_first() else { return *value = to.clone() };
    if value.is_null() {
        *value = json!({});
    }
    match value {
        Value::Object(members) => {
            let inner = members.entry(step.clone()).or_insert(Value::Null);
            put(inner, further, to);
            if inner.is_null() {
                members.remove(step);
            }
        }
        Value::Array(items) => {
            let Ok(at) = step.parse::<usize>() else { return };
            if at > items.len() {
                return;
            }
            if at == items.len() {
                items.push(Value::Null);
            }
            put(&mut items[at], further, to);
            if items[at].is_null() {
                items.remove(at);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn changed(object: &Value, changes: &Value) -> Value {
    let mut object = object.clone();
    for (path, value) in changes.as_object().expect("changes") {
        let steps: Vec<String> =
            path.split('/').skip(1).map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        // An absent parent is made only for a value.
        if !value.is_null() || object.pointer(path).is_some() {
            put(&mut object, &steps, value);
        }
    }
    object
}

/// Returns the causes of a new object, or of an update.
fn causes(object: &Value, stored: Option<&Value>) -> Vec<String> {
    let ty = ty(object);
    let mut object = completed(object);
    let mut stored = stored.map(completed);
    // Only the storage changes it.
    match &mut stored {
        Some(stored) => {
            stored.get("status").map(|status| object.insert("status".to_owned(), status.clone()));
        }
        None => drop(object.remove("status")),
    }
    match check(&ty, Part::Main, &object, stored.as_ref()) {
        Ok(()) => Vec::new(),
        Err(status) => {
            let causes = status.details.map(|details| details.causes).unwrap_or_default();
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
        }
    }
}

/// Hides a value that is a list or an object, as the rows do where Go shows its own names of members.
fn without_value(cause: &str) -> String {
    let Some((kind, value)) = cause.split_once("value: ").filter(|(_, value)| value.starts_with(['{', '['])) else {
        return cause.to_owned();
    };
    let mut read = serde_json::Deserializer::from_str(value).into_iter::<Value>();
    let is_read = read.next().is_some_and(|read| read.is_ok());
    if is_read { format!("{kind}value: …{}", &value[read.byte_offset()..]) } else { cause.to_owned() }
}

/// A row: an object with changes, and what is said about it.
struct CauseRow {
    line: String,
    expected: Vec<String>,
    found: Vec<String>,
}

/// Compares the rows of a file of `tests/clients/validation`.
fn read(rows: &str) -> Vec<CauseRow> {
    let (mut objects, mut texts, mut read) = (HashMap::new(), Vec::<String>::new(), Vec::new());
    for line in rows.lines().filter(|line| !line.starts_with('#')) {
        let (sign, rest) = line.split_once(' ').expect("a sign");
        match sign {
            "=" => {
                let object: Value = serde_json::from_str(rest).expect("an object");
                objects.insert(object["metadata"]["name"].as_str().expect("a name").to_owned(), object);
            }
            "$" => texts.push(serde_json::from_str(rest).expect("a text")),
            _ => {
                let (name, rest) = rest.split_once(' ').expect("a name");
                let values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
                let [changes, causes] =
                    values.map(|value| value.expect("JSON")).collect::<Vec<_>>().try_into().expect("two");
                let full = |cause: &Value| {
                    let cause = cause.as_str().expect("a cause");
                    let named =
                        cause.rfind('$').and_then(|at| Some((&cause[..at], cause[at + 1..].parse::<usize>().ok()?)));
                    named.map_or_else(|| cause.to_owned(), |(cause, text)| format!("{cause}{}", texts[text]))
                };
                let expected: Vec<String> = causes.as_array().expect("causes").iter().map(full).collect();
                let base = &objects[name];
                for sign in sign.chars() {
                    // An update is of what was stored, with its defaults.
                    let stored = Value::Object(completed(base));
                    let object = changed(if sign == '~' { &stored } else { base }, &changes);
                    let found = self::causes(&object, (sign == '~').then_some(base));
                    let line = format!("{sign} {name} {changes}");
                    read.push(CauseRow { line, expected: expected.clone(), found });
                }
            }
        }
    }
    read
}

impl CauseRow {
    fn is_equal(&self) -> bool {
        let is_same = |(expected, found): (&String, &String)| {
            expected == found || (expected.contains("value: …") && *expected == without_value(found))
        };
        self.expected.len() == self.found.len() && self.expected.iter().zip(&self.found).all(is_same)
    }
}

/// Goal: objects are refused as by kube-apiserver, and none that it takes. Method: rows that its own strategies printed:
/// those beside this file, or those in the file that `VALIDATION_ROWS` names. Rows that differ are listed with the reason in
/// unequal.txt, and no other.
#[test]
fn causes_are_those_of_kube_apiserver() {
    let given = std::env::var("VALIDATION_ROWS").ok();
    let rows = match &given {
        // Those about keys of maps have no order.
        Some(path) => {
            let mut rows = read(&fs::read_to_string(path).expect("a file of rows"));
            for row in &mut rows {
                row.expected.sort_unstable();
                row.found.sort_unstable();
            }
            rows
        }
        None => read(include_str!("rows.txt")),
    };
    let taken: Vec<&CauseRow> = rows.iter().filter(|row| row.expected.is_empty() && !row.found.is_empty()).collect();
    for row in &taken {
        println!("FALSE REFUSAL {}\n    {:?}", row.line, row.found);
    }
    assert!(taken.is_empty(), "{} rows are refused that kube-apiserver takes", taken.len());
    let unequal: Vec<&CauseRow> = rows.iter().filter(|row| !row.is_equal()).collect();
    println!("{} rows, {} of them unequal", rows.len(), unequal.len());
    if given.is_some() {
        assert!(unequal.len() * 10 <= rows.len(), "{} of {} rows are unequal", unequal.len(), rows.len());
        return;
    }
    let listed: Vec<&str> = include_str!("unequal.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let lines: Vec<&str> = unequal.iter().map(|row| row.line.as_str()).collect();
    let new: Vec<String> = unequal
        .iter()
        .filter(|row| !listed.contains(&row.line.as_str()))
        .map(|row| format!("{}\n  - {}\n  + {}", row.line, row.expected.join("\n  - "), row.found.join("\n  + ")))
        .collect();
    assert!(new.is_empty(), "{} rows are unequal, - genuine, + ours:\n{}", new.len(), new.join("\n"));
    let equal: Vec<&&str> = listed.iter().filter(|line| !lines.contains(line)).collect();
    assert!(equal.is_empty(), "equal, and listed in unequal.txt: {equal:#?}");
}
