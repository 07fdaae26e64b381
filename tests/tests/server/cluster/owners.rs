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

fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": "2020-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields})
}

/// Goal: entries that a client sends are read as in Kubernetes: those that it cannot read leave the stored ones as they are.
/// Method: a table of lists, each in a replacement that changes nothing else, and with nothing stored; then good ones.
#[tokio::test]
async fn sent_entries_are_read_or_dropped() {
    let server = testing::start().await;
    let client = client_of(&server);
    let path = configmap("a").path();
    let maps = "/api/v1/namespaces/default/configmaps";
    let body = json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    let created = client.post(&format!("{maps}?fieldManager=one"), &body).await.with_code(201).json();
    let with = |member: &str, value: Value| {
        let mut entry = entry("x", "Update", &json!({"f:data": {"f:k": {}}}));
        entry[member] = value;
        json!([entry])
    };
    let fields = |fields: Value| with("fieldsV1", fields);
    for (at, sent) in [
        fields(json!({"f:data": 7})),
        fields(json!({"data": {}})),
        fields(json!({"v:{": {}})),
        with("operation", json!("Delete")),
        with("fieldsType", json!("FieldsV2")),
        with("apiVersion", json!("")),
    ]
    .into_iter()
    .enumerate()
    {
        let mut next = created.clone();
        next["metadata"]["managedFields"] = sent.clone();
        let stored = client.put(&format!("{path}?fieldManager=two"), &next).await.with_code(200).json();
        assert_eq!(stored, created, "{sent}");
        let name = format!("b{at}");
        let body = json!({"metadata": {"name": name, "managedFields": sent}, "data": {"k": "1"}});
        let made = client.post(&format!("{maps}?fieldManager=one"), &body).await.with_code(201).json();
        assert_eq!(entries(&made), entries(&created), "{sent}");
        let bare = json!({"metadata": {"name": name, "managedFields": [{}]}, "data": {"k": "1"}});
        client.put(&format!("{maps}/{name}"), &bare).await.with_code(200);
        let body = json!({"metadata": {"name": name, "managedFields": sent}, "data": {"k": "2"}});
        let changed = client.put(&format!("{maps}/{name}"), &body).await.with_code(200).json();
        assert_eq!(changed["metadata"].get("managedFields"), None, "{sent}");
    }
    // The last one of each writer counts, at any time.
    let later = |fields: &Value| {
        let mut entry = entry("x", "Update", fields);
        entry["time"] = json!("2999-01-01T00:00:00Z");
        entry
    };
    let (first, last) = (json!({"f:data": {"f:a": {}}}), json!({"f:data": {"f:k": {}}}));
    let mut next = created.clone();
    next["metadata"]["managedFields"] = json!([entry("x", "Update", &first), later(&last)]);
    let stored = client.put(&format!("{path}?fieldManager=two"), &next).await.with_code(200).json();
    assert_eq!(entries(&stored), [json!(["x", "Update", null, last])]);
}

/// Goal: many and deep entries cost no more than their bytes. Method: entries of thousands of writers, one of them deep, in an
/// object that is updated, applied and taken over.
#[tokio::test]
async fn many_entries_are_carried_along() {
    const WRITERS: usize = 8_000;
    let server = testing::start().await;
    let client = client_of(&server).patient();
    let path = configmap("a").path();
    let deep = (0..80).fold(json!({}), |inner, _| json!({"f:a": inner}));
    let of_many = (0..WRITERS).map(|at| entry(&format!("m{at:04}"), "Apply", &json!({"f:data": {"f:k": {}}})));
    let all: Vec<_> = of_many.chain([entry("deep", "Apply", &json!({"f:data": {"f:k": {}}, "f:x": deep}))]).collect();
    let mut body = json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    client.post("/api/v1/namespaces/default/configmaps?fieldManager=one", &body).await.with_code(201);
    body["metadata"]["managedFields"] = json!(all);
    let stored = client.put(&format!("{path}?fieldManager=one"), &body).await.with_code(200).json();
    assert_eq!(entries(&stored).len(), WRITERS + 1);
    let updated = client.patch(&format!("{path}?fieldManager=two"), MERGE_PATCH, &json!({"data": {"l": "1"}})).await;
    assert_eq!(entries(&updated.with_code(200).json()).len(), WRITERS + 2);
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "2"}});
    let refused = client.patch(&format!("{path}?fieldManager=me"), APPLY, &applied).await.with_code(409);
    assert!(refused.message().contains(&format!("Apply failed with {} conflicts", WRITERS + 1)), "{}", refused.code);
    let forced = client.patch(&format!("{path}?fieldManager=me&force=true"), APPLY, &applied).await.with_code(200);
    assert_eq!(entries(&forced.json()).len(), 3, "with what others own alone");
}

/// Goal: an apply owns no metadata that the server sets, and any text is the name of a writer. Method: an apply of such metadata,
/// and names of users as managers.
#[tokio::test]
async fn metadata_of_the_server_has_no_owner() {
    let server = testing::start().await;
    let client = client_of(&server);
    let path = configmap("a").path();
    let metadata = json!({"name": "a", "namespace": "default", "creationTimestamp": "2020-01-01T00:00:00Z", "generation": 7,
        "labels": {"l": "1"}});
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    for manager in ["system:node:n", "system:serviceaccount:ns:name", "a b"] {
        let query = manager.replace(' ', "%20");
        let stored = client.patch(&format!("{path}?fieldManager={query}"), APPLY, &applied).await.json();
        let fields = json!({"f:metadata": {"f:labels": {"f:l": {}}}});
        assert_eq!(entries(&stored).last(), Some(&json!([manager, "Apply", null, fields])));
        client.delete(&path).await.with_code(200);
    }
    let mut hostile = applied.clone();
    hostile["metadata"]["managedFields"] = json!([]);
    client.patch(&format!("{path}?fieldManager=me"), APPLY, &hostile).await.with_code(400);
    let long = "m".repeat(129);
    client.patch(&format!("{path}?fieldManager={long}"), APPLY, &applied).await.with_code(422);
}
