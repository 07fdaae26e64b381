//! Follows the stored FlowSchemas and PriorityLevelConfigurations.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use access_rules::flow::objects::{FlowObject, GROUP};
use informer_core::Objects;
use tokio::time::sleep;
use watch_cache::{Entry, Reader};

use super::FlowControl;
use crate::{
    cacher::Caches,
    registry::{Live, ResourceType},
};

/// Pause before a cache that is not ready is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Keeps flow control up to date with the stored objects until the server is dropped. Until they are known, those in force
/// stay.
pub async fn follow(flow: Weak<FlowControl>, caches: Weak<Caches>, registry: Arc<Live>) {
    loop {
        let readers = match caches.upgrade() {
            None => return,
            Some(caches) => readers(&caches, &registry).await,
        };
        if let Some([schemas, levels]) = readers {
            while let Some((schemas_at, levels_at)) = take_in(&flow, &schemas, &levels) {
                let changed = tokio::select! {
                    changed = schemas.reached(schemas_at + 1) => changed,
                    changed = levels.reached(levels_at + 1) => changed,
                };
                if changed.is_err() {
                    // The cache is closed: the next round opens another one.
                    break;
                }
            }
        }
        sleep(RETRY_PAUSE).await;
    }
}

async fn readers(caches: &Caches, registry: &Live) -> Option<[Reader; 2]> {
    let ty = |plural: &str| -> Option<Arc<ResourceType>> { registry.now().by_id(&format!("{plural}.{GROUP}")) };
    let (schemas, levels) = (ty("flowschemas")?, ty("prioritylevelconfigurations")?);
    Some([caches.reader(&schemas).await.ok()?, caches.reader(&levels).await.ok()?])
}

/// Puts the stored objects in force. Returns the positions of both types; `None` once the server is dropped.
fn take_in(flow: &Weak<FlowControl>, schemas: &Reader, levels: &Reader) -> Option<(u64, u64)> {
    let flow = flow.upgrade()?;
    let (schemas, levels) = (schemas.snapshot(), levels.snapshot());
    flow.configure(read(&schemas.objects).chain(read(&levels.objects)));
    tracing::debug!(schemas = schemas.objects.len(), levels = levels.objects.len(), "flow control configured");
    Some((schemas.resource_version, levels.resource_version))
}

/// Returns the objects that can be used.
fn read(objects: &Objects<Entry>) -> impl Iterator<Item = FlowObject> {
    objects.iter().filter_map(|entry| {
        let value = serde_json::from_slice(&entry.object()).ok()?;
        match FlowObject::read(&value, false) {
            Ok(object) => Some(object),
            Err(error) => {
                tracing::warn!(%error, "object of flow control ignored");
                None
            }
        }
    })
}
