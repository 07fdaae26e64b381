//! Delete and deletecollection: options in bodies and queries, finalizers, limits.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH, briefs, with_query},
    objects::{configmap, node, pod, replica_set},
};

use crate::server;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn delete(client: &Client, path: &str, options: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    client.send(Client::request(Method::DELETE, path, &headers, options.to_string().into())).await
}

async fn held(client: &Client, name: &str) {
    let mut body = configmap(name).body().clone();
    body["metadata"]["finalizers"] = json!(["example.com/x"]);
    client.post(CONFIGMAPS, &body).await.with_code(201);
}

/// Goal: what kubectl and the libraries send. Method: forms of the same wish, each on a fresh object.
#[tokio::test]
async fn a_delete_takes_its_options_from_body_or_query() {
    let server = server(&[]).await;
    let client = server.client();
    let path = configmap("a").path();
    let whole = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "gracePeriodSeconds": 0});
    for options in [json!({}), json!({"propagationPolicy": "Background"}), json!({"gracePeriodSeconds": 30}), whole] {
        client.create(&configmap("a")).await;
        let answer = delete(&client, &path, &options).await.with_code(200).json();
        assert_eq!((&answer["kind"], &answer["status"]), (&json!("Status"), &json!("Success")), "{options}");
        client.get(&path).await.with_code(404);
    }
    for query in ["", "?propagationPolicy=Background", "?gracePeriodSeconds=0", "?unknown=1"] {
        client.create(&configmap("a")).await;
        client.delete(&format!("{path}{query}")).await.with_code(200);
        client.get(&path).await.with_code(404);
    }
    client.create(&configmap("a")).await;
    for (query, code) in [("?gracePeriodSeconds=x", 400), ("?propagationPolicy=Sideways", 422), ("?dryRun=Some", 422)] {
        client.delete(&format!("{path}{query}")).await.with_code(code);
    }
    for options in [json!({"preconditions": {"uid": "other"}}), json!({"preconditions": {"resourceVersion": "1"}})] {
        delete(&client, &path, &options).await.with_code(409);
    }
    for garbage in ["{bad", "[]", "7"] {
        let headers = [("content-type", "application/json")];
        let request = Client::request(Method::DELETE, &path, &headers, Bytes::from_static(garbage.as_bytes()));
        client.send(request).await.with_code(400);
    }
    client.get(&path).await.with_code(200);
    delete(&client, &path, &json!({"dryRun": ["All"]})).await.with_code(200);
    client.get(&path).await.with_code(200);
}

/// Goal: the answer of each kind. Method: types that return the object and types that return a Status.
#[tokio::test]
async fn a_delete_answers_with_the_object_or_a_status() {
    let server = server(&[]).await;
    let client = server.client();
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    for (collection, body, kind) in [
        ("/api/v1/namespaces/default/pods", pod("s").body().clone(), "Pod"),
        ("/api/v1/namespaces/default/services", service, "Service"),
        ("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "s"}}), "ServiceAccount"),
        ("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}}), "Status"),
        ("/apis/apps/v1/namespaces/default/replicasets", replica_set("s").body().clone(), "Status"),
        ("/api/v1/nodes", node("s").body().clone(), "Status"),
    ] {
        let created = client.post(collection, &body).await.with_code(201);
        let deleted = client.delete(&format!("{collection}/s")).await.with_code(200);
        assert_eq!(deleted.json()["kind"], kind, "{collection}");
        assert!(deleted.resource_version() > created.resource_version(), "{collection}: the position of the deletion");
        if kind == "Status" {
            let details = &deleted.json()["details"];
            let plural = collection.rsplit('/').next().unwrap();
            assert_eq!(
                (&details["name"], &details["kind"], &details["uid"]),
                (&json!("s"), &json!(plural), &created.json()["metadata"]["uid"])
            );
            assert_eq!(details.get("group").is_some(), collection.starts_with("/apis"), "{collection}");
            assert!(deleted.json().get("code").is_none());
        }
        client.delete(&format!("{collection}/s")).await.with_code(404);
    }
}

#[tokio::test]
async fn policies_leave_finalizers_behind() {
    let server = server(&[]).await;
    let client = server.client();
    for (policy, finalizer) in [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")] {
        client.create(&configmap("a")).await;
        let marked =
            delete(&client, &configmap("a").path(), &json!({"propagationPolicy": policy})).await.with_code(200).json();
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]), "{policy}");
        assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{policy}");
        // A collector of garbage takes it off, and the object goes.
        let off = json!({"metadata": {"finalizers": null}});
        client.patch(&configmap("a").path(), MERGE_PATCH, &off).await.with_code(200);
        client.get(&configmap("a").path()).await.with_code(404);
    }
}

