//! Ephemeral containers: they are added to a pod that runs, and nothing else changes.

use serde_json::{Value, json};
use tests::{http::Client, objects::pod};

use super::server;

const POD: &str = "/api/v1/namespaces/default/pods/a";
const CONTAINERS: &str = "/api/v1/namespaces/default/pods/a/ephemeralcontainers";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn debugger(name: &str, image: &str) -> Value {
    json!({"name": name, "image": image, "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"})
}

async fn names(client: &Client) -> Vec<String> {
    let pod = client.get(POD).await.with_code(200).json();
    let list = pod["spec"]["ephemeralContainers"].as_array().cloned().unwrap_or_default();
    list.iter().map(|container| container["name"].as_str().unwrap().to_owned()).collect()
}

/// Goal: containers are added to a pod, and nothing else of it changes. Method: a patch as `kubectl debug` sends it, and a
/// PUT that changes other members too; then changes and removals.
#[tokio::test]
async fn containers_are_only_added() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&pod("a").label("app", "web")).await;
    let made = client.get(CONTAINERS).await.with_code(200).json();
    assert_eq!(made["kind"], "Pod");
    let more =
        json!({"metadata": {"labels": {"app": "other"}}, "spec": {"ephemeralContainers": [debugger("d1", "i")]}});
    client.patch(CONTAINERS, STRATEGIC, &more).await.with_code(200);
    let mut whole = client.get(POD).await.json();
    whole["spec"]["containers"][0]["image"] = json!("other");
    whole["spec"]["ephemeralContainers"].as_array_mut().unwrap().push(debugger("d2", "i"));
    client.put(CONTAINERS, &whole).await.with_code(200);
    let stored = client.get(POD).await.json();
    assert_eq!(names(&client).await, ["d1", "d2"]);
    assert_eq!(stored["metadata"]["labels"], json!({"app": "web"}));
    assert_eq!(stored["spec"]["containers"][0]["image"], "i");
    assert_eq!(stored["metadata"]["generation"], 3);
    for (containers, text) in [
        (json!([debugger("d1", "i")]), "existing ephemeral containers \"d2\" may not be removed"),
        (
            json!([debugger("d1", "new"), debugger("d2", "i")]),
            "existing ephemeral containers \"d1\" may not be changed",
        ),
    ] {
        let mut whole = stored.clone();
        whole["spec"]["ephemeralContainers"] = containers;
        let refused = client.put(CONTAINERS, &whole).await.with_code(422).message();
        assert!(refused.contains(&format!("spec.ephemeralContainers: Forbidden: {text}")), "{refused}");
    }
    let mut twice = stored.clone();
    twice["spec"]["ephemeralContainers"] = json!([debugger("d1", "new"), debugger("d1", "i"), debugger("d2", "i")]);
    let refused = client.put(CONTAINERS, &twice).await.with_code(422).message();
    assert!(refused.contains("spec.ephemeralContainers[1].name: Duplicate value: \"d1\""), "{refused}");
    client.delete(CONTAINERS).await.with_code(405);
    assert_eq!(names(&client).await, ["d1", "d2"]);
}
