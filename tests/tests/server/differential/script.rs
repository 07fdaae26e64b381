//! Random requests about a small set of objects, so that most of them meet the results of earlier ones. Half of the
//! bodies contain something odd.
//!
//! All requests concern a namespace in which a stock server keeps no objects of its own. In bodies `$RV` and `$UID` are
//! the resourceVersion and uid that each server last returned for the object.

use fastrand::Rng;
use serde_json::{Value, json};

/// A resource type and its smallest valid object, without metadata.
pub(crate) struct Kind {
    pub(crate) kind: &'static str,
    pub(crate) api_version: &'static str,
    pub(crate) collection: &'static str,
    pub(crate) minimal: Value,
    pub(crate) has_status: bool,
}

/// One request to all servers.
pub(crate) struct Request {
    pub(crate) kind: usize,
    pub(crate) name: String,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Option<String>,
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// Names of objects, for each type.
pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];

/// A name in some bodies that differs from the name in the path.
pub(crate) const OTHER_NAME: &str = "z";

/// The definition of the custom type among [`kinds`].
pub(crate) fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name":
        "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema":
            {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

pub(crate) fn kinds() -> Vec<Kind> {
    let pod = json!({"containers": [{"name": "c", "image": "i"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let core = |kind: &'static str, collection: &'static str, minimal: Value| Kind {
        kind,
        api_version: "v1",
        collection,
        minimal,
        has_status: false,
    };
    vec![
        core("ConfigMap", "/api/v1/namespaces/team/configmaps", json!({"data": {"k": "v"}})),
        core("Secret", "/api/v1/namespaces/team/secrets", json!({"data": {"k": "dg=="}})),
        core("ServiceAccount", "/api/v1/namespaces/team/serviceaccounts", json!({})),
        Kind { has_status: true, ..core("Pod", "/api/v1/namespaces/team/pods", json!({ "spec": pod })) },
        Kind {
            has_status: true,
            ..core("Service", "/api/v1/namespaces/team/services", {
                json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}], "selector": {"a": "b"}}})
            })
        },
        Kind { has_status: true, ..core("Node", "/api/v1/nodes", json!({})) },
        Kind {
            api_version: "apps/v1",
            has_status: true,
            ..core("Deployment", "/apis/apps/v1/namespaces/team/deployments", {
                json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}})
            })
        },
        Kind {
            api_version: "coordination.k8s.io/v1",
            ..core("Lease", "/apis/coordination.k8s.io/v1/namespaces/team/leases", {
                json!({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 15}})
            })
        },
        Kind {
            api_version: "rbac.authorization.k8s.io/v1",
            ..core("Role", "/apis/rbac.authorization.k8s.io/v1/namespaces/team/roles", {
                json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]})
            })
        },
        Kind {
            api_version: "example.com/v1",
            has_status: true,
            ..core("Widget", "/apis/example.com/v1/namespaces/team/widgets", json!({"spec": {"size": 1}}))
        },
    ]
}

/// The next request.
pub(crate) fn next(rng: &mut Rng, kinds: &[Kind]) -> Request {
    let at = rng.usize(..kinds.len());
    let kind = &kinds[at];
    let name = rng.choice(NAMES).unwrap();
    let path = format!("{}/{name}", kind.collection);
    let status = if kind.has_status && rng.u8(..4) == 0 { "/status" } else { "" };
    let (method, path, content_type, body) = match rng.u8(..100) {
        0..20 => ("POST", kind.collection.to_owned(), JSON, Some(body(rng, kind, name).to_string())),
        20..38 => ("PUT", format!("{path}{status}"), JSON, Some(body(rng, kind, name).to_string())),
        38..52 => ("PATCH", format!("{path}{status}"), MERGE, Some(patch(rng, kind, name).to_string())),
        52..64 => ("PATCH", format!("{path}{status}"), JSON_PATCH, Some(operations(rng).to_string())),
        64..72 => ("PATCH", format!("{path}{status}"), STRATEGIC, Some(patch(rng, kind, name).to_string())),
        72..80 => {
            let manager = rng.choice(["m1", "m2"]).unwrap();
            let path = format!("{path}{status}?fieldManager={manager}&force=true");
            ("PATCH", path, APPLY, Some(body(rng, kind, name).to_string()))
        }
        80..88 => ("DELETE", path, JSON, delete_options(rng)),
        88..92 => ("GET", path, JSON, None),
        92..98 => ("GET", format!("{}?{}", kind.collection, selector(rng)), JSON, None),
        _ => ("DELETE", format!("{}?{}", kind.collection, selector(rng)), JSON, None),
    };
    let is_write = method != "GET" && method != "DELETE";
    let path = if is_write { with_options(rng, path) } else { path };
    let (content_type, body) =
        if is_write && rng.u8(..15) == 0 { garbage(rng, content_type) } else { (content_type, body) };
    Request { kind: at, name: name.to_owned(), method, path, content_type, body }
}

