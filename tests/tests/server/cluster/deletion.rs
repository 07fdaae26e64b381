//! Deletions that wait for a garbage collector.

use cache_server::testing;
use serde_json::json;
use tests::{
    http::{MERGE_PATCH, briefs},
    objects::configmap,
};

use super::client_of;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// Goal: a garbage collector sees which objects wait for it, and ends them. Method: a watch as such a collector has it, while an
/// object is deleted by each policy, tried first; then the collector's part: it removes its finalizer.
#[tokio::test]
async fn a_garbage_collector_sees_what_waits_for_it() {
    let server = testing::start().await;
    let client = client_of(&server);
    for (query, finalizer) in [
        ("propagationPolicy=Foreground", "foregroundDeletion"),
        ("propagationPolicy=Orphan", "orphan"),
        ("orphanDependents=true", "orphan"),
    ] {
        let at = client.create(&configmap("owner")).await;
        let path = configmap("owner").path();
        let mut watch = client.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={at}")).await;
        let tried = client.delete(&format!("{path}?{query}&dryRun=All")).await.with_code(200).json();
        assert_eq!(tried["metadata"]["finalizers"], json!([finalizer]));
        let marked = client.delete(&format!("{path}?{query}")).await.with_code(200).json();
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]));
        assert!(marked["metadata"]["deletionTimestamp"].is_string() && marked["kind"] == "ConfigMap");
        let again = client.delete(&path).await.with_code(200).json();
        assert_eq!(again["metadata"], marked["metadata"], "a delete without a policy keeps the one before");
        let collected = json!({"metadata": {"finalizers": null}});
        client.patch(&path, MERGE_PATCH, &collected).await.with_code(200);
        client.get(&path).await.with_code(404);
        assert_eq!(briefs(&watch.events(2).await), ["MODIFIED default/owner", "DELETED default/owner"]);
    }
}

/// Goal: types that are older than garbage collectors keep their dependents, and say so. Method: Jobs, by a delete of one and of
/// all; then a policy, which ends both.
#[tokio::test]
async fn a_deleted_job_keeps_its_pods_unless_its_delete_says_otherwise() {
    let server = testing::start().await;
    let client = client_of(&server);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    for name in ["a", "b"] {
        client.post(JOBS, &json!({"metadata": {"name": name}, "spec": {"template": template}})).await.with_code(201);
    }
    let one = client.delete(&format!("{JOBS}/a")).await.with_code(200);
    assert_eq!(one.json()["metadata"]["finalizers"], json!(["orphan"]));
    let all = client.delete(JOBS).await.with_code(200);
    for answer in [one, all] {
        let warning = answer.header("warning");
        assert!(warning.contains("child pods are preserved by default when jobs are deleted"), "{warning}");
    }
    assert_eq!(client.get(JOBS).await.keys(), ["default/a", "default/b"]);
    let ended = client.delete(&format!("{JOBS}?propagationPolicy=Background")).await.with_code(200);
    assert!(ended.headers.get("warning").is_none());
    assert_eq!(client.get(JOBS).await.keys(), [""; 0]);
}

#[tokio::test]
async fn a_namespace_ends_though_its_objects_wait_for_a_collector() {
    let server = testing::start().await;
    let client = client_of(&server);
    client.post("/api/v1/namespaces", &json!({"metadata": {"name": "a"}})).await.with_code(201);
    let maps = "/api/v1/namespaces/a/configmaps";
    client.post(maps, &json!({"metadata": {"name": "m"}})).await.with_code(201);
    client.delete(&format!("{maps}/m?propagationPolicy=Foreground")).await.with_code(200);
    client.delete("/api/v1/namespaces/a").await.with_code(200);
    client.get("/api/v1/namespaces/a").await.with_code(404);
}

/// Goal: finalizers of a namespace have names as in Kubernetes. Method: its subresource, with names that are none.
#[tokio::test]
async fn finalizers_of_a_namespace_are_names() {
    let server = testing::start().await;
    let client = client_of(&server);
    client.post("/api/v1/namespaces", &json!({"metadata": {"name": "a"}})).await.with_code(201);
    let unknown = "name is neither a standard finalizer name nor is it fully qualified";
    for (names, why) in [
        (json!(["kubernetes", "short"]), format!("spec.finalizers[1]: Invalid value: \"short\": {unknown}")),
        (json!(["-Bad_/"]), "spec.finalizers[0]: Invalid value: \"-Bad_/\": ".to_owned()),
    ] {
        let body = json!({"metadata": {"name": "a"}, "spec": {"finalizers": names}});
        let refused = client.put("/api/v1/namespaces/a/finalize", &body).await.with_code(422);
        assert!(refused.message().contains(&why), "{}", refused.message());
    }
    let body = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes", "example.com/hold"]}});
    client.put("/api/v1/namespaces/a/finalize", &body).await.with_code(200);
}
