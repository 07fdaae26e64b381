//! Rules of access: who a request comes from, what it may do, when its turn comes, and what is recorded of it.
//!
//! INVARIANT: does no I/O. It knows no socket, task, clock or HTTP: the caller brings the time, the objects of policies and
//! the parts of the request.
//!
//! In reading order: [`user`] (the identity of a caller), [`request_info`] (what a request asks for), [`decision`]
//! (allowed, denied, no opinion).

pub mod authentication;
pub mod decision;
pub mod request_info;
pub mod user;
