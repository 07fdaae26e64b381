//! Objects for a server and load on it: synthetic objects, manifests, and the clients of `populate` and `churn`.

pub(crate) mod churn;
pub(crate) mod client;
pub(crate) mod flow_objects;
pub(crate) mod manifests;
pub mod populate;
