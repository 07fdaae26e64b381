//! Objects of a type in one namespace, read and changed together.

use std::sync::Arc;

use api_rules::object::{
    Object, WriteTarget,
    metadata::{self, Part},
};
use informer_serving::status::{Status, StatusExt as _};
use watch_cache::{Draft, Entry};

use super::{ReplaceOutcome, replace};
use crate::{cacher::Caches, limits::WRITE_ATTEMPTS_MAX, registry::ResourceType, storage::Store};

/// The objects of a type in a namespace.
#[derive(Clone, Copy)]
pub struct NamespacedObjects<'a> {
    /// The caches that read them.
    pub caches: &'a Caches,
    /// Their type.
    pub ty: &'a Arc<ResourceType>,
    /// Their namespace.
    pub namespace: &'a str,
}

impl NamespacedObjects<'_> {
    /// Reads all of them, if the cache of their type was started. Cost: one look at the caches if not; else a search in it,
    /// and decodes them.
    ///
    /// # Errors
    /// The Status of a cache that is not ready; 500 for an object that cannot be read.
    pub async fn read(&self) -> Result<Vec<Object>, Status> {
        Ok(self.decoded().await?.into_iter().map(|(_, object)| object).collect())
    }

    async fn decoded(&self) -> Result<Vec<(Arc<Entry>, Object)>, Status> {
        if !self.caches.is_started(self.ty) {
            return Ok(Vec::new());
        }
        let reader = self.caches.fresh(self.ty).await?;
        if reader.count() == 0 {
            return Ok(Vec::new());
        }
        let decode = |entry: &Arc<Entry>| {
            let object = serde_json::from_slice(&entry.object());
            Ok((Arc::clone(entry), object.map_err(|_| Status::internal("a stored object cannot be read"))?))
        };
        reader.snapshot().objects.namespace(self.namespace).map(decode).collect()
    }

    /// Replaces those for which `change` returns a successor, each at the version that was read. Those that other writers
    /// changed meanwhile are read and changed again, but for deleted ones.
    ///
    /// # Errors
    /// Those of `change` and of [`read`](Self::read); 409 after [`WRITE_ATTEMPTS_MAX`] attempts.
    pub async fn change_each(
        &self,
        store: &dyn Store,
        change: impl Fn(&[Object]) -> Result<Vec<Option<Draft>>, Status>,
    ) -> Result<(), Status> {
        let mut late: Option<Vec<String>> = None;
        for _ in 0..WRITE_ATTEMPTS_MAX {
            let mut read = self.decoded().await?;
            if let Some(late) = &late {
                read.retain(|(entry, _)| late.iter().any(|name| name == entry.name()));
            }
            let (entries, objects): (Vec<_>, Vec<_>) = read.into_iter().unzip();
            let mut left = Vec::new();
            for (entry, next) in entries.iter().zip(change(&objects)?) {
                if next.is_none() {
                    continue;
                }
                if !matches!(replace(store, self.ty, entry, next).await?, ReplaceOutcome::Done(_)) {
                    left.push(entry.name().to_owned());
                }
            }
            if left.is_empty() {
                return Ok(());
            }
            late = Some(left);
        }
        let name = late.as_ref().and_then(|late| late.first()).map_or("", |name| name);
        Err(WriteTarget { ty: self.ty, namespace: self.namespace, name, part: Part::Status }.modified())
    }
}

/// Returns the objects of a type in the namespace of another object.
#[must_use]
pub fn beside<'a>(caches: &'a Caches, ty: &'a Arc<ResourceType>, object: &'a Object) -> NamespacedObjects<'a> {
    NamespacedObjects { caches, ty, namespace: metadata::text(object, "namespace") }
}
