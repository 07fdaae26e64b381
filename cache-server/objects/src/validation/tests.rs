//! Causes as kube-apiserver's own strategies find them.

use std::{collections::HashMap, fs};

use api_rules::{
    object::validation,
    registry::{Registry, ResourceType},
};
use serde_json::{Map, Value, json};

use super::*;
use crate::{defaults, strategies};

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

/// Completes an object as a create does.
fn created(object: &Value) -> Map<String, Value> {
    let mut completed = completed(object);
    if let Some(metadata) = completed.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".to_owned(), "uid".into());
    }
    strategies::prepare_create(&ty(object), &mut completed, &|| NOW.to_owned());
    completed
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

/// Returns the causes of a new object, or of an update of one that is stored.
fn causes(object: &Value, stored: Option<&Map<String, Value>>) -> Vec<String> {
    let object = match stored {
        None => created(object),
        Some(stored) => {
            let mut object = completed(object);
            // An update does not change it.
            object.extend(stored.get("status").map(|status| ("status".to_owned(), status.clone())));
            object
        }
    };
    causes_of(&object, stored)
}

/// Returns the causes of an object that is complete.
fn causes_of(object: &Map<String, Value>, stored: Option<&Map<String, Value>>) -> Vec<String> {
    match check(&ty(&Value::Object(object.clone())), Part::Main, object, stored) {
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
                    let stored = (sign == '~').then(|| created(base));
                    let object = match &stored {
                        Some(stored) => changed(&Value::Object(stored.clone()), &changes),
                        None => changed(base, &changes),
                    };
                    let found = self::causes(&object, stored.as_ref());
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

/// Goal: objects are refused as by kube-apiserver, and none that it takes. Method: rows that its own strategies
/// printed: those beside this file, or those in the file that `VALIDATION_ROWS` names. Rows that differ are listed with
/// the reason in unequal.txt, and no other.
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

/// Returns the object that the rows name so.
fn base(name: &str) -> Value {
    let rows = include_str!("rows.txt").lines().filter_map(|line| line.strip_prefix("= "));
    let mut objects = rows.map(|object| serde_json::from_str::<Value>(object).expect("an object"));
    objects.find(|object| object["metadata"]["name"] == name).expect("is in the rows")
}

/// Objects of the rows, changes before they are stored, changes of an update, and its causes.
const RETAINED: &str = r#"
pod {"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0/values":["-Bad_"]} {"/metadata/labels/a":"b","/spec/containers/0/image":"other"} []
pod {"/metadata/annotations":{"controller.kubernetes.io/pod-deletion-cost":"+1"}} {"/metadata/annotations/x":"y"} []
deployment {"/spec/template/spec/restartPolicy":"Never"} {"/metadata/finalizers":["a.b/c"]} []
deployment {"/spec/template/spec/containers/0/name":"-Bad_"} {"/spec/replicas":2} []
job {"/spec/selector":null,"/spec/template/metadata/labels":null} {"/spec/parallelism":2} []
deployment {"/spec/progressDeadlineSeconds":600} {"/spec/minReadySeconds":700} ["spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"]
statefulset {"/spec/template/spec/containers/0/name":"-Bad_"} {"/spec/template/spec/containers/0/image":"other"} []
statefulset {} {"/spec/template/spec/containers/0/name":""} ["spec.template.spec.containers[0].name: Required value"]
endpointslice {"/endpoints/0/addresses":["127.0.0.1"]} {"/metadata/labels/a":"b"} []
endpointslice {"/endpoints/0/addresses":["127.0.0.1"]} {"/endpoints/0/nodeName":"n"} ["endpoints[0].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)"]
cronjob {"/spec/schedule":"TZ=UTC 5 * * * *","/spec/timeZone":null} {"/spec/suspend":true} []
cronjob {"/spec/schedule":"TZ=UTC 5 * * * *","/spec/timeZone":null} {"/spec/schedule":"CRON_TZ=UTC 6 * * * *"} []
cronjob {"/spec/schedule":"TZ=UTC 5 * * * *","/spec/timeZone":null} {"/spec/schedule":"TZ=UTC 6 * * * *","/spec/timeZone":"UTC"} ["spec.schedule: Invalid value: \"TZ=UTC 6 * * * *\": cannot use both timeZone field and TZ or CRON_TZ in schedule"]
cronjob {"/spec/timeZone":null} {"/spec/schedule":"TZ=UTC 5 * * * *"} ["spec.schedule: Invalid value: \"TZ=UTC 5 * * * *\": cannot use TZ or CRON_TZ in schedule, use timeZone field instead"]
persistentvolume {"/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/key":"failure-domain.beta.kubernetes.io/zone"} {"/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/key":"topology.kubernetes.io/zone"} []
persistentvolumeclaim {"/spec/dataSource":{"kind":"PersistentVolumeClaim","name":"a"},"/spec/dataSourceRef":{"kind":"PersistentVolumeClaim","name":"a"}} {"/spec/dataSourceRef":null} []
persistentvolumeclaim {"/spec/dataSource":{"kind":"PersistentVolumeClaim","name":"a"}} {"/spec/dataSource/name":"b"} ["spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"]
"#;

/// Goal: objects that an older version stored can still be changed. Method: updates of stored objects that would be
/// refused as new ones, and changes that do not touch what is wrong with them.
#[test]
fn what_an_update_retains_is_not_checked_again() {
    for row in RETAINED.lines().filter(|row| !row.is_empty()) {
        let (name, rest) = row.split_once(' ').expect("a name");
        let values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let [stored, changes, expected] =
            values.map(|value| value.expect("JSON")).collect::<Vec<_>>().try_into().expect("three");
        let stored = changed(&Value::Object(created(&base(name))), &stored);
        let stored = stored.as_object().expect("an object").clone();
        let found = causes(&changed(&Value::Object(stored.clone()), &changes), Some(&stored));
        assert_eq!(json!(found), expected, "{row}");
    }
}

/// Goal: a type that is converted has the rules of the stored one, whatever it calls its members. Method: objects of
/// both.
#[test]
fn converted_types_are_checked_as_they_are_stored() {
    let scaler = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "namespace": "ns"}, "spec": {"maxReplicas": 2, "targetCPUUtilizationPercentage": 0,
            "scaleTargetRef": {"kind": "Deployment", "apiVersion": "apps/v1", "name": "d"}}});
    let expected = "spec.metrics[0].resource.target.averageUtilization: Invalid value: 0: must be greater than 0";
    assert_eq!(causes(&scaler, None), [expected]);
    let taken = changed(&scaler, &json!({"/spec/targetCPUUtilizationPercentage": 50}));
    assert_eq!(causes(&taken, None), Vec::<String>::new());
    let more = changed(&taken, &json!({"/spec/maxReplicas": 3}));
    assert_eq!(causes(&more, Some(&created(&taken))), Vec::<String>::new());
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a", "namespace": "ns"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "other"}, "note": "n", "reason": "R", "type": "Normal"});
    assert_eq!(
        causes(&event, None),
        ["involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"]
    );
}

