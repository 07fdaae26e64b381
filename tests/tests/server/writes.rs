//! Writes over the socket: permitted creates, changes and deletes, and the error texts for the rest.
//!
//! Goal: kube-apiserver's responses, byte for byte where clients compare them. Method: one server per test, plain HTTP.

use std::collections::HashSet;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH, briefs, with_query},
    objects::{configmap, namespace, node, pod, replica_set},
    process::Server,
};

const SERVER: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MODIFIED: &str = "Operation cannot be fulfilled on configmaps \"cm\": the object has been modified; please apply \
                        your changes to the latest version and try again";

async fn server() -> Server {
    Server::start(SERVER, &["--first-revision", "100"]).await
}

async fn send(client: &Client, method: Method, path: &str, content_type: &str, body: &str) -> Answer {
    let headers = [("content-type", content_type)];
    client.send(Client::request(method, path, &headers, Bytes::copy_from_slice(body.as_bytes()))).await
}

/// The position of a consistent list, which every write advances.
async fn position(client: &Client) -> u64 {
    client.get(CONFIG_MAPS).await.with_code(200).resource_version()
}

#[tokio::test]
async fn a_created_object_has_what_the_server_gives() {
    let server = server().await;
    let client = server.client();
    let created = client.post(CONFIG_MAPS, configmap("cm").data("v").body()).await.with_code(201);
    let object = created.json();
    assert_eq!(object["metadata"]["resourceVersion"], "101");
    assert_eq!(object["metadata"]["uid"].as_str().map(str::len), Some(36));
    let born = object["metadata"]["creationTimestamp"].as_str().expect("a time");
    assert!(born.len() == 20 && born.ends_with('Z') && born.as_bytes()[10] == b'T', "{born}");
    assert!(object["metadata"].get("generation").is_none());
    assert!(created.text().starts_with(r#"{"kind":"ConfigMap","apiVersion":"v1","#), "{}", created.text());
    assert!(created.text().ends_with("}\n"));
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/cm")).await.with_code(200).json(), object);
    let set = replica_set("rs");
    let created = client.post(&set.collection(), set.body()).await.with_code(201).json();
    assert_eq!(created["metadata"]["generation"], 1);
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let server = server().await;
    let client = server.client();
    client.create(&configmap("cm")).await;
    let taken = client.post(CONFIG_MAPS, configmap("cm").body()).await;
    assert_eq!(
        taken.text(),
        "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\"configmaps \
         \\\"cm\\\" already exists\",\"reason\":\"AlreadyExists\",\"details\":{\"name\":\"cm\",\"kind\":\"configmaps\"},\
         \"code\":409}\n"
    );
    client.create(&configmap("cm").namespace("elsewhere")).await;
}

#[tokio::test]
async fn generated_names_differ() {
    let server = server().await;
    let client = server.client();
    let mut names = HashSet::new();
    for _ in 0..20 {
        let created = client.post(CONFIG_MAPS, &json!({"metadata": {"generateName": "gn-"}})).await.with_code(201);
        let name = created.json()["metadata"]["name"].as_str().expect("a name").to_owned();
        assert!(name.len() == 8 && name.starts_with("gn-"), "{name}");
        assert!(names.insert(name));
    }
}

/// Goal: invalid creates are refused. Method: a table of path, body, code and message.
#[tokio::test]
async fn bad_creates_are_refused() {
    let server = server().await;
    let client = server.client();
    let services = "/api/v1/namespaces/default/services";
    let table = [
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "a", "resourceVersion": "7"}}),
            500,
            "resourceVersion should not be set on objects to be created",
        ),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "a", "namespace": "other"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            CONFIG_MAPS,
            json!({}),
            422,
            "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            CONFIG_MAPS,
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}),
            400,
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): \
             unknown conversion",
        ),
        (
            services,
            json!({"metadata": {"name": "9.lives"}}),
            422,
            "Service \"9.lives\" is invalid: metadata.name: Invalid value: \"9.lives\": must not contain dots",
        ),
        ("/api/v1/configmaps", json!({"metadata": {"name": "a"}}), 405, METHOD_NOT_ALLOWED),
        ("/api/v1/namespaces/default/configmaps/a", json!({"metadata": {"name": "a"}}), 405, METHOD_NOT_ALLOWED),
        (
            "/api/v1/namespaces/default/nothings",
            json!({"metadata": {"name": "a"}}),
            404,
            "the server could not find the requested resource",
        ),
    ];
    for (path, body, code, message) in table {
        let answer = client.post(path, &body).await.with_code(code);
        assert_eq!(answer.message(), message, "{path} {body}");
        assert_eq!(answer.json()["kind"], "Status");
    }
    assert_eq!(position(&client).await, 100, "nothing was written");
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused() {
    let server = server().await;
    let client = server.client();
    for (body, content_type, code, message) in [
        (
            "{bad",
            "application/json",
            400,
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse \
             error: invalid character 'b' looking for beginning of object key string",
        ),
        (
            "{}",
            "text/plain",
            415,
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf",
        ),
    ] {
        let answer = send(&client, Method::POST, CONFIG_MAPS, content_type, body).await.with_code(code);
        assert_eq!(answer.message(), message);
    }
}

