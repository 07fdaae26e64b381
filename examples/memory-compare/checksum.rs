//! Final state of a client: the number of objects, and a checksum of (key, uid, resourceVersion) independent of their
//! order.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

/// Counts objects and sums a hash of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checksum {
    pub(crate) objects: usize,
    pub(crate) sum: u64,
}

impl Checksum {
    /// Adds an object.
    pub(crate) fn add(&mut self, key: &str, uid: &str, resource_version: &str) {
        // `DefaultHasher::new` uses fixed keys, so the hash is equal in every process.
        let mut hasher = DefaultHasher::new();
        (key, uid, resource_version).hash(&mut hasher);
        self.objects += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}
