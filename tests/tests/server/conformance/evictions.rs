//! Evictions: pods go as the PodDisruptionBudgets allow, whose status this file sets in place of their controller.

use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH},
    objects::pod,
};

use super::server;

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// Creates a pod with the label `app=web` on a node, in this phase, and ready or not.
async fn run(client: &Client, name: &str, phase: &str, is_ready: bool) {
    client.create(&pod(name).label("app", "web").node("n1")).await;
    let ready = json!([{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]);
    let status = json!({"status": {"phase": phase, "conditions": ready}});
    client.patch(&format!("{PODS}/{name}/status"), MERGE_PATCH, &status).await.with_code(200);
}

/// Creates a budget, and sets its status.
async fn budget(client: &Client, name: &str, spec: Value, status: Value) {
    let mut whole = json!({"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    client.post(BUDGETS, &json!({"metadata": {"name": name}, "spec": whole})).await.with_code(201);
    set(client, name, status).await;
}

async fn set(client: &Client, name: &str, status: Value) {
    let mut whole = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
        "expectedPods": 1});
    whole.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    let path = format!("{BUDGETS}/{name}/status");
    client.patch(&path, MERGE_PATCH, &json!({"status": whole})).await.with_code(200);
}

/// An Eviction without a grace period, as no kubelet ends the pods of these tests.
fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
        "deleteOptions": {"gracePeriodSeconds": 0}})
}

async fn evict(client: &Client, name: &str) -> Answer {
    client.post(&format!("{PODS}/{name}/eviction"), &eviction(name)).await
}

async fn exists(client: &Client, name: &str) -> bool {
    client.get(&format!("{PODS}/{name}")).await.code == 200
}

fn cause(refused: &Answer) -> String {
    let cause = &refused.json()["details"]["causes"][0];
    assert_eq!(cause["reason"], "DisruptionBudget");
    cause["message"].as_str().unwrap().to_owned()
}

/// Goal: each eviction takes one disruption that a budget allows, until none is left. Method: two ready pods, and a budget
/// that allows one; its controller allows another one later.
#[tokio::test]
async fn a_budget_counts_the_pods_that_go() {
    let server = server(&[]).await;
    let client = server.client();
    for name in ["a", "b", "other"] {
        run(&client, name, "Running", true).await;
    }
    client.patch(&format!("{PODS}/other"), MERGE_PATCH, &json!({"metadata": {"labels": {"app": "x"}}})).await;
    budget(&client, "web", json!({}), json!({"disruptionsAllowed": 1, "currentHealthy": 2})).await;
    let answer = evict(&client, "a").await.with_code(201).json();
    assert_eq!(answer, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}));
    assert!(!exists(&client, "a").await);
    let status = client.get(&format!("{BUDGETS}/web")).await.json()["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    assert!(status["disruptedPods"]["a"].is_string(), "{status}");
    let condition = &status["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"], &condition["reason"]),
        (&json!("DisruptionAllowed"), &json!("False"), &json!("InsufficientPods"))
    );
    set(&client, "web", json!({"currentHealthy": 1})).await;
    let refused = evict(&client, "b").await.with_code(429);
    assert_eq!(refused.message(), "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(cause(&refused), "The disruption budget web needs 1 healthy pods and has 1 currently");
    set(&client, "web", json!({"disruptionsAllowed": 1, "currentHealthy": 2, "observedGeneration": 0})).await;
    let refused = evict(&client, "b").await.with_code(429);
    assert_eq!(refused.header("retry-after"), "10");
    assert_eq!(cause(&refused), "The disruption budget web is still being processed by the server.");
    set(&client, "web", json!({"disruptionsAllowed": 1, "currentHealthy": 2})).await;
    client.post(&format!("{PODS}/b/eviction?dryRun=All"), &eviction("b")).await.with_code(201);
    assert!(exists(&client, "b").await);
    let status = client.get(&format!("{BUDGETS}/web")).await.json()["status"].clone();
    assert_eq!((&status["disruptionsAllowed"], status["disruptedPods"].get("b")), (&json!(1), None));
    evict(&client, "b").await.with_code(201);
    evict(&client, "other").await.with_code(201);
    assert!(!exists(&client, "b").await && !exists(&client, "other").await);
}

