//! Definitions that are created, used and deleted: nothing of their types stays.

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};
use tests::{http::Client, process::Server};
use tokio::time::sleep;

use super::{
    PATIENCE,
    gauge::{disk_bytes, open_files},
    number, program,
};

/// Definitions that exist at the same time.
const TOGETHER: usize = 20;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Limits of growth after all of them: bytes of memory and disk, for the definitions' changes in the history of ten
/// minutes, and open files, for connections that end.
const KEPT_EACH: u64 = 6 << 10;
const KEPT: u64 = 8 << 20;
const FILES: usize = 4;

/// Documents whose size grows with the types that are served.
const DOCUMENTS: [&str; 3] = ["/apis", "/openapi/v3", "/metrics"];

fn definition(number: usize) -> Value {
    let (plural, kind) = (format!("soaked{number}s"), format!("Soaked{number}"));
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.group{number}.example.com")},
        "spec": {"group": format!("group{number}.example.com"), "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"text": {"type": "string"}}}}}]}})
}

/// Creates a definition and an object of it, watches the object, and deletes the definition.
async fn live(client: Client, number: usize) {
    let made = definition(number);
    client.post(DEFINITIONS, &made).await.with_code(201);
    let plural = made["spec"]["names"]["plural"].as_str().unwrap();
    let collection = format!("/apis/group{number}.example.com/v1/namespaces/default/{plural}");
    let object = json!({"apiVersion": format!("group{number}.example.com/v1"), "kind": made["spec"]["names"]["kind"],
        "metadata": {"name": "one"}, "text": "some"});
    client.post(&collection, &object).await.with_code(201);
    let mut watch = client.watch(&tests::http::watch_list(&collection)).await;
    assert_eq!(watch.event().await.brief(), "ADDED default/one");
    let path = format!("{DEFINITIONS}/{}", made["metadata"]["name"].as_str().unwrap());
    client.delete(&path).await.with_code(200);
    let begun = Instant::now();
    while client.get(&path).await.code != 404 {
        assert!(begun.elapsed() < PATIENCE, "{path} stays");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Sizes of the documents, in lines: numbers in them have as many digits as they need.
async fn lines(client: &Client) -> [usize; DOCUMENTS.len()] {
    let mut lines = [0; DOCUMENTS.len()];
    for (lines, path) in lines.iter_mut().zip(DOCUMENTS) {
        *lines = client.get(path).await.with_code(200).text().split(['\n', ',']).count();
    }
    lines
}

/// Goal: types that came and went leave no memory, file, line of a document or byte on the disk. Method: several at the
/// same time, each with an object and a watch; the sizes after the last ones beside those after the first ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_leave_nothing_behind() {
    let rounds = number("DEFINITIONS").unwrap_or(2 * TOGETHER).div_ceil(TOGETHER);
    let folder = tempfile::tempdir().unwrap();
    // The window of the definitions is full soon, so that it does not grow any more.
    let flags = ["--data-dir", folder.path().to_str().unwrap(), "--window-bytes", "1MiB"];
    let server = Server::start(&program(), &flags).await;
    let client = server.client().patient();
    let sizes = || (server.private_bytes(), open_files(server.id()), disk_bytes(folder.path()));
    let mut first = None;
    for round in 0..rounds {
        join_all((0..TOGETHER).map(|number| live(client, round * TOGETHER + number))).await;
        if round == rounds / 10 {
            first = Some((sizes(), lines(&client).await));
        }
        if round.is_multiple_of(25) {
            println!("{} definitions: {:?}", (round + 1) * TOGETHER, sizes());
        }
    }
    let ((memory, files, disk), documents) = first.unwrap();
    let more = KEPT + KEPT_EACH * (rounds * TOGETHER) as u64;
    let (mut last, begun) = (sizes(), Instant::now());
    // Memory is freed in the background, and connections end there.
    while (last.0 > memory + more || last.1 > files + FILES || last.2 > disk + more) && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(200)).await;
        last = sizes();
    }
    println!("{} definitions: {last:?}, after the first ones {:?}", rounds * TOGETHER, (memory, files, disk));
    assert!(last.0 <= memory + more && last.1 <= files + FILES && last.2 <= disk + more, "{last:?}");
    assert_eq!(lines(&client).await, documents, "lines of {DOCUMENTS:?}");
}