#[tokio::test]
async fn an_object_that_is_going_can_be_changed_but_not_kept() {
    let server = server(&[]).await;
    let client = server.client();
    held(&client, "fin").await;
    let path = configmap("fin").path();
    let marked = client.delete(&path).await.with_code(200).json();
    let changed = client.patch(&path, MERGE_PATCH, &json!({"data": {"k": "still here"}})).await.with_code(200).json();
    assert_eq!(changed["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);
    // It is not taken back.
    let back = json!({"metadata": {"deletionTimestamp": null, "deletionGracePeriodSeconds": null}});
    let kept = client.patch(&path, MERGE_PATCH, &back).await.with_code(200).json();
    assert_eq!(kept["metadata"]["deletionTimestamp"], marked["metadata"]["deletionTimestamp"]);
    // A PUT without its finalizers is the end of it.
    client.put(&path, configmap("fin").data("last").body()).await.with_code(200);
    client.get(&path).await.with_code(404);
    // And the name is free again, for another object.
    let again = client.post(CONFIGMAPS, configmap("fin").body()).await.with_code(201).json();
    assert_ne!(again["metadata"]["uid"], marked["metadata"]["uid"]);
}

#[tokio::test]
async fn finalizers_of_living_objects_come_and_go() {
    let server = server(&[]).await;
    let client = server.client();
    held(&client, "a").await;
    let off = client
        .patch(&configmap("a").path(), MERGE_PATCH, &json!({"metadata": {"finalizers": null}}))
        .await
        .with_code(200);
    assert!(off.json()["metadata"].get("finalizers").is_none_or(|left| *left == json!([])));
    let on = json!({"metadata": {"finalizers": ["example.com/y"]}});
    client.patch(&configmap("a").path(), MERGE_PATCH, &on).await.with_code(200);
    client.get(&configmap("a").path()).await.with_code(200);
}

/// Goal: of a collection goes what is selected, at most as many as wanted. Method: labels, fields, limits.
#[tokio::test]
async fn a_part_of_a_collection_can_be_deleted() {
    let server = server(&[]).await;
    let client = server.client();
    let all = || async { client.get(CONFIGMAPS).await.keys().len() };
    for index in 0..10 {
        client.create(&configmap(&format!("c{index}")).label("odd", ["no", "yes"][index % 2])).await;
    }
    let by_field =
        client.delete(&with_query(CONFIGMAPS, &[("fieldSelector", "metadata.name=c0")])).await.with_code(200);
    assert_eq!((by_field.keys(), all().await), (vec!["default/c0".to_owned()], 9));
    let none = client.delete(&with_query(CONFIGMAPS, &[("labelSelector", "odd=perhaps")])).await.with_code(200);
    assert_eq!((none.json()["items"].clone(), all().await), (json!([]), 9));
    let dry =
        client.delete(&with_query(CONFIGMAPS, &[("labelSelector", "odd=yes"), ("dryRun", "All")])).await.with_code(200);
    assert_eq!((dry.keys().len(), all().await), (5, 9));
    let limited = client.delete(&with_query(CONFIGMAPS, &[("limit", "3")])).await.with_code(200);
    assert_eq!((limited.keys().len(), all().await), (3, 6));
    let odd = client.delete(&with_query(CONFIGMAPS, &[("labelSelector", "odd=yes")])).await.with_code(200);
    assert_eq!(odd.json()["kind"], "ConfigMapList");
    for (query, code) in [
        ("resourceVersionMatch=Exact", 422),
        ("sendInitialEvents=true", 422),
        ("limit=x", 400),
        ("fieldSelector=spec.x%3Dy", 400),
    ] {
        client.delete(&format!("{CONFIGMAPS}?{query}")).await.with_code(code);
    }
    client.delete("/api/v1/configmaps").await.with_code(405);
}

#[tokio::test]
async fn finalizers_hold_objects_of_a_deleted_collection() {
    let server = server(&[]).await;
    let client = server.client();
    held(&client, "held").await;
    let at = client.create(&configmap("free")).await;
    let mut watch = client.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={at}")).await;
    let listed = client.delete(CONFIGMAPS).await.with_code(200);
    assert_eq!(listed.keys(), ["default/free", "default/held"]);
    let mut seen = briefs(&watch.events(2).await);
    seen.sort();
    assert_eq!(seen, ["DELETED default/free", "MODIFIED default/held"]);
    let left = client.get(CONFIGMAPS).await;
    assert_eq!(left.keys(), ["default/held"]);
    assert!(left.json()["items"][0]["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn a_collection_outside_of_namespaces_is_deleted_alike() {
    let server = server(&[]).await;
    let client = server.client();
    for name in ["a", "b"] {
        client.create(&node(name).label("pool", name)).await;
    }
    let gone = client.delete("/api/v1/nodes?labelSelector=pool%3Da").await.with_code(200);
    assert_eq!(gone.keys(), ["a"]);
    assert_eq!(client.get("/api/v1/nodes").await.keys(), ["b"]);
}

/// Goal: a pod's grace can be shortened and is over at zero. Method: a pod on a node, told to go more and more urgently.
#[tokio::test]
async fn the_grace_of_a_pod_can_only_be_shortened() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&pod("p").node("n1")).await;
    let path = pod("p").path();
    let grace = |answer: &Answer| answer.json()["metadata"]["deletionGracePeriodSeconds"].as_i64();
    let first = delete(&client, &path, &json!({"gracePeriodSeconds": 60})).await.with_code(200);
    assert_eq!(grace(&first), Some(60));
    let longer = delete(&client, &path, &json!({"gracePeriodSeconds": 90})).await.with_code(200);
    assert_eq!((grace(&longer), longer.resource_version()), (Some(60), first.resource_version()));
    let shorter = delete(&client, &path, &json!({"gracePeriodSeconds": 5})).await.with_code(200);
    assert_eq!(grace(&shorter), Some(5));
    assert!(shorter.resource_version() > first.resource_version());
    delete(&client, &path, &json!({"gracePeriodSeconds": 0})).await.with_code(200);
    client.get(&path).await.with_code(404);
    // One that is over needs no grace.
    client.create(&pod("done").node("n1")).await;
    let patch = json!({"status": {"phase": "Succeeded"}});
    client.patch(&format!("{}/status", pod("done").path()), MERGE_PATCH, &patch).await.with_code(200);
    client.delete(&pod("done").path()).await.with_code(200);
    client.get(&pod("done").path()).await.with_code(404);
}

#[tokio::test]
async fn of_many_deletes_of_one_object_one_wins() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let path = configmap("a").path();
    let answers = futures::future::join_all((0..20).map(|_| client.delete(&path))).await;
    let codes: Vec<u16> = answers.iter().map(|answer| answer.code.as_u16()).collect();
    assert_eq!(
        (codes.iter().filter(|&&code| code == 200).count(), codes.iter().filter(|&&code| code == 404).count()),
        (1, 19)
    );
}
