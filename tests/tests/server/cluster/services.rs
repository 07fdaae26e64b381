//! Addresses and node ports of Services.

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use cache_server::{Server, config::Config, testing};
use futures::future::join_all;
use serde_json::{Value, json};
use tests::{
    http::{Client, MERGE_PATCH},
    process::START_WAIT,
};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};

use super::client_of;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["ports"] = json!([{"port": 80}]);
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn made(client: &Client, name: &str, spec: &Value) -> Value {
    client.post(SERVICES, &service(name, spec)).await.with_code(201).json()
}

fn address(service: &Value) -> &str {
    service["spec"]["clusterIP"].as_str().expect("an address")
}

/// Goal: a Service has its address and port for its life, and others get them after it. Method: a Service through each kind of
/// write, a second one that asks for the same, and the end of the first by its type and by a delete.
#[tokio::test]
async fn a_service_has_its_address_for_its_life() {
    let server = testing::start().await;
    let client = client_of(&server);
    let api = client.get(&format!("{SERVICES}/kubernetes")).await.with_code(200).json();
    assert_eq!(address(&api), "10.0.0.1");
    let first = made(&client, "first", &json!({"type": "NodePort"})).await;
    let (ip, port) = (address(&first).to_owned(), first["spec"]["ports"][0]["nodePort"].clone());
    assert!(ip.starts_with("10.0.0.") && (30_000..=32_767).contains(&port.as_u64().expect("a port")), "{first}");
    assert_eq!(first["spec"]["clusterIPs"], json!([ip]));
    let path = format!("{SERVICES}/first");
    let same = client.put(&path, &service("first", &json!({"type": "NodePort"}))).await.with_code(200).json();
    assert_eq!(same["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let taken = client.post(SERVICES, &service("second", &json!({"clusterIP": ip}))).await.with_code(422);
    assert!(taken.message().contains("provided IP is already allocated"), "{}", taken.message());
    let moved = json!({"spec": {"clusterIP": "10.0.0.99", "clusterIPs": ["10.0.0.99"]}});
    let moved = client.patch(&path, MERGE_PATCH, &moved).await.with_code(422);
    assert!(moved.message().contains("may not change once set"), "{}", moved.message());

    let external = json!({"spec": {"type": "ExternalName", "externalName": "a.example.com"}});
    let external = client.patch(&path, MERGE_PATCH, &external).await.with_code(200).json();
    assert_eq!((external["spec"].get("clusterIP"), external["spec"]["ports"][0].get("nodePort")), (None, None));
    let tried = format!("{SERVICES}?dryRun=All");
    client.post(&tried, &service("tried", &json!({"clusterIP": ip}))).await.with_code(201);
    made(&client, "second", &json!({"clusterIP": ip})).await;
    client.post(SERVICES, &service("third", &json!({"clusterIP": ip}))).await.with_code(422);
    client.delete(&format!("{SERVICES}/second")).await.with_code(200);
    made(&client, "third", &json!({"clusterIP": ip})).await;
    let found = client.get(&format!("/api/v1/services?fieldSelector=spec.clusterIP%3D{ip}")).await;
    assert_eq!(found.keys(), ["default/third"]);
}

/// Goal: no address is given twice, and a fork knows those of its origin. Method: Services at the same time until the range is
/// full, in a small range; then one in a fork that has a free one.
#[tokio::test]
async fn services_at_once_get_different_addresses() {
    let config =
        Config { acts_as_cluster: true, service_range: "10.9.0.0/28".parse().expect("a range"), ..Config::default() };
    let server = testing::start_with(config).await.expect("starts");
    let client = client_of(&server);
    let bodies: Vec<Value> = (0..13).map(|number| service(&format!("s{number}"), &json!({}))).collect();
    let answers = join_all(bodies.iter().map(|body| client.post(SERVICES, body))).await;
    let all: Vec<Value> = answers.into_iter().map(|answer| answer.with_code(201).json()).collect();
    let addresses: BTreeSet<&str> = all.iter().map(address).collect();
    assert_eq!(addresses.len(), 13);
    assert!(!addresses.contains("10.9.0.1"), "that of the Service kubernetes");
    let full = client.post(SERVICES, &service("more", &json!({}))).await.with_code(500);
    assert!(full.message().contains("range is full"), "{}", full.message());
    let fork = server.fork();
    let forked = client_of(&fork);
    forked.post(SERVICES, &service("more", &json!({}))).await.with_code(500);
    forked.delete(&format!("{SERVICES}/s7")).await.with_code(200);
    assert_eq!(address(&made(&forked, "more", &json!({})).await), address(&all[7]));
    client.post(SERVICES, &service("more", &json!({}))).await.with_code(500);
}

/// Goal: the Service `kubernetes` leads to the server, also once that has another address. Method: two starts on one folder;
/// what clients read of the addresses.
#[tokio::test]
async fn the_service_of_the_api_leads_to_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    for advertised in ["192.0.2.7", "192.0.2.8"] {
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            acts_as_cluster: true,
            data_dir: Some(folder.path().to_owned()),
            advertise_address: advertised.parse().ok(),
            ..Config::default()
        };
        // The folder is free a moment after the end of the first one.
        let started = async {
            loop {
                match Server::bind(config.clone()).await {
                    Ok(server) => break server,
                    Err(_) => sleep(Duration::from_millis(10)).await,
                }
            }
        };
        let server = timeout(START_WAIT, started).await.expect("starts");
        let client = Client::new(server.local_addr());
        let (end, is_ended) = oneshot::channel::<()>();
        let serving = tokio::spawn(server.serve(async move { drop(is_ended.await) }));
        let endpoints = client.get("/api/v1/namespaces/default/endpoints/kubernetes").await.with_code(200).json();
        assert_eq!(endpoints["subsets"][0]["addresses"], json!([{"ip": advertised}]));
        let slices =
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3D";
        let slices = client.get(&format!("{slices}kubernetes")).await.with_code(200).json();
        assert_eq!(slices["items"][0]["endpoints"][0]["addresses"], json!([advertised]));
        assert_eq!(slices["items"][0]["ports"][0]["port"], endpoints["subsets"][0]["ports"][0]["port"]);
        let range = client.get("/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await.with_code(200).json();
        assert_eq!(range["spec"]["cidrs"], json!(["10.0.0.0/24"]));
        assert_eq!(range["status"]["conditions"][0]["status"], "True", "{range}");
        drop((client, end));
        serving.await.expect("ends");
    }
}
