//! A streaming watch cache that serves the Kubernetes list/watch API. Embeddable: bind a server, then serve.
//!
//! INVARIANT: this is the only crate that serves HTTP. Status codes and response bytes are decided in `status`, `read`,
//! `write`, `discovery`, `openapi` and `http`.

pub mod app;
pub mod cacher;
pub mod cli;
pub mod config;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod registry;
pub mod storage;

mod access;
mod allocator;
mod budget;
mod clock;
mod controllers;
mod discovery;
mod ids;
mod openapi;
mod read;
mod request;
mod route;
mod serve;
mod status;
mod stored;
mod supervised;
mod upstream;
mod watched;
mod workload;
mod write;

pub use access::authenticate::assemble::AuthenticationError;
pub use api_rules::etcd;
pub use serve::{Server, StartError, TlsError};
pub use upstream::{connect::UpstreamError, source::UpstreamSource};
pub use watched::AccessFileError;
pub use workload::{manifests::LoadError, populate};
