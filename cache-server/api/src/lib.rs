//! The rules of the Kubernetes API: what a resource type is, and what a write may do to an object.
//!
//! INVARIANT: does no I/O. It knows no socket, task, clock, storage or HTTP: the caller brings the time, the stored object
//! and the request's parts, and gets a new object or the Status to answer with.
//!
//! In reading order: [`registry`] (the types), [`schemas`] (the shapes of their values), [`object`] (what writes do), and
//! [`table`] (the columns that people see).

pub mod limits;
pub mod object;
pub mod registry;
pub mod schemas;
pub mod table;
