//! A server that starts while etcd hangs.

use serde_json::json;
use tests::{etcd::EtcdCluster, process::Server, relay::Relay};

use super::{BINARY, serve, until};

/// Goal: clients do not take an unknown type for a deleted one. Method: etcd stops (SIGSTOP) when a starting server first
/// asks for the definitions; then the paths of a custom type and of a built-in one, and again after etcd continues.
#[tokio::test]
async fn types_are_unavailable_until_their_definitions_are_known() {
    let Some(etcd) = EtcdCluster::start("etcd silent").await else { return };
    let first = serve(&etcd, &[]).await;
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "cats.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "cats", "singular": "cat", "kind": "Cat", "listKind": "CatList"}, "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    first.client().post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.with_code(201);
    let relay = Relay::start(etcd.address(0)).await;
    relay.silence_at("apiextensions.k8s.io/customresourcedefinitions");
    let url = format!("http://{}", relay.address());
    let flags = ["--etcd-endpoints", &*url];
    let (server, ()) = futures::future::join(Server::start(BINARY, &flags), async {
        relay.silenced().await;
        etcd.pause(0);
    })
    .await;
    let client = server.client();
    let cats = "/apis/example.com/v1/namespaces/default/cats";
    let of_type = [cats, "/apis/example.com/v1", "/apis/example.com", "/openapi/v3/apis/example.com/v1"];
    for path in of_type.into_iter().chain(["/apis/apps/v1/cats", "/api/v1/cats"]) {
        let answer = client.get(path).await.with_code(503);
        assert_eq!(answer.json()["reason"], "ServiceUnavailable", "{path}: {}", answer.text());
        assert_eq!(answer.header("retry-after"), "5", "{path}");
    }
    client.get("/readyz").await.with_code(500);
    client.get("/apis/apps/v1").await.with_code(200);
    etcd.resume(0);
    relay.rejoin();
    until("the server is ready", async || client.get("/readyz").await.code == 200).await;
    for path in of_type {
        client.get(path).await.with_code(200);
    }
    client.get("/apis/apps/v1/cats").await.with_code(404);
    client.get("/apis/example.org").await.with_code(404);
}
