//! The store in memory as a storage under test.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use cache_server::storage::{Source, Store, embedded::EmbeddedStorage};
use futures::{FutureExt as _, future::BoxFuture};

use crate::contract::{Features, ObjectWriter, Storage, StoreWriter};

pub(crate) struct MemoryStorage(Mutex<Arc<EmbeddedStorage>>);

impl MemoryStorage {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Arc::new(EmbeddedStorage::new(None))))
    }

    fn now(&self) -> Arc<EmbeddedStorage> {
        Arc::clone(&self.0.lock().unwrap())
    }
}

impl Storage for MemoryStorage {
    fn features(&self) -> Features {
        Features::of_memory()
    }

    fn source(&self) -> Arc<dyn Source> {
        self.now()
    }

    fn store(&self) -> Option<Arc<dyn Store>> {
        Some(self.now())
    }

    fn writers(&self) -> Vec<Arc<dyn ObjectWriter>> {
        vec![Arc::new(StoreWriter(self.now()))]
    }

    fn reopen(&self) -> BoxFuture<'_, ()> {
        async {
            // Of two stores that start within one millisecond, the second one may begin below the first one.
            tokio::time::sleep(Duration::from_millis(2)).await;
            *self.0.lock().unwrap() = Arc::new(EmbeddedStorage::new(None));
        }
        .boxed()
    }
}
