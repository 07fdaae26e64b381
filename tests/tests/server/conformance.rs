//! Conformance with kube-apiserver over the server's socket: a module for each part of the protocol.
//!
//! The cases also run against a stock kube-apiserver and in front of one; see [`ways`].
//!
//! INVARIANT: every case knows the server only by its command line and its sockets. Rows of LIST and WATCH that also
//! apply to the SDK's fake server are in `tests/src/table/` and are not repeated here.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

mod apply;
mod crds;
mod deletes;
mod discovery;
mod encodings;
mod events;
mod fields;
mod forms;
mod framing;
mod golden;
mod lists;
mod merges;
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

use tests::{process::Server, ways};

/// The server binary of all cases.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Starts a server with these flags, or the one that `CONFORMANCE` selects.
pub(crate) async fn server(flags: &[&str]) -> Server {
    ways::server(BINARY, flags).await
}
