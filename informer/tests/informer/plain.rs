//! Clusters without kube: a service of the program, and types that describe themselves.

use informer::{HasResourceKind, ResourceKind, ResourceScope, ServerConnection, plain, testing::FakeApiServer};
use serde::Deserialize;
use serde_json::json;

use crate::fixture::SOON;

#[derive(Deserialize)]
struct Machine {
    spec: MachineSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineSpec {
    pod_cidr: String,
}

impl HasResourceKind<plain::Plain> for Machine {
    fn resource_kind() -> ResourceKind {
        ResourceKind::new("v1", "Node", "nodes").scope(ResourceScope::Cluster)
    }
}

/// Goal: a program without kube reads its own types over its own connection. Method: a service in front of a fake server,
/// which also is one.
#[tokio::test(start_paused = true)]
async fn types_of_a_program_are_read_over_its_own_connection() {
    let node = |name: &str, spec| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
    let server = FakeApiServer::new().put(node("a", json!({}))).put(node("b", json!({"podCidr": "10.0.0.0/24"})));
    let behind = server.clone();
    let connection = ServerConnection::new(tower::service_fn(move |request: http::Request<()>| {
        let server = behind.clone();
        async move { server.respond(request.map(|()| String::new())).await }
    }));
    let cluster = plain::Cluster::builder(connection).fallback(server).build();
    let nodes = cluster.informer::<Machine>().start().unwrap();
    nodes.ready(SOON).await.unwrap();
    let now = nodes.store().snapshot();
    assert_eq!(now.get("b").unwrap().decode().unwrap().spec.pod_cidr, "10.0.0.0/24");
    assert!(now.get("a").unwrap().decode().is_err(), "the type is the program's own");
    let within = cluster.informer::<Machine>().namespace("x").start();
    assert_eq!(within.unwrap_err().to_string(), "nodes are cluster-scoped, a namespace cannot be given");
}
