//! Upstream mode of `cache-server`: it stands in front of another API server.
//!
//! Internal to `cache-server`: no stable API. Programs use the names that `cache_server` exports.
//!
//! INVARIANT: the requests of callers carry their own credentials and never this server's, except for users that only this
//! server knows ([`impersonator`]), if the settings want that.

#![allow(rustdoc::private_intra_doc_links, reason = "internal: read with the code")]
#![allow(missing_docs, unnameable_types, reason = "internal: fields that name themselves, and parts of other types")]

pub mod answers;
pub mod connect;
pub mod forward;
pub mod frequent;
pub mod gateway;
pub mod identity;
pub mod impersonator;
pub mod key;
pub mod last_answer;
pub mod own_requests;
pub mod rights;
pub mod source;

#[cfg(any(test, feature = "testing"))]
pub mod tests;

use cache_server_caches::{cacher, coalesced, config, limits, registry, route, storage, watched};
