//! The SDK for one version of kube. `kube1`, `kube3`, `kube4` and `kube5` each load these files beside a
//! `kube` of their own.

mod client;
mod cluster;
mod connector;
mod credentials;
#[cfg(feature = "runtime")]
mod object_ref;
#[cfg(feature = "runtime")]
mod runtime;
mod selectors;

pub use self::client::{client_builder_from, client_from};
#[cfg(feature = "runtime")]
pub use self::{
    object_ref::to_kube,
    runtime::{Watcher, delays, watcher},
};
use super::{Types, differences, kube};
use crate::cluster::ClusterOf;

/// A cluster for types of this kube version: its informers know types that implement its `Resource`.
pub type Cluster = ClusterOf<Types>;
