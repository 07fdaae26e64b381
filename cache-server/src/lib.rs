//! A streaming watch cache that serves the Kubernetes list/watch API. Embeddable: bind a server, then serve.
//!
//! INVARIANT: this is the only crate that serves HTTP. Status codes and response bytes are decided in `status`, `read`,
//! `write`, `discovery`, `openapi` and `http`.

// Code that only missing parts use is compiled all the same: the optimizer drops it, and fewer lines name features.
#![cfg_attr(
    not(all(feature = "assets", feature = "durable", feature = "etcd", feature = "upstream", feature = "workload")),
    allow(dead_code, reason = "only parts that are not built in use it")
)]

#[cfg(not(any(feature = "embedded", feature = "upstream")))]
compile_error!("choose where objects come from: at least one of the features embedded, durable, etcd and upstream");

pub mod app;
pub mod cli;
pub mod http;
pub mod metrics;
pub mod storage;
#[cfg(feature = "embedded")]
pub mod testing;

mod allocator;
mod discovery;
mod openapi;
mod read;
mod request;
mod serve;
mod status;
#[cfg(feature = "traces")]
mod traces;
#[cfg(not(feature = "traces"))]
#[path = "traces/absent.rs"]
mod traces;
#[cfg(feature = "assets")]
mod webhooks;
#[cfg(not(feature = "assets"))]
#[path = "webhooks/absent.rs"]
mod webhooks;
mod workload;
mod write;

pub use api_rules::etcd;
pub use cache_server_admission::authenticate::assemble::AuthenticationError;
pub use cache_server_caches::{cacher, config, limits, registry, watched::AccessFileError};
pub use cache_server_upstream::{error::UpstreamError, source::UpstreamSource};
pub use serve::{Server, StartError, TlsError};
pub use workload::manifests::LoadError;
#[cfg(feature = "workload")]
pub use workload::populate;

use cache_server_admission as access;
use cache_server_caches::{budget, clock, ids, route, shares, stored, supervised, term, watched};
use cache_server_controllers as controllers;
use cache_server_upstream as upstream;
