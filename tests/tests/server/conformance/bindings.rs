//! Bindings: a scheduler places each pod once, at `…/pods/{name}/binding` and at `…/bindings`.

use serde_json::{Value, json};
use tests::{http::Client, objects::pod};

use super::server;

const PODS: &str = "/api/v1/namespaces/default/pods";
const BINDINGS: &str = "/api/v1/namespaces/default/bindings";

fn binding(name: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}})
}

fn place(name: &str) -> String {
    format!("{PODS}/{name}/binding")
}

async fn read(client: &Client, name: &str) -> Value {
    client.get(&format!("{PODS}/{name}")).await.with_code(200).json()
}

/// Goal: a bound pod has its node, the binding's annotations and labels, and a condition; no client binds it again. Method: a
/// pod with metadata of its own, bound by each path, then to another node.
#[tokio::test]
async fn a_pod_is_bound_once() {
    let server = server(&[]).await;
    let client = server.client();
    for name in ["a", "b"] {
        let annotations = json!({"kept": "1", "changed": "old"});
        let pod = pod(name).label("app", "web").with("status", json!({"nominatedNodeName": "n9"}));
        client.create(&pod).await;
        let path = format!("{PODS}/{name}");
        client.patch(&path, tests::http::MERGE_PATCH, &json!({"metadata": {"annotations": annotations}})).await;
    }
    let mut sent = binding("a", "n1");
    sent["metadata"]["annotations"] = json!({"changed": "new", "added": "2"});
    sent["metadata"]["labels"] = json!({"zone": "z"});
    let before = read(&client, "a").await;
    let answer = client.post(&place("a"), &sent).await.with_code(201).json();
    assert_eq!(answer, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}));
    client.post(BINDINGS, &binding("b", "n2")).await.with_code(201);
    let bound = read(&client, "a").await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["metadata"]["annotations"], json!({"kept": "1", "changed": "new", "added": "2"}));
    assert_eq!(bound["metadata"]["labels"], json!({"app": "web", "zone": "z"}));
    assert_eq!(bound["metadata"]["generation"], before["metadata"]["generation"]);
    let condition = &bound["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("True")));
    assert!(condition["lastTransitionTime"].is_string(), "{condition}");
    assert_eq!(read(&client, "b").await["spec"]["nodeName"], "n2");
    let on_n1 = client.get(&format!("{PODS}?fieldSelector=spec.nodeName%3Dn1")).await.keys();
    assert_eq!(on_n1, ["default/a"]);
    for (path, name, node) in [(place("a"), "a", "n1"), (BINDINGS.to_owned(), "b", "n2")] {
        let refused = client.post(&path, &binding(name, "n3")).await.with_code(409);
        let text = format!("pod {name} is already assigned to node \"{node}\"");
        assert_eq!(refused.message(), format!("Operation cannot be fulfilled on pods/binding \"{name}\": {text}"));
    }
}

/// Goal: what cannot be bound is refused in kube-apiserver's words, and a dry run binds nothing. Method: a table.
#[tokio::test]
async fn bindings_are_refused_as_by_kube_apiserver() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&pod("a")).await;
    client
        .create(&pod("gated").with(
            "spec",
            json!({"containers": [{"name": "c", "image": "i"}],
        "schedulingGates": [{"name": "example.com/wait"}]}),
        ))
        .await;
    let with = |member: &str, value: &str| {
        let mut binding = binding("a", "n1");
        binding["metadata"][member] = json!(value);
        binding
    };
    let kind = json!({"metadata": {"name": "a"}, "target": {"kind": "Pod", "name": "n1"}});
    let precondition = "Operation cannot be fulfilled on pods \"a\": StorageError: invalid object, Code: 4, Key: \
        /registry/pods/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: u";
    for (path, body, code, text) in [
        (place("none"), binding("none", "n1"), 404, "pods \"none\" not found"),
        (place("a"), binding("b", "n1"), 400, "name in URL does not match name in Binding object"),
        (place("a"), with("namespace", "other"), 400, "the namespace of the provided object does not match"),
        (place("a"), with("uid", "u"), 409, precondition),
        (place("a"), with("resourceVersion", "1"), 409, "Precondition failed: ResourceVersion in precondition: 1"),
        (place("a"), binding("a", ""), 500, "target.name: Required value"),
        (place("a"), binding("a", "N_1"), 500, "target.name: Invalid value: \"N_1\": a lowercase RFC 1123 subdomain"),
        (place("a"), kind, 500, "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\""),
        (place("gated"), binding("gated", "n1"), 409, "pod gated has non-empty .spec.schedulingGates"),
        (
            place("a"),
            json!({"kind": "Pod", "apiVersion": "v1"}),
            400,
            "Pod in version \"v1\" cannot be handled as a Binding",
        ),
    ] {
        let refused = client.post(&path, &body).await.with_code(code);
        assert!(refused.message().contains(text), "{text}: {}", refused.message());
    }
    client.post(&(place("a") + "?dryRun=All"), &binding("a", "n1")).await.with_code(201);
    assert_eq!(read(&client, "a").await["spec"].get("nodeName"), None);
    client.get(&place("a")).await.with_code(405);
    client.put(&place("a"), &binding("a", "n1")).await.with_code(405);
    client.get(BINDINGS).await.with_code(405);
}
