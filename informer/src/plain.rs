//! Clusters without kube: a [`ServerConnection`](crate::ServerConnection) of your own, and types that describe
//! themselves.
//!
//! ```no_run
//! use informer::{ServerConnection, HasResourceKind, ResourceKind, plain};
//!
//! #[derive(serde::Deserialize)]
//! struct Pod { /* the fields that the program reads */ }
//!
//! impl HasResourceKind<plain::Plain> for Pod {
//!     fn resource_kind() -> ResourceKind {
//!         ResourceKind::new("v1", "Pod", "pods")
//!     }
//! }
//!
//! # fn doc(connection: ServerConnection) -> Result<(), informer::ConfigError> {
//! let cluster = plain::Cluster::new(connection);
//! let pods = cluster.informer::<Pod>().start()?;
//! # Ok(())
//! # }
//! ```

use crate::cluster::ClusterOf;

/// A cluster for types of your own.
pub type Cluster = ClusterOf<Plain>;

/// Types that are described without kube.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Plain {}
