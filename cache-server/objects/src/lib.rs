//! Effects of kube-apiserver on an object before it stores it, for a server that acts as a cluster.
//!
//! INVARIANT: does no I/O. It knows no socket, task, clock, storage or HTTP: the caller brings the type, the object and the
//! stored one, and gets the completed object or the Status to answer with.
//!
//! In reading order: [`structural`] (schemas of custom resources, and their rules in CEL) and `pattern` (regular
//! expressions).

pub mod limits;
mod pattern;
pub mod structural;
