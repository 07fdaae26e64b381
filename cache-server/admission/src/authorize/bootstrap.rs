//! Stores the roles and bindings that a cluster has from its start, and restores what was taken from them.
//!
//! Source: Kubernetes `pkg/registry/rbac/rest/storage_rbac.go`.

use std::sync::Arc;

use access_rules::{
    bootstrap::{BootstrapObject, Reconciliation, objects, reconcile},
    rbac::GROUP,
};
use api_rules::object::{
    draft::bounded_draft,
    metadata::{self, Birth},
};
use futures::{StreamExt as _, stream};
use informer_serving::status::Status;
use watch_cache::Entry;

use crate::{
    cacher::Caches,
    clock, ids, limits,
    registry::{Live, Object, ResourceType},
    storage::{Expect, Store, Txn, WriteError},
    stored::{self, ReplaceOutcome},
};

/// Writes in flight at once. A storage on disk syncs them together.
const WRITES_AT_ONCE: usize = 32;

/// Attempts to write one object while another server of the store writes it too.
const ATTEMPTS_MAX: usize = 4;

/// Creates the objects that are missing, and adds what others lack. An object that cannot be written is logged: the next
/// start tries again.
pub async fn store_objects(caches: &Caches, store: &dyn Store, registry: &Live) {
    let writes = stream::iter(objects()).map(|object| async move {
        let of = &object;
        if let Err(status) = settle(caches, store, registry, of).await {
            let (kind, name) = (of.kind.name(), &of.name);
            tracing::warn!(kind, name, error = status.message, "bootstrap object not stored");
        }
    });
    writes.for_each_concurrent(WRITES_AT_ONCE, |write| write).await;
}

async fn settle(caches: &Caches, store: &dyn Store, registry: &Live, expected: &BootstrapObject) -> Result<(), Status> {
    let ty = registry.now().find(GROUP, "v1", expected.kind.resource()).expect("a built-in type");
    for _ in 0..ATTEMPTS_MAX {
        let existing = caches.fresh(&ty).await?.get(&ty.key(&expected.namespace, &expected.name));
        let is_done = match existing {
            None => create(store, &ty, expected).await?,
            Some(existing) => restore(store, &ty, &existing, expected).await?,
        };
        if is_done {
            return Ok(());
        }
    }
    Ok(())
}

/// Creates the object. Returns false if another server did so first.
async fn create(store: &dyn Store, ty: &Arc<ResourceType>, expected: &BootstrapObject) -> Result<bool, Status> {
    let mut object: Object = expected.manifest.clone();
    let uid = ids::uuid().to_string();
    metadata::prepare_create(ty, &mut object, Birth { uid: &uid, now: &clock::now(), generated_name: "" })?;
    let put = bounded_draft(ty, &object, limits::OBJECT_BYTES_MAX)?;
    let txn =
        Txn { ty: Arc::clone(ty), key: put.key().to_owned(), expect: Expect::Absent, put: Some(put), cause: None };
    match store.write(txn).await {
        Ok(_) => Ok(true),
        Err(WriteError::Exists | WriteError::Conflict { .. }) => Ok(false),
        Err(error @ (WriteError::NotFound | WriteError::CauseChanged | WriteError::Source(_))) => Err(error.into()),
    }
}

/// Adds what an existing object lacks. Returns false if the object must be read again.
async fn restore(
    store: &dyn Store,
    ty: &Arc<ResourceType>,
    existing: &Entry,
    expected: &BootstrapObject,
) -> Result<bool, Status> {
    let Ok(object) = serde_json::from_slice::<Object>(&existing.object()) else { return Ok(true) };
    let put = match reconcile(&object, expected) {
        Reconciliation::None => return Ok(true),
        Reconciliation::Update(object) => Some(bounded_draft(ty, &object, limits::OBJECT_BYTES_MAX)?),
        Reconciliation::Recreate => None,
    };
    let is_update = put.is_some();
    match stored::replace(store, ty, existing, put).await? {
        ReplaceOutcome::Done(_) => Ok(is_update),
        ReplaceOutcome::Late | ReplaceOutcome::Gone => Ok(false),
    }
}
