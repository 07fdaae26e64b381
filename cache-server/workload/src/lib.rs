//! Load for a server: synthetic objects, and the clients of `cache-server populate` and `cache-server churn`.
//!
//! Internal to `cache-server`: no stable API. Programs use the names that `cache_server::populate` exports.
//!
//! INVARIANT: knows no cache and no storage. `tests/tidy/layers.rs` has the order of its modules.

#![allow(rustdoc::private_intra_doc_links, reason = "internal: read with the code")]

#[cfg(feature = "clients")]
pub mod churn;
#[cfg(feature = "clients")]
pub mod client;
pub mod populate;

#[cfg(feature = "clients")]
use cache_server_caches::limits;
use cache_server_caches::{config, ids};
