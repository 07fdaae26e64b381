//! Finishes the deletions that another process began: it may have ended between the mark of an object and its removal.
//! A store of this process alone is finished at the start; one that servers share, again and again.
//!
//! INVARIANT: an object is removed only at a current version that has a deletion mark and no finalizers. While its
//! server runs, no such object stays: the request that wrote the mark, or that removed the last finalizer, removes it.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
    time::Duration,
};

use cache_server_caches::{
    cacher::{Caches, FreshnessError},
    registry::{Live, Registry, ResourceType},
    storage::{SourceError, Store},
    stored,
};
use futures::TryStreamExt as _;
use informer_core::KeyedObject as _;
use memchr::memmem;
use tokio::{task::yield_now, time::sleep};
use watch_cache::{CacheSnapshot, Entry};

use crate::namespaces::{DeletionMark, Namespaces};

/// Finishes the deletions of objects of the types with these ids. Failures are logged: the objects stay until a client
/// deletes them again, or until the next start.
pub async fn finish(storage: &dyn Store, namespaces: &Namespaces, registry: &Registry, types: &[String]) {
    // Types that are gone have no objects that a client could see.
    for ty in types.iter().filter_map(|id| registry.by_id(id)) {
        if ty.holds_objects {
            namespaces.settle().await;
        } else if !ty.defines_types
            && let Err(error) = finish_type(storage, &ty).await
        {
            tracing::warn!(resource = ty.id(), %error, "interrupted deletion failed");
        }
    }
}

async fn finish_type(storage: &dyn Store, ty: &Arc<ResourceType>) -> Result<(), SourceError> {
    let mut entries = storage.list(ty).await?.entries;
    while let Some(entry) = entries.try_next().await? {
        if is_left(&entry) {
            stored::replace(storage, ty, &entry, None).await?;
        }
    }
    Ok(())
}

/// Removes an object that was seen with its mark, unless it is another one by now: what was seen may be old.
async fn finish_one(
    caches: &Caches,
    storage: &dyn Store,
    ty: &Arc<ResourceType>,
    seen: &Entry,
) -> Result<(), FreshnessError> {
    let current = caches.fresh(ty).await?.get(seen.key());
    if let Some(entry) = current.filter(|entry| entry.uid() == seen.uid() && is_left(entry)) {
        stored::replace(storage, ty, &entry, None).await?;
    }
    Ok(())
}

/// True if an object has a deletion mark, and no finalizer holds it.
fn is_left(entry: &Entry) -> bool {
    DeletionMark::of(entry).is_some_and(|mark| !mark.is_held)
}

/// Finishes the deletions of all servers of a store, in the types whose caches are started, until the caches are
/// dropped.
pub async fn keep_finishing(caches: Weak<Caches>, storage: Arc<dyn Store>, registry: Arc<Live>) {
    let mut seen = HashMap::new();
    loop {
        sleep(CHECK_INTERVAL).await;
        let Some(caches) = caches.upgrade() else { return };
        for (ty, reader) in caches.filled(&registry.now()) {
            if ty.holds_objects || ty.defines_types {
                continue;
            }
            let marked = seen.entry(ty.id().to_owned()).or_insert_with(MarkedObjects::default);
            for entry in marked.left(&reader.snapshot()).await {
                match finish_one(&caches, &*storage, &ty, &entry).await {
                    Ok(()) => tracing::info!(resource = ty.id(), "interrupted deletion finished"),
                    Err(error) => tracing::warn!(resource = ty.id(), %error, "interrupted deletion failed"),
                }
            }
        }
    }
}

/// Objects of one type that were marked and not held at the last check, by uid.
#[derive(Default)]
struct MarkedObjects {
    /// Position of that check.
    checked: u64,
    uids: HashSet<String>,
}

impl MarkedObjects {
    /// Returns the objects that were marked at the last check as well: their servers have not removed them. Cost: a
    /// look at each object's metadata, if the type has changed since.
    async fn left(&mut self, snapshot: &CacheSnapshot) -> Vec<Arc<Entry>> {
        if self.uids.is_empty() && snapshot.resource_version == self.checked {
            return Vec::new();
        }
        let mut marked = Vec::new();
        for (at, entry) in snapshot.objects.iter().enumerate() {
            if at % ENTRIES_AT_ONCE == 0 {
                yield_now().await;
            }
            let may_be_marked = memmem::find(&entry.metadata(), b"\"deletionTimestamp\"").is_some();
            if may_be_marked && is_left(entry) {
                marked.push(Arc::clone(entry));
            }
        }
        self.checked = snapshot.resource_version;
        let uids = marked.iter().map(|entry| entry.uid().to_owned()).collect();
        let before = std::mem::replace(&mut self.uids, uids);
        marked.retain(|entry| before.contains(entry.uid()));
        marked
    }
}

/// Pause between two checks: longer than a server takes from the mark of an object to its removal.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Objects that are looked at before other tasks of the worker get their turn.
const ENTRIES_AT_ONCE: usize = 1_024;
