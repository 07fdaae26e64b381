//! The rules of the Kubernetes API: what a resource type is, and what a write may do to an object.
//!
//! INVARIANT: does no I/O. It knows no socket, task, clock, storage or HTTP: the caller brings the time, the stored object
//! and the request's parts, and gets a new object or the Status to answer with.
//!
//! In reading order: [`registry`] (the types), [`schemas`] (the shapes of their values), [`object`] (what writes do),
//! [`table`] (the columns that people see), [`openapi`] (the documents of types), [`etcd`] (keys and values of a kube-apiserver's storage), and
//! [`service_range`] (addresses of a cluster).

pub mod etcd;
pub mod limits;
pub mod object;
pub mod openapi;
pub mod registry;
pub mod schemas;
pub mod service_range;
pub mod table;
pub mod version;
