//! Servers that act as one cluster share its quotas.

use std::net::SocketAddr;

use cache_server::{
    Server,
    config::{Config, EtcdConfig},
};
use futures::future::join_all;
use serde_json::json;
use tests::{
    etcd::EtcdCluster,
    http::{Client, MERGE_PATCH},
};

use super::until;

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

async fn cluster(etcd: &EtcdCluster) -> Client {
    let endpoints = etcd.endpoints().split(',').map(str::to_owned).collect();
    let config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        acts_as_cluster: true,
        etcd: Some(EtcdConfig { endpoints, ..EtcdConfig::default() }),
        ..Config::default()
    };
    let server = Server::bind(config).await.unwrap();
    let client = Client::new(server.local_addr());
    tokio::spawn(server.serve(std::future::pending()));
    until("the server is ready", async || client.get("/readyz").await.code == 200).await;
    client
}

/// Goal: two servers give the last units of a quota once. Method: creates at both at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_to_two_servers_share_what_is_left_of_a_quota() {
    let Some(etcd) = EtcdCluster::start("etcd plugins").await else { return };
    let clients = [cluster(&etcd).await, cluster(&etcd).await];
    let hard = json!({"configmaps": "10"});
    clients[0].post(QUOTAS, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.with_code(201);
    let status = json!({"status": {"hard": hard, "used": {"configmaps": "0"}}});
    clients[0].patch(&format!("{QUOTAS}/q/status"), MERGE_PATCH, &status).await.with_code(200);
    let clients = &clients;
    let creates = (0..40).map(|at| {
        let body = json!({"metadata": {"name": format!("m{at}")}});
        async move { clients[at % 2].post("/api/v1/namespaces/default/configmaps", &body).await.code }
    });
    let codes = join_all(creates).await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 10, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 403).count(), 30, "{codes:?}");
    let quota = clients[1].get(&format!("{QUOTAS}/q")).await.json();
    assert_eq!(quota["status"]["used"], json!({"configmaps": "10"}));
}
