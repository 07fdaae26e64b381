//! The watch cache through its public API. `memory.rs` measures its heap, in a process of its own.

mod batches;
mod common;
mod filtering;
mod histories;
mod sharing;
mod slow;
mod wake_up;
mod waking;
mod watching;
