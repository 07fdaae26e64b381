//! Namespace deletion: removes every object in the namespace and refuses new ones meanwhile.

use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Client, MERGE_PATCH, briefs},
    objects::{configmap, namespace, node, pod, replica_set},
    process::Server,
};

use super::server;

const NAMESPACES: &str = "/api/v1/namespaces";
const TEAM: &str = "/api/v1/namespaces/team";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Defines `foos.example.com`, served at two versions.
async fn define(client: &Client) {
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({"metadata": {"name": "foos.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [version("v1", true), version("v1beta1", false)],
    }});
    client.post(DEFINITIONS, &definition).await.with_code(201);
}

/// A server with the namespace `team` and a ConfigMap in it that has a finalizer.
async fn held() -> Server {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&namespace("team")).await;
    let body = json!({"metadata": {"name": "held", "finalizers": ["example.com/x"]}});
    client.post(&format!("{TEAM}/configmaps"), &body).await.with_code(201);
    server
}

async fn release(client: &Client) {
    let patch = json!({"metadata": {"finalizers": null}});
    client.patch(&format!("{TEAM}/configmaps/held"), MERGE_PATCH, &patch).await.with_code(200);
}

/// Goal: the objects in a namespace are deleted before it, with events for all watchers. Method: objects of several
/// types, including a custom one with two versions, and some in another namespace; watchers of each type.
#[tokio::test]
async fn a_namespace_goes_with_everything_in_it() {
    let server = server(&[]).await;
    let client = server.client();
    define(&client).await;
    client.create(&namespace("team")).await;
    client.create(&namespace("team-2")).await;
    for place in ["team", "team-2"] {
        client.create(&configmap("a").namespace(place)).await;
        client.create(&pod("p").namespace(place).node("n1")).await;
        client.create(&replica_set("r").namespace(place)).await;
        let foo = json!({"apiVersion": "example.com/v1beta1", "kind": "Foo", "metadata": {"name": "f"}});
        client.post(&format!("/apis/example.com/v1beta1/namespaces/{place}/foos"), &foo).await.with_code(201);
    }
    let at = client.create(&node("n1")).await;
    let open = |path: &str| {
        let path = format!("{path}?watch=1&resourceVersion={at}");
        async move { client.watch(&path).await }
    };
    let mut namespaces = open(NAMESPACES).await;
    let mut foos = open("/apis/example.com/v1/foos").await;
    let (mut pods, mut maps) = (open("/api/v1/pods").await, open("/api/v1/configmaps").await);

    let told = client.delete(TEAM).await.with_code(200).json();
    assert_eq!((&told["kind"], &told["status"]["phase"]), (&json!("Namespace"), &json!("Terminating")));
    assert!(told["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(told["spec"]["finalizers"], json!(["kubernetes"]));

    client.get(TEAM).await.with_code(404);
    let events = namespaces.events(2).await;
    assert_eq!(briefs(&events), ["MODIFIED team", "DELETED team"]);
    assert_eq!(events[0].object, told);
    let last = events[1].resource_version();
    let before = |seen: Vec<tests::http::Event>, expected: &[&str]| {
        assert_eq!(briefs(&seen), expected);
        assert!(seen.iter().all(|event| event.resource_version() < last), "a namespace goes last");
    };
    before(foos.events(1).await, &["DELETED team/f"]);
    before(maps.events(1).await, &["DELETED team/a"]);
    before(pods.events(2).await, &["MODIFIED team/p", "DELETED team/p"]);
    for path in ["/api/v1/configmaps", "/api/v1/pods", "/apis/apps/v1/replicasets", "/apis/example.com/v1/foos"] {
        let left = client.get(path).await.keys();
        assert!(left.iter().all(|key| key.starts_with("team-2/")) && left.len() == 1, "{path}: {left:?}");
    }
    // The name is free again.
    client.create(&namespace("team")).await;
    client.create(&configmap("a").namespace("team")).await;
}

/// Goal: an object with a finalizer keeps its namespace. Method: a finalizer that is removed later; requests refused
/// meanwhile.
#[tokio::test]
async fn a_namespace_waits_for_what_others_hold() {
    let server = held().await;
    let client = server.client();
    client.create(&configmap("free").namespace("team")).await;
    let told = client.delete(TEAM).await.with_code(200);
    let again = client.delete(TEAM).await.with_code(200);
    assert_eq!(again.body, told.body, "telling it twice changes nothing");
    assert_eq!(client.get(&format!("{TEAM}/configmaps")).await.keys(), ["team/held"]);
    assert_eq!(client.get(TEAM).await.with_code(200).json()["status"]["phase"], "Terminating");
    assert_eq!(client.get(&format!("{NAMESPACES}?fieldSelector=status.phase%3DTerminating")).await.keys(), ["team"]);

    let refused =
        client.post(&format!("{TEAM}/configmaps"), &json!({"metadata": {"name": "new"}})).await.with_code(403);
    assert_eq!(
        refused.json(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "configmaps \"new\" is forbidden: unable to create new content in namespace team because it is being terminated",
            "reason": "Forbidden",
            "details": {"name": "new", "kind": "configmaps", "causes": [{"reason": "NamespaceTerminating",
                "message": "namespace team is being terminated", "field": "metadata.namespace"}]},
            "code": 403,
        })
    );
    let generated = json!({"metadata": {"generateName": "new-"}});
    client.post(&format!("{TEAM}/configmaps?dryRun=All"), &generated).await.with_code(403);
    let apply = "/api/v1/namespaces/team/configmaps/new?fieldManager=m";
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
    client.patch(apply, "application/apply-patch+yaml", &applied).await.with_code(403);
    // Existing objects and the namespace itself can still be changed.
    let patch = json!({"data": {"k": "w"}, "metadata": {"labels": {"l": "m"}}});
    client.patch(&format!("{TEAM}/configmaps/held"), MERGE_PATCH, &patch).await.with_code(200);
    let patch = json!({"metadata": {"labels": {"l": "m"}}});
    client.patch(TEAM, MERGE_PATCH, &patch).await.with_code(200);
    client.get(TEAM).await.with_code(200);

    let at = client.get(NAMESPACES).await.resource_version();
    let mut watch = client.watch(&format!("{NAMESPACES}?watch=1&resourceVersion={at}")).await;
    release(&client).await;
    assert_eq!(watch.event().await.brief(), "DELETED team");
    client.get(TEAM).await.with_code(404);
    client.post(&format!("{TEAM}/configmaps"), &json!({"metadata": {"name": "new"}})).await.with_code(201);
}

#[tokio::test]
async fn an_empty_namespace_waits_for_its_own_finalizers() {
    let server = server(&[]).await;
    let client = server.client();
    let body = json!({"metadata": {"name": "team", "finalizers": ["example.com/x"]}});
    let born = client.post(NAMESPACES, &body).await.with_code(201).resource_version();
    let mut watch = client.watch(&format!("{NAMESPACES}?watch=1&resourceVersion={born}")).await;
    client.delete(TEAM).await.with_code(200);
    client.patch(TEAM, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.with_code(200);
    assert_eq!(briefs(&watch.events(3).await), ["MODIFIED team", "MODIFIED team", "DELETED team"]);
}

/// Goal: a refused or dry deletion leaves the namespace unchanged. Method: dry runs, preconditions, and protected
/// names.
#[tokio::test]
async fn a_namespace_stays_unless_it_is_told_to_go() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&namespace("team")).await;
    client.create(&configmap("a").namespace("team")).await;
    let dry = client.delete(&format!("{TEAM}?dryRun=All")).await.with_code(200).json();
    assert_eq!(dry["status"]["phase"], "Terminating");
    let options = json!({"preconditions": {"uid": "other"}}).to_string();
    let headers = [("content-type", "application/json")];
    client.send(Client::request(Method::DELETE, TEAM, &headers, options.into())).await.with_code(409);
    let left = client.get(TEAM).await.with_code(200).json();
    assert_eq!((&left["status"]["phase"], left["metadata"].get("deletionTimestamp")), (&json!("Active"), None));
    client.create(&configmap("b").namespace("team")).await;
    for name in ["default", "kube-system", "kube-public"] {
        let refused = client.delete(&format!("{NAMESPACES}/{name}")).await.with_code(403);
        let text = format!("namespaces {name:?} is forbidden: this namespace may not be deleted");
        assert_eq!((refused.message(), &refused.json()["reason"]), (text, &json!("Forbidden")));
    }
    client.delete(&format!("{NAMESPACES}/none")).await.with_code(404);
    client.delete(NAMESPACES).await.with_code(405);
    client.delete(&format!("{TEAM}?orphanDependents=false")).await.with_code(202);
}

