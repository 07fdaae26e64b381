//! Rules of access: who a request comes from, what it may do, when its turn comes, and what is recorded of it.
//!
//! INVARIANT: does no I/O. It knows no socket, task, clock or HTTP: the caller brings the time, the objects of policies and
//! the parts of the request.
//!
//! In reading order: [`user`] (the identity of a caller), [`request_info`] (what a request asks for), [`decision`]
//! (allowed, denied, no opinion), [`rbac`] (roles and bindings), [`bootstrap`] (those that a cluster begins with),
//! [`node`] (requests of nodes), [`review`] (the rules of a user), [`flow`] (when a request has its turn), [`audit`]
//! (what is recorded of it).

pub mod audit;
pub mod authentication;
pub mod bootstrap;
pub mod decision;
pub mod flow;
pub mod node;
pub mod rbac;
pub mod request_info;
pub mod review;
mod slots;
pub mod user;
