//! The storages that a server may have, and the traits of others.

pub use cache_server_caches::{coalesced, storage::*};
#[cfg(feature = "durable")]
pub(crate) use cache_server_stores::backup;
#[cfg(feature = "durable")]
pub use cache_server_stores::durable;
#[cfg(feature = "embedded")]
pub use cache_server_stores::embedded;
#[cfg(feature = "etcd")]
pub use cache_server_stores::etcd;
#[cfg(test)]
pub(crate) use cache_server_stores::{faulty, hooked};
