//! Upstream mode of `cache-server`: it stands in front of another API server.
//!
//! Internal to `cache-server`: no stable API. Programs use the names that `cache_server` exports.
//!
//! INVARIANT: the requests of callers carry their own credentials and never this server's, except for users that only this
//! server knows ([`impersonator`]), if the settings want that.

#![cfg_attr(not(feature = "client"), allow(dead_code, unused_imports, reason = "the client uses it"))]
#![allow(rustdoc::private_intra_doc_links, reason = "internal: read with the code")]
#![allow(missing_docs, unnameable_types, reason = "internal: fields that name themselves, and parts of other types")]

// The client of the API server. Without it, `absent` has the names that other crates need.
#[cfg(not(feature = "client"))]
mod absent;
#[cfg(feature = "client")]
pub mod connect;
#[cfg(feature = "client")]
pub mod forward;
#[cfg(feature = "client")]
pub mod gateway;
#[cfg(feature = "client")]
pub mod identity;
#[cfg(feature = "client")]
pub mod impersonator;
#[cfg(feature = "client")]
pub mod sender;
#[cfg(feature = "client")]
pub mod source;

pub mod answers;
pub mod error;
pub mod frequent;
pub mod key;
pub mod last_answer;
pub mod own_requests;
pub mod rights;

#[cfg(any(test, feature = "testing"))]
pub mod tests;

#[cfg(not(feature = "client"))]
pub use self::absent::*;

use cache_server_caches::{cacher, coalesced, config, limits, registry, route, storage, watched};
