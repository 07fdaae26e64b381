//! Conformance with kube-apiserver over the server's socket: a module for each part of the protocol.
//!
//! The cases also run against a stock kube-apiserver and in front of one; see [`ways`].
//!
//! INVARIANT: every case knows the server only by its command line and its sockets. Rows of LIST and WATCH that also
//! apply to the SDK's fake server are in `tests/src/table/` and are not repeated here.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

mod apply;
mod approvals;
mod bindings;
mod crds;
mod deletes;
mod discovery;
mod encodings;
mod ephemeral;
mod events;
mod evictions;
mod fields;
mod forms;
mod framing;
mod golden;
mod lists;
mod merges;
mod messages;
mod namespaces;
mod openapi;
mod patches;
mod properties;
mod protobuf;
mod scale;
mod selectors;
mod stored;
mod watches;
mod wire;
mod writes;

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::{http::Client, process::Server, ways};
use tokio::time::sleep;

/// The server binary of all cases.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Starts a server with these flags, or the one that `CONFORMANCE` selects.
pub(crate) async fn server(flags: &[&str]) -> Server {
    ways::server(BINARY, flags).await
}

/// Timeout for the types of a definition to be served, and the pause between two checks.
const DEFINED_WAIT: Duration = Duration::from_secs(20);
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Creates a definition, and waits until its types are served and announced: this server acknowledges it no sooner,
/// kube-apiserver and a server in front of one need a moment more.
pub(crate) async fn define(client: &Client, definition: &Value) {
    client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await.with_code(201);
    let spec = &definition["spec"];
    let (group, plural) = (spec["group"].as_str().unwrap(), spec["names"]["plural"].as_str().unwrap());
    let begun = Instant::now();
    for version in spec["versions"].as_array().unwrap() {
        let document = format!("/apis/{group}/{}", version["name"].as_str().unwrap());
        let is_announced = format!("\"name\":\"{plural}\"");
        while client.get(&format!("{document}/{plural}")).await.code != 200
            || !client.get(&document).await.text().contains(&is_announced)
            || !client.get("/apis").await.text().contains(&document["/apis/".len()..])
        {
            assert!(begun.elapsed() < DEFINED_WAIT, "{document}/{plural} is not served");
            sleep(CHECK_EVERY).await;
        }
    }
}
