//! Custom resources that a webhook converts.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use cache_server::testing::ApiServer;
use serde_json::{Value, json};
use tests::http::{Answer, Client, MERGE_PATCH, briefs};

use super::{
    client, configure,
    hook::{Hook, Reply},
    start, webhook,
};

pub(super) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) fn hosts(version: &str) -> String {
    format!("/apis/example.com/{version}/namespaces/default/hosts")
}

/// A host as `v1` shows it, or with two members as `v2` does.
pub(super) fn host(version: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Host", "metadata": {"name": name}, "spec": spec})
}

/// Converts `{"address": "a:1"}` of `v1` to `{"host": "a", "port": 1}` of `v2`, and back.
pub(super) fn converted(mut object: Value, desired: &str) -> Value {
    let spec = &object["spec"];
    object["spec"] = if desired.ends_with("/v2") {
        let (host, port) = spec["address"].as_str().and_then(|it| it.split_once(':')).unwrap_or(("none", "0"));
        json!({"host": host, "port": port.parse::<u64>().expect("a number")})
    } else {
        json!({"address": format!("{}:{}", spec["host"].as_str().expect("a text"), spec["port"])})
    };
    object["apiVersion"] = desired.into();
    object
}

/// A webhook that converts hosts while `works`.
async fn converter(works: Arc<AtomicBool>) -> Hook {
    Hook::start(move |_, question| {
        if !works.load(Ordering::SeqCst) {
            return Reply::Response(json!({"result": {"status": "Failure", "message": "out of order"}}));
        }
        let desired = question["desiredAPIVersion"].as_str().expect("a version");
        let objects = question["objects"].as_array().expect("objects").iter();
        let objects: Vec<_> = objects.map(|object| converted(object.clone(), desired)).collect();
        Reply::Response(json!({"convertedObjects": objects, "result": {"status": "Success"}}))
    })
    .await
}

pub(super) fn definition(hook: &Hook) -> Value {
    let version = |name: &str, storage: bool, properties: Value| {
        let spec = json!({"type": "object", "properties": properties});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        let columns = json!([{"name": "Port", "type": "integer", "jsonPath": ".spec.port"}]);
        json!({"name": name, "served": true, "storage": storage, "schema": schema, "additionalPrinterColumns": columns})
    };
    let address = json!({"address": {"type": "string"}});
    let host_and_port = json!({"host": {"type": "string", "minLength": 1}, "port": {"type": "integer"}});
    json!({"metadata": {"name": "hosts.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "hosts", "kind": "Host"},
        "versions": [version("v1", true, address), version("v2", false, host_and_port)],
        "conversion": {"strategy": "Webhook", "webhook": {
            "clientConfig": hook.client_config("convert"), "conversionReviewVersions": ["v1", "v1beta1"]}},
    }})
}

/// Stores the definition of hosts.
pub(super) async fn define(client: &Client, hook: &Hook) {
    client.post(DEFINITIONS, &definition(hook)).await.with_code(201);
}

/// Creates a host at a version that its webhook converts.
pub(super) async fn create_converted(client: &Client) -> Answer {
    client.post(&hosts("v2"), &host("v2", "a", &json!({"host": "a", "port": 1}))).await
}

/// A server with the type of hosts, and its webhook.
async fn served() -> (ApiServer, Client, Hook, Arc<AtomicBool>) {
    let (api, client) = start().await;
    let works = Arc::new(AtomicBool::new(true));
    let hook = converter(Arc::clone(&works)).await;
    define(&client, &hook).await;
    (api, client, hook, works)
}

