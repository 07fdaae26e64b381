//! The storages under test.

mod embedded;
mod etcd;
mod http;
mod redb;
mod upstream;

use crate::contract::Storage;

/// The store in memory.
pub(crate) async fn memory() -> Option<Box<dyn Storage>> {
    Some(Box::new(embedded::MemoryStorage::new()))
}

/// The store of `--data-dir`, on the disk of the temporary folder.
pub(crate) async fn durable() -> Option<Box<dyn Storage>> {
    Some(Box::new(redb::FolderStorage::new()))
}

/// An API server as a source: another process of this server.
pub(crate) async fn upstream() -> Option<Box<dyn Storage>> {
    Some(Box::new(ApiServer::own().await))
}

/// Two servers on one etcd; `None`, with one line, if etcd was not built.
pub(crate) async fn etcd() -> Option<Box<dyn Storage>> {
    Some(Box::new(etcd::EtcdPair::start().await?))
}

pub(crate) use self::upstream::ApiServer;