/// Goal: an eviction that is refused takes nothing from a budget. Method: one of another pod with that name, before one that
/// the budget allows.
#[tokio::test]
async fn a_refused_eviction_takes_no_disruption() {
    let server = server(&[]).await;
    let client = server.client();
    run(&client, "a", "Running", true).await;
    budget(&client, "web", json!({}), json!({"disruptionsAllowed": 1, "currentHealthy": 2})).await;
    let mut other = eviction("a");
    other["deleteOptions"]["preconditions"] = json!({"uid": "other"});
    client.post(&format!("{PODS}/a/eviction"), &other).await.with_code(409);
    evict(&client, "a").await.with_code(201);
}

/// Goal: pods that serve nothing go without a budget, or as its policy allows. Method: pods that are pending, have ended, or
/// are not ready, and a budget that allows no disruption, with each policy.
#[tokio::test]
async fn pods_that_serve_nothing_need_no_budget() {
    let server = server(&[]).await;
    let client = server.client();
    budget(&client, "web", json!({}), json!({"currentHealthy": 0})).await;
    for (name, phase) in [("pending", "Pending"), ("done", "Succeeded"), ("failed", "Failed")] {
        run(&client, name, phase, false).await;
        evict(&client, name).await.with_code(201);
        assert!(!exists(&client, name).await, "{name}");
    }
    run(&client, "unready", "Running", false).await;
    assert_eq!(evict(&client, "unready").await.code, 429, "too few others are healthy");
    set(&client, "web", json!({"currentHealthy": 1})).await;
    evict(&client, "unready").await.with_code(201);
    run(&client, "second", "Running", false).await;
    set(&client, "web", json!({"currentHealthy": 0})).await;
    let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    client.patch(&format!("{BUDGETS}/web"), MERGE_PATCH, &always).await.with_code(200);
    evict(&client, "second").await.with_code(201);
    assert_eq!(client.get(&format!("{BUDGETS}/web")).await.json()["status"]["disruptionsAllowed"], 0);
}

/// Goal: evictions are refused as by kube-apiserver. Method: preconditions, several budgets, and requests that fit no pod.
#[tokio::test]
async fn evictions_are_refused_as_by_kube_apiserver() {
    let server = server(&[]).await;
    let client = server.client();
    run(&client, "a", "Running", true).await;
    assert_eq!(evict(&client, "none").await.with_code(404).message(), "pods \"none\" not found");
    let post = async |body: &Value| client.post(&format!("{PODS}/a/eviction"), body).await;
    let other = post(&eviction("b")).await.with_code(400);
    assert_eq!(other.message(), "name in URL does not match name in Eviction object");
    let mut conditional = eviction("a");
    conditional["deleteOptions"]["preconditions"] = json!({"uid": "u"});
    let refused = post(&conditional).await.with_code(409);
    let text = "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (u) does not match";
    assert!(refused.message().starts_with(text), "{}", refused.message());
    conditional["deleteOptions"]["preconditions"] = json!({"resourceVersion": "1"});
    assert_eq!(post(&conditional).await.code, 409);
    for name in ["one", "two"] {
        budget(&client, name, json!({}), json!({"disruptionsAllowed": 1})).await;
    }
    let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!(evict(&client, "a").await.with_code(500).message(), text);
    assert!(exists(&client, "a").await);
    client.delete(&format!("{BUDGETS}/two")).await.with_code(200);
    let version = client.get(&format!("{PODS}/a")).await.json()["metadata"]["resourceVersion"].clone();
    conditional["deleteOptions"]["preconditions"] = json!({"resourceVersion": version});
    post(&conditional).await.with_code(201);
    assert!(!exists(&client, "a").await);
    client.get(&format!("{PODS}/a/eviction")).await.with_code(405);
}
