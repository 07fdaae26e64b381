//! A live, local copy of Kubernetes objects in your program, at little cost to the API server.
//!
//! INVARIANT: only the modules `kube1` to `kube5`, and `lease` of kube 5, have signatures with a type of kube.
//!
//! An [`Informer`] is a reflector, a store and its subscribers. It reads the initial state of one resource type, as a
//! stream where the server supports that, follows the changes, and after every break resumes from the last version it
//! saw. A [`Snapshot`] is the state at one version; a [`Subscription`] yields the changes from the state its reader
//! last received to the current state.
//!
//! # In four steps
//!
//! **1. Declare and start.** A [`Cluster`] holds the connection. `start` refuses an invalid declaration, and sends
//! exactly the declared request. If several components of the program may read the type, each calls
//! [`start_shared`](InformerBuilder::start_shared) instead: equal declarations have one watch. `ready` waits for the
//! initial state, or returns the reason why it is missing.
//!
//! ```no_run
//! use std::time::Duration;
//! use informer::{Cluster, Informer};
//! use k8s_openapi::api::core::v1::Pod;
//!
//! async fn pods_of_node() -> Result<Informer<Pod>, Box<dyn std::error::Error>> {
//!     let cluster = Cluster::try_default().await?;
//!     let pods = cluster.informer::<Pod>().fields("spec.nodeName=node-1").start()?;
//!     pods.ready(Duration::from_secs(30)).await?;
//!     Ok(pods)
//! }
//! ```
//!
//! **2. Read.** A [`Snapshot`] is one state at one version, taken in O(1). Keys, labels and single fields are read from
//! an [`Object`] without decoding it; `decode` returns the whole object, shared while a reader holds it.
//!
//! ```no_run
//! # use informer::Informer;
//! # use k8s_openapi::api::core::v1::Pod;
//! fn print(pods: &Informer<Pod>) -> Result<(), informer::DecodeError> {
//!     let now = pods.store().snapshot();
//!     for pod in now.namespace("prod") {
//!         println!("{} at {}: {}", pod.key(), pod.resource_version(), pod.field("status.phase").unwrap_or_default());
//!     }
//!     if let Some(web) = now.get("prod/web-0") {
//!         println!("{:?}", web.decode()?.status);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! **3. Follow.** A [`Subscription`] begins with every object and continues with the changes. A slow subscriber skips
//! intermediate versions, but no deletion, and holds up nothing else.
//!
//! ```no_run
//! # use informer::{Event, Informer};
//! # use k8s_openapi::api::core::v1::Pod;
//! async fn follow(pods: &Informer<Pod>) {
//!     let mut changes = pods.subscribe();
//!     while let Some(event) = changes.next().await {
//!         match event {
//!             Event::Added(pod) => println!("+ {}", pod.key()),
//!             Event::Updated { new, .. } => println!("~ {}", new.key()),
//!             Event::Deleted { last_known, .. } => println!("- {}", last_known.key()),
//!             Event::Synced(version) => println!("= complete at {version}"),
//!             _ => {}
//!         }
//!     }
//! }
//! ```
//!
//! **4. Test.** The feature `testing` has an API server in memory, with faults. Under tokio's paused time an outage of
//! ten minutes passes in milliseconds.
//!
//! ```
//! # #[cfg(all(feature = "testing", feature = "kube-5"))]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use informer::{Cluster, testing::FakeApiServer};
//! use k8s_openapi::api::core::v1::Pod;
//! use serde_json::json;
//!
//! // In a test: #[tokio::test(start_paused = true)] async fn pods_are_found_after_an_outage()
//! let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}});
//! let server = FakeApiServer::new().put(pod("web-0"));
//! let pods = Cluster::new(server.client()).informer::<Pod>().start()?;
//! pods.ready(Duration::from_secs(5)).await?;
//!
//! server.refuse_connections().close_watches().put(pod("web-1"));
//! tokio::time::sleep(Duration::from_secs(600)).await;
//! assert_eq!(pods.store().snapshot().len(), 1, "the copy stays readable");
//!
//! server.recover();
//! pods.wait_for(server.resource_version(), Duration::from_secs(60)).await?;
//! assert_eq!((pods.store().snapshot().len(), server.initial_reads()), (2, 1), "resumed, without a relist");
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "testing", feature = "kube-5")))]
//! # fn main() {}
//! ```
//!
//! Programs that have an informer already: [`migrating_from_client_go`], and `migrating_from_kube_runtime` (feature
//! `runtime`).
//!
//! # Supported
//!
//! - every resource type that can be listed and watched as JSON, known at compile time or at run time;
//! - one copy for all components of a program ([`InformerBuilder::start_shared`]), started with its first user, stopped
//!   after its last one, and filtered for narrower declarations; several namespaces as one informer
//!   ([`InformerBuilder::namespaces`]); one wait for all informers ([`Cluster::ready_all`]) or for some
//!   ([`ready_all`]);
//! - label and field selectors, of single namespaces too ([`InformerBuilder::namespace_labels`]); fields cut while
//!   objects are received ([`InformerBuilder::drop_path`]); defaults of a cluster ([`ClusterBuilder::default_labels`]);
//! - initial state as a stream, in pages or in one list, with automatic fallback ([`InitialList::Auto`]); every list
//!   semantic of Kubernetes ([`ListSemantic`]);
//! - initial streams that resume where they broke, at servers that support it ([`Config::resume_initial`]);
//! - reads by key, uid, namespace, labels, owner and any other value ([`InformerBuilder::index`]); read-your-writes
//!   ([`Informer::wait_for`]) and waits for a condition ([`Informer::wait_until`]); deleted objects that stay readable
//!   for a time ([`InformerBuilder::linger`]);
//! - objects stored as JSON, decoded or compressed ([`Representation`]), changed before they are stored
//!   ([`InformerBuilder::transform`]), reduced to their metadata ([`InformerBuilder::metadata_only`]) or to the fields
//!   of your own type ([`InformerBuilder::project`]);
//! - level-triggered subscriptions, which cannot lag ([`Informer::subscribe`]), and subscriptions that deliver every
//!   change in order ([`Informer::subscribe_all`]); both are streams;
//! - a relist budget shared by all informers of a [`Cluster`], start-up jitter ([`InformerBuilder::spread`]),
//!   exponential backoff, `Retry-After`, typed reasons why an informer is not ready ([`Informer::ready`]);
//! - restarts that resume from a directory ([`InformerBuilder::checkpoint`]), and failover to other endpoints
//!   ([`ClusterBuilder::fallback`]). Before an informer resumes after an outage, a restart or a failover, it reads one
//!   object to prove that the server still has the same history;
//! - shutdown with a deadline or by a signal ([`Informer::shutdown`], [`Informer::shutdown_on`]), the reason of an end
//!   ([`EndReason`]), and one call for liveness probes ([`Informer::is_alive`]);
//! - one HTTP/2 connection for all watches of a process, with pings, and credentials that are renewed while watches run
//!   ([`client_from`]); detection of silent dead connections ([`Config::idle_timeout`]); compressed lists for slow
//!   links (feature `gzip`: `Config::gzip_lists`);
//! - a raw stream of changes as bytes, in order, without a store and without a task of its own ([`raw`]);
//! - a `tracing` root span for each session and a debug event for each request, never with a body; metrics for
//!   Prometheus (feature `metrics`);
//! - an in-memory API server for your own tests (feature `testing`: `testing::FakeApiServer`), with
//!   writes (feature `testing-writes`);
//! - `watcher`, a drop-in replacement for `kube::runtime::watcher` that feeds kube's reflectors and controllers
//!   (feature `runtime`), and retry policies of other crates ([`delays`]);
//! - `controller::Controller`, a controller on the informer's own store, without a second copy (feature `controller`).
//!
//! # Not supported yet
//!
//! Compressed watches; load balancing over several servers of one history.
//!
//! Not planned: protobuf, subresources, writes (use `kube::Api`).
//!
//! # Building
//!
//! kube is your choice: features `kube-5` (default), `kube-4`, `kube-3`, `kube-1`, each with a module of its name, whose
//! `Cluster` knows the types of this kube. [`Cluster`], [`client_from`] and `watcher` here are those of [`kube5`]. Without
//! any, [`plain`] has a cluster for a [`ServerConnection`] and types of your own.
//!
//! TLS is your choice: features `rustls-tls` with `ring` (both default) or `aws-lc-rs`, or `openssl-tls`; proxies by
//! `http-proxy` (default) and `socks5`. They forward to kube's features.
//!
//! kube needs one Kubernetes version, which programs enable and libraries do not. Enable it with
//! `k8s-openapi = { version = "0.29", features = ["v1_36"] }`, or another version (0.28 for
//! kube 4, 0.27 for kube 3, 0.25 for kube 1); without one, its build script fails with a message.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(clippy::duplicate_mod, reason = "each version of kube has an adapter of its own, from the same files")]