/// A malformed body, perhaps with another content type.
fn garbage(rng: &mut Rng, content_type: &'static str) -> (&'static str, Option<String>) {
    let texts = [
        "{",
        "[]",
        "7",
        "null",
        "\"x\"",
        "",
        "{\"a\":",
        "{}",
        "[{}]",
        "{\"metadata\":7}",
        "{\"metadata\":[]}",
        "{\"kind\":7}",
        "{\"apiVersion\":{}}",
        "a: [b",
    ];
    let content_type = rng.choice([content_type, content_type, "text/plain", JSON, "application/yaml"]).unwrap();
    (content_type, Some((*rng.choice(&texts).unwrap()).to_owned()))
}

fn with_options(rng: &mut Rng, path: String) -> String {
    let option = match rng.u8(..30) {
        0 => "fieldValidation=Strict",
        1 => "fieldValidation=Ignore",
        2 => "dryRun=All",
        3 => "dryRun=Some",
        4 => "fieldValidation=Loose",
        _ => return path,
    };
    let mark = if path.contains('?') { '&' } else { '?' };
    format!("{path}{mark}{option}")
}

/// A query that selects objects, not always a valid one.
pub(crate) fn selector(rng: &mut Rng) -> &'static str {
    rng.choice([
        "",
        "labelSelector=l%3Dv",
        "labelSelector=l",
        "labelSelector=!l",
        "labelSelector=l%20in%20(v,w)",
        "labelSelector=l%3D",
        "labelSelector=%3D%3D",
        "fieldSelector=metadata.name%3Da",
        "fieldSelector=metadata.name!%3Da",
        "fieldSelector=metadata.namespace%3Ddefault",
        "fieldSelector=spec.restartPolicy%3DAlways",
        "fieldSelector=spec.schedulerName!%3Ddefault-scheduler",
        "fieldSelector=spec.type%3DClusterIP",
        "fieldSelector=type%3DOpaque",
        "fieldSelector=status.phase%3DPending",
        "fieldSelector=spec.unschedulable%3Dfalse",
        "fieldSelector=nothing%3Da",
        "limit=2",
        "limit=x",
    ])
    .unwrap()
}

fn delete_options(rng: &mut Rng) -> Option<String> {
    let options = match rng.u8(..8) {
        0 => json!({"preconditions": {"uid": "$UID"}}),
        1 => json!({"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}}),
        2 => json!({"preconditions": {"resourceVersion": "$RV"}}),
        3 => json!({"preconditions": {"resourceVersion": "1"}}),
        4 => json!({"gracePeriodSeconds": 0}),
        5 => json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}),
        _ => return None,
    };
    Some(options.to_string())
}

/// A whole object, sometimes an invalid one.
fn body(rng: &mut Rng, kind: &Kind, name: &str) -> Value {
    let mut object = kind.minimal.clone();
    object["metadata"] = json!({ "name": name });
    object["kind"] = kind.kind.into();
    object["apiVersion"] = kind.api_version.into();
    for _ in 0..rng.u8(..4) {
        change(rng, kind, &mut object);
    }
    // Remove generateName, because generated names are random.
    if object["metadata"]["name"].is_null()
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("generateName");
    }
    object
}

/// Some members of an object.
fn patch(rng: &mut Rng, kind: &Kind, name: &str) -> Value {
    let mut object = if rng.bool() { json!({}) } else { kind.minimal.clone() };
    if rng.u8(..4) == 0 {
        object["metadata"] = json!({ "name": name });
    }
    for _ in 0..rng.u8(1..4) {
        change(rng, kind, &mut object);
    }
    object
}

