//! Numbers for keys: a table that stores each key once, and refers to it by a small number.
//!
//! INVARIANT: a number is used again only after its entry was removed.

use std::{collections::HashMap, hash::Hash, sync::Arc};

/// Values by key and by number.
#[derive(Clone, Debug)]
pub(crate) struct NumberedEntries<K, V> {
    entries: Vec<Option<(Arc<K>, V)>>,
    numbers: HashMap<Arc<K>, u32>,
    free: Vec<u32>,
}

impl<K, V> Default for NumberedEntries<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new(), numbers: HashMap::new(), free: Vec::new() }
    }
}

impl<K: Eq + Hash, V: Default> NumberedEntries<K, V> {
    /// Returns the number of a key.
    pub(crate) fn number(&self, key: &K) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// Returns the number of a key, and adds the key with a default value if it is new.
    pub(crate) fn number_or_insert(&mut self, key: K) -> u32 {
        if let Some(number) = self.number(&key) {
            return number;
        }
        let key = Arc::new(key);
        let entry = Some((Arc::clone(&key), V::default()));
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 names fit into memory")
            }
        };
        self.numbers.insert(key, number);
        number
    }

    /// Returns the key of a number in use.
    pub(crate) fn key(&self, number: u32) -> &K {
        &self.entry(number).0
    }

    /// Returns the value of a number in use.
    pub(crate) fn value(&self, number: u32) -> &V {
        &self.entry(number).1
    }

    /// Returns the value of a number in use, to change it.
    pub(crate) fn value_mut(&mut self, number: u32) -> &mut V {
        &mut self.entries[number as usize].as_mut().expect("a number in use").1
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.number(key).map(|number| self.value(number))
    }

    /// Removes an entry; its number may be used again.
    pub(crate) fn remove(&mut self, number: u32) {
        if let Some((key, _)) = self.entries[number as usize].take() {
            self.numbers.remove(&key);
            self.free.push(number);
        }
    }

    /// True without entries.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// All entries, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &K, &V)> {
        let numbered = (0..).zip(&self.entries);
        numbered.filter_map(|(number, entry)| entry.as_ref().map(|(key, value)| (number, &**key, value)))
    }

    fn entry(&self, number: u32) -> &(Arc<K>, V) {
        self.entries[number as usize].as_ref().expect("a number in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut entries: NumberedEntries<&str, u8> = NumberedEntries::default();
        let [a, b] = ["a", "b"].map(|key| entries.number_or_insert(key));
        *entries.value_mut(b) = 2;
        entries.remove(a);
        assert_eq!((entries.number(&"a"), entries.get(&"b")), (None, Some(&2)));
        assert_eq!(entries.number_or_insert("c"), a);
        assert_eq!((entries.key(a), *entries.value(a)), (&"c", 0));
    }
}
