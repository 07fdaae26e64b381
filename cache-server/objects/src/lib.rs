//! Effects of kube-apiserver on an object before it stores it, for a server that acts as a cluster.
//!
//! INVARIANT: does no I/O. It knows no socket, task, clock, storage or HTTP: the caller brings the type, the object and
//! the stored one, and gets the completed object or the Status to answer with.
//!
//! In reading order: [`defaults`] (of the built-in types), [`strategies`] (what else a create adds), [`validation`]
//! (rules for their values), [`structural`] (schemas of custom resources, and their rules in CEL), [`services`]
//! (addresses and ports), [`accounts`] of pods, [`ranges`] and [`quotas`] (limits of a namespace), [`webhooks`] and
//! [`policies`] (who else decides about a write), `amounts` of resources, `quantity` and `pattern` (regular
//! expressions).

pub mod accounts;
mod amounts;
pub mod defaults;
pub mod limits;
mod pattern;
pub mod policies;
mod quantity;
pub mod quotas;
pub mod ranges;
pub mod services;
pub mod strategies;
pub mod structural;
pub mod validation;
pub mod webhooks;