const METHOD_NOT_ALLOWED: &str = "the server does not allow this method on the requested resource";

#[tokio::test]
async fn bodies_have_a_limit() {
    let server = server().await;
    let body = format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{{\"k\":\"{}\"}}}}", "x".repeat(3 << 20));
    let answer = send(&server.client(), Method::POST, CONFIG_MAPS, "application/json", &body).await.with_code(413);
    assert_eq!(answer.message(), "Request entity too large: limit is 3145728");
}

#[tokio::test]
async fn manifests_may_be_yaml() {
    let server = server().await;
    let client = server.client();
    let manifest =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\n  labels: {app: x}\ndata:\n  k: |\n    line\n";
    let created = send(&client, Method::POST, CONFIG_MAPS, "application/yaml", manifest).await.with_code(201).json();
    assert_eq!((&created["data"]["k"], &created["metadata"]["labels"]["app"]), (&json!("line\n"), &json!("x")));
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let server = server().await;
    let client = server.client();
    let asked = with_query(CONFIG_MAPS, &[("dryRun", "All")]);
    let created = client.post(&asked, configmap("cm").body()).await.with_code(201).json();
    assert!(created["metadata"].get("resourceVersion").is_none() && created["metadata"]["uid"].is_string());
    client.get(&configmap("cm").path()).await.with_code(404);
    let version = client.create(&configmap("cm")).await;
    client.post(&asked, configmap("cm").body()).await.with_code(409);
    let path = with_query(&configmap("cm").path(), &[("dryRun", "All")]);
    let updated = client.put(&path, configmap("cm").data("new").body()).await.with_code(200);
    assert_eq!((updated.resource_version(), &updated.json()["data"]["k"]), (version, &json!("new")));
    client.delete(&path).await.with_code(200);
    let kept = client.get(&configmap("cm").path()).await.with_code(200);
    assert_eq!((kept.resource_version(), kept.json().get("data")), (version, None));
    let other = client.post(&with_query(CONFIG_MAPS, &[("dryRun", "x")]), configmap("b").body()).await.with_code(422);
    assert_eq!(
        other.message(),
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\""
    );
}

#[tokio::test]
async fn an_update_replaces_the_version_it_names() {
    let server = server().await;
    let client = server.client();
    let path = configmap("cm").path();
    let first = client.create(&configmap("cm").data("1")).await;
    let mut body = client.get(&path).await.json();
    body["data"]["k"] = json!("2");
    let second = client.put(&path, &body).await.with_code(200).resource_version();
    assert!(second > first);
    let stale = client.put(&path, &body).await.with_code(409);
    assert_eq!(stale.message(), MODIFIED);
    assert_eq!(stale.json()["details"], json!({"name": "cm", "kind": "configmaps"}));
    // Without a version the last write wins.
    let third = client.update(&configmap("cm").data("3")).await;
    assert!(third > second);
    let now = client.get(&path).await.json();
    assert_eq!((&now["data"]["k"], &now["metadata"]["uid"]), (&json!("3"), &body["metadata"]["uid"]));
}

#[tokio::test]
async fn an_update_that_changes_nothing_is_no_event() {
    let server = server().await;
    let client = server.client();
    let object = configmap("cm").data("v");
    let version = client.create(&object).await;
    let mut watch = client.watch(&with_query(CONFIG_MAPS, &[("watch", "1"), ("resourceVersion", "101")])).await;
    assert_eq!(client.update(&object).await, version);
    let same = client.patch(&object.path(), MERGE_PATCH, &json!({"data": {"k": "v"}})).await.with_code(200);
    assert_eq!(same.resource_version(), version);
    assert_eq!(position(&client).await, version);
    let next = client.update(&configmap("cm").data("w")).await;
    let event = watch.event().await;
    assert_eq!((event.brief(), event.resource_version()), ("MODIFIED default/cm".to_owned(), next));
}

/// Goal: invalid updates and patches are refused. Method: a table of path, body, code and message.
#[tokio::test]
async fn misplaced_updates_are_refused() {
    let server = server().await;
    let client = server.client();
    client.create(&configmap("cm")).await;
    let path = configmap("cm").path();
    let table = [
        (
            path.clone(),
            json!({"metadata": {"name": "b"}}),
            400,
            "the name of the object (b) does not match the name on the URL (cm)",
        ),
        (
            path.clone(),
            json!({"metadata": {"name": "cm", "namespace": "b"}}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (configmap("gone").path(), configmap("gone").body().clone(), 404, "configmaps \"gone\" not found"),
        (
            "/apis/apps/v1/namespaces/default/deployments/gone".to_owned(),
            json!({"metadata": {"name": "gone"}}),
            404,
            "deployments.apps \"gone\" not found",
        ),
        (CONFIG_MAPS.to_owned(), configmap("cm").body().clone(), 405, METHOD_NOT_ALLOWED),
    ];
    for (path, body, code, message) in table {
        assert_eq!(client.put(&path, &body).await.with_code(code).message(), message);
    }
    let gone = client.patch(&configmap("gone").path(), MERGE_PATCH, &json!({})).await.with_code(404);
    assert_eq!(gone.json()["details"], json!({"name": "gone", "kind": "configmaps"}));
}

#[tokio::test]
async fn patches_change_what_they_name() {
    let server = server().await;
    let client = server.client();
    client.create(&configmap("cm").data("v")).await;
    let path = configmap("cm").path();
    let merged = client
        .patch(&path, MERGE_PATCH, &json!({"metadata": {"labels": {"a": "b"}}, "data": {"k": null, "l": "w"}}))
        .await
        .with_code(200)
        .json();
    assert_eq!((&merged["data"], &merged["metadata"]["labels"]), (&json!({"l": "w"}), &json!({"a": "b"})));
    let operations = json!([{"op": "test", "path": "/data/l", "value": "w"}, {"op": "remove", "path": "/data/l"}]);
    let patched = client.patch(&path, "application/json-patch+json", &operations).await.with_code(200).json();
    assert_eq!(patched.get("data"), None, "an empty map is absent");
    let failed = client.patch(&path, "application/json-patch+json", &operations).await.with_code(422);
    let why = "JSON patch operation 0 (test \"/data/l\"): the path leads through an absent value or a scalar";
    assert_eq!(failed.message(), format!("the server rejected our request due to an error in our request: {why}"));
    let stale = client.patch(&path, MERGE_PATCH, &json!({"metadata": {"resourceVersion": "101"}})).await.with_code(409);
    assert_eq!(stale.message(), MODIFIED);
    let invalid = json!({"metadata": {"annotations": {"foo": ["bar"]}}});
    client.patch(&path, MERGE_PATCH, &invalid).await.with_code(422);
    for content_type in ["application/apply-patch+cbor", "application/json", "text/plain"] {
        let refused = client.patch(&path, content_type, &json!({})).await.with_code(415);
        assert_eq!(refused.message(), "415: Unsupported Media Type");
    }
}

#[tokio::test]
async fn concurrent_patches_all_arrive() {
    let server = server().await;
    let client = server.client();
    client.create(&configmap("cm")).await;
    let path = configmap("cm").path();
    let patch = async |key: usize| {
        // The server gives up a patch after five conflicts, as kube-apiserver does; then the client retries.
        loop {
            let data = json!({"data": {key.to_string(): "v"}});
            let answer = client.patch(&path, MERGE_PATCH, &data).await;
            if answer.code != 409 {
                return answer.with_code(200).resource_version();
            }
        }
    };
    let versions: Vec<u64> = futures::future::join_all((0..20).map(patch)).await;
    assert_eq!(versions.iter().collect::<HashSet<_>>().len(), 20, "each write has a version of its own");
    let data = client.get(&path).await.json()["data"].clone();
    assert_eq!(data.as_object().map(serde_json::Map::len), Some(20));
}

#[tokio::test]
async fn generation_follows_the_desired_state_and_status_its_subresource() {
    let server = server().await;
    let client = server.client();
    let set = replica_set("rs").with("status", json!({"replicas": 5}));
    let created = client.post(&set.collection(), set.body()).await.with_code(201).json();
    assert_eq!(created.get("status"), None, "status is written by its subresource");
    let patch = async |path: &str, patch: Value| client.patch(path, MERGE_PATCH, &patch).await.with_code(200).json();
    let scaled = patch(&set.path(), json!({"spec": {"replicas": 2}, "status": {"replicas": 2}})).await;
    assert_eq!((&scaled["metadata"]["generation"], scaled.get("status")), (&json!(2), None));
    let status = format!("{}/status", set.path());
    let seen = patch(&status, json!({"spec": {"replicas": 9}, "status": {"replicas": 2}})).await;
    assert_eq!((&seen["spec"]["replicas"], &seen["status"]["replicas"]), (&json!(2), &json!(2)));
    assert_eq!(seen["metadata"]["generation"], 2);
    assert_eq!(client.get(&status).await.with_code(200).json(), seen);
    client.get(&format!("{}/status", configmap("cm").path())).await.with_code(404);
}

#[tokio::test]
async fn a_delete_answers_as_the_type_has_it() {
    let server = server().await;
    let client = server.client();
    client.create(&configmap("cm")).await;
    let uid = client.get(&configmap("cm").path()).await.json()["metadata"]["uid"].clone();
    let deleted = client.delete(&configmap("cm").path()).await.with_code(200).json();
    assert_eq!(
        (&deleted["kind"], &deleted["status"], deleted.get("code")),
        (&json!("Status"), &json!("Success"), None)
    );
    assert_eq!(deleted["details"], json!({"name": "cm", "kind": "configmaps", "uid": uid}));
    assert_eq!(deleted["metadata"]["resourceVersion"], "102");
    client.delete(&configmap("cm").path()).await.with_code(404);

    client.create(&pod("p")).await;
    let mut watch = client.watch("/api/v1/namespaces/default/pods?watch=1&resourceVersion=103").await;
    let last = client.delete(&pod("p").path()).await.with_code(200).json();
    assert_eq!((&last["kind"], &last["metadata"]["resourceVersion"]), (&json!("Pod"), &json!("105")));
    let seen: Vec<_> = watch.events(2).await.iter().map(|event| (event.brief(), event.resource_version())).collect();
    assert_eq!(seen, [("MODIFIED default/p".to_owned(), 104), ("DELETED default/p".to_owned(), 105)]);
}

#[tokio::test]
async fn preconditions_guard_a_delete() {
    let server = server().await;
    let client = server.client();
    client.create(&configmap("cm")).await;
    let uid = client.get(&configmap("cm").path()).await.json()["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let delete = async |conditions: Value| {
        let body = json!({ "preconditions": conditions }).to_string();
        send(&client, Method::DELETE, &configmap("cm").path(), "application/json", &body).await
    };
    let refused = delete(json!({"uid": "other"})).await.with_code(409);
    assert_eq!(
        refused.message(),
        format!(
            "Operation cannot be fulfilled on ConfigMap \"cm\": the UID in the precondition (other) does not match the \
             UID in record ({uid}). The object might have been deleted and then recreated"
        )
    );
    assert_eq!(refused.json()["details"], json!({"name": "cm", "kind": "ConfigMap"}));
    let refused = delete(json!({"resourceVersion": "1"})).await.with_code(409);
    assert_eq!(
        refused.message(),
        "Operation cannot be fulfilled on ConfigMap \"cm\": the ResourceVersion in the precondition (1) does not match \
         the ResourceVersion in record (101). The object might have been modified"
    );
    delete(json!({"uid": uid, "resourceVersion": "101"})).await.with_code(200);
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let server = server().await;
    let client = server.client();
    let mut body = configmap("fin").body().clone();
    body["metadata"]["finalizers"] = json!(["example.com/x"]);
    let born = client.post(CONFIG_MAPS, &body).await.with_code(201).resource_version();
    let mut watch =
        client.watch(&with_query(CONFIG_MAPS, &[("watch", "1"), ("resourceVersion", &born.to_string())])).await;
    let path = configmap("fin").path();
    let held = client.delete(&path).await.with_code(200);
    assert!(held.resource_version() > born);
    assert_eq!(held.json()["metadata"]["deletionGracePeriodSeconds"], 0);
    assert!(held.json()["metadata"]["deletionTimestamp"].is_string());
    let again = client.delete(&path).await.with_code(200);
    assert_eq!(again.body, held.body, "a second delete changes nothing");
    let taken = client.post(CONFIG_MAPS, configmap("fin").body()).await.with_code(409);
    assert_eq!(taken.message(), "object is being deleted: configmaps \"fin\" already exists");
    let more = json!({"metadata": {"finalizers": ["example.com/x", "example.com/y"]}});
    let refused = client.patch(&path, MERGE_PATCH, &more).await.with_code(422);
    assert_eq!(
        refused.message(),
        "ConfigMap \"fin\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is \
         being deleted, found new finalizers []string{\"example.com/y\"}"
    );
    let last = client.patch(&path, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.with_code(200);
    assert_eq!(last.resource_version(), held.resource_version());
    client.get(&path).await.with_code(404);
    assert_eq!(briefs(&watch.events(2).await), ["MODIFIED default/fin", "DELETED default/fin"]);
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let server = server().await;
    let client = server.client();
    for (name, app) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
        client.create(&configmap(name).label("app", app)).await;
    }
    client.create(&configmap("a").namespace("other").label("app", "x")).await;
    let before = position(&client).await;
    let deleted = client.delete(&with_query(CONFIG_MAPS, &[("labelSelector", "app=x")])).await.with_code(200);
    assert_eq!(deleted.keys(), ["default/a", "default/c", "default/d"]);
    assert_eq!(deleted.json()["kind"], "ConfigMapList");
    assert_eq!(deleted.resource_version(), before, "the answer is the list as it was read");
    assert_eq!(client.get("/api/v1/configmaps").await.keys(), ["default/b", "other/a"]);
    let refused = client.delete(&with_query(CONFIG_MAPS, &[("labelSelector", "a in b")])).await;
    assert_eq!(refused.code, 400);
    client.delete(CONFIG_MAPS).await.with_code(200);
    assert_eq!(client.get("/api/v1/configmaps").await.keys(), ["other/a"]);
}

#[tokio::test]
async fn cluster_scoped_objects_have_no_namespace() {
    let server = server().await;
    let client = server.client();
    client.create(&namespace("team")).await;
    let created = client.get("/api/v1/namespaces/team").await.with_code(200).json();
    assert_eq!(created["status"], json!({"phase": "Active"}));
    client.create(&node("n1")).await;
    assert_eq!(client.get("/api/v1/nodes").await.keys(), ["n1"]);
    let role = json!({"metadata": {"name": "system:reader"}});
    client.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.with_code(201);
    client.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:reader").await.with_code(200);
}

/// Goal: no shared cache may store a response. Method: the header of every kind of response.
#[tokio::test]
async fn answers_are_private() {
    let server = server().await;
    let client = server.client();
    for path in ["/healthz", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", CONFIG_MAPS, "/none"] {
        let answer = client.get(path).await;
        assert!(answer.header("cache-control").contains("private"), "{path}: {:?}", answer.headers);
    }
}