mod cluster;
pub mod conditions;
mod config;
mod connection;
#[cfg(feature = "controller")]
pub mod controller;
mod declaration;
mod error;
#[cfg(feature = "kube-1")]
pub mod kube1;
#[cfg(feature = "kube-3")]
pub mod kube3;
#[cfg(feature = "kube-4")]
pub mod kube4;
#[cfg(feature = "kube-5")]
pub mod kube5;

mod informer;
mod object;
mod object_ref;
mod store;
mod subscription;

mod checkpoint;
#[cfg(feature = "packed")]
mod compression;
mod decode;
pub mod delays;
mod driver;
mod ended;
pub mod index;
mod keep_alive;
mod labels;
#[cfg(all(feature = "controller", feature = "kube-5"))]
pub mod lease;
mod lifetime;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod plain;
mod progress;
pub mod raw;
mod readiness;
mod representation;
mod resource_kind;
mod selection;
mod selectors;
mod shared;
mod stats;
mod status;
#[cfg(feature = "testing")]
pub mod testing;
mod transform;
mod transport;
#[cfg(all(test, feature = "kube-5", feature = "testing"))]
mod world;

pub use informer_core::{
    InitialList, ListSemantic, Request, ResourceVersion,
    backoff::Config as BackoffConfig,
    limits::{LINGERING_OBJECTS_MAX, RING_CHANGES_MAX},
    resource_version::InvalidResourceVersion,
    selector::{
        field::ParseError as FieldSelectorError,
        label::{ParseError as LabelSelectorError, Selector as LabelSelector},
        shard::ShardField,
    },
};
pub use informer_core::{
    reflector::{Class, FallBack, RelistCause},
    stats::ReflectorStats,
};

