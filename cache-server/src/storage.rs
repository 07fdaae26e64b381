//! The storages that a server may have, and the traits of others.

pub use cache_server_caches::storage::*;
pub(crate) use cache_server_stores::backup;
#[cfg(feature = "etcd")]
pub use cache_server_stores::etcd;
pub use cache_server_stores::{coalesced, durable, embedded};
#[cfg(test)]
pub(crate) use cache_server_stores::{faulty, hooked};
