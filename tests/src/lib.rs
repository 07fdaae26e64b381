//! The test harness: starts the server, acts as a client of it, and builds objects.
//!
//! INVARIANT: it knows the server only by its command line and its sockets. It panics with all details on the first
//! surprise, because only tests call it.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "a harness panics in the name of the test that called it"
)]

pub mod etcd;
pub mod genuine;
pub mod http;
pub mod objects;
pub mod phases;
pub mod process;
mod processes;
pub mod relay;
pub mod rights;
pub mod slow;
pub mod table;
pub mod tap;
pub mod tls;
pub mod upgrade;
pub mod ways;
pub mod websocket;

pub mod api;
pub mod checkers;
pub mod model;
pub mod world;

/// The README's lines compile. `tidy` compares them with the README.
///
/// ```no_run
/// # use std::time::Duration;
/// # use informer::Cluster;
/// # use k8s_openapi::api::core::v1::Pod;
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = Cluster::try_default().await?;
/// let pods = cluster.informer::<Pod>().start()?;          // streams its initial state, then watches
/// pods.ready(Duration::from_secs(30)).await?;             // Err: the reason why it is not ready
/// let web = pods.store().snapshot().get("prod/web-0");    // one state at one version, in O(1)
/// let mut changes = pods.subscribe();                     // cannot lag, loses no deletion
/// # let _ = (web, changes.next().await);
/// # Ok(())
/// # }
/// ```
#[cfg(doctest)]
struct Readme;

/// The first program of the SDK's page runs and ends in an assertion; the others compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/sdk.md")]
struct SdkPage;
