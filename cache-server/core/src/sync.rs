//! The locks and atomics of the wake-up protocol.
//!
//! INVARIANT: `interest` imports its locks and atomics only from here. `tests/wake_up.rs` mounts that file with a
//! module of this name that contains a model checker's locks and atomics, and so checks the production source.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use parking_lot::{Mutex, RwLock};