/// Visits of places and causes for each byte of an object. The items of a list of containers have two bytes at least.
const STEPS_PER_BYTE: usize = 40;

/// Returns the steps and the causes of a check, which must be few for the bytes of both objects.
fn bounded(object: &Value, stored: Option<&Value>) -> usize {
    let members = |object: &Value| object.as_object().expect("an object").clone();
    let (found, stored) = (members(object), stored.map(members));
    let bytes = object.to_string().len() + stored.as_ref().map_or(0, |stored| json!(stored).to_string().len());
    steps::taken();
    let causes = causes_of(&found, stored.as_ref());
    let steps = steps::taken();
    assert!(steps <= bytes * STEPS_PER_BYTE, "{steps} steps for {bytes} bytes of a {}", object["kind"]);
    causes.len()
}

/// Returns the paths of all lists.
fn lists(value: &Value, path: &str) -> Vec<String> {
    let inner = |(name, value): (String, &Value)| lists(value, &format!("{path}/{name}"));
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate().flat_map(|(at, item)| inner((at.to_string(), item)));
            [path.to_owned()].into_iter().chain(items).collect()
        }
        Value::Object(members) => {
            members.iter().flat_map(|(name, value)| inner((name.replace('/', "~1"), value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// Goal: a hostile object costs no more than its bytes. Method: each list of each object of the rows with as many items
/// as 16 KiB hold: equal ones, and the shortest ones. Counted, not timed.
#[test]
fn steps_grow_with_the_bytes() {
    const BYTES: usize = 16 << 10;
    let objects = include_str!("rows.txt").lines().filter_map(|line| line.strip_prefix("= "));
    for object in objects.map(|object| serde_json::from_str::<Value>(object).expect("an object")) {
        for path in lists(&object, "") {
            let first = object.pointer(&path).and_then(|list| list.get(0)).cloned().unwrap_or_default();
            let shortest = if first.is_object() { json!({}) } else { json!("") };
            for item in [first, shortest] {
                let many = vec![item.clone(); BYTES / (item.to_string().len() + 1)];
                let hostile = changed(&object, &json!({ path.as_str(): many }));
                bounded(&hostile, None);
                bounded(&hostile, Some(&object));
            }
        }
    }
}

/// Goal: pairs of values cost no more than the values. Method: objects of 1 MiB in which each value of one list is
/// refused for each of another one.
#[test]
fn pairs_of_values_take_steps_for_their_bytes() {
    const PAIRS: usize = 20_000;
    let hard: Map<String, Value> = (0..PAIRS).map(|at| (format!("hugepages-{at}Mi"), "1Mi".into())).collect();
    let scopes = vec!["BestEffort"; PAIRS];
    let expression = json!({"scopeName": "BestEffort", "operator": "Exists"});
    let scoped = changed(&base("resourcequota"), &json!({"/spec/hard": hard, "/spec/scopes": scopes}));
    let selected = changed(
        &base("resourcequota"),
        &json!({"/spec/hard": hard, "/spec/scopeSelector/matchExpressions": vec![expression; PAIRS]}),
    );
    let topologies = changed(&base("storageclass"), &json!({"/allowedTopologies": vec![json!({}); PAIRS * 10]}));
    for object in [scoped, selected, topologies] {
        assert!(bounded(&object, None) > 0);
    }
}
