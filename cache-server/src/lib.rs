//! A streaming watch cache that serves the Kubernetes list/watch API. Embeddable: bind a server, then serve.
//!
//! INVARIANT: this is the only crate that serves HTTP. Status codes and response bytes are decided in `http/`.

pub mod app;
pub mod cacher;
pub mod cli;
pub mod config;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod populate;
pub mod registry;
pub mod storage;

mod access;
mod allocator;
mod budget;
mod churn;
mod client;
mod current;
mod definitions;
mod load;
mod namespaces;
mod removal;
mod serve;

pub use access::tls::TlsError;
pub use load::LoadError;
pub use serve::{Server, StartError};