#[tokio::test]
async fn what_holds_a_namespace_is_the_servers() {
    let server = server(&[]).await;
    let client = server.client();
    let body = json!({"metadata": {"name": "team"}, "spec": {"finalizers": ["example.com/mine"]}});
    let created = client.post(NAMESPACES, &body).await.with_code(201).json();
    assert_eq!(created["spec"]["finalizers"], json!(["example.com/mine", "kubernetes"]));
    for body in
        [json!({"metadata": {"name": "team"}}), json!({"metadata": {"name": "team"}, "spec": {"finalizers": []}})]
    {
        let put: Value = client.put(TEAM, &body).await.with_code(200).json();
        assert_eq!(put["spec"], created["spec"]);
    }
}

/// Goal: namespaces can be deleted concurrently. Method: ten namespaces of five pods.
#[tokio::test]
async fn namespaces_end_side_by_side() {
    let server = server(&[]).await;
    let client = server.client();
    let names: Vec<String> = (0..10).map(|index| format!("ns-{index}")).collect();
    for name in &names {
        client.create(&namespace(name)).await;
        for index in 0..5 {
            client.create(&pod(&format!("p{index}")).namespace(name).node("n1")).await;
        }
    }
    let paths: Vec<String> = names.iter().map(|name| format!("{NAMESPACES}/{name}")).collect();
    futures::future::join_all(paths.iter().map(|path| async { client.delete(path).await.with_code(200) })).await;
    assert_eq!(client.get(NAMESPACES).await.keys(), Vec::<String>::new());
    assert_eq!(client.get("/api/v1/pods").await.keys(), Vec::<String>::new());
}

