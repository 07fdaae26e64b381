//! The cost of one client to the server and to other clients: memory, slow readers, and attacks.

mod attacks;
mod bounds;
mod forks;
mod forwarded;
mod memory;
mod slow_readers;
mod soak;
mod workers;
