//! Server-side apply: create or merge, one managedFields entry per manager, and no change for a repeated apply.

use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH},
    objects::configmap,
    process::Server,
};

use super::{define, merges::send, server};

const APPLY: &str = "application/apply-patch+yaml";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn config_map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": data})
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
}

fn containers(items: Value) -> Value {
    deployment(json!({"template": {"spec": {"containers": items}}}))
}

async fn apply(client: &Client, path: &str, manager: &str, config: &Value) -> Answer {
    apply_with(client, path, &format!("fieldManager={manager}"), config).await
}

async fn apply_with(client: &Client, path: &str, query: &str, config: &Value) -> Answer {
    client.patch(&format!("{path}?{query}"), APPLY, config).await
}

fn config_map_path() -> String {
    format!("{CONFIG_MAPS}/cm")
}

fn deployment_path() -> String {
    format!("{DEPLOYMENTS}/web")
}

/// Manager and fields of each entry.
fn entries(object: &Value) -> Vec<(String, Value)> {
    let listed = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    listed.iter().map(|entry| (entry["manager"].as_str().unwrap().to_owned(), entry["fieldsV1"].clone())).collect()
}

async fn start() -> (Server, Client) {
    let server = server(&[]).await;
    let client = server.client();
    (server, client)
}

#[tokio::test]
async fn an_apply_creates_what_is_missing() {
    let (_server, client) = start().await;
    let created = apply(&client, &config_map_path(), "m1", &config_map(json!({"k": "1"}))).await.with_code(201).json();
    let metadata = &created["metadata"];
    assert_eq!(metadata["uid"].as_str().map(str::len), Some(36));
    assert_eq!((&metadata["namespace"], &created["data"]), (&json!("default"), &json!({"k": "1"})));
    let entry = json!([{"manager": "m1", "operation": "Apply", "apiVersion": "v1", "time": metadata["creationTimestamp"],
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}}]);
    assert_eq!(metadata["managedFields"], entry);
    assert_eq!(client.get(&config_map_path()).await.with_code(200).json(), created);
}

#[tokio::test]
async fn the_same_apply_changes_nothing() {
    let (_server, client) = start().await;
    let config = containers(json!([{"name": "a", "image": "i", "ports": [{"containerPort": 80}]}]));
    let first = apply(&client, &deployment_path(), "m", &config).await.with_code(201);
    let watch = format!("{DEPLOYMENTS}?watch=true&resourceVersion={}", first.resource_version());
    let mut watch = client.watch(&watch).await;
    for force in ["", "&force=true"] {
        let again =
            apply_with(&client, &deployment_path(), &format!("fieldManager=m{force}"), &config).await.with_code(200);
        assert_eq!(again.body, first.body);
    }
    let changed = containers(json!([{"name": "a", "image": "j", "ports": [{"containerPort": 80}]}]));
    let changed = apply(&client, &deployment_path(), "m", &changed).await.with_code(200);
    let event = watch.event().await;
    assert_eq!(event.resource_version(), changed.resource_version(), "nothing in between");
    assert_eq!(changed.json()["metadata"]["generation"], 2);
}

#[tokio::test]
async fn fields_that_are_left_out_go_unless_others_want_them() {
    let (_server, client) = start().await;
    let path = config_map_path();
    apply(&client, &path, "one", &config_map(json!({"a": "1", "b": "2"}))).await.with_code(201);
    client.patch(&path, MERGE_PATCH, &json!({"data": {"mine": "x"}})).await.with_code(200);
    apply(&client, &path, "two", &config_map(json!({"b": "2"}))).await.with_code(200);
    let object = apply(&client, &path, "one", &config_map(json!({"c": "3"}))).await.with_code(200).json();
    assert_eq!(object["data"], json!({"b": "2", "c": "3", "mine": "x"}));
    let owned: Vec<_> = entries(&object);
    assert!(owned.contains(&("one".to_owned(), json!({"f:data": {"f:c": {}}}))), "{owned:?}");
    assert!(owned.contains(&("two".to_owned(), json!({"f:data": {"f:b": {}}}))), "{owned:?}");
}

#[tokio::test]
async fn items_of_lists_are_merged_by_their_keys() {
    let (_server, client) = start().await;
    let path = deployment_path();
    let names = |object: &Value| -> Vec<String> {
        let items = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    apply(&client, &path, "one", &containers(json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}])))
        .await
        .with_code(201);
    let object =
        apply(&client, &path, "two", &containers(json!([{"name": "c", "image": "1"}, {"name": "a", "tty": true}])))
            .await;
    let object = object.with_code(200).json();
    assert_eq!(names(&object), ["c", "a", "b"]);
    assert_eq!(object["spec"]["template"]["spec"]["containers"][1], json!({"name": "a", "image": "1", "tty": true}));
    let object =
        apply(&client, &path, "one", &containers(json!([{"name": "b", "image": "2"}]))).await.with_code(200).json();
    assert_eq!(names(&object), ["c", "a", "b"], "the other one still wants `a`");
    assert_eq!(object["spec"]["template"]["spec"]["containers"][1], json!({"name": "a", "tty": true}));
}

