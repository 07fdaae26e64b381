//! Create and update beyond the recorded sessions and `tests/tests/server/writes.rs`: server-set members, members that
//! updates keep, and subresources.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH, with_query},
    objects::{configmap, namespace, node, pod, replica_set},
};

use super::{define, server};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

fn deployment(name: &str, replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }})
}

async fn send(client: &Client, method: Method, path: &str, content_type: &str, body: &str) -> Answer {
    let headers = [("content-type", content_type)];
    client.send(Client::request(method, path, &headers, Bytes::copy_from_slice(body.as_bytes()))).await
}

#[tokio::test]
async fn what_the_server_decides_cannot_be_sent() {
    let server = server(&[]).await;
    let client = server.client();
    let body = json!({"metadata": {
        "name": "a", "uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/here",
        "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5, "generation": 9,
    }});
    let created = client.post(CONFIGMAPS, &body).await.with_code(201).json();
    let metadata = created["metadata"].as_object().unwrap();
    assert_eq!(metadata["uid"].as_str().map(str::len), Some(36));
    assert_ne!(metadata["creationTimestamp"], "2001-01-01T00:00:00Z");
    for gone in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        assert!(!metadata.contains_key(gone), "{gone}");
    }
}

#[tokio::test]
async fn generated_names_have_room_and_chosen_names_win() {
    let server = server(&[]).await;
    let client = server.client();
    let long = "x".repeat(70);
    let created = client.post(CONFIGMAPS, &json!({"metadata": {"generateName": long}})).await.with_code(201).json();
    let name = created["metadata"]["name"].as_str().unwrap();
    assert!(name.len() == 63 && name.starts_with(&long[..58]), "{name}");
    assert!(name[58..].bytes().all(|byte| b"bcdfghjklmnpqrstvwxz2456789".contains(&byte)), "{name}");
    let both = json!({"metadata": {"name": "chosen", "generateName": "made-"}});
    let created = client.post(CONFIGMAPS, &both).await.with_code(201).json();
    assert_eq!(
        (&created["metadata"]["name"], &created["metadata"]["generateName"]),
        (&json!("chosen"), &json!("made-"))
    );
}

/// Goal: names are validated by type. Method: a type for each rule.
#[tokio::test]
async fn names_are_checked_by_the_rule_of_their_type() {
    let server = server(&[]).await;
    let client = server.client();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for (path, name, code) in [
        (CONFIGMAPS, "with.dots-and-1", 201),
        (CONFIGMAPS, "Upper", 422),
        (CONFIGMAPS, "under_score", 422),
        (CONFIGMAPS, "-dash", 422),
        (CONFIGMAPS, "a/b", 422),
        (CONFIGMAPS, "..", 422),
        ("/api/v1/namespaces", "no.dots", 422),
        ("/api/v1/namespaces", "plain", 201),
        ("/api/v1/namespaces/default/services", "no.dots", 422),
        ("/api/v1/namespaces/default/services", "fine", 201),
        (roles, "system:anything:GOES", 201),
        (roles, "not/this", 422),
    ] {
        let answer = client.post(path, &json!({"metadata": {"name": name}})).await.with_code(code);
        if code == 422 {
            let body = answer.json();
            assert_eq!(
                (&body["reason"], &body["details"]["causes"][0]["field"]),
                (&json!("Invalid"), &json!("metadata.name"))
            );
        }
    }
    let long = "x".repeat(254);
    client.post(CONFIGMAPS, &json!({"metadata": {"name": long}})).await.with_code(422);
}

/// Goal: bodies of another version or kind are refused. Method: a table of body and message.
#[tokio::test]
async fn bodies_of_other_versions_and_kinds_are_refused() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    for (body, message) in [
        (
            json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "b"}}),
            "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\"",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}),
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
    ] {
        let posted = client.post(CONFIGMAPS, &body).await.with_code(400);
        assert!(posted.message().starts_with(message), "{}", posted.message());
        let put = client.put(&configmap("a").path(), &body).await.with_code(400);
        assert!(put.message().starts_with(message), "{}", put.message());
    }
    for garbage in [
        "",
        "[]",
        "7",
        "null",
        "\"text\"",
        "{\"metadata\":7}",
        "{\"metadata\":{\"name\":7}}",
        "{\"metadata\":{\"labels\":[]}}",
    ] {
        for (method, path) in [(Method::POST, CONFIGMAPS.to_owned()), (Method::PUT, configmap("a").path())] {
            let answer = send(&client, method, &path, "application/json", garbage).await;
            assert!([400, 422].contains(&answer.code.as_u16()), "{garbage}: {} {}", answer.code, answer.text());
            assert_eq!(answer.json()["kind"], "Status");
        }
    }
    assert_eq!(client.get(CONFIGMAPS).await.keys(), ["default/a"]);
}