/// Makes one random change to an object.
fn change(rng: &mut Rng, kind: &Kind, object: &mut Value) {
    let metadata = [
        ("labels", json!({"l": "v"})),
        ("labels", json!({"l": "w", "m": null})),
        ("labels", json!(null)),
        ("labels", json!({})),
        ("labels", json!({"l": ""})),
        ("annotations", json!({"a": "b"})),
        ("annotations", json!({"a": null})),
        ("annotations", json!({"a": 1})),
        ("finalizers", json!(["example.com/f"])),
        ("finalizers", json!([])),
        ("finalizers", json!(null)),
        ("ownerReferences", json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}])),
        ("creationTimestamp", json!("2020-01-01T00:00:00Z")),
        ("creationTimestamp", json!(null)),
        ("deletionTimestamp", json!("2020-01-01T00:00:00Z")),
        ("deletionGracePeriodSeconds", json!(5)),
        ("generation", json!(9)),
        ("generation", json!(0)),
        ("selfLink", json!("/x")),
        ("uid", json!("$UID")),
        ("uid", json!("11111111-1111-1111-1111-111111111111")),
        ("resourceVersion", json!("$RV")),
        ("resourceVersion", json!("1")),
        ("resourceVersion", json!("0")),
        ("resourceVersion", json!("abc")),
        ("generateName", json!("a-")),
        ("namespace", json!("default")),
        ("namespace", json!("other")),
        ("name", json!(OTHER_NAME)),
        ("name", json!(null)),
        ("unknown", json!(1)),
    ];
    let special = special(kind.kind);
    if rng.u8(..3) > 0 {
        let (member, value) = rng.choice(&metadata).unwrap();
        object["metadata"][*member] = value.clone();
    } else {
        let (member, value) = rng.choice(&special).unwrap();
        object[*member] = value.clone();
    }
}

/// Unusual values of members outside of metadata, by kind.
fn special(kind: &str) -> Vec<(&'static str, Value)> {
    match kind {
        "ConfigMap" => vec![
            ("data", json!({"k": null, "l": "w"})),
            ("data", json!({})),
            ("data", json!({"k": 1})),
            ("data", json!("text")),
            ("binaryData", json!({"b": "AAEC"})),
            ("binaryData", json!({"b": "%"})),
            ("binaryData", json!({"b": null})),
            ("immutable", json!(null)),
        ],
        "Secret" => vec![
            ("stringData", json!({"s": "text"})),
            ("stringData", json!({"k": "over"})),
            ("stringData", json!({"s": null})),
            ("stringData", json!({})),
            ("data", json!({"k": "%%%"})),
            ("data", json!({"k": "YW\nJj"})),
            ("data", json!({"k": null})),
            ("type", json!("")),
            ("type", json!("x/y")),
            ("type", json!(null)),
        ],
        "Pod" | "Service" | "Node" | "Deployment" | "Widget" => vec![
            ("status", json!({"phase": "Running"})),
            ("status", json!({"conditions": [{"type": "Ready", "status": "True"}]})),
            ("status", json!({})),
            ("status", json!(null)),
            ("spec", json!({"unknown": 1})),
            ("spec", json!(7)),
            ("spec", json!({"replicas": 3, "unschedulable": true})),
            ("spec", json!({"restartPolicy": "Never", "type": "ClusterIP", "minReadySeconds": 5})),
        ],
        _ => vec![
            ("unknown", json!({"a": 1})),
            ("kind", json!("Other")),
            ("apiVersion", json!("v9")),
            ("kind", json!(null)),
        ],
    }
}

fn operations(rng: &mut Rng) -> Value {
    let paths = [
        "/metadata/labels",
        "/metadata/labels/l",
        "/metadata/labels/m",
        "/metadata/annotations",
        "/metadata/annotations/a",
        "/metadata/finalizers",
        "/metadata/finalizers/0",
        "/metadata/finalizers/-",
        "/metadata/finalizers/-1",
        "/metadata/finalizers/7",
        "/data/k",
        "/data/none",
        "/data/none/deep",
        "/none/deep",
        "data/k",
        "nowhere",
        "x/metadata/labels",
        "/spec/none",
        "/status/phase",
        "/metadata/resourceVersion",
        "/metadata/name",
        "",
    ];
    let values = [
        json!(null),
        json!("v"),
        json!("dg=="),
        json!(["example.com/g"]),
        json!("example.com/h"),
        json!({"l": "v"}),
        json!({}),
        json!(7),
    ];
    let operation = |rng: &mut Rng| {
        let mut operation = json!({"op": rng.choice(["add", "remove", "replace", "move", "copy", "test"]).unwrap()});
        operation["path"] = (*rng.choice(&paths).unwrap()).into();
        if rng.u8(..4) > 0 {
            operation["value"] = rng.choice(&values).unwrap().clone();
        }
        if rng.bool() {
            operation["from"] = (*rng.choice(&paths).unwrap()).into();
        }
        match rng.u8(..20) {
            0 => operation["op"] = json!("fly"),
            1 => operation["path"] = json!(7),
            2 => operation["more"] = json!(1),
            _ => {}
        }
        operation
    };
    // Most single operations fail, so longer patches seldom get far.
    (0..rng.u8(1..3)).map(|_| operation(rng)).collect()
}
