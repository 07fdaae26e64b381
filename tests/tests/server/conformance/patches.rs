//! Patches of every type: JSON, merge, strategic merge and apply.

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH},
    objects::configmap,
};

use super::server;

const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";

/// A Deployment with two containers.
fn web() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "finalizers": ["example.com/a", "example.com/b"]}, "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
            "containers": [
                {"name": "main", "image": "main:1", "args": ["a", "b"], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                    "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                {"name": "side", "image": "side:1"},
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
        }},
    }})
}

async fn created(client: &Client) {
    client.post(DEPLOYMENTS, &web()).await.with_code(201);
}

async fn strategic(client: &Client, patch: Value) -> Value {
    client.patch(WEB, STRATEGIC, &patch).await.with_code(200).json()
}

/// The names of the containers, in order.
fn containers(object: &Value) -> Vec<&str> {
    let containers = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    containers.iter().map(|container| container["name"].as_str().unwrap()).collect()
}

/// A patch of the pod's spec.
fn of_pod(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

async fn apply(client: &Client, path: &str, body: &str) -> Answer {
    let headers = [("content-type", APPLY)];
    client.send(Client::request(Method::PATCH, path, &headers, Bytes::copy_from_slice(body.as_bytes()))).await
}

/// Goal: the operations of RFC 6902 work. Method: each on one object, with its result.
#[tokio::test]
async fn json_patches_carry_out_their_operations() {
    let server = server(&[]).await;
    let client = server.client();
    let mut body = configmap("a").data("v").label("app", "x").body().clone();
    body["data"]["path/with~both"] = json!("odd");
    client.post("/api/v1/namespaces/default/configmaps", &body).await.with_code(201);
    let path = configmap("a").path();
    for (operations, pointer, value) in [
        (json!([{"op": "add", "path": "/data/n", "value": "new"}]), "/data/n", json!("new")),
        (json!([{"op": "replace", "path": "/data/k", "value": "w"}]), "/data/k", json!("w")),
        (json!([{"op": "copy", "from": "/data/k", "path": "/data/c"}]), "/data/c", json!("w")),
        (json!([{"op": "move", "from": "/data/c", "path": "/data/m"}]), "/data/m", json!("w")),
        (json!([{"op": "remove", "path": "/data/path~1with~0both"}]), "/data", json!({"k": "w", "m": "w", "n": "new"})),
        (json!([{"op": "test", "path": "/data/k", "value": "w"}]), "/data/k", json!("w")),
        (
            json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/x"]}]),
            "/metadata/finalizers/0",
            json!("example.com/x"),
        ),
        (
            json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/y"}]),
            "/metadata/finalizers/1",
            json!("example.com/y"),
        ),
        (json!([]), "/data/k", json!("w")),
    ] {
        let patched = client.patch(&path, JSON_PATCH, &operations).await.with_code(200).json();
        assert_eq!(patched.pointer(pointer), Some(&value), "{operations}");
    }
    let before = client.get(&path).await.json();
    for (operations, code) in [
        (json!([{"op": "remove", "path": "/data/none"}]), 422),
        (json!([{"op": "replace", "path": "/none/deep", "value": 1}]), 422),
        (json!([{"op": "test", "path": "/data/k", "value": "other"}]), 422),
        (
            json!([{"op": "add", "path": "/data/l", "value": "1"}, {"op": "test", "path": "/data/k", "value": "other"}]),
            422,
        ),
        (json!([{"op": "replace", "path": "/metadata/name", "value": "b"}]), 400),
        (json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]), 409),
    ] {
        let refused = client.patch(&path, JSON_PATCH, &operations).await.with_code(code);
        assert_eq!(refused.json()["kind"], "Status");
    }
    for garbage in ["{}", "[7]", "{bad", "[{\"op\":\"fly\",\"path\":\"/a\"}]", ""] {
        let headers = [("content-type", JSON_PATCH)];
        let refused =
            client.send(Client::request(Method::PATCH, &path, &headers, Bytes::from_static(garbage.as_bytes()))).await;
        assert!([400, 422].contains(&refused.code.as_u16()), "{garbage}: {}", refused.text());
    }
    assert_eq!(client.get(&path).await.json(), before, "all or nothing");
}

