//! What a client ended with: a count, and a checksum of (key, uid, resourceVersion) that does not depend on order.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

/// Counts objects and sums up a hash of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checksum {
    pub(crate) objects: usize,
    pub(crate) sum: u64,
}

impl Checksum {
    /// Adds one object.
    pub(crate) fn add(&mut self, key: &str, uid: &str, resource_version: &str) {
        // DefaultHasher::new has fixed keys: the same in every process.
        let mut hasher = DefaultHasher::new();
        (key, uid, resource_version).hash(&mut hasher);
        self.objects += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}
