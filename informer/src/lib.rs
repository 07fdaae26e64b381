//! A live copy of Kubernetes objects in your program, without hurting the cluster.
//!
//! INVARIANT: the only crate that knows kube-client. Semver promises start here.
//!
//! An [`Informer`] is a reflector, a store and its subscribers. It asks the API server for the state of one resource
//! type, as a stream where the server can, follows the changes, and resumes after every break from the last version it
//! saw. [`Snapshot`]s are that state at one version; a [`Subscription`] leads from what one reader was told to what is.
//!
//! ```no_run
//! use std::time::Duration;
//! use informer::Cluster;
//! use k8s_openapi::api::core::v1::Pod;
//!
//! # async fn doc() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::try_from(kube::Config::infer().await?)?;
//! let pods = cluster.informer::<Pod>().fields("spec.nodeName=node-1").start()?;
//! pods.ready(Duration::from_secs(30)).await?;
//! for pod in pods.store().snapshot().iter() {
//!     println!("{} at {}", pod.key(), pod.resource_version());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Supported: every resource type that is listed and watched as JSON; label and field selectors; initial state as a
//! stream, in pages or at once. Not supported: protobuf, subresources, writing (use `kube::Api`).

mod cluster;
mod config;
mod error;

mod informer;
mod object;
mod store;
mod subscription;

mod decode;
mod driver;
mod progress;
mod stats;
mod transport;

pub use informer_core::{
    InitialList, ListSemantic, Request, ResourceVersion, selector::label::Selector as LabelSelector,
};
pub use informer_core::{
    reflector::{Class, FallBack, RelistCause},
    stats::Stats as ReflectorStats,
    store::Representation,
};

pub use crate::{
    cluster::{Cluster, RELISTS_AT_ONCE},
    config::Config,
    decode::DecodeError,
    error::{Cause, ConfigError, Error, NotReady},
    informer::{Behind, Informer, InformerBuilder},
    object::Object,
    stats::Stats,
    store::{Snapshot, Store},
    subscription::{AT_ONCE, Event, Subscription},
};
