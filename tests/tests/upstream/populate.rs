//! `cache-server populate` fills a stock API server.

use serde_json::Value;
use tests::{
    genuine::{ADMIN, Genuine, GenuineSettings},
    http::key,
    objects::collection_of,
    process::Server,
};

use super::BINARY;

/// Enough for every kind of workload and every state of pods.
const SPEC: &str = "pods=600,nodes=7,namespaces=5,seed=3";

/// Asserts that every value of `sent` is in `got`, which may have more members.
fn assert_contains(path: &str, sent: &Value, got: &Value) {
    match (sent, got) {
        (Value::Object(sent), Value::Object(got)) => {
            for (name, value) in sent {
                let path = format!("{path}.{name}");
                assert_contains(&path, value, got.get(name).unwrap_or(&Value::Null));
            }
        }
        (Value::Array(sent), Value::Array(got)) if sent.len() == got.len() => {
            for (at, (sent, got)) in sent.iter().zip(got).enumerate() {
                assert_contains(&format!("{path}[{at}]"), sent, got);
            }
        }
        _ => assert_eq!(sent, got, "{path}"),
    }
}

/// Goal: both sides of every comparison with an API server hold the same objects. Method: a server with the usual
/// admission, which also verifies service accounts; every generated value is in the server's object.
#[tokio::test]
async fn a_stock_api_server_accepts_every_generated_object() {
    let settings = GenuineSettings { without_plugins: "", ..GenuineSettings::default() };
    let Some(genuine) = Genuine::start_with("upstream populate", settings).await else { return };
    let door = genuine.door(ADMIN).await;
    let ended = Server::run(BINARY, &["populate", "--server", &door.url(), SPEC]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");

    let client = genuine.client(ADMIN);
    let objects: Vec<Value> =
        cache_server::populate::generate(&SPEC.parse().unwrap()).map(|(_, object)| object).collect();
    let mut compared = 0;
    for mut sent in objects {
        if sent["kind"] == "Namespace" {
            // The server made two of them before.
            continue;
        }
        for member in ["uid", "creationTimestamp", "generation", "managedFields"] {
            sent["metadata"].as_object_mut().unwrap().remove(member);
        }
        let name = sent["metadata"]["name"].as_str().unwrap();
        let got = client.get(&format!("{}/{name}", collection_of(&sent))).await.with_code(200).json();
        assert_contains(&format!("{} {}", sent["kind"], key(&sent)), &sent, &got);
        compared += 1;
    }
    assert!(compared > 700, "{compared} objects");
}