#[tokio::test]
async fn an_update_of_another_object_of_that_name_conflicts() {
    let server = server(&[]).await;
    let client = server.client();
    let path = configmap("a").path();
    client.create(&configmap("a")).await;
    let first = client.get(&path).await.json()["metadata"]["uid"].as_str().unwrap().to_owned();
    client.delete(&path).await.with_code(200);
    client.create(&configmap("a").data("second")).await;
    let second = client.get(&path).await.json()["metadata"]["uid"].as_str().unwrap().to_owned();
    let mut body = configmap("a").data("mine").body().clone();
    body["metadata"]["uid"] = json!(first);
    let refused = client.put(&path, &body).await.with_code(409);
    assert_eq!(refused.json()["reason"], "Conflict");
    assert!(
        refused.message().starts_with("Operation cannot be fulfilled on configmaps \"a\": "),
        "{}",
        refused.message()
    );
    let end = format!("Precondition failed: UID in precondition: {first}, UID in object meta: {second}");
    assert!(refused.message().ends_with(&end), "{}", refused.message());
    let patch = json!({"metadata": {"uid": first}, "data": {"k": "mine"}});
    // A patch has no uid precondition, but a uid is immutable.
    let invalid = client.patch(&path, MERGE_PATCH, &patch).await.with_code(422);
    assert!(invalid.message().contains("metadata.uid: Invalid value: "), "{}", invalid.message());
    assert_eq!(client.get(&path).await.json()["data"]["k"], "second");
}

/// Goal: PUT of a missing object creates it for some types. Method: types that allow it and types that do not.
#[tokio::test]
async fn an_update_makes_what_may_be_made_like_that() {
    let server = server(&[]).await;
    let client = server.client();
    for (collection, code) in [
        ("/api/v1/namespaces/default/endpoints", 201),
        ("/api/v1/namespaces/default/services", 201),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", 201),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", 201),
        (CONFIGMAPS, 404),
        (DEPLOYMENTS, 404),
        ("/api/v1/nodes", 404),
    ] {
        let path = format!("{collection}/a");
        let body = json!({"metadata": {"name": "a"}});
        client.put(&format!("{path}?dryRun=All"), &body).await.with_code(code);
        client.get(&path).await.with_code(404);
        let made = client.put(&path, &body).await.with_code(code);
        if code == 201 {
            assert_eq!(made.json()["metadata"]["uid"].as_str().map(str::len), Some(36), "{collection}");
            assert_eq!(client.get(&path).await.with_code(200).json(), made.json());
            // A second PUT is an update.
            client.put(&path, &made.json()).await.with_code(200);
            client.delete(&path).await.with_code(200);
            // The body has the uid of the deleted object, which is a conflict in kube-apiserver.
            client.put(&path, &made.json()).await.with_code(409);
        }
    }
    let service = "/api/v1/namespaces/default/services/s";
    client.put(&format!("{service}/status"), &json!({"metadata": {"name": "s"}})).await.with_code(404);
    let codes = futures::future::join_all((0..20).map(|index| async move {
        let body = json!({"metadata": {"name": "s", "labels": {"l": index.to_string()}}});
        client.put(service, &body).await.code.as_u16()
    }))
    .await;
    assert_eq!(codes.iter().filter(|&&code| code == 201).count(), 1, "{codes:?}");
    assert!(codes.iter().all(|code| [200, 201].contains(code)), "{codes:?}");
}

#[tokio::test]
async fn an_update_keeps_what_only_the_server_gives() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a").data("1")).await;
    let before = client.get(&configmap("a").path()).await.json();
    let mut body = configmap("a").data("2").body().clone();
    body["metadata"]["selfLink"] = json!("/there");
    let after = client.put(&configmap("a").path(), &body).await.with_code(200).json();
    for kept in ["uid", "creationTimestamp", "name", "namespace"] {
        assert_eq!(after["metadata"][kept], before["metadata"][kept], "{kept}");
    }
    // A patch cannot remove these members.
    let patch = json!({"metadata": {"uid": null, "creationTimestamp": null, "resourceVersion": null}});
    let patched = client.patch(&configmap("a").path(), MERGE_PATCH, &patch).await.with_code(200).json();
    assert_eq!(patched["metadata"], after["metadata"]);
}