pub use crate::{
    cluster::{ClusterBuilder, ClusterOf, RELISTS_AT_ONCE},
    config::Config,
    connection::ServerConnection,
    decode::DecodeError,
    ended::{EndReason, ShutdownTimeout},
    error::{Cause, ConfigError, Error, NotReady, Ready},
    index::Index,
    informer::{Informer, InformerBuilder, VersionTimeout, WaitError},
    object::{Object, ObjectView},
    object_ref::ObjectRef,
    readiness::{InformersNotReady, Readiness, UnreadyInformer, ready_all},
    representation::Representation,
    resource_kind::{HasResourceKind, ResourceKind, ResourceScope},
    selectors::IntoLabelSelector,
    shared::SHARED_GRACE,
    stats::{Stats, Strategy},
    status::{ClusterStatus, InformerPhase, InformerReport, InformerStatus},
    store::{Snapshot, SnapshotIter, Store},
    subscription::{EVENTS_AT_ONCE, Event, Subscription, SubscriptionAll},
};

#[cfg(feature = "gzip")]
pub use crate::transport::GzipError;

#[cfg(feature = "kube-5")]
pub use crate::kube5::{Cluster, client_from};
#[cfg(all(feature = "kube-5", feature = "runtime"))]
pub use crate::kube5::{Watcher, watcher};

// Examples of both pages need the feature `controller`.
#[cfg(all(doc, any(not(doctest), feature = "controller")))]
#[doc = include_str!("../docs/migrating-from-client-go.md")]
pub mod migrating_from_client_go {}

#[cfg(all(doc, feature = "runtime", any(not(doctest), feature = "controller")))]
#[doc = include_str!("../docs/migrating-from-kube-runtime.md")]
pub mod migrating_from_kube_runtime {}

/// The README's program runs: it ends in an assertion.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;