/// Goal: pods have what they need in their namespace until they end. Method: a pod that a finalizer holds, beside a
/// ConfigMap.
#[tokio::test]
async fn pods_go_before_everything_else_in_their_namespace() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&namespace("team")).await;
    client.create(&configmap("used").namespace("team")).await;
    let body = json!({"metadata": {"name": "held", "finalizers": ["example.com/x"]}});
    client.post(&format!("{TEAM}/pods"), &body).await.with_code(201);
    client.delete(TEAM).await.with_code(200);
    assert_eq!(client.get(&format!("{TEAM}/configmaps")).await.keys(), ["team/used"]);
    let mut watch = client.watch(&format!("{NAMESPACES}?watch=1")).await;
    assert_eq!(watch.event().await.brief(), "ADDED team");
    client
        .patch(&format!("{TEAM}/pods/held"), MERGE_PATCH, &json!({"metadata": {"finalizers": null}}))
        .await
        .with_code(200);
    assert_eq!(watch.event().await.brief(), "DELETED team");
    client.get(&format!("{TEAM}/configmaps/used")).await.with_code(404);
}

/// Goal: finalizers in the spec of a namespace keep it, and only `finalize` changes them. Method: one that is added, first by
/// an update; then removed while the namespace terminates.
#[tokio::test]
async fn finalize_changes_the_finalizers_in_the_spec_of_a_namespace() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&namespace("team")).await;
    let path = format!("{TEAM}/finalize");
    let mut held = client.get(TEAM).await.json();
    held["spec"]["finalizers"] = json!(["kubernetes", "example.com/x"]);
    let updated = client.put(TEAM, &held).await.with_code(200).json();
    assert_eq!(updated["spec"]["finalizers"], json!(["kubernetes"]));
    held["metadata"]["resourceVersion"] = updated["metadata"]["resourceVersion"].clone();
    held["status"] = json!({"phase": "Terminating"});
    held = client.put(&path, &held).await.with_code(200).json();
    assert_eq!((&held["spec"]["finalizers"][1], &held["status"]["phase"]), (&json!("example.com/x"), &json!("Active")));
    client.patch(&path, MERGE_PATCH, &json!({})).await.with_code(405);
    client.get(&path).await.with_code(405);

    client.delete(TEAM).await.with_code(200);
    let mut released = client.get(TEAM).await.with_code(200).json();
    let at = released["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();
    let mut watch = client.watch(&format!("{NAMESPACES}?watch=1&resourceVersion={at}")).await;
    released["spec"]["finalizers"] = json!(["kubernetes"]);
    client.put(&path, &released).await.with_code(200);
    assert_eq!(briefs(&watch.events(2).await), ["MODIFIED team", "DELETED team"]);
}
