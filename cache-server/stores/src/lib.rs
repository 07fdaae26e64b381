//! The storages of `cache-server`: in memory, in a file, in etcd.
//!
//! Internal to `cache-server`: no stable API. Programs use the names that `cache_server::storage` exports.
//!
//! INVARIANT: knows no HTTP and no request. `tests/tidy/layers.rs` has the order of its modules.

#![allow(rustdoc::private_intra_doc_links, reason = "internal: read with the code")]

pub mod backup;
#[cfg(feature = "durable")]
pub mod durable;
#[cfg_attr(not(feature = "durable"), allow(dead_code, reason = "the durable storage is built on it"))]
pub mod embedded;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(any(test, feature = "testing"))]
pub mod faulty;
#[cfg(any(test, feature = "testing"))]
pub mod hooked;

#[cfg(any(test, feature = "durable"))]
use cache_server_caches::cacher;
#[cfg(test)]
use cache_server_caches::coalesced;
#[cfg(feature = "etcd")]
use cache_server_caches::{config, supervised};
use cache_server_caches::{
    limits, registry,
    storage::{self, *},
    stored,
};

#[cfg(test)]
mod tests;
