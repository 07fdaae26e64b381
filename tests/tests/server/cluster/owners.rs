//! Owners of fields: entries of `managedFields` for every writer.

use cache_server::testing;
use serde_json::{Value, json};
use tests::{
    http::{Client, MERGE_PATCH},
    objects::configmap,
};

use super::client_of;

const APPLY: &str = "application/apply-patch+yaml";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Manager, operation, subresource and fields of each entry.
fn entries(object: &Value) -> Vec<Value> {
    let entries = object["metadata"]["managedFields"].as_array().expect("entries").iter();
    entries.map(|it| json!([it["manager"], it["operation"], it["subresource"], it["fieldsV1"]])).collect()
}

async fn read(client: &Client, path: &str) -> Value {
    client.get(path).await.with_code(200).json()
}

/// Goal: a writer owns what it changed last, and a removed value has no owner. Method: a create, updates by two programs, of which one
/// changes nothing, and a patch that removes a value.
#[tokio::test]
async fn writers_own_what_they_changed_last() {
    let server = testing::start().await;
    let client = client_of(&server);
    let path = configmap("a").path();
    let body = json!({"metadata": {"name": "a", "labels": {"l": "1"}}, "data": {"a": "1", "b": "1"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let created = client.post(&format!("{maps}?fieldManager=one"), &body).await.with_code(201).json();
    let first = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}});
    assert_eq!(entries(&created), [json!(["one", "Update", null, first])]);

    let mut next = created.clone();
    next["data"]["b"] = json!("2");
    client.put(&format!("{path}?fieldManager=two"), &next).await.with_code(200);
    let rest = json!({"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}});
    let second = json!(["two", "Update", null, {"f:data": {"f:b": {}}}]);
    let stored = read(&client, &path).await;
    assert_eq!(entries(&stored), [json!(["one", "Update", null, rest]), second]);
    let same = client.put(&format!("{path}?fieldManager=three"), &stored).await.with_code(200).json();
    assert_eq!(same, stored);

    client.patch(&format!("{path}?fieldManager=one"), MERGE_PATCH, &json!({"data": {"b": null}})).await.with_code(200);
    assert_eq!(entries(&read(&client, &path).await), [json!(["one", "Update", null, rest])]);
    client.patch(&path, MERGE_PATCH, &json!({"metadata": {"managedFields": [{}]}})).await.with_code(200);
    assert!(read(&client, &path).await["metadata"].get("managedFields").is_none());
}

/// Goal: an apply conflicts with every other writer. Method: values that an update, a Scale and a status set; then the same
/// apply by force.
#[tokio::test]
async fn an_apply_conflicts_with_updates() {
    let server = testing::start().await;
    let client = client_of(&server);
    let labels = json!({"app": "a"});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}});
    let applied = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec});
    let path = format!("{DEPLOYMENTS}/a");
    let apply = format!("{path}?fieldManager=me");
    client.patch(&apply, APPLY, &applied).await.with_code(201);
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}});
    let merge = "application/strategic-merge-patch+json";
    client.patch(&format!("{path}?fieldManager=other"), merge, &image).await.with_code(200);
    let scale = json!({"spec": {"replicas": 3}});
    client.patch(&format!("{path}/scale?fieldManager=scaler"), MERGE_PATCH, &scale).await.with_code(200);
    client
        .patch(&format!("{path}/status?fieldManager=status"), MERGE_PATCH, &json!({"status": {"replicas": 3}}))
        .await
        .with_code(200);
    let stored = read(&client, &path).await;
    let owned: Vec<_> = entries(&stored).into_iter().skip(1).collect();
    let image =
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}}}});
    let mut expected = vec![
        json!(["other", "Update", null, image]),
        json!(["scaler", "Update", "scale", {"f:spec": {"f:replicas": {}}}]),
        json!(["status", "Update", "status", {"f:status": {"f:replicas": {}}}]),
    ];
    expected.sort_by_key(|entry| owned.iter().position(|owned| owned == entry));
    assert_eq!(owned, expected);
    let refused = client.patch(&apply, APPLY, &applied).await.with_code(409).json();
    let fields: Vec<_> =
        refused["details"]["causes"].as_array().expect("causes").iter().map(|it| it["field"].clone()).collect();
    assert_eq!(fields, [".spec.template.spec.containers[name=\"c\"].image", ".spec.replicas"]);
    let taken = client.patch(&format!("{apply}&force=true"), APPLY, &applied).await.with_code(200).json();
    assert_eq!((&taken["spec"]["replicas"], entries(&taken).len()), (&json!(1), 2));
}