#[tokio::test]
async fn ports_are_told_apart_by_number_and_protocol() {
    let (_server, client) = start().await;
    let ports = |ports: Value| containers(json!([{"name": "a", "ports": ports}]));
    let path = deployment_path();
    apply(&client, &path, "one", &ports(json!([{"containerPort": 53, "name": "tcp"}]))).await.with_code(201);
    let udp = ports(json!([{"containerPort": 53, "protocol": "UDP", "name": "udp"}]));
    let object = apply(&client, &path, "two", &udp).await.with_code(200).json();
    let found = object["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap().len();
    assert_eq!(found, 2);
    let owned = entries(&object);
    let (_, fields) = owned.iter().find(|(manager, _)| manager == "two").unwrap();
    let container = &fields["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"a\"}"];
    assert_eq!(
        container["f:ports"],
        json!({"k:{\"containerPort\":53,\"protocol\":\"UDP\"}": {".": {}, "f:containerPort": {}, "f:name": {}, "f:protocol": {}}})
    );
}

#[tokio::test]
async fn another_value_of_what_somebody_applied_is_a_conflict() {
    let (_server, client) = start().await;
    let path = config_map_path();
    apply(&client, &path, "m1", &config_map(json!({"k": "1"}))).await.with_code(201);
    let refused = apply(&client, &path, "m2", &config_map(json!({"k": "2"}))).await.with_code(409);
    assert_eq!(
        refused.json(),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Apply failed with 1 conflict: conflict with \"m1\": .data.k", "reason": "Conflict",
            "details": {"causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".data.k"}]},
            "code": 409})
    );
    apply(&client, &path, "m2", &config_map(json!({"k": "1"}))).await.with_code(200);
    let forced = apply_with(&client, &path, "fieldManager=m2&force=true", &config_map(json!({"k": "2"}))).await;
    assert_eq!(entries(&forced.with_code(200).json()), [("m2".to_owned(), json!({"f:data": {"f:k": {}}}))]);
}

/// Goal: an invalid apply is refused. Method: a table of query, configuration, code and message.
#[tokio::test]
async fn applies_that_cannot_be_are_refused() {
    let (_server, client) = start().await;
    let path = deployment_path();
    let with = |pointer: &str, value: Value| {
        let mut config = deployment(json!({}));
        let (parent, member) = pointer.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap()[member] = value;
        config
    };
    let unfit = "failed to create typed patch object (/web; apps/v1, Kind=Deployment): ";
    let table = [
        (
            "",
            deployment(json!({})),
            422,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch".to_owned(),
        ),
        (
            "fieldManager=m",
            with("/apiVersion", json!("v1")),
            400,
            "invalid object type: /v1, Kind=Deployment".to_owned(),
        ),
        ("fieldManager=m", with("/metadata/managedFields", json!([])), 400, "metadata.managedFields must be nil".to_owned()),
        (
            "fieldManager=m",
            with("/metadata/name", json!("other")),
            400,
            "the name of the object (other) does not match the name on the URL (web)".to_owned(),
        ),
        (
            "fieldManager=m",
            with("/metadata/namespace", json!("other")),
            400,
            "the namespace of the provided object does not match the namespace sent on the request".to_owned(),
        ),
        (
            "fieldManager=m",
            with("/metadata/uid", json!("u")),
            409,
            "Operation cannot be fulfilled on deployments.apps \"web\": uid mismatch: the provided object specified uid u, \
             and no existing object was found"
                .to_owned(),
        ),
        (
            "fieldManager=m&fieldValidation=Ignore",
            with("/spec/foo", json!(1)),
            500,
            format!("{unfit}.spec.foo: field not declared in schema"),
        ),
        (
            "fieldManager=m",
            containers(json!([{"name": "c"}, {"name": "c"}])),
            500,
            format!("{unfit}.spec.template.spec.containers: duplicate entries for key [name=\"c\"]"),
        ),
    ];
    for (query, config, code, message) in table {
        let answer = apply_with(&client, &path, query, &config).await;
        assert_eq!((answer.code.as_u16(), answer.message()), (code, message), "{query} {config}");
    }
    client.get(&path).await.with_code(404);
    let forced = client.patch(&format!("{path}?force=true"), MERGE_PATCH, &json!({})).await.with_code(422);
    assert_eq!(
        forced.message(),
        "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch"
    );
}

