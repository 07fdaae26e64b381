//! The locks and atomics of the wake-up protocol.
//!
//! INVARIANT: `interest` takes them from here and from nowhere else. `tests/wake_up.rs` mounts that file beside a module
//! of this name whose locks and atomics are a model checker's, and so checks the very text that runs.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use parking_lot::{Mutex, RwLock};