/// Goal: each version shows the same objects in its own form, with the same resourceVersions. Method: every verb at either
/// version, and watches at both.
#[tokio::test]
async fn a_webhook_converts_what_each_version_shows() {
    let (_api, client, _hook, _) = served().await;
    let created =
        client.post(&hosts("v2"), &host("v2", "a", &json!({"host": "a", "port": 1}))).await.with_code(201).json();
    assert_eq!(
        (&created["apiVersion"], &created["spec"]),
        (&json!("example.com/v2"), &json!({"host": "a", "port": 1}))
    );
    let stored = client.get(&format!("{}/a", hosts("v1"))).await.with_code(200).json();
    assert_eq!((&stored["apiVersion"], &stored["spec"]), (&json!("example.com/v1"), &json!({"address": "a:1"})));
    assert_eq!(stored["metadata"], created["metadata"]);
    let at = created["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut first = client.watch(&format!("{}?watch=1&resourceVersion={at}", hosts("v1"))).await;
    let mut second = client.watch(&format!("{}?watch=1&resourceVersion={at}", hosts("v2"))).await;

    client.post(&hosts("v1"), &host("v1", "b", &json!({"address": "b:2"}))).await.with_code(201);
    let list = client.get(&hosts("v2")).await.with_code(200).json();
    let specs: Vec<_> = list["items"].as_array().expect("items").iter().map(|item| item["spec"].clone()).collect();
    assert_eq!(specs, [json!({"host": "a", "port": 1}), json!({"host": "b", "port": 2})]);
    let patched = client.patch(&format!("{}/b", hosts("v2")), MERGE_PATCH, &json!({"spec": {"port": 3}})).await;
    assert_eq!(patched.with_code(200).json()["spec"], json!({"host": "b", "port": 3}));
    // The schema of the version that the request has.
    client.patch(&format!("{}/b", hosts("v2")), MERGE_PATCH, &json!({"spec": {"host": ""}})).await.with_code(422);
    client.patch(&format!("{}/a", hosts("v1")), MERGE_PATCH, &json!({"spec": {"address": "c:4"}})).await.with_code(200);
    assert_eq!(client.get(&format!("{}/a", hosts("v2"))).await.json()["spec"], json!({"host": "c", "port": 4}));
    client.delete(&format!("{}/b", hosts("v2"))).await.with_code(200);

    let expected = ["ADDED default/b", "MODIFIED default/b", "MODIFIED default/a", "DELETED default/b"];
    let (first, second) = (first.events(4).await, second.events(4).await);
    assert_eq!(
        (briefs(&first), briefs(&second)),
        (expected.map(String::from).to_vec(), expected.map(String::from).to_vec())
    );
    for (stored, shown) in first.iter().zip(&second) {
        assert_eq!(shown.object, {
            let mut object = converted(stored.object.clone(), "example.com/v2");
            object["metadata"] = stored.object["metadata"].clone();
            object
        });
    }
    client.delete(&format!("{DEFINITIONS}/hosts.example.com")).await.with_code(200);
    client.get(&hosts("v2")).await.with_code(404);
}

/// Goal: a webhook that fails stops only what needs it, and says why. Method: a failing webhook, then one that works again.
#[tokio::test]
async fn a_failing_conversion_says_why_and_keeps_the_stored_version() {
    let (_api, client, _hook, works) = served().await;
    client.post(&hosts("v1"), &host("v1", "a", &json!({"address": "a:1"}))).await.with_code(201);
    client.get(&hosts("v2")).await.with_code(200);
    works.store(false, Ordering::SeqCst);
    client.post(&hosts("v1"), &host("v1", "b", &json!({"address": "b:2"}))).await.with_code(201);
    let failed = "conversion webhook for example.com/v1, Kind=Host failed: out of order";
    for path in [hosts("v2"), format!("{}/a", hosts("v2"))] {
        let refused = client.get(&path).await.with_code(500).json();
        assert_eq!(refused["message"], failed);
    }
    let refused = client.post(&hosts("v2"), &host("v2", "c", &json!({"host": "c", "port": 3}))).await.with_code(500);
    assert_eq!(refused.json()["message"], failed.replace("v1", "v2"));
    assert_eq!(client.get(&hosts("v1")).await.keys(), ["default/a", "default/b"]);
    works.store(true, Ordering::SeqCst);
    let mut watch = client
        .watch(&format!(
            "{}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            hosts("v2")
        ))
        .await;
    assert_eq!(briefs(&watch.events(2).await), ["ADDED default/a", "ADDED default/b"]);
    client.get(&hosts("v2")).await.with_code(200);
}

/// Goal: many objects cost few questions. Method: the first list of a version, of 600 objects; and one in a fork, which has its
/// own objects.
#[tokio::test]
async fn objects_are_converted_together() {
    let (api, client_of_server, hook, _) = served().await;
    for number in 0..600 {
        let spec = json!({"address": format!("a:{number}")});
        client_of_server.post(&hosts("v1"), &host("v1", &format!("a{number}"), &spec)).await.with_code(201);
    }
    assert_eq!(client_of_server.get(&hosts("v2")).await.keys().len(), 600);
    assert_eq!(hook.seen().len(), 3, "250 objects each");
    let fork = api.fork();
    let client = client(&fork);
    client.delete(&format!("{}/a7", hosts("v2"))).await.with_code(200);
    assert_eq!(client.get(&hosts("v2")).await.keys().len(), 599);
    assert_eq!(client_of_server.get(&hosts("v2")).await.keys().len(), 600);
}

/// Goal: an admission webhook gets objects at the version of its rule, and changes them there. Method: a webhook about `v1`
/// that changes what is written at `v2`, and one that sees updates and deletions.
#[tokio::test]
async fn admission_webhooks_get_converted_objects() {
    let (_api, client, _hook, _) = served().await;
    let admission = Hook::start(|path, _| match path {
        "changes" => Reply::patch(&json!([{"op": "replace", "path": "/spec/address", "value": "changed:7"}])),
        _ => Reply::Response(json!({"allowed": true})),
    })
    .await;
    let rules = json!({"rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["hosts"]}]});
    let changing = webhook(&admission, "changes", &["hosts"], &rules);
    configure(&client, "Mutating", "a", &[changing]).await.with_code(201);
    let rules = json!({"rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"],
        "operations": ["UPDATE", "DELETE"], "resources": ["hosts"]}]});
    configure(&client, "Validating", "a", &[webhook(&admission, "sees", &["hosts"], &rules)]).await.with_code(201);
    let made =
        client.post(&hosts("v2"), &host("v2", "a", &json!({"host": "a", "port": 1}))).await.with_code(201).json();
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("example.com/v2"), &json!({"host": "changed", "port": 7}))
    );
    let path = format!("{}/a", hosts("v2"));
    client.patch(&path, MERGE_PATCH, &json!({"spec": {"port": 8}})).await.with_code(200);
    client.delete(&path).await.with_code(200);
    let seen = admission.seen();
    let shown: Vec<_> =
        seen.iter().map(|(_, it)| [&it["object"]["spec"]["address"], &it["oldObject"]["spec"]["address"]]).collect();
    let null = Value::Null;
    let (sent, changed, last) = (json!("a:1"), json!("changed:7"), json!("changed:8"));
    assert_eq!(shown, [[&sent, &null], [&last, &changed], [&null, &last]]);
    assert!(seen.iter().all(|(_, it)| it["requestKind"]["version"] == "v2" && it["kind"]["version"] == "v1"));
}
