//! `…/{name}/scale` in detail: refused requests, fields it must not change, and every type with a scale subresource.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH},
    objects::configmap,
    process::Server,
};

use super::{define, server};

const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";
const SCALE: &str = "/apis/apps/v1/namespaces/default/deployments/web/scale";

fn body(name: &str, replicas: i64) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }})
}

/// A server with the Deployment `web` of three replicas.
async fn with_web() -> Server {
    let server = server(&[]).await;
    let (collection, _) = WEB.rsplit_once('/').unwrap();
    server.client().post(collection, &body("web", 3)).await.with_code(201);
    server
}

fn scale(replicas: &Value) -> Value {
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas}})
}

async fn replicas(client: &Client) -> Value {
    client.get(WEB).await.json()["spec"]["replicas"].clone()
}

async fn patch(client: &Client, content_type: &str, body: &str) -> Answer {
    let path = format!("{SCALE}?fieldManager=m");
    let headers = [("content-type", content_type)];
    client.send(Client::request(Method::PATCH, &path, &headers, Bytes::copy_from_slice(body.as_bytes()))).await
}

/// Goal: each type with replicas can be scaled. Method: all built-in ones, and a custom one with other paths.
#[tokio::test]
async fn everything_that_counts_has_a_scale() {
    let server = server(&[]).await;
    let client = server.client();
    let mut controller = body("x", 2);
    controller["spec"]["selector"] = json!({"app": "x"});
    let set = json!({"metadata": {"name": "x"}, "size": {"wanted": 2}, "status": {"size": 1, "labels": "app=x"}});
    let definition = json!({"metadata": {"name": "sets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "sets", "kind": "Set"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "subresources": {"scale": {"specReplicasPath": ".spec.size.wanted", "statusReplicasPath": ".status.size",
                "labelSelectorPath": ".status.labels"}}}],
    }});
    define(&client, &definition).await;
    let mut set = set;
    set["apiVersion"] = json!("example.com/v1");
    set["kind"] = json!("Set");
    set["spec"] = json!({"size": {"wanted": 2}, "other": true});
    for (collection, object, path) in [
        ("/apis/apps/v1/namespaces/default/deployments", body("x", 2), "/spec/replicas"),
        ("/apis/apps/v1/namespaces/default/replicasets", body("x", 2), "/spec/replicas"),
        ("/apis/apps/v1/namespaces/default/statefulsets", body("x", 2), "/spec/replicas"),
        ("/api/v1/namespaces/default/replicationcontrollers", controller, "/spec/replicas"),
        ("/apis/example.com/v1/namespaces/default/sets", set, "/spec/size/wanted"),
    ] {
        let made = client.post(collection, &object).await.with_code(201).json();
        let (place, scale) = (format!("{collection}/x"), format!("{collection}/x/scale"));
        let read = client.get(&scale).await.with_code(200).json();
        assert_eq!((&read["kind"], &read["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
        assert_eq!((&read["spec"], &read["status"]["selector"]), (&json!({"replicas": 2}), &json!("app=x")));
        assert_eq!(read["metadata"]["uid"], made["metadata"]["uid"], "{collection}");
        let mut wanted = read.clone();
        wanted["spec"]["replicas"] = json!(7);
        let written = client.put(&scale, &wanted).await.with_code(200).json();
        let mut after = client.get(&place).await.with_code(200).json();
        assert_eq!(written["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
        assert_eq!((after.pointer(path), &written["spec"]), (Some(&json!(7)), &json!({"replicas": 7})), "{collection}");
        // The rest of the object is unchanged.
        *after.pointer_mut(path).unwrap() = json!(2);
        for member in ["generation", "resourceVersion"] {
            after["metadata"][member] = made["metadata"][member].clone();
        }
        assert_eq!(after, made, "{collection}");
    }
}

/// Goal: every type of patch applies to the Scale. Method: the four types, each with another number.
#[tokio::test]
async fn a_scale_is_patched_in_any_way() {
    let server = with_web().await;
    let client = server.client();
    for (content_type, body, wanted) in [
        (MERGE_PATCH, r#"{"spec":{"replicas":4}}"#, 4),
        ("application/strategic-merge-patch+json", r#"{"spec":{"replicas":5}}"#, 5),
        (
            "application/json-patch+json",
            r#"[{"op":"test","path":"/spec/replicas","value":5},{"op":"replace","path":"/spec/replicas","value":6}]"#,
            6,
        ),
        (
            "application/apply-patch+yaml",
            "apiVersion: autoscaling/v1\nkind: Scale\nmetadata: {name: web}\nspec: {replicas: 7}\n",
            7,
        ),
    ] {
        let answer = patch(&client, content_type, body).await.with_code(200).json();
        assert_eq!((&answer["kind"], &answer["spec"]["replicas"]), (&json!("Scale"), &json!(wanted)), "{content_type}");
        assert_eq!(replicas(&client).await, json!(wanted), "{content_type}");
    }
    // The patch cannot reach other fields of the object.
    let body =
        json!({"spec": {"replicas": 8, "paused": true}, "metadata": {"labels": {"a": "b"}}, "status": {"replicas": 9}});
    patch(&client, MERGE_PATCH, &body.to_string()).await.with_code(200);
    let after = client.get(WEB).await.json();
    assert_eq!((&after["spec"]["replicas"], after["spec"].get("paused")), (&json!(8), None));
    assert_eq!((&after["metadata"]["labels"], after.get("status")), (&json!({"app": "web"}), None));
    let failed =
        patch(&client, "application/json-patch+json", r#"[{"op":"test","path":"/spec/replicas","value":0}]"#).await;
    assert_eq!(failed.code, 422);
    patch(&client, "application/json", "{}").await.with_code(415);
}

/// Goal: an invalid Scale is refused and changes nothing. Method: a table of body and code.
#[tokio::test]
async fn scales_that_cannot_be_are_refused() {
    let server = with_web().await;
    let client = server.client();
    let at = client.get(WEB).await.resource_version();
    let negative = client.put(SCALE, &scale(&json!(-1))).await.with_code(422);
    assert_eq!(
        negative.message(),
        "Scale.autoscaling \"web\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    );
    let mut other_name = scale(&json!(4));
    other_name["metadata"]["name"] = json!("other");
    let mut other_version = scale(&json!(4));
    other_version["metadata"]["resourceVersion"] = json!("1");
    let mut other_uid = scale(&json!(4));
    other_uid["metadata"]["uid"] = json!("7");
    let mut other_kind = scale(&json!(4));
    other_kind["kind"] = json!("Deployment");
    let mut other_namespace = scale(&json!(4));
    other_namespace["metadata"]["namespace"] = json!("other");
    for (body, code) in [
        (scale(&json!("4")), 400),
        (scale(&json!(2.5)), 400),
        (scale(&json!(1_u64 << 31)), 400),
        (other_name, 400),
        (other_namespace, 400),
        (other_kind, 400),
        (json!([]), 400),
        (other_version, 409),
        (other_uid, 409),
    ] {
        let refused = client.put(SCALE, &body).await.with_code(code);
        assert_eq!(refused.json()["kind"], "Status", "{body}");
    }
    for content_type in [MERGE_PATCH, "application/strategic-merge-patch+json"] {
        patch(&client, content_type, r#"{"spec":{"replicas":-1}}"#).await.with_code(422);
        patch(&client, content_type, r#"{"metadata":{"resourceVersion":"1"},"spec":{"replicas":1}}"#)
            .await
            .with_code(409);
    }
    assert_eq!(client.get(WEB).await.resource_version(), at, "nothing was written");
    let mut none = scale(&json!(1));
    none["metadata"]["name"] = json!("none");
    client.put("/apis/apps/v1/namespaces/default/deployments/none/scale", &none).await.with_code(404);
    let text = client.send(Client::request(Method::PUT, SCALE, &[("content-type", "text/plain")], Bytes::new())).await;
    assert_eq!(text.code, 415);
}

/// Goal: a scale can only be read and updated. Method: other methods, dry runs, and a no-op update.
#[tokio::test]
async fn a_scale_is_neither_made_nor_deleted() {
    let server = with_web().await;
    let client = server.client();
    for method in [Method::POST, Method::DELETE] {
        let headers = [("content-type", "application/json")];
        let body = scale(&json!(1)).to_string();
        let refused = client.send(Client::request(method, SCALE, &headers, body.into())).await.with_code(405);
        assert_eq!(refused.message(), "the server does not allow this method on the requested resource");
    }
    client.create(&configmap("a")).await;
    client.get(&format!("{}/scale", configmap("a").path())).await.with_code(404);
    client.get("/apis/apps/v1/namespaces/default/daemonsets/web/scale").await.with_code(404);

    let dry = client.put(&format!("{SCALE}?dryRun=All"), &scale(&json!(9))).await.with_code(200).json();
    assert_eq!((&dry["spec"]["replicas"], replicas(&client).await), (&json!(9), json!(3)));
    let at = client.get(WEB).await.resource_version();
    let same = client.put(SCALE, &scale(&json!(3))).await.with_code(200);
    assert_eq!(same.resource_version(), at, "what is as wanted is not written");
    // Zero replicas are omitted in the response.
    let none = client.put(SCALE, &scale(&json!(0))).await.with_code(200).json();
    assert_eq!((&none["spec"], replicas(&client).await), (&json!({}), json!(0)));
    let unsaid = client.put(SCALE, &json!({"metadata": {"name": "web"}})).await.with_code(200).json();
    assert_eq!(unsaid["spec"], json!({}));
}

/// Goal: concurrent updates conflict. Method: twenty writers at one version.
#[tokio::test]
async fn of_many_scales_at_one_version_one_wins() {
    let server = with_web().await;
    let client = server.client();
    let read = client.get(SCALE).await.json();
    let codes = futures::future::join_all((10..30).map(|wanted| {
        let mut body = read.clone();
        body["spec"]["replicas"] = json!(wanted);
        async move { client.put(SCALE, &body).await.code.as_u16() }
    }))
    .await;
    let count = |code| codes.iter().filter(|&&found| found == code).count();
    assert_eq!((count(200), count(409)), (1, 19));
}

/// Goal: a Scale has every form. Method: table and YAML.
#[tokio::test]
async fn a_scale_has_forms() {
    let server = with_web().await;
    let client = server.client();
    let table =
        client.get_with(SCALE, &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")]).await.with_code(200);
    assert_eq!((&table.json()["kind"], &table.json()["rows"][0]["cells"][0]), (&json!("Table"), &json!("web")));
    let yaml = client.get_with(SCALE, &[("accept", "application/yaml")]).await.with_code(200);
    let read: Value = serde_saphyr::from_str(yaml.text()).expect("YAML");
    assert_eq!((&read["kind"], &read["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
}