#[tokio::test]
async fn of_many_conditional_updates_at_one_version_one_wins() {
    let server = server(&[]).await;
    let client = server.client();
    let version = client.create(&configmap("a").data("0")).await;
    let codes = futures::future::join_all((0..20).map(|index| async move {
        let mut body = configmap("a").data(&format!("new {index}")).body().clone();
        body["metadata"]["resourceVersion"] = json!(version.to_string());
        client.put(&configmap("a").path(), &body).await.code.as_u16()
    }))
    .await;
    let count = |code| codes.iter().filter(|&&found| found == code).count();
    assert_eq!((count(200), count(409)), (1, 19));
}

#[tokio::test]
async fn of_many_creations_of_one_name_one_wins() {
    let server = server(&[]).await;
    let client = server.client();
    let codes = futures::future::join_all(
        (0..20).map(|_| async move { client.post(CONFIGMAPS, configmap("a").body()).await.code.as_u16() }),
    )
    .await;
    assert_eq!(
        (codes.iter().filter(|&&code| code == 201).count(), codes.iter().filter(|&&code| code == 409).count()),
        (1, 19)
    );
}

/// Goal: status and spec are written separately. Method: each through the path of the other, by PUT and PATCH.
#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let server = server(&[]).await;
    let client = server.client();
    let set = replica_set("rs").label("app", "a");
    client.create(&set).await;
    let status = format!("{}/status", set.path());
    let mut body = client.get(&set.path()).await.json();
    let stale = body["metadata"]["resourceVersion"].clone();
    body["spec"]["replicas"] = json!(7);
    body["status"] = json!({"replicas": 3});
    body["metadata"]["labels"] = json!({"app": "changed"});
    body["metadata"]["finalizers"] = json!(["example.com/x"]);
    let written = client.put(&status, &body).await.with_code(200).json();
    assert_eq!((&written["status"]["replicas"], &written["spec"]["replicas"]), (&json!(3), &json!(0)));
    let metadata = &written["metadata"];
    assert_eq!((&metadata["labels"], &metadata["finalizers"]), (&json!({"app": "changed"}), &json!(["example.com/x"])));
    assert_eq!(written["metadata"]["generation"], 1, "a generation is of the spec");
    body["metadata"]["resourceVersion"] = stale;
    client.put(&status, &body).await.with_code(409);
    client.put(&format!("{}/status", replica_set("none").path()), replica_set("none").body()).await.with_code(404);
    client.post(&status, &body).await.with_code(405);
    client.delete(&status).await.with_code(405);
    let labelled = json!({"metadata": {"labels": {"app": "b"}}, "status": {"replicas": 9}});
    let spec = client.patch(&set.path(), MERGE_PATCH, &labelled).await.with_code(200).json();
    assert_eq!((&spec["status"]["replicas"], &spec["metadata"]["labels"]["app"]), (&json!(3), &json!("b")));
    assert_eq!(spec["metadata"]["generation"], 1, "labels are not of the spec");
}

/// Goal: an unknown subresource is not found. Method: several types and names.
#[tokio::test]
async fn subresources_that_are_none_are_not_found() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    client.create(&node("n")).await;
    for path in [
        format!("{}/status", configmap("a").path()),
        format!("{}/scale", configmap("a").path()),
        format!("{}/nothing", configmap("a").path()),
        format!("{}/scale", node("n").path()),
    ] {
        let answer = client.get(&path).await.with_code(404);
        assert_eq!(answer.message(), "the server could not find the requested resource", "{path}");
    }
}

