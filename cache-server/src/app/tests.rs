//! Controllers in a whole server.

mod definitions;
#[cfg(feature = "durable")]
mod leftovers;
mod namespaces;
mod replays;
