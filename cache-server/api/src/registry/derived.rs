//! Values that other modules derive from a type, such as its table columns, each made once per type.
//!
//! The registry does not know their Rust types, so it depends on none of these modules.

use std::{any::Any, fmt, sync::Arc};

use parking_lot::RwLock;

/// Derived values of one resource type, at most one of each Rust type. Cost of a look-up: one read lock and a scan of two or
/// three entries.
#[derive(Default)]
pub struct DerivedValues(RwLock<Vec<Arc<dyn Any + Send + Sync>>>);

impl DerivedValues {
    /// Returns the value of type `T`, which `make` makes if there is none. When two threads make it, the first value stays,
    /// so that all callers get the same `Arc`.
    pub fn get_or_make<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(found) = self.find() {
            return found;
        }
        // Without the lock, since `make` may be slow and may ask for another derived value.
        let made = Arc::new(make());
        let mut values = self.0.write();
        if let Some(first) = find_in(&values) {
            return first;
        }
        values.push(Arc::clone(&made) as Arc<dyn Any + Send + Sync>);
        made
    }

    fn find<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        find_in(&self.0.read())
    }
}

fn find_in<T: Any + Send + Sync>(values: &[Arc<dyn Any + Send + Sync>]) -> Option<Arc<T>> {
    values.iter().find_map(|value| Arc::clone(value).downcast().ok())
}

impl fmt::Debug for DerivedValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derived").field("values", &self.0.read().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_made_once_for_each_type() {
        let derived = DerivedValues::default();
        let first = derived.get_or_make(|| 7_u32);
        assert!(Arc::ptr_eq(&first, &derived.get_or_make(|| 8_u32)));
        assert_eq!(*derived.get_or_make(|| "x".to_owned()), "x");
        assert_eq!(*derived.get_or_make(|| 9_u32), 7);
    }
}
