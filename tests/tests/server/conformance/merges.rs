//! The three patch types on one server: merging, refused patches, and error texts.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH},
    objects::configmap,
    process::Server,
};

use super::{define, server};

const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REJECTED: &str = "the server rejected our request due to an error in our request";

pub(crate) async fn send(client: &Client, method: Method, path: &str, content_type: &str, body: &str) -> Answer {
    let headers = [("content-type", content_type)];
    client.send(Client::request(method, path, &headers, Bytes::copy_from_slice(body.as_bytes()))).await
}

/// A server with the ConfigMap `cm`, data `k: v` and a label, and the object's path.
async fn with_config_map() -> (Server, String) {
    let server = server(&[]).await;
    let object = configmap("cm").data("v").label("a", "b");
    server.client().create(&object).await;
    (server, object.path())
}

/// A server with the Deployment `web`, and the object's path.
async fn with_deployment() -> (Server, String) {
    let server = server(&[]).await;
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "finalizers": ["x/a", "x/b"]},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "volumes": [{"name": "v", "emptyDir": {}}],
                "tolerations": [{"key": "one"}],
                "containers": [
                    {"name": "main", "image": "i:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                        "ports": [{"containerPort": 80}, {"containerPort": 81}]},
                    {"name": "side", "image": "s:1"}]}}}});
    server.client().post(DEPLOYMENTS, &body).await.with_code(201);
    (server, format!("{DEPLOYMENTS}/web"))
}

fn pod_spec(patch: Value) -> Value {
    json!({"spec": {"template": {"spec": patch}}})
}

fn names(list: &Value, member: &str) -> Vec<String> {
    let items = list.as_array().expect("a list").iter();
    items.map(|item| item[member].to_string().trim_matches('"').to_owned()).collect()
}

#[tokio::test]
async fn each_kind_of_patch_changes_what_it_names() {
    let (server, path) = with_config_map().await;
    let client = server.client();
    let table = [
        (MERGE_PATCH, json!({"data": {"m": "1", "k": null}})),
        (STRATEGIC_PATCH, json!({"data": {"s": "2"}, "metadata": {"labels": {"a": null}}})),
        (JSON_PATCH, json!([{"op": "add", "path": "/data/j", "value": "3"}])),
    ];
    for (content_type, patch) in table {
        client.patch(&path, content_type, &patch).await.with_code(200);
    }
    let object = client.get(&path).await.with_code(200).json();
    assert_eq!(object["data"], json!({"m": "1", "s": "2", "j": "3"}));
    assert_eq!(object["metadata"].get("labels"), None, "an empty map is not stored");
}

