//! The SDK with the types of kube 4 and k8s-openapi 0.28: feature `kube-4`.
//!
//! kube 4 ignores `NO_PROXY`. With `openssl-tls`, enable kube 4's feature of this name too. Leader election and
//! `FakeApiServer::client` need the feature `kube-5`: `Client::new(server.clone(), "default")` is a client of any kube.

use ::kube_4 as kube;

#[allow(clippy::useless_conversion, reason = "kube 5 boxes the URLs of its errors")]
#[path = "adapter/mod.rs"]
mod adapter;
#[path = "adapter/differences.rs"]
mod differences;

use self::Kube4 as Types;
pub use self::adapter::*;

/// The types of kube 4: those that implement its `Resource`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Kube4 {}
