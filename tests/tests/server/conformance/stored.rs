//! Normalization of written objects: string and binary data of Secrets, nulls, server-set members of other clusters,
//! and metadata in status writes. Each expectation was checked against kube-apiserver 1.36.

use serde_json::json;
use tests::{
    http::{MERGE_PATCH, with_query},
    objects::configmap,
};

use super::server;

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Goal: `stringData` is a write-only shorthand for `data`. Method: every way to write a Secret, then a read.
#[tokio::test]
async fn string_data_becomes_data_whatever_writes_it() {
    let server = server(&[]).await;
    let client = server.client();
    let secret = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "data": {"kept": "YQ=="}, "stringData": {"password": "hunter2"}})
    };
    let merge = json!({"stringData": {"password": "hunter2"}});
    client.post(SECRETS, &secret("post")).await.with_code(201);
    for name in ["put", "merge", "strategic", "json"] {
        client.post(SECRETS, &json!({"metadata": {"name": name}, "data": {"kept": "YQ=="}})).await.with_code(201);
    }
    client.put(&format!("{SECRETS}/put"), &secret("put")).await.with_code(200);
    client.patch(&format!("{SECRETS}/merge"), MERGE_PATCH, &merge).await.with_code(200);
    client.patch(&format!("{SECRETS}/strategic"), STRATEGIC, &merge).await.with_code(200);
    let operations = json!([{"op": "add", "path": "/stringData", "value": {"password": "hunter2"}}]);
    client.patch(&format!("{SECRETS}/json"), "application/json-patch+json", &operations).await.with_code(200);
    let apply = format!("{SECRETS}/apply?fieldManager=m");
    for code in [201, 200] {
        client.patch(&apply, APPLY, &secret("apply")).await.with_code(code);
    }
    for name in ["post", "put", "merge", "strategic", "json", "apply"] {
        let stored = client.get(&format!("{SECRETS}/{name}")).await.json();
        assert_eq!(stored["data"], json!({"kept": "YQ==", "password": "aHVudGVyMg=="}), "{name}");
        assert_eq!((&stored["type"], stored.get("stringData")), (&json!("Opaque"), None), "{name}");
    }
    let found = client.get(&with_query(SECRETS, &[("fieldSelector", "type=Opaque")])).await.json();
    assert_eq!(found["items"].as_array().map(Vec::len), Some(6));
    let refused = client.put(&format!("{SECRETS}/put"), &json!({"metadata": {"name": "put"}, "type": "x/y"})).await;
    assert_eq!(
        refused.with_code(422).message(),
        "Secret \"put\" is invalid: type: Invalid value: \"x/y\": field is immutable"
    );
}

/// Goal: no client gets bytes that it cannot decode. Method: invalid base64 through every write path.
#[tokio::test]
async fn values_that_are_no_base64_are_refused() {
    let server = server(&[]).await;
    let client = server.client();
    let bad = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"k": "%%%"}});
    let refused = client.post(SECRETS, &bad).await.with_code(400);
    let text = "Secret in version \"v1\" cannot be handled as a Secret: illegal base64 data at input byte 0";
    assert_eq!(refused.message(), text);
    client.post(SECRETS, &json!({"metadata": {"name": "a"}, "data": {"k": "YW\nJj"}})).await.with_code(201);
    let path = format!("{SECRETS}/a");
    client.put(&path, &bad).await.with_code(400);
    for content_type in [MERGE_PATCH, STRATEGIC] {
        let refused = client.patch(&path, content_type, &json!({"data": {"k": "%%%"}})).await.with_code(422);
        assert!(refused.message().ends_with(": illegal base64 data at input byte 0"), "{}", refused.message());
    }
    client.patch(&format!("{path}?fieldManager=m"), APPLY, &bad).await.with_code(500);
    assert_eq!(client.get(&path).await.json()["data"], json!({"k": "YWJj"}), "without its line break");
}

/// Goal: exported objects can be written back. Method: server-set members of another cluster, through every write path.
#[tokio::test]
async fn what_another_server_set_is_ignored() {
    let server = server(&[]).await;
    let client = server.client();
    let path = configmap("a").path();
    client.create(&configmap("a").data("v")).await;
    let first = client.get(&path).await.json();
    let exported = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}, "metadata": {"name": "a",
        "creationTimestamp": "2020-01-01T00:00:00Z", "selfLink": "/x", "generation": 7}});
    for answer in [
        client.put(&path, &exported).await,
        client.patch(&path, MERGE_PATCH, &exported).await,
        client.patch(&path, STRATEGIC, &exported).await,
    ] {
        assert_eq!(answer.with_code(200).json(), first, "nothing changed");
    }
    let applied = client.patch(&format!("{path}?fieldManager=m"), APPLY, &exported).await;
    let applied = applied.with_code(200).json();
    assert_eq!(applied["metadata"]["creationTimestamp"], first["metadata"]["creationTimestamp"]);
    let zero = json!({"metadata": {"name": "zero", "resourceVersion": "0"}});
    client.post(&configmap("a").collection(), &zero).await.with_code(201);
}

