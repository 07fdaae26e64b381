//! The harness: how tests start the server, speak to it as any client would, and describe objects.
//!
//! INVARIANT: what stands here knows the server only by its command line and its sockets. Everything panics with the
//! whole story on the first surprise, because its only callers are tests.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "a harness panics in the name of the test that called it"
)]

pub mod cargo;
pub mod faults;
pub mod http;
pub mod objects;
pub mod process;
pub mod slow;
pub mod table;
pub mod tap;
pub mod tls;
pub mod websocket;

pub mod api;
pub mod checkers;
pub mod model;
pub mod world;

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
