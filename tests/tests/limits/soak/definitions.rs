//! Definitions that are created, used and deleted: nothing of their types stays.

use std::{
    iter,
    time::{Duration, Instant},
};

use fastrand::Rng;
use futures::future::join_all;
use serde_json::{Value, json};
use tests::{http::Client, objects::configmap, process::Server};
use tokio::time::sleep;

use super::{
    PATIENCE,
    gauge::{disk_bytes, open_files},
    number, program,
};

/// Definitions that exist at the same time.
const TOGETHER: usize = 20;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Part of the names of all their groups.
const GROUPS: &str = "soaked.example.com";
/// Limits of growth after all of them: bytes of memory and disk, and open files, for connections that end.
const KEPT: u64 = 8 << 20;
const FILES: usize = 4;
/// Further bytes on the disk for each definition: the data file keeps its six changes for ten minutes, whatever the
/// flags, and gives no pages back to the file system. They took 4.7 KiB.
const HISTORY_EACH: u64 = 6 << 10;
/// Writes before the first measurement of a long run, and bytes of each: more than the memory for pages of the data
/// file, which would grow with the history otherwise.
const FILLERS: usize = 150;
const FILLER_BYTES: usize = 256 << 10;

/// Documents that show the types that are served.
const DOCUMENTS: [&str; 3] = ["/apis", "/openapi/v3", "/metrics"];

fn definition(number: usize) -> Value {
    let (plural, kind) = (format!("soaked{number}s"), format!("Soaked{number}"));
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.g{number}.{GROUPS}")},
        "spec": {"group": format!("g{number}.{GROUPS}"), "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"text": {"type": "string"}}}}}]}})
}

/// Creates a definition and an object of it, watches the object, and deletes the definition.
async fn live(client: Client, number: usize) {
    let made = definition(number);
    client.post(DEFINITIONS, &made).await.with_code(201);
    let plural = made["spec"]["names"]["plural"].as_str().unwrap();
    let collection = format!("/apis/g{number}.{GROUPS}/v1/namespaces/default/{plural}");
    let object = json!({"apiVersion": format!("g{number}.{GROUPS}/v1"), "kind": made["spec"]["names"]["kind"],
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

/// Fills the memory for pages of the data file.
async fn fill(client: &Client) {
    let mut rng = Rng::with_seed(1);
    let mut filler = || {
        let data: String = iter::repeat_with(|| rng.alphanumeric()).take(FILLER_BYTES).collect();
        configmap("filler").data(&data)
    };
    client.create(&filler()).await;
    for _ in 1..FILLERS {
        client.update(&filler()).await;
    }
}

/// Lines of the documents that name a type that came and went.
async fn leftovers(client: &Client) -> Vec<String> {
    let mut leftovers = Vec::new();
    for path in DOCUMENTS {
        let document = client.get(path).await.with_code(200);
        leftovers.extend(document.text().split(['\n', ',']).filter(|line| line.contains(GROUPS)).map(str::to_owned));
    }
    leftovers
}

/// Goal: types that came and went leave no memory, file, name in a document or byte on the disk. Method: several at the
/// same time, each with an object and a watch; the sizes after the last ones beside those after the first ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_leave_nothing_behind() {
    let asked = number("DEFINITIONS");
    let rounds = asked.unwrap_or(2 * TOGETHER).div_ceil(TOGETHER);
    let folder = tempfile::tempdir().unwrap();
    // The window of the definitions is full soon, so that it does not grow any more.
    let flags = ["--data-dir", folder.path().to_str().unwrap(), "--window-bytes", "1MiB"];
    let server = Server::start(&program(), &flags).await;
    let client = server.client().patient();
    let sizes = || (server.private_bytes(), open_files(server.id()), disk_bytes(folder.path()));
    // The history of a short run is smaller than the limits.
    if asked.is_some() {
        fill(&client).await;
    }
    let mut first = None;
    for round in 0..rounds {
        join_all((0..TOGETHER).map(|number| live(client, round * TOGETHER + number))).await;
        if round == rounds / 10 {
            first = Some(sizes());
        }
        if round.is_multiple_of(25) {
            println!("{} definitions: {:?}", (round + 1) * TOGETHER, sizes());
        }
    }
    let (memory, files, disk) = first.unwrap();
    let history = HISTORY_EACH * (rounds * TOGETHER) as u64;
    let is_flat =
        |last: (u64, usize, u64)| last.0 <= memory + KEPT && last.1 <= files + FILES && last.2 <= disk + KEPT + history;
    let (mut last, mut named, begun) = (sizes(), leftovers(&client).await, Instant::now());
    // Memory is freed in the background, and connections and types end there.
    while !(is_flat(last) && named.is_empty()) && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(200)).await;
        (last, named) = (sizes(), leftovers(&client).await);
    }
    println!("{} definitions: {last:?}, after the first ones {:?}", rounds * TOGETHER, (memory, files, disk));
    assert!(is_flat(last), "{last:?}");
    assert!(named.is_empty(), "{DOCUMENTS:?} have {named:?}");
}