#[tokio::test]
async fn a_version_in_the_configuration_is_a_precondition() {
    let (_server, client) = start().await;
    let path = config_map_path();
    let created = apply(&client, &path, "m", &config_map(json!({"k": "1"}))).await.with_code(201).json();
    let mut config = config_map(json!({"k": "2"}));
    config["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    apply(&client, &path, "m", &config).await.with_code(200);
    config["data"]["k"] = json!("3");
    let stale = apply(&client, &path, "m", &config).await.with_code(409);
    assert!(stale.message().contains("the object has been modified"));
    assert_eq!(client.get(&path).await.json()["data"]["k"], "2");
}

#[tokio::test]
async fn yaml_is_applied_and_dry_runs_are_not_stored() {
    let (_server, client) = start().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: cm\ndata:\n  k: \"1\"\n";
    let path = config_map_path();
    let dry =
        send(&client, Method::PATCH, &format!("{path}?fieldManager=m&dryRun=All"), APPLY, yaml).await.with_code(201);
    assert_eq!(dry.json()["metadata"].get("resourceVersion"), None);
    client.get(&path).await.with_code(404);
    let created = send(&client, Method::PATCH, &format!("{path}?fieldManager=m"), APPLY, yaml).await.with_code(201);
    assert_eq!(created.json()["data"]["k"], "1");
    let changed = yaml.replace("\"1\"", "\"2\"");
    let dry = send(&client, Method::PATCH, &format!("{path}?fieldManager=m&dryRun=All"), APPLY, &changed)
        .await
        .with_code(200);
    assert_eq!(dry.json()["data"]["k"], "2");
    assert_eq!(client.get(&path).await.body, created.body);
    let broken = send(&client, Method::PATCH, &format!("{path}?fieldManager=m"), APPLY, "a: [").await.with_code(400);
    assert!(broken.message().starts_with("error decoding YAML: "), "{}", broken.message());
    let twice = format!("{yaml}  k: \"3\"\n");
    let strict = format!("{path}?fieldManager=m&fieldValidation=Strict");
    let strict = send(&client, Method::PATCH, &strict, APPLY, &twice).await.with_code(400);
    assert!(strict.message().starts_with("error strict decoding YAML: "), "{}", strict.message());
}

#[tokio::test]
async fn status_is_applied_beside_the_rest() {
    let (_server, client) = start().await;
    let path = deployment_path();
    let status = format!("{path}/status");
    let mut config = deployment(json!({"replicas": 1}));
    config["status"] = json!({"replicas": 5});
    apply(&client, &status, "m", &config).await.with_code(404);
    let created = apply(&client, &path, "m", &config).await.with_code(201).json();
    assert_eq!(created.get("status"), None);
    config["spec"]["replicas"] = json!(9);
    let object = apply(&client, &status, "m", &config).await.with_code(200).json();
    assert_eq!((&object["status"], &object["spec"]), (&json!({"replicas": 5}), &json!({"replicas": 1})));
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let subresources: Vec<_> = entries.iter().map(|entry| entry.get("subresource").and_then(Value::as_str)).collect();
    assert_eq!(subresources, [None, Some("status")]);
    assert_eq!(entries[1]["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
}

#[tokio::test]
async fn entries_outlive_updates_until_they_are_reset() {
    let (_server, client) = start().await;
    let path = config_map_path();
    let applied = apply(&client, &path, "m", &config_map(json!({"k": "1"}))).await.with_code(201).json();
    let entries = applied["metadata"]["managedFields"].clone();
    let put = client.put(&path, configmap("cm").data("2").body()).await.with_code(200).json();
    assert_eq!(put["metadata"]["managedFields"], entries, "left out, they stay");
    for kept in [json!([]), json!(null), entries.clone()] {
        let body = json!({"metadata": {"managedFields": kept}, "data": {"k": "3"}});
        let object = client.patch(&path, MERGE_PATCH, &body).await.with_code(200).json();
        assert_eq!(object["metadata"]["managedFields"], entries);
    }
    let reset =
        client.patch(&path, MERGE_PATCH, &json!({"metadata": {"managedFields": [{}]}})).await.with_code(200).json();
    assert_eq!(reset["metadata"].get("managedFields"), None);
}

#[tokio::test]
async fn custom_resources_are_applied_as_their_schema_says() {
    let (_server, client) = start().await;
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.cr.bar.com"}, "spec": {"group": "cr.bar.com", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    define(&client, &definition).await;
    let path = "/apis/cr.bar.com/v1/namespaces/default/foos/f";
    let foo =
        |spec: Value| json!({"apiVersion": "cr.bar.com/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": spec});
    let created = apply(&client, path, "one", &foo(json!({"a": 1, "l": [{"name": "x"}]}))).await.with_code(201).json();
    assert_eq!(entries(&created), [("one".to_owned(), json!({"f:spec": {".": {}, "f:a": {}, "f:l": {}}}))]);
    let merged = apply(&client, path, "two", &foo(json!({"b": {"c": 2}}))).await.with_code(200).json();
    assert_eq!(merged["spec"], json!({"a": 1, "b": {"c": 2}, "l": [{"name": "x"}]}));
    let left = apply(&client, path, "one", &foo(json!({"l": []}))).await.with_code(200).json();
    assert_eq!(left["spec"], json!({"b": {"c": 2}, "l": []}));
    let mut annotated = foo(json!({"l": []}));
    for (sent, stored) in [(json!("b"), "b"), (json!(null), "")] {
        annotated["metadata"]["annotations"] = json!({ "a": sent });
        let object = apply(&client, path, "one", &annotated).await.with_code(200).json();
        assert_eq!(object["metadata"]["annotations"], json!({ "a": stored }), "as for built-in types");
    }
}

#[tokio::test]
async fn applies_at_the_same_time_all_count() {
    let (_server, client) = start().await;
    let path = config_map_path();
    let applies = (0..12).map(|n| {
        let path = &path;
        async move {
            let config = config_map(json!({ format!("k{n}"): "v" }));
            apply(&client, path, &format!("m{n}"), &config).await
        }
    });
    let answers = futures::future::join_all(applies).await;
    assert_eq!(answers.iter().filter(|answer| answer.code.as_u16() == 201).count(), 1, "one of them made it");
    let object = client.get(&path).await.json();
    assert_eq!(object["data"].as_object().map(serde_json::Map::len), Some(12));
    assert_eq!(entries(&object).len(), 12);
}

/// Goal: every stored object can be read, changed and deleted. Method: custom resources nested so deeply that their
/// managedFields entry exceeds the depth limit, through every write path.
#[tokio::test]
async fn nothing_is_stored_that_cannot_be_read_again() {
    let (_server, client) = start().await;
    let widgets = json!({"metadata": {"name": "deeps.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "deeps", "kind": "Deep"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    define(&client, &widgets).await;
    let collection = "/apis/example.com/v1/namespaces/default/deeps";
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
    let mut refused = 0;
    for levels in 115..=126 {
        let path = format!("{collection}/d{levels}");
        let body = json!({"apiVersion": "example.com/v1", "kind": "Deep", "metadata": {"name": format!("d{levels}")},
            "x": nested(levels)});
        let applied = apply(&client, &path, "m", &body).await;
        if applied.code == 400 {
            assert_eq!(applied.json()["message"], "the object is nested deeper than 127");
            client.get(&path).await.with_code(404);
            refused += 1;
            client.post(collection, &body).await.with_code(201);
            apply(&client, &path, "m", &body).await.with_code(400);
            apply_with(&client, &path, "fieldManager=m&dryRun=All", &body).await.with_code(400);
        }
        client.patch(&path, MERGE_PATCH, &json!({"y": 1})).await.with_code(200);
        client.delete(&path).await.with_code(200);
        client.get(&path).await.with_code(404);
    }
    assert_eq!(refused, 5, "the deepest ones");
    client.delete(&format!("{definitions}/deeps.example.com")).await.with_code(200);
    client.get(&format!("{definitions}/deeps.example.com")).await.with_code(404);
}

/// Goal: quantities are stored as strings, however they were sent. Method: numbers in a body, a patch and a
/// configuration, twice.
#[tokio::test]
async fn quantities_are_stored_as_texts() {
    let (_server, client) = start().await;
    let cpu =
        |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"].clone();
    let limited = |cpu: Value| containers(json!([{"name": "c", "image": "i", "resources": {"limits": {"cpu": cpu}}}]));
    let applied = apply(&client, &deployment_path(), "m", &limited(json!(1))).await.with_code(201);
    assert_eq!(cpu(&applied.json()), "1");
    let again = apply(&client, &deployment_path(), "m", &limited(json!(1))).await.with_code(200);
    assert_eq!(again.resource_version(), applied.resource_version(), "nothing changed");
    let strategic = "application/strategic-merge-patch+json";
    let patched = client.patch(&deployment_path(), strategic, &limited(json!(2))).await;
    assert_eq!(cpu(&patched.with_code(200).json()), "2");
    let replaced = client.put(&deployment_path(), &limited(json!(1.5))).await.with_code(200);
    assert_eq!(cpu(&replaced.json()), "1.5");
}
