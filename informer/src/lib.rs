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
//! let cluster = Cluster::try_default().await?;
//! let pods = cluster.informer::<Pod>().fields("spec.nodeName=node-1").start()?;
//! pods.ready(Duration::from_secs(30)).await?;
//! for pod in pods.store().snapshot().iter() {
//!     println!("{} at {}", pod.key(), pod.resource_version());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Supported
//!
//! - every resource type that is listed and watched as JSON, known at compile time or at run time;
//! - label and field selectors, one namespace or all, trimming while receiving ([`InformerBuilder::drop_path`]);
//! - initial state as a stream, in pages or at once, falling back by itself ([`InitialList::Auto`]); every list
//!   semantic of Kubernetes ([`ListSemantic`]);
//! - reads by key, namespace, labels and any other value ([`InformerBuilder::index`]); read your writes
//!   ([`Informer::wait_for`]); deleted objects that stay readable for a time ([`InformerBuilder::linger`]);
//! - objects kept as JSON, decoded or compressed ([`Representation`]), changed before they are kept
//!   ([`InformerBuilder::transform`]), only their metadata, or only the fields of a type of your own
//!   ([`InformerBuilder::metadata_only`], [`InformerBuilder::project`]);
//! - subscriptions that cannot lag ([`Informer::subscribe`]), and such that are told every change in order
//!   ([`Informer::subscribe_all`]), both of them streams;
//! - a budget of relists for all informers of a [`Cluster`], start-up spread ([`InformerBuilder::spread`]), delays that
//!   grow, `Retry-After`, typed reasons why nothing is ready ([`Informer::ready`]);
//! - restarts that resume from a directory ([`InformerBuilder::checkpoint`]), and endpoints to fall back to
//!   ([`ClusterBuilder::fallback`]): whatever is resumed after an outage, a restart or a move is proven first, by one
//!   small read, to be of the history it is taken for;
//! - connections that are lost without a word are found ([`Config::idle_timeout`]);
//! - changes as bytes, in order, without a store, driven by whoever polls them ([`raw`]);
//! - a `tracing` root span for each session, a debug event for each request, never a body; metrics for Prometheus (feature
//!   `metrics`);
//! - an API server in memory for your own tests (feature `testing`: `testing::FakeApiServer`);
//! - `watcher`, a drop-in for the one of `kube::runtime` that feeds its reflectors and controllers (feature `runtime`),
//!   and retry policies of other crates ([`delays`]; feature `backoff` for those of the crate of that name).
//!
//! # Not supported yet
//!
//! Compressed lists; servers of one history that share the load.
//!
//! Not planned: protobuf, subresources, writing (use `kube::Api`).
//!
//! # To build it
//!
//! kube needs to know one Kubernetes version: programs enable it, libraries do not. Without
//! `k8s-openapi = { version = "0.29", features = ["v1_36"] }`, or another version, its build script stops and says so.

mod cluster;
mod config;
mod declaration;
mod error;

mod informer;
mod object;
mod store;
mod subscription;

mod checkpoint;
#[cfg(feature = "packed")]
mod compression;
mod decode;
pub mod delays;
mod driver;
pub mod index;
#[cfg(feature = "metrics")]
pub mod metrics;
mod progress;
pub mod raw;
#[cfg(feature = "runtime")]
mod runtime;
mod stats;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;

pub use informer_core::{
    InitialList, ListSemantic, Request, ResourceVersion,
    limits::{LINGERING_OBJECTS_MAX, RING_CHANGES_MAX},
    resource_version::InvalidResourceVersion,
    selector::{
        field::ParseError as FieldSelectorError,
        label::{ParseError as LabelSelectorError, Selector as LabelSelector},
    },
};
pub use informer_core::{
    reflector::{Class, FallBack, RelistCause},
    stats::Stats as ReflectorStats,
};

pub use crate::{
    cluster::{Cluster, ClusterBuilder, RELISTS_AT_ONCE},
    config::Config,
    decode::DecodeError,
    error::{Cause, ConfigError, Error, NotReady, Ready},
    index::Index,
    informer::{Behind, Informer, InformerBuilder, Representation},
    object::Object,
    stats::{Stats, Strategy},
    store::{Snapshot, Store},
    subscription::{EVENTS_AT_ONCE, Event, Subscription, SubscriptionAll},
};

#[cfg(feature = "runtime")]
pub use crate::runtime::{Watcher, watcher};

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
