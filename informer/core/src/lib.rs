//! Keeps a live copy of Kubernetes objects by the list/watch protocol, without doing I/O.
//!
//! INVARIANT: knows no socket, clock, task, metric or log. Time is an argument, randomness is a seed, and bytes are
//! already received. `tests/tidy/main.rs` checks the dependency tree for this. No promise of semver but for the items that
//! `informer` exports.
//!
//! In reading order: the semantics of reads ([`semantics`]), objects ([`object`], [`objects`]), the wire format
//! ([`wire`]), selectors ([`selector`]), the state machine ([`reflector`]), endpoints and proofs of their history
//! ([`endpoints`], [`proof`]), the local copy ([`store`]), and the session that puts them together ([`session`]).

pub mod limits;
pub mod text;
pub mod time;

pub mod resource_version;
pub mod semantics;

pub mod object;
pub mod objects;
pub mod selector;
pub mod wire;

pub mod backoff;
pub mod endpoints;
pub mod proof;
pub mod reflector;
pub mod session;
pub mod stats;
pub mod store;

pub use object::Meta;
pub use objects::{KeyedObject, Objects};
pub use resource_version::ResourceVersion;
pub use semantics::{InitialList, ListSemantic, Marks, Read, Request, Resource};
pub use time::Time;