/// Goal: typed clients can read every stored object. Method: nulls and empty maps as templates write them.
#[tokio::test]
async fn nulls_in_maps_are_empty_texts_and_empty_maps_are_absent() {
    let server = server(&[]).await;
    let client = server.client();
    let body = json!({"metadata": {"name": "a", "labels": {"l": null}, "annotations": {}}, "data": {"k": null}});
    let created = client.post(&configmap("a").collection(), &body).await.with_code(201).json();
    assert_eq!(created["data"], json!({"k": ""}));
    assert_eq!((&created["metadata"]["labels"], created["metadata"].get("annotations")), (&json!({"l": ""}), None));
    let found = client.get(&with_query(&configmap("a").collection(), &[("labelSelector", "l=")])).await.json();
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1));
    let path = configmap("a").path();
    for patch in [json!({"binaryData": {"x": null}}), json!({"metadata": {"annotations": null}}), json!({})] {
        let same = client.patch(&path, MERGE_PATCH, &patch).await.with_code(200);
        assert_eq!(same.json(), created, "{patch} is no write");
    }
}

/// Goal: kubelets and controllers may write metadata with the status, type by type as in kube-apiserver 1.36. Method:
/// one patch of all metadata through the status of each kind of type.
#[tokio::test]
async fn metadata_is_written_with_the_status_where_the_type_has_it() {
    let server = server(&[]).await;
    let client = server.client();
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec":
        {"containers": [{"name": "c", "image": "i"}]}}});
    for (collection, mut body, expected) in [
        ("/api/v1/nodes", json!({}), "annotations finalizers labels ownerReferences"),
        ("/api/v1/namespaces/default/pods", spec["template"].clone(), "annotations finalizers labels"),
        ("/api/v1/namespaces/default/services", json!({}), "annotations finalizers labels ownerReferences"),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({ "spec": spec }),
            "annotations finalizers ownerReferences",
        ),
        ("/apis/storage.k8s.io/v1/volumeattachments", json!({}), ""),
    ] {
        body["metadata"] = json!({"name": "a"});
        client.post(collection, &body).await.with_code(201);
        let patch = json!({"metadata": {"annotations": {"a": "b"}, "labels": {"l": "v"}, "finalizers": ["x.y/z"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}});
        let path = format!("{collection}/a");
        client.patch(&format!("{path}/status"), MERGE_PATCH, &patch).await.with_code(200);
        let stored = client.get(&path).await.json();
        let owned = ["annotations", "finalizers", "labels", "ownerReferences"];
        let found: Vec<&str> = owned.into_iter().filter(|name| stored["metadata"].get(*name).is_some()).collect();
        assert_eq!(found.join(" "), expected, "{collection}");
    }
}

/// Goal: a selector matches the defaults that kube-apiserver would fill in. Method: objects without each field.
#[tokio::test]
async fn selectors_find_objects_that_leave_the_default_out() {
    let server = server(&[]).await;
    let client = server.client();
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    for (plural, body, selectors) in [
        (
            "pods",
            json!({"metadata": {"name": "a"}, "spec": spec}),
            &["spec.restartPolicy=Always", "spec.schedulerName=default-scheduler", "spec.serviceAccountName=default"][..],
        ),
        ("services", json!({"metadata": {"name": "a"}, "spec": {"type": ""}}), &["spec.type=ClusterIP"]),
        ("secrets", json!({"metadata": {"name": "a"}}), &["type=Opaque"]),
    ] {
        let collection = format!("/api/v1/namespaces/default/{plural}");
        client.post(&collection, &body).await.with_code(201);
        for selector in selectors {
            for (selector, found) in [((*selector).to_owned(), 1), (selector.replace('=', "!="), 0)] {
                let list = client.get(&with_query(&collection, &[("fieldSelector", &selector)])).await.json();
                assert_eq!(list["items"].as_array().map(Vec::len), Some(found), "{selector}");
            }
        }
    }
}
