//! The test harness: starts the server, acts as a client of it, and builds objects.
//!
//! INVARIANT: it knows the server only by its command line and its sockets. It panics with all details on the first
//! surprise, because only tests call it.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "a harness panics in the name of the test that called it"
)]

pub mod etcd;
pub mod genuine;
pub mod http;
pub mod objects;
pub mod phases;
pub mod process;
mod processes;
pub mod relay;
pub mod rights;
pub mod slow;
pub mod table;
pub mod tap;
pub mod tls;
pub mod ways;
pub mod websocket;

pub mod api;
pub mod checkers;
pub mod model;
pub mod world;

/// The README's program runs: it ends in an assertion.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// The program of the SDK's page compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/sdk.md")]
struct SdkPage;