#[tokio::test]
async fn a_patch_that_changes_nothing_is_no_event() {
    let (server, path) = with_config_map().await;
    let client = server.client();
    let before = client.get(&path).await.with_code(200);
    let table = [
        (MERGE_PATCH, json!({"data": {"k": "v"}, "metadata": {"labels": {"z": null}}})),
        (MERGE_PATCH, json!({})),
        (
            STRATEGIC_PATCH,
            json!({"data": {"k": "v", "z": null}, "metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}),
        ),
        (STRATEGIC_PATCH, json!({})),
        (JSON_PATCH, json!([{"op": "test", "path": "/data/k", "value": "v"}])),
        (JSON_PATCH, json!([])),
    ];
    for (content_type, patch) in table {
        let answer = client.patch(&path, content_type, &patch).await.with_code(200);
        assert_eq!(answer.body, before.body, "{content_type} {patch}");
    }
    let list = client.get(CONFIG_MAPS).await.with_code(200);
    assert_eq!(list.resource_version(), before.resource_version(), "nothing was written at all");
}

#[tokio::test]
async fn containers_variables_and_ports_merge_by_their_keys() {
    let (server, path) = with_deployment().await;
    let client = server.client();
    let patch = pod_spec(json!({
        "$setElementOrder/containers": [{"name": "new"}, {"name": "main"}],
        "containers": [
            {"name": "new", "image": "n:1"},
            {"name": "main", "image": "i:2", "$setElementOrder/env": [{"name": "C"}, {"name": "A"}],
                "env": [{"name": "C", "value": "3"}, {"name": "B", "$patch": "delete"}],
                "$setElementOrder/ports": [{"containerPort": 82}, {"containerPort": 81}],
                "ports": [{"containerPort": 82}, {"containerPort": 80, "$patch": "delete"}]},
            {"name": "side", "$patch": "delete"}]
    }));
    let spec = client.patch(&path, STRATEGIC_PATCH, &patch).await.with_code(200).json();
    let spec = &spec["spec"]["template"]["spec"];
    assert_eq!(names(&spec["containers"], "name"), ["new", "main"]);
    let main = &spec["containers"][1];
    assert_eq!(main["image"], "i:2");
    assert_eq!(names(&main["env"], "name"), ["C", "A"]);
    assert_eq!(names(&main["ports"], "containerPort"), ["82", "81"]);
    assert_eq!(names(&spec["tolerations"], "key"), ["one"], "what is not named stays");
}

#[tokio::test]
async fn lists_without_a_key_are_replaced() {
    let (server, path) = with_deployment().await;
    let patch = pod_spec(json!({"tolerations": [{"key": "two"}, {"key": "three"}]}));
    let object = server.client().patch(&path, STRATEGIC_PATCH, &patch).await.with_code(200).json();
    assert_eq!(names(&object["spec"]["template"]["spec"]["tolerations"], "key"), ["two", "three"]);
}

#[tokio::test]
async fn a_merge_patch_replaces_every_list() {
    let (server, path) = with_deployment().await;
    let patch = pod_spec(json!({"containers": [{"name": "only", "image": "i"}]}));
    let object = server.client().patch(&path, MERGE_PATCH, &patch).await.with_code(200).json();
    assert_eq!(names(&object["spec"]["template"]["spec"]["containers"], "name"), ["only"]);
}

#[tokio::test]
async fn members_that_are_not_retained_go() {
    let (server, path) = with_deployment().await;
    let client = server.client();
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    let object = client.patch(&path, STRATEGIC_PATCH, &patch).await.with_code(200).json();
    assert_eq!(object["spec"]["strategy"], json!({"type": "Recreate"}));
    let patch =
        pod_spec(json!({"volumes": [{"name": "v", "$retainKeys": ["configMap", "name"], "configMap": {"name": "c"}}]}));
    let object = client.patch(&path, STRATEGIC_PATCH, &patch).await.with_code(200).json();
    assert_eq!(object["spec"]["template"]["spec"]["volumes"], json!([{"name": "v", "configMap": {"name": "c"}}]));
}

#[tokio::test]
async fn finalizers_merge_as_a_set() {
    let (server, path) = with_deployment().await;
    let client = server.client();
    let finalizers = async |patch: Value| {
        let object = client.patch(&path, STRATEGIC_PATCH, &json!({ "metadata": patch })).await.with_code(200).json();
        object["metadata"].get("finalizers").cloned()
    };
    assert_eq!(finalizers(json!({"finalizers": ["x/c", "x/a"]})).await, Some(json!(["x/c", "x/a", "x/b"])));
    let patch = json!({"$deleteFromPrimitiveList/finalizers": ["x/a"], "$setElementOrder/finalizers": ["x/b", "x/c"]});
    assert_eq!(finalizers(patch).await, Some(json!(["x/b", "x/c"])));
    assert_eq!(finalizers(json!({"$deleteFromPrimitiveList/finalizers": ["x/b", "x/c"]})).await, None);
}

#[tokio::test]
async fn no_directive_is_stored() {
    let (server, path) = with_deployment().await;
    let client = server.client();
    let patch = json!({
        "metadata": {"labels": {"$patch": "replace", "a": "b"}, "annotations": {"$patch": "delete"}},
        "spec": {"strategy": {"$patch": "replace", "type": "Recreate"}, "template": {"spec": {
            "securityContext": {"$retainKeys": ["fsGroup"], "fsGroup": 1},
            "initContainers": [{"name": "gone", "$patch": "delete"}, {"name": "kept", "$patch": "merge"}],
            "containers": [{"$patch": "replace"}, {"name": "a", "env": [{"name": "E", "$patch": "delete"}]}]}}},
    });
    let stored = client.patch(&path, STRATEGIC_PATCH, &patch).await.with_code(200);
    assert!(!stored.text().contains("\"$"), "{}", stored.text());
    assert!(!client.get(&path).await.text().contains("\"$"));
    let spec = &stored.json()["spec"]["template"]["spec"];
    assert_eq!(
        (names(&spec["containers"], "name"), names(&spec["initContainers"], "name")),
        (vec!["a".into()], vec!["kept".into()])
    );
    assert_eq!(stored.json()["metadata"]["labels"], json!({"a": "b"}));
}

/// Goal: patches that cannot be applied are refused. Method: a table of media type, patch, code and message.
#[tokio::test]
async fn patches_that_cannot_be_applied_are_refused() {
    let (server, path) = with_deployment().await;
    let client = server.client();
    let annotations = r#"{"metadata":{"annotations":{"foo":["bar"]}}}"#;
    let foo_bar = " \"\" is invalid: patch: Invalid value: \"{...}\": json: cannot unmarshal array into Go struct field \
                   ObjectMeta.metadata.annotations of type string";
    let replicas = " \"\" is invalid: patch: Invalid value: \"{...}\": json: cannot unmarshal string into Go struct field \
                    DeploymentSpec.spec.replicas of type int32";
    let table = [
        (MERGE_PATCH, annotations, 422, foo_bar),
        (STRATEGIC_PATCH, annotations, 422, foo_bar),
        (MERGE_PATCH, r#"{"spec":{"replicas":"x"}}"#, 422, replicas),
        (STRATEGIC_PATCH, r#"{"spec":{"replicas":"x"}}"#, 422, replicas),
        (JSON_PATCH, r#"[{"op":"replace","path":"/spec/replicas","value":"x"}]"#, 422, replicas),
        (JSON_PATCH, "[", 400, "error decoding patch: unexpected end of JSON input"),
        (STRATEGIC_PATCH, "{bad", 400, "invalid character 'b' looking for beginning of object key string"),
        (
            MERGE_PATCH,
            "[]",
            400,
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (STRATEGIC_PATCH, r#"{"spec":{"$retainKeys":["a"],"b":1}}"#, 400, "invalid patch format of retainKeys"),
        (
            STRATEGIC_PATCH,
            r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":"x"}}"#,
            400,
            "invalid patch format of primitive list",
        ),
        (
            STRATEGIC_PATCH,
            r#"{"metadata":{"$setElementOrder":["x"]}}"#,
            400,
            "invalid patch format of setElementOrder list",
        ),
        (STRATEGIC_PATCH, r#"{"metadata":{"finalizers":[["x"]]}}"#, 422, REJECTED),
        (
            STRATEGIC_PATCH,
            r#"{"spec":{"template":{"spec":{"containers":[{"image":"i"}]}}}}"#,
            422,
            " \"\" is invalid: patch: Invalid value: \"{...}\": map: map[...] does not contain declared merge key: name",
        ),
        (
            MERGE_PATCH,
            r#"{"metadata":{"name":"b"}}"#,
            400,
            "the name of the object (b) does not match the name on the URL (web)",
        ),
        (
            STRATEGIC_PATCH,
            r#"{"metadata":{"namespace":"other"}}"#,
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ("application/json", "{}", 415, "415: Unsupported Media Type"),
        ("application/apply-patch+cbor", "{}", 415, "415: Unsupported Media Type"),
        ("text/plain", "{}", 415, "415: Unsupported Media Type"),
    ];
    for (content_type, patch, code, message) in table {
        let answer = send(&client, Method::PATCH, &path, content_type, patch).await;
        assert_eq!((answer.code.as_u16(), answer.message().as_str()), (code, message), "{content_type} {patch}");
    }
    for (operation, refusal) in [
        (r#"{"op":"test","path":"/spec/replicas","value":7}"#, "test \"/spec/replicas\"): the value is another"),
        (r#"{"op":"remove","path":"/spec/none"}"#, "remove \"/spec/none\"): there is no such member"),
        (r#"{"op":"move","from":"/none","path":"/spec/x"}"#, "move \"/spec/x\"): there is no such member"),
    ] {
        let answer = send(&client, Method::PATCH, &path, JSON_PATCH, &format!("[{operation}]")).await.with_code(422);
        assert_eq!(answer.message(), format!("{REJECTED}: JSON patch operation 0 ({refusal}"));
    }
}

#[tokio::test]
async fn a_patch_of_what_is_not_there_is_not_found() {
    let server = server(&[]).await;
    for (content_type, patch) in [(MERGE_PATCH, json!({})), (STRATEGIC_PATCH, json!({})), (JSON_PATCH, json!([]))] {
        let answer = server.client().patch(&format!("{CONFIG_MAPS}/none"), content_type, &patch).await.with_code(404);
        assert_eq!(answer.message(), "configmaps \"none\" not found");
    }
}

#[tokio::test]
async fn a_patch_at_another_version_is_a_conflict() {
    let (server, path) = with_config_map().await;
    let client = server.client();
    let stale = client.get(&path).await.json()["metadata"]["resourceVersion"].clone();
    client.patch(&path, MERGE_PATCH, &json!({"data": {"k": "w"}})).await.with_code(200);
    let patches = [
        (MERGE_PATCH, json!({"metadata": {"resourceVersion": stale}, "data": {"k": "x"}})),
        (STRATEGIC_PATCH, json!({"metadata": {"resourceVersion": stale}, "data": {"k": "x"}})),
        (JSON_PATCH, json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": stale}])),
    ];
    for (content_type, patch) in patches {
        let answer = client.patch(&path, content_type, &patch).await.with_code(409);
        assert_eq!(
            answer.message(),
            "Operation cannot be fulfilled on configmaps \"cm\": the object has been modified; please apply your changes \
             to the latest version and try again"
        );
    }
    assert_eq!(client.get(&path).await.json()["data"]["k"], "w");
}

#[tokio::test]
async fn patches_at_the_same_time_all_count() {
    let (server, path) = with_config_map().await;
    let client = server.client();
    let patches = (0..16).map(|n| {
        let path = &path;
        async move {
            for round in 0..4 {
                let key = format!("k{n}-{round}");
                let kind = [MERGE_PATCH, STRATEGIC_PATCH][round % 2];
                client.patch(path, kind, &json!({"data": { key: "v" }})).await.with_code(200);
            }
        }
    });
    futures::future::join_all(patches).await;
    let data = client.get(&path).await.json()["data"].clone();
    assert_eq!(data.as_object().map(serde_json::Map::len), Some(1 + 16 * 4));
}

#[tokio::test]
async fn a_dry_patch_is_answered_and_not_stored() {
    let (server, path) = with_deployment().await;
    let client = server.client();
    let before = client.get(&path).await;
    let patch = pod_spec(json!({"containers": [{"name": "side", "$patch": "delete"}]}));
    let dry = client.patch(&format!("{path}?dryRun=All"), STRATEGIC_PATCH, &patch).await.with_code(200).json();
    assert_eq!(names(&dry["spec"]["template"]["spec"]["containers"], "name"), ["main"]);
    assert_eq!(dry["metadata"]["resourceVersion"], before.json()["metadata"]["resourceVersion"]);
    assert_eq!(client.get(&path).await.body, before.body);
}

#[tokio::test]
async fn strategic_patches_are_for_types_with_a_schema() {
    let server = server(&[]).await;
    let client = server.client();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.cr.bar.com"}, "spec": {"group": "cr.bar.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    define(&client, &definition).await;
    let foos = "/apis/cr.bar.com/v1/namespaces/default/foos";
    client.post(foos, &json!({"metadata": {"name": "f"}, "spec": {"a": [1]}})).await.with_code(201);
    let answer = client.patch(&format!("{foos}/f"), STRATEGIC_PATCH, &json!({"spec": {"a": [2]}})).await.with_code(415);
    assert_eq!(
        answer.message(),
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, \
         application/merge-patch+json, application/apply-patch+yaml"
    );
    let patch = json!({"spec": {"$patch": "x", "b": 1}});
    let merged = client.patch(&format!("{foos}/f"), MERGE_PATCH, &patch).await.with_code(200).json();
    assert_eq!(merged["spec"], json!({"a": [1], "$patch": "x", "b": 1}), "it means nothing there");
}
