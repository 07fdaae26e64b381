//! The types that a durable store has read from its file, or need not read.
//!
//! INVARIANT: a type leaves the table only without objects, readers and users, so nothing of it is lost. INVARIANT: types
//! without a definition take no memory for long, however many come and go.

use std::{collections::HashMap, sync::Arc};

use tokio::sync::Mutex;

use super::journal::RawChange;
use crate::{embedded::EmbeddedStorage, limits::STORED_TYPES_UNSWEPT, registry::ResourceType};

/// The records of one type. They become entries with its first use, because only then its schema is known.
#[derive(Clone, Debug)]
pub(super) enum TypeRecords {
    Raw(RawRecords),
    /// They are in the store, as entries of the type as it was then.
    Loaded(Arc<ResourceType>),
}

/// Records that are not read yet.
#[derive(Clone, Debug)]
pub(super) struct RawRecords {
    /// The oldest position of their history.
    pub(super) from: u64,
    /// `None` while they are becoming entries, which the lock covers.
    pub(super) records: Arc<Mutex<Option<Vec<RawChange>>>>,
}

/// The records of each type that was asked for, or has objects.
#[derive(Debug)]
pub(super) struct StoredTypes {
    by_id: HashMap<String, TypeRecords>,
    /// A type that is not in the table has had no changes since.
    from: u64,
    /// Size of the table from which on it is swept.
    swept_at: usize,
}

impl StoredTypes {
    /// The types of a file whose history begins at `base`.
    pub(super) fn new(records: HashMap<String, Vec<RawChange>>, base: u64) -> Self {
        let mut types = Self { by_id: HashMap::new(), from: base, swept_at: STORED_TYPES_UNSWEPT };
        for (id, records) in records {
            types.add_raw(id, records);
        }
        types
    }

    fn add_raw(&mut self, id: String, records: Vec<RawChange>) -> RawRecords {
        let raw = RawRecords { from: self.from, records: Arc::new(Mutex::new(Some(records))) };
        self.by_id.insert(id, TypeRecords::Raw(raw.clone()));
        raw
    }

    pub(super) fn get(&self, id: &str) -> Option<&TypeRecords> {
        self.by_id.get(id)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the records of a type of which the file has some.
    pub(super) fn stored(&mut self, id: &str) -> TypeRecords {
        match self.by_id.get(id) {
            Some(records) => records.clone(),
            None => TypeRecords::Raw(self.add_raw(id.to_owned(), Vec::new())),
        }
    }

    /// Notes that the records of a type are in `store`.
    pub(super) fn loaded(&mut self, ty: Arc<ResourceType>) {
        self.by_id.insert(ty.id().to_owned(), TypeRecords::Loaded(ty));
    }

    /// Adds a type of which the file has no records to the table and to `store`. Cost: amortized constant.
    pub(super) fn add(&mut self, ty: &Arc<ResourceType>, store: &EmbeddedStorage) {
        if self.swept_at <= self.by_id.len() {
            self.sweep(store);
        }
        // Its history is empty, but known.
        store.fill_new(ty, self.from);
        self.loaded(Arc::clone(ty));
    }

    /// Removes the types without a definition.
    fn sweep(&mut self, store: &EmbeddedStorage) {
        let before = self.by_id.len();
        let is_used = |ty: &Arc<ResourceType>| Arc::strong_count(ty) > 1 || store.has(ty.id());
        self.by_id.retain(|_, records| !matches!(records, TypeRecords::Loaded(ty) if !is_used(ty)));
        if self.by_id.len() < before {
            self.from = store.revision();
        }
        self.swept_at = STORED_TYPES_UNSWEPT.max(2 * self.by_id.len());
        self.by_id.shrink_to(self.swept_at);
    }
}

impl RawRecords {
    /// Adds a change, unless the records have become entries.
    pub(super) async fn push(self, change: RawChange) -> Result<(), RawChange> {
        match &mut *self.records.lock_owned().await {
            Some(records) => {
                records.push(change);
                Ok(())
            }
            None => Err(change),
        }
    }
}
