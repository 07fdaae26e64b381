//! The types of the objects of a store, derived from its definitions without any controller.

use std::{collections::BTreeMap, sync::Arc};

use futures::TryStreamExt as _;

use crate::{
    registry::{Definition, Registry, ResourceType},
    storage::{SourceError, Store},
};

/// The built-in types, and those of the definitions that were added. A terminating definition has its type too.
pub(super) struct StoredTypes {
    by_id: BTreeMap<String, Arc<ResourceType>>,
}

impl StoredTypes {
    /// The built-in types.
    pub(super) fn builtin() -> Self {
        let registry = Registry::builtin();
        let stored = registry.iter().filter_map(|ty| registry.by_id(ty.id()));
        Self { by_id: stored.map(|ty| (ty.id().to_owned(), ty)).collect() }
    }

    /// The types of the objects of `store`, and the revision at which its definitions were listed.
    pub(super) async fn of(store: &dyn Store) -> Result<(Self, u64), SourceError> {
        let mut types = Self::builtin();
        let mut revision = 0;
        let definitions: Vec<_> = types.by_id.values().filter(|ty| ty.defines_types).map(Arc::clone).collect();
        for ty in definitions {
            let mut listed = store.list(&ty).await?;
            revision = revision.max(listed.resource_version);
            while let Some(entry) = listed.entries.try_next().await? {
                types.define(entry.object_text(), entry.resource_version());
            }
        }
        Ok((types, revision))
    }

    /// Adds the type of a stored definition. A definition that was never established has none.
    pub(super) fn define(&mut self, definition: &[u8], position: u64) {
        let definition = serde_json::from_slice(definition).ok().and_then(|object| Definition::read(&object));
        let stored = definition.and_then(|definition| definition.stored_type(&Arc::new(definition.schema()), position));
        if let Some(ty) = stored {
            self.by_id.insert(ty.id().to_owned(), ty);
        }
    }

    pub(super) fn get(&self, id: &str) -> Option<&Arc<ResourceType>> {
        self.by_id.get(id)
    }

    /// All types: definitions, then namespaces, then the others by id.
    pub(super) fn in_order(&self) -> Vec<&Arc<ResourceType>> {
        let mut types: Vec<_> = self.by_id.values().collect();
        types.sort_by_key(|ty| (!ty.defines_types, !ty.holds_objects));
        types
    }
}