#[tokio::test]
async fn a_json_patch_has_at_most_ten_thousand_operations() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a").data("v")).await;
    let operations = vec![json!({"op": "test", "path": "/data/k", "value": "v"}); 10_001];
    let refused = client.patch(&configmap("a").path(), JSON_PATCH, &json!(operations)).await.with_code(413);
    assert_eq!(
        refused.message(),
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
    client.patch(&configmap("a").path(), JSON_PATCH, &json!(operations[..10_000])).await.with_code(200);
}

/// Goal: RFC 7386 holds. Method: nulls, lists and strings in place of objects.
#[tokio::test]
async fn merge_patches_replace_lists_and_drop_nulls() {
    let server = server(&[]).await;
    let client = server.client();
    created(&client).await;
    let one = of_pod(json!({"containers": [{"name": "only", "image": "o"}], "volumes": null}));
    let patched = client.patch(WEB, MERGE_PATCH, &one).await.with_code(200).json();
    assert_eq!(containers(&patched), ["only"]);
    assert!(patched["spec"]["template"]["spec"].get("volumes").is_none());
    let same = client.patch(WEB, MERGE_PATCH, &json!({})).await.with_code(200);
    assert_eq!(same.json(), patched, "an empty patch changes nothing");
    let refused =
        client.patch(WEB, MERGE_PATCH, &json!({"metadata": {"annotations": {"foo": ["bar"]}}})).await.with_code(422);
    assert_eq!(refused.json()["reason"], "Invalid");
    for garbage in [json!([]), json!("text"), json!(7)] {
        let refused = client.patch(WEB, MERGE_PATCH, &garbage).await;
        assert!([400, 422].contains(&refused.code.as_u16()), "{garbage}: {}", refused.text());
    }
    client.patch(&WEB.replace("web", "none"), MERGE_PATCH, &json!({})).await.with_code(404);
}

