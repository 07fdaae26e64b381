//! What any client of kube-apiserver may expect of the server, asked over its socket: one test binary, a module for
//! each part of the protocol.
//!
//! INVARIANT: no case knows the server but by its command line and its sockets. The rows of LIST and WATCH that the
//! SDK's fake server is held to as well stand in `tests/src/table/` and are not repeated here.

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

use tests::process::Server;

/// The server that all cases start.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// A server with these flags.
pub(crate) async fn server(flags: &[&str]) -> Server {
    Server::start(BINARY, flags).await
}
