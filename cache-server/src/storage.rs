//! The storages that a server may have, behind the traits of [`cache_server_caches::storage`].

pub(crate) mod backup;
pub mod coalesced;
pub mod durable;
pub mod embedded;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(test)]
pub(crate) mod faulty;
#[cfg(test)]
pub(crate) mod hooked;

pub use cache_server_caches::storage::*;

#[cfg(test)]
mod tests;
