//! Decides how to keep a live copy of Kubernetes objects, and does no I/O.
//!
//! INVARIANT: knows no socket, clock, task, metric or log. Time is an argument, randomness is a seed, bytes are
//! already here. `tests/tests/tidy.rs` reads the dependency tree to keep it so.
//!
//! In reading order: what a read asks for ([`semantics`]), what an object is ([`object`], [`objects`]), what travels
//! on the wire ([`wire`]), which objects are wanted ([`selector`]), what to do next ([`reflector`]), which server to
//! ask and whether it is still the same ([`endpoints`], [`proof`]), and what is kept ([`store`]).

pub mod limits;
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
pub mod stats;
pub mod store;

pub use object::Meta;
pub use objects::{Keyed, Objects};
pub use resource_version::ResourceVersion;
pub use semantics::{InitialList, ListSemantic, Marks, Read, Request, Resource};
pub use time::Time;
