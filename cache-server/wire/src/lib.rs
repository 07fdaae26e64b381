//! Connections of `cache-server`: accepts them, performs TLS, speaks HTTP/1.1, HTTP/2 and WebSockets, copies tunnels. The server
//! is a [`handler::Handler`].
//!
//! Internal to `cache-server`: no stable API.
//!
//! INVARIANT: knows no resource type, no route and no response but as a body of slices. `tests/tidy/layers.rs` has the order
//! of its modules.

#![allow(rustdoc::private_intra_doc_links, reason = "internal: read with the code")]
#![allow(missing_docs, unnameable_types, reason = "internal: fields that name themselves, and parts of other types")]

pub mod accept;
pub mod addresses;
pub mod body;
pub mod connection;
pub mod descriptors;
pub mod flood;
pub mod handler;
pub mod host;
pub mod http1;
pub mod http2;
pub mod listeners;
pub mod origin;
pub mod own_wakes;
pub mod phase;
pub mod socket;
pub mod takeover;
pub mod tap;
pub mod tls;
pub mod tunnel;
pub mod watch_sink;
pub mod websocket;

use cache_server_caches::{budget, config, limits, shares, term, watched};
