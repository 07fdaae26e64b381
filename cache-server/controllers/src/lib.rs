//! Controllers: tasks that follow the objects of one type, and do what a Kubernetes cluster does about them.
//!
//! INVARIANT: a controller acts on nothing that is over: a new server replays earlier states, and a cache lags behind its
//! storage. It deletes an object in a write that fails unless the cause is still as it was read.

pub mod definitions;
pub mod leftovers;
pub mod namespaces;