/// Goal: `kubectl scale` and autoscalers work. Method: read, replace and patch the scale of a Deployment.
#[tokio::test]
async fn types_that_scale_do() {
    let server = server(&[]).await;
    let client = server.client();
    client.post(DEPLOYMENTS, &deployment("web", 2)).await.with_code(201);
    let (path, scale) = (format!("{DEPLOYMENTS}/web"), format!("{DEPLOYMENTS}/web/scale"));
    let read = client.get(&scale).await.with_code(200).json();
    assert_eq!((&read["kind"], &read["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!((&read["spec"]["replicas"], &read["status"]["replicas"]), (&json!(2), &json!(0)));
    assert_eq!(read["status"]["selector"], "app=web");
    assert_eq!((&read["metadata"]["name"], &read["metadata"]["namespace"]), (&json!("web"), &json!("default")));
    let before = client.get(&path).await.json();
    assert_eq!(read["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    let mut body = read.clone();
    body["spec"]["replicas"] = json!(5);
    let written = client.put(&scale, &body).await.with_code(200).json();
    assert_eq!(written["spec"]["replicas"], 5);
    let after = client.get(&path).await.json();
    assert_eq!((&after["spec"]["replicas"], &after["metadata"]["generation"]), (&json!(5), &json!(2)));
    assert_eq!(after["spec"]["template"], before["spec"]["template"]);
    client.put(&scale, &body).await.with_code(409);
    let patched = client.patch(&scale, MERGE_PATCH, &json!({"spec": {"replicas": 1}})).await.with_code(200).json();
    assert_eq!((&patched["kind"], &patched["spec"]["replicas"]), (&json!("Scale"), &json!(1)));
    assert_eq!(client.get(&path).await.json()["spec"]["replicas"], 1);
    client.get(&format!("{DEPLOYMENTS}/none/scale")).await.with_code(404);
}

#[tokio::test]
async fn generations_count_changes_of_the_spec() {
    let server = server(&[]).await;
    let client = server.client();
    client.post(DEPLOYMENTS, &deployment("web", 1)).await.with_code(201);
    let path = format!("{DEPLOYMENTS}/web");
    for (patch, generation) in [
        (json!({"metadata": {"labels": {"a": "1"}}}), 1),
        (json!({"spec": {"replicas": 1}}), 1),
        (json!({"spec": {"replicas": 2}}), 2),
        (json!({"status": {"replicas": 2}}), 2),
        (json!({"spec": {"paused": true}}), 3),
        (json!({"metadata": {"generation": 9}}), 3),
        // Only Deployments count annotations: `kubectl rollout` writes them.
        (json!({"metadata": {"annotations": {"a": "1"}}}), 4),
    ] {
        let answer = client.patch(&path, MERGE_PATCH, &patch).await.with_code(200).json();
        assert_eq!(answer["metadata"]["generation"], generation, "{patch}");
    }
    let of_pod = client.post("/api/v1/namespaces/default/pods", pod("p").body()).await.with_code(201).json();
    assert_eq!(of_pod["metadata"]["generation"], 1);
}

/// Goal: unknown and duplicate fields are reported as the client requests. Method: three levels, at create, update and
/// patch.
#[tokio::test]
async fn unknown_fields_are_refused_warned_about_or_ignored() {
    let server = server(&[]).await;
    let client = server.client();
    let body = |name: &str| {
        let mut body = deployment(name, 1);
        body["spec"]["replica"] = json!(3);
        body["spec"]["template"]["spec"]["containers"][0]["imagee"] = json!("x");
        body
    };
    let fields = ["unknown field \"spec.replica\"", "unknown field \"spec.template.spec.containers[0].imagee\""];
    let strict =
        client.post(&with_query(DEPLOYMENTS, &[("fieldValidation", "Strict")]), &body("a")).await.with_code(400);
    let message = strict.message();
    assert!(
        message.starts_with("Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: "),
        "{message}"
    );
    assert!(fields.iter().all(|field| message.contains(field)), "{message}");
    let warned = client.post(DEPLOYMENTS, &body("a")).await.with_code(201);
    let warnings: Vec<_> =
        warned.headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned()).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    for field in fields {
        let text = format!("299 - \"{}\"", field.replace('"', "\\\""));
        assert!(warnings.contains(&text), "{text} in {warnings:?}");
    }
    let ignored =
        client.post(&with_query(DEPLOYMENTS, &[("fieldValidation", "Ignore")]), &body("b")).await.with_code(201);
    assert_eq!(ignored.header("warning"), "");
    let path = format!("{DEPLOYMENTS}/a?fieldValidation=Strict");
    client.put(&path, &body("a")).await.with_code(400);
    client.put(&path, &deployment("a", 2)).await.with_code(200);
    let patch = json!({"spec": {"replicaz": 1}});
    let refused = client.patch(&path, MERGE_PATCH, &patch).await;
    assert!(
        [400, 422].contains(&refused.code.as_u16()) && refused.message().contains("unknown field \"spec.replicaz\""),
        "{}",
        refused.text()
    );
    let unknown = client
        .post(&with_query(DEPLOYMENTS, &[("fieldValidation", "Maybe")]), &deployment("c", 1))
        .await
        .with_code(422);
    assert!(unknown.message().contains("fieldValidation"), "{}", unknown.message());
    let doubled = "{\"metadata\":{\"name\":\"d\"},\"data\":{\"k\":\"1\",\"k\":\"2\"}}";
    let refused =
        send(&client, Method::POST, &format!("{CONFIGMAPS}?fieldValidation=Strict"), "application/json", doubled).await;
    assert!(refused.with_code(400).message().contains("duplicate field \"data.k\""));
}

/// Goal: `kubectl create configmap` works. Method: the envelope of Kubernetes' protobuf around a ConfigMap.
#[tokio::test]
async fn a_protobuf_body_is_understood() {
    use k8s_pb::{
        api::core::v1::ConfigMap,
        apimachinery::pkg::{
            apis::meta::v1::ObjectMeta,
            runtime::{TypeMeta, Unknown},
        },
    };
    use prost::Message as _;

    let server = server(&[]).await;
    let client = server.client();
    let object = ConfigMap {
        metadata: Some(ObjectMeta { name: Some("proto".to_owned()), ..ObjectMeta::default() }),
        data: [("k".to_owned(), "v\n".to_owned())].into_iter().collect(),
        ..ConfigMap::default()
    };
    let envelope = Unknown {
        type_meta: Some(TypeMeta { api_version: Some("v1".to_owned()), kind: Some("ConfigMap".to_owned()) }),
        raw: Some(object.encode_to_vec()),
        ..Unknown::default()
    };
    let body = [b"k8s\0".to_vec(), envelope.encode_to_vec()].concat();
    let headers = [("content-type", "application/vnd.kubernetes.protobuf"), ("accept", "application/json")];
    let created =
        client.send(Client::request(Method::POST, CONFIGMAPS, &headers, body.into())).await.with_code(201).json();
    assert_eq!((&created["data"], &created["metadata"]["name"]), (&json!({"k": "v\n"}), &json!("proto")));
    for broken in [&b"k8s\0"[..], b"k8s", b"k8s\0\xff\xff\xff", b"nothing"] {
        let headers = [("content-type", "application/vnd.kubernetes.protobuf")];
        let refused = client
            .send(Client::request(Method::POST, CONFIGMAPS, &headers, Bytes::from_static(broken)))
            .await
            .with_code(400);
        assert_eq!(refused.json()["kind"], "Status");
    }
}

#[tokio::test]
async fn content_types_that_nobody_reads_are_refused_with_those_that_are() {
    let server = server(&[]).await;
    let client = server.client();
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/cbor", "nonsense"] {
        let refused = send(&client, Method::POST, CONFIGMAPS, content_type, "{}").await.with_code(415);
        let start = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";
        assert!(refused.message().starts_with(start), "{}", refused.message());
    }
    for content_type in ["application/json", "application/json; charset=utf-8", "APPLICATION/JSON"] {
        let body = json!({"metadata": {"generateName": "a-"}}).to_string();
        send(&client, Method::POST, CONFIGMAPS, content_type, &body).await.with_code(201);
    }
}

#[tokio::test]
async fn what_is_written_is_what_is_read() {
    let server = server(&[]).await;
    let client = server.client();
    let data = json!({"empty": "", "quotes": "\"\\/", "lines": "a\nb\r\n\t", "wide": "ä🦀\u{2028}", "html": "<&>", "zero": "\u{0}"});
    let mut body = configmap("a").body().clone();
    body["data"] = data.clone();
    body["metadata"]["annotations"] = json!({"example.com/note": "{\"json\": [1, 2]}"});
    let created = client.post(CONFIGMAPS, &body).await.with_code(201).json();
    assert_eq!(created["data"], data);
    let read = client.get(&configmap("a").path()).await.with_code(200).json();
    assert_eq!(read, created);
    // Numbers of unknown fields keep their digits.
    let definition = json!({"metadata": {"name": "foos.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "foos", "kind": "Foo"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    define(&client, &definition).await;
    let raw = r#"{"apiVersion":"example.com/v1","kind":"Foo","metadata":{"name":"n"},"spec":{"b":1234567890123456789,"c":-0.5}}"#;
    send(&client, Method::POST, "/apis/example.com/v1/foos", "application/json", raw).await.with_code(201);
    let read = client.get("/apis/example.com/v1/foos/n").await.with_code(200);
    assert!(read.text().contains(r#""spec":{"b":1234567890123456789,"c":-0.5}"#), "{}", read.text());
}

#[tokio::test]
async fn a_namespace_is_an_object_like_others() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&namespace("team").label("env", "test")).await;
    let read = client.get("/api/v1/namespaces/team").await.with_code(200).json();
    assert_eq!(
        (&read["kind"], &read["status"]["phase"], &read["metadata"]["labels"]["env"]),
        (&json!("Namespace"), &json!("Active"), &json!("test"))
    );
    client
        .patch("/api/v1/namespaces/team", MERGE_PATCH, &json!({"metadata": {"labels": {"env": "prod"}}}))
        .await
        .with_code(200);
    assert_eq!(client.get("/api/v1/namespaces?labelSelector=env%3Dprod").await.keys(), ["team"]);
    let deleted = client.delete("/api/v1/namespaces/team").await.with_code(200).json();
    assert_eq!(deleted["kind"], "Namespace");
}

/// Goal: a replacement keeps server-set members, and one without a change is no write. Method: a lease with
/// managedFields, as created and as renewed, sent back in several ways.
#[tokio::test]
async fn a_replacement_is_a_write_only_when_it_changes_something() {
    let server = server(&[]).await;
    let client = server.client();
    let path = format!("{LEASES}/node-1");
    let managed = json!([{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:spec": {"f:renewTime": {}}}}]);
    let sent = json!({"metadata": {"name": "node-1", "labels": {"b": "c", "a": "d"}, "managedFields": managed},
        "spec": {"holderIdentity": "node-1", "leaseDurationSeconds": 40}});
    let mut stored = client.post(LEASES, &sent).await.with_code(201).json();
    for second in 1..4 {
        let lean = without(&stored, &["uid", "creationTimestamp"]);
        for same in [&stored, &lean, &without(&stored, &["managedFields"])] {
            assert_eq!(client.put(&path, same).await.with_code(200).json(), stored);
        }
        let text = format!(r#"{{ "spec": {}, "metadata": {} }}"#, stored["spec"], stored["metadata"]);
        let same = send(&client, Method::PUT, &path, "application/json", &text).await.with_code(200);
        assert_eq!(same.json(), stored, "its members stand in another order");
        let mut renewed = lean;
        renewed["spec"]["renewTime"] = json!(format!("2026-01-01T00:00:0{second}.000000Z"));
        let next = client.put(&path, &renewed).await.with_code(200).json();
        assert_ne!(next["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"]);
        for kept in ["uid", "creationTimestamp", "labels", "managedFields"] {
            assert_eq!(next["metadata"][kept], stored["metadata"][kept], "{kept}");
        }
        assert_eq!(next["spec"], renewed["spec"]);
        client.put(&path, &renewed).await.with_code(409);
        stored = next;
    }
    for (member, value, code) in [("uid", "other", 409), ("creationTimestamp", "2001-01-01T00:00:00Z", 200)] {
        let mut other = stored.clone();
        other["metadata"][member] = json!(value);
        client.put(&path, &other).await.with_code(code);
    }
    assert_eq!(client.get(&path).await.with_code(200).json(), stored);
    let mut emptied = stored.clone();
    emptied["metadata"]["managedFields"] = json!([{}]);
    let emptied = client.put(&path, &emptied).await.with_code(200).json();
    assert!(emptied["metadata"].get("managedFields").is_none());
}

/// Goal: one of several concurrent replacements at one version succeeds. Method: eight writers, five rounds.
#[tokio::test]
async fn of_replacements_at_one_version_one_is_taken() {
    let server = server(&[]).await;
    let client = server.client();
    let path = format!("{LEASES}/node-1");
    let managed = json!([{"manager": "kubelet", "operation": "Update"}]);
    let sent = json!({"metadata": {"name": "node-1", "managedFields": managed}, "spec": {}});
    let mut stored = client.post(LEASES, &sent).await.with_code(201).json();
    for round in 0..5 {
        let mut tasks = tokio::task::JoinSet::new();
        for holder in 0..8 {
            let (client, path, mut mine) = (server.client(), path.clone(), stored.clone());
            mine["spec"]["holderIdentity"] = json!(format!("{round}-{holder}"));
            tasks.spawn(async move { client.put(&path, &mine).await });
        }
        let answers = tasks.join_all().await;
        let taken: Vec<_> = answers.iter().filter(|answer| answer.code == 200).collect();
        assert_eq!(taken.len(), 1);
        assert!(answers.iter().all(|answer| [200, 409].contains(&answer.code.as_u16())));
        stored = client.get(&path).await.with_code(200).json();
        assert_eq!(stored, taken[0].json());
    }
}

/// The object without these metadata members.
fn without(object: &Value, members: &[&str]) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|member, _| !members.contains(&member.as_str()));
    object
}
