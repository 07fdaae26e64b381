//! A streaming watch cache that serves the Kubernetes list/watch API. Embeddable: bind a server, then serve.
//!
//! INVARIANT: this is the only crate that serves HTTP. Status codes and response bytes are decided in `status`, `read`,
//! `write`, `discovery`, `openapi` and `http`.

pub mod app;
pub mod cli;
pub mod http;
pub mod metrics;
pub mod storage;

mod allocator;
mod controllers;
mod discovery;
mod openapi;
mod read;
mod request;
mod serve;
mod status;
mod workload;
mod write;

pub use api_rules::etcd;
pub use cache_server_admission::authenticate::assemble::AuthenticationError;
pub use cache_server_caches::{cacher, config, limits, registry, watched::AccessFileError};
pub use cache_server_upstream::{connect::UpstreamError, source::UpstreamSource};
pub use serve::{Server, StartError, TlsError};
pub use workload::{manifests::LoadError, populate};

use cache_server_admission as access;
use cache_server_caches::{budget, clock, ids, route, shares, supervised, term, watched};
use cache_server_stores::stored;
use cache_server_upstream as upstream;
