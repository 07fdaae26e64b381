//! The store of `--data-dir` as a storage under test.

use std::sync::{Arc, Mutex};

use cache_server::storage::{Source, Store, durable::DurableStorage};
use futures::{FutureExt as _, future::BoxFuture};
use tempfile::TempDir;
use tokio::task::block_in_place;

use crate::contract::{Features, Lasting, ObjectWriter, Storage, StoreWriter};

pub(crate) struct FolderStorage {
    /// `None` between two processes.
    open: Mutex<Option<Arc<DurableStorage>>>,
    folder: TempDir,
}

impl FolderStorage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = Mutex::new(Some(open(&folder)));
        Self { open, folder }
    }

    fn now(&self) -> Arc<DurableStorage> {
        Arc::clone(self.open.lock().unwrap().as_ref().expect("it is open"))
    }
}

fn open(folder: &TempDir) -> Arc<DurableStorage> {
    Arc::new(block_in_place(|| DurableStorage::open(folder.path(), None)).unwrap())
}

impl Storage for FolderStorage {
    fn features(&self) -> Features {
        Features { lasts: Lasting::ObjectsAndHistory, ..Features::of_memory() }
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
            let mut opened = self.open.lock().unwrap();
            let last = opened.take().map(Arc::try_unwrap);
            assert!(matches!(last, Some(Ok(_))), "the row holds the store of before");
            block_in_place(|| drop(last));
            *opened = Some(open(&self.folder));
        }
        .boxed()
    }
}