#[tokio::test]
async fn strategic_patches_merge_lists_by_their_keys() {
    let server = server(&[]).await;
    let client = server.client();
    created(&client).await;
    let merged = strategic(
        &client,
        of_pod(json!({"containers": [
            {"name": "main", "image": "main:2", "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]},
            {"name": "more", "image": "more:1"},
        ]})),
    )
    .await;
    let main = &merged["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["name"] == "main")
        .unwrap()
        .clone();
    assert_eq!((&main["image"], &main["args"]), (&json!("main:2"), &json!(["a", "b"])), "what is not named stays");
    let env: Vec<_> = main["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| format!("{}={}", e["name"].as_str().unwrap(), e["value"].as_str().unwrap()))
        .collect();
    assert_eq!(env.len(), 3);
    assert!(["A=1", "B=3", "C=4"].iter().all(|one| env.iter().any(|found| found == one)), "{env:?}");
    let mut names = containers(&merged);
    names.sort_unstable();
    assert_eq!(names, ["main", "more", "side"]);
    // Lists without a merge key and lists of strings are replaced.
    let merged = strategic(&client, of_pod(json!({"containers": [{"name": "main", "args": ["c"]}]}))).await;
    let main = merged["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["name"] == "main")
        .unwrap();
    assert_eq!(main["args"], json!(["c"]));
    // Ports are merged by their number.
    let merged = strategic(&client, of_pod(json!({"containers": [{"name": "main", "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 81}]}]}))).await;
    let main = merged["spec"]["template"]["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["name"] == "main")
        .unwrap();
    assert_eq!(main["ports"].as_array().map(Vec::len), Some(2), "{}", main["ports"]);
    assert!(
        main["ports"]
            .as_array()
            .unwrap()
            .iter()
            .any(|port| port["containerPort"] == 80 && port["name"] == "http" && port["protocol"] == "TCP")
    );
}

/// Goal: every directive takes effect and none is stored. Method: each on a fresh object.
#[tokio::test]
async fn directives_of_strategic_patches_are_carried_out_and_never_stored() {
    let server = server(&[]).await;
    let client = server.client();
    let side = |object: &Value| containers(object).contains(&"side");
    for (what, patch, holds) in [
        (
            "an item is deleted",
            of_pod(json!({"containers": [{"name": "side", "$patch": "delete"}]})),
            (&|object: &Value| !side(object) && containers(object) == ["main"]) as &dyn Fn(&Value) -> bool,
        ),
        (
            "a list is replaced",
            of_pod(json!({"containers": [{"name": "new", "image": "n"}, {"$patch": "replace"}]})),
            &|object: &Value| containers(object) == ["new"],
        ),
        (
            "an object is replaced",
            json!({"spec": {"strategy": {"$patch": "replace", "type": "Recreate"}}}),
            &|object: &Value| object["spec"]["strategy"] == json!({"type": "Recreate"}),
        ),
        (
            "only some keys are kept",
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            &|object: &Value| object["spec"]["strategy"] == json!({"type": "Recreate"}),
        ),
        (
            "items are put in order",
            of_pod(
                json!({"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}], "containers": [{"name": "main", "image": "main:2"}]}),
            ),
            &|object: &Value| containers(object) == ["side", "main"],
        ),
        (
            "texts are taken out of a list",
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}),
            &|object: &Value| object["metadata"]["finalizers"] == json!(["example.com/b"]),
        ),
        (
            "texts are added to a list that is a set",
            json!({"metadata": {"finalizers": ["example.com/c"]}}),
            &|object: &Value| object["metadata"]["finalizers"].as_array().map(Vec::len) == Some(3),
        ),
        (
            "an environment variable is deleted",
            of_pod(
                json!({"containers": [{"name": "main", "$setElementOrder/env": [{"name": "B"}], "env": [{"name": "A", "$patch": "delete"}]}]}),
            ),
            &|object: &Value| {
                object["spec"]["template"]["spec"]["containers"][0]["env"] == json!([{"name": "B", "value": "2"}])
            },
        ),
        ("a null takes a member away", json!({"spec": {"replicas": null}}), &|object: &Value| {
            object["spec"].get("replicas").is_none()
        }),
    ] {
        created(&client).await;
        let answer = client.patch(WEB, STRATEGIC, &patch).await.with_code(200);
        assert!(holds(&answer.json()), "{what}: {patch} gives {}", answer.text());
        for directive in ["$patch", "$setElementOrder", "$retainKeys", "$deleteFromPrimitiveList"] {
            assert!(!answer.text().contains(directive), "{what}: {directive} is stored: {}", answer.text());
        }
        client.patch(WEB, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.with_code(200);
        client.delete(WEB).await.with_code(200);
    }
}

#[tokio::test]
async fn a_strategic_patch_of_plain_maps_is_a_merge_patch() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a").data("v").label("app", "x")).await;
    let path = configmap("a").path();
    let patch = json!({"metadata": {"labels": {"app": null, "tier": "front"}}, "data": {"l": "w"}});
    let patched = client.patch(&path, STRATEGIC, &patch).await.with_code(200).json();
    assert_eq!(
        (&patched["data"], &patched["metadata"]["labels"]),
        (&json!({"k": "v", "l": "w"}), &json!({"tier": "front"}))
    );
    let owners = |uid: &str| json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}]}});
    client.patch(&path, STRATEGIC, &owners("u1")).await.with_code(200);
    let both = client.patch(&path, STRATEGIC, &owners("u2")).await.with_code(200).json();
    assert_eq!(both["metadata"]["ownerReferences"].as_array().map(Vec::len), Some(2), "merged by uid");
    let same = client.patch(&path, STRATEGIC, &json!({"data": {"k": "v"}})).await.with_code(200);
    assert_eq!(same.resource_version(), both["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap());
}

/// Goal: repeated `kubectl apply` works, also with removed members. Method: the patches that kubectl computes.
#[tokio::test]
async fn what_kubectl_apply_sends_has_its_effect() {
    let server = server(&[]).await;
    let client = server.client();
    created(&client).await;
    let first = client.get(WEB).await.resource_version();
    let again = strategic(&client, json!({"metadata": {"annotations": {}}})).await;
    assert_eq!(again["metadata"]["resourceVersion"], first.to_string(), "an apply of the same is no write");
    let removed = strategic(
        &client,
        json!({"spec": {"template": {"spec": {
            "$setElementOrder/containers": [{"name": "main"}],
            "containers": [
                {"$setElementOrder/env": [{"name": "B"}], "env": [{"$patch": "delete", "name": "A"}], "name": "main"},
                {"$patch": "delete", "name": "side"},
            ],
        }}}}),
    )
    .await;
    assert_eq!(containers(&removed), ["main"]);
    assert_eq!(removed["spec"]["template"]["spec"]["containers"][0]["env"], json!([{"name": "B", "value": "2"}]));
    assert_eq!(removed["metadata"]["generation"], 2);
}

#[tokio::test]
async fn applying_creates_and_then_merges() {
    let server = server(&[]).await;
    let client = server.client();
    let path = format!("{}?fieldManager=one", configmap("a").path());
    let created = apply(&client, &path, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n")
        .await
        .with_code(201)
        .json();
    assert_eq!(created["data"], json!({"k": "v"}));
    let other = path.replace("one", "two");
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"l": "2"}}, "data": {"m": "w"}});
    let merged = apply(&client, &other, &body.to_string()).await.with_code(200).json();
    assert_eq!((&merged["data"], &merged["metadata"]["labels"]), (&json!({"k": "v", "m": "w"}), &json!({"l": "2"})));
    let managers = merged["metadata"]["managedFields"].as_array().expect("who applied what");
    let mut names: Vec<_> = managers
        .iter()
        .map(|entry| (entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap()))
        .collect();
    names.sort_unstable();
    assert_eq!(names, [("one", "Apply"), ("two", "Apply")]);
    // A manager that stops applying a field removes it, but no field of another manager.
    let less = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"m": "w"}});
    let taken = apply(&client, &other, &less.to_string()).await.with_code(200).json();
    assert_eq!((&taken["data"], taken["metadata"]["labels"].get("l")), (&json!({"k": "v", "m": "w"}), None));
}

/// Goal: an incomplete apply is refused. Method: a table of query, body and code.
#[tokio::test]
async fn an_apply_that_does_not_say_enough_is_refused() {
    let server = server(&[]).await;
    let client = server.client();
    let whole = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";
    for (query, body, code) in [
        ("", whole, 422),
        ("?fieldManager=", whole, 422),
        ("?fieldManager=m", "kind: ConfigMap\nmetadata:\n  name: a\n", 400),
        ("?fieldManager=m", "apiVersion: v1\nmetadata:\n  name: a\n", 400),
        ("?fieldManager=m", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n", 400),
        ("?fieldManager=m", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\n", 400),
        (
            "?fieldManager=m",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  managedFields: [{manager: x}]\n",
            400,
        ),
        ("?fieldManager=m", "{bad", 400),
        ("?fieldManager=m", ": : :", 400),
    ] {
        let refused = apply(&client, &format!("{}{query}", configmap("a").path()), body).await.with_code(code);
        assert_eq!(refused.json()["kind"], "Status", "{query} {body}");
    }
    client.get(&configmap("a").path()).await.with_code(404);
    let long = format!("{}?fieldManager={}", configmap("a").path(), "m".repeat(129));
    apply(&client, &long, whole).await.with_code(422);
    client.create(&configmap("a")).await;
    let forced =
        client.patch(&format!("{}?force=true", configmap("a").path()), MERGE_PATCH, &json!({})).await.with_code(422);
    assert!(
        forced.message().contains("force: Forbidden: may not be specified for non-apply patch"),
        "{}",
        forced.message()
    );
}

#[tokio::test]
async fn patches_of_every_kind_can_be_tried_dry() {
    let server = server(&[]).await;
    let client = server.client();
    let version = client.create(&configmap("a").data("v")).await;
    let path = format!("{}?dryRun=All&fieldManager=m", configmap("a").path());
    let merge = json!({"data": {"k": "w"}});
    let whole = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "w"}});
    for (content_type, patch) in [
        (MERGE_PATCH, merge.clone()),
        (STRATEGIC, merge),
        (JSON_PATCH, json!([{"op": "replace", "path": "/data/k", "value": "w"}])),
        (APPLY, whole),
    ] {
        let path = if content_type == APPLY { format!("{path}&force=true") } else { path.clone() };
        let answer = client.patch(&path, content_type, &patch).await.with_code(200);
        assert_eq!((&answer.json()["data"]["k"], answer.resource_version()), (&json!("w"), version), "{content_type}");
    }
    assert_eq!(client.get(&configmap("a").path()).await.json()["data"]["k"], "v");
}
