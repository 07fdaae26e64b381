//! An etcd of a process of its own as a storage under test: two stores of this process are two servers on it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use cache_server::{
    config::EtcdConfig,
    storage::{Source, Store, etcd::EtcdStorage},
};
use futures::{FutureExt as _, future::BoxFuture};
use tests::{etcd::EtcdCluster, relay::Relay};
use tokio::{runtime::Handle, task::block_in_place};

use crate::contract::{Features, Lasting, ObjectWriter, Storage, StoreWriter};

/// The store, through a relay, and another server's on the same etcd.
pub(crate) struct EtcdPair {
    config: EtcdConfig,
    open: Mutex<Arc<EtcdStorage>>,
    other: Arc<EtcdStorage>,
    relay: Relay,
    _etcd: EtcdCluster,
}

impl EtcdPair {
    /// `None` if etcd was not built.
    pub(crate) async fn start() -> Option<Self> {
        let etcd = EtcdCluster::start("storage").await?;
        let relay = Relay::start(etcd.address(0)).await;
        let config = |address| EtcdConfig { endpoints: vec![format!("http://{address}")], ..EtcdConfig::default() };
        let other = Arc::new(EtcdStorage::open(&config(etcd.address(0))).await.unwrap());
        let config = config(relay.address());
        let open = Mutex::new(Arc::new(EtcdStorage::open(&config).await.unwrap()));
        Some(Self { config, open, other, relay, _etcd: etcd })
    }

    fn now(&self) -> Arc<EtcdStorage> {
        Arc::clone(&self.open.lock().unwrap())
    }
}

impl Storage for EtcdPair {
    fn features(&self) -> Features {
        Features {
            // One cache follows a type.
            streams: 1,
            resumes: true,
            lasts: Lasting::Objects,
            parts: true,
            flood: 1_536,
            patience: Duration::from_secs(30),
        }
    }

    fn source(&self) -> Arc<dyn Source> {
        let opening = EtcdStorage::open(&self.config);
        Arc::new(block_in_place(|| Handle::current().block_on(opening)).unwrap())
    }

    fn store(&self) -> Option<Arc<dyn Store>> {
        Some(self.now())
    }

    /// The second one is another server, which is not parted from etcd.
    fn writers(&self) -> Vec<Arc<dyn ObjectWriter>> {
        vec![Arc::new(StoreWriter(self.now())), Arc::new(StoreWriter(self.other.clone()))]
    }

    fn reopen(&self) -> BoxFuture<'_, ()> {
        async {
            let opened = EtcdStorage::open(&self.config).await.unwrap();
            *self.open.lock().unwrap() = Arc::new(opened);
        }
        .boxed()
    }

    fn part(&self, is_parted: bool) {
        if is_parted { self.relay.part() } else { self.relay.rejoin() }
    }
}
