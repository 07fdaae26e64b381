//! The bottom of `cache-server`: its caches, the traits of what fills them, its settings and limits.
//!
//! Internal to `cache-server`: no stable API. Programs use the names that `cache_server` exports.
//!
//! INVARIANT: knows no HTTP connection and no particular storage. `tests/tidy/layers.rs` has the order of its modules.

#![allow(rustdoc::private_intra_doc_links, reason = "internal: read with the code")]

pub mod budget;
pub mod cacher;
pub mod clock;
pub mod coalesced;
pub mod config;
pub mod ids;
pub mod limits;
pub mod passes;
pub mod registry;
pub mod route;
pub mod settled;
pub mod shares;
pub mod status;
pub mod storage;
pub mod stored;
pub mod supervised;
pub mod term;
pub mod watched;
