//! The table, parsed once. Its head says what the rows mean.

use std::{collections::HashMap, sync::LazyLock};

use serde_json::Value;

use super::by_hand::{self, ByHand};

const TEXT: &str = include_str!("table.txt");

/// All rows, by type.
pub(super) struct DefaultsTable {
    /// Places of the kinds' types, by `Kind.group/version`.
    kinds: HashMap<String, usize>,
    pub(super) types: Vec<TypeRows>,
}

/// The rows of one type.
#[derive(Default)]
pub(super) struct TypeRows {
    pub(super) leaves: Vec<Leaf>,
    /// Completes what depends on other members, once the leaves are filled in.
    pub(super) by_hand: Option<ByHand>,
    pub(super) inner: Vec<Inner>,
}

/// A value that is filled in.
pub(super) struct Leaf {
    pub(super) member: String,
    pub(super) value: Value,
    /// True if it replaces a zero value.
    pub(super) replaces_zero: bool,
}

/// A member with objects inside.
pub(super) struct Inner {
    pub(super) member: String,
    pub(super) holder: Holder,
}

/// How a member holds what is inside, whose type is at a place of the table.
#[derive(Clone, Copy)]
pub(super) enum Holder {
    /// An object, which is made if it is absent.
    Made(usize),
    /// An object.
    Held(usize),
    /// A list of objects.
    Items(usize),
    /// A map of objects.
    Values(usize),
    /// A map of quantities.
    Quantities,
}

impl DefaultsTable {
    pub(super) fn get() -> &'static Self {
        static TABLE: LazyLock<DefaultsTable> = LazyLock::new(|| DefaultsTable::parse(TEXT));
        &TABLE
    }

    /// Returns the place of the type of a kind.
    pub(super) fn kind(&self, kind: &str, group: &str, version: &str) -> Option<usize> {
        let dot = if group.is_empty() { "" } else { "." };
        self.kinds.get(&format!("{kind}{dot}{group}/{version}")).copied()
    }

    /// Rows of another form are left out: a test compares the number of rows.
    fn parse(text: &str) -> Self {
        let mut table = Self { kinds: HashMap::new(), types: Vec::new() };
        let mut places = HashMap::new();
        let mut place_of = |types: &mut Vec<TypeRows>, name: &str| {
            *places.entry(name.to_owned()).or_insert_with(|| {
                types.push(TypeRows { by_hand: by_hand::find(name), ..TypeRows::default() });
                types.len() - 1
            })
        };
        let mut current = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((kind, name)) = line.split_once(" : ") {
                let place = place_of(&mut table.types, name);
                table.kinds.insert(kind.to_owned(), place);
            } else if let Some(row) = line.strip_prefix(' ') {
                let mut parts = row.splitn(3, ' ');
                let (member, sign, rest) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
                let (Some(member), Some(sign)) = (member.map(str::to_owned), sign) else { continue };
                let holder = match sign {
                    "=" | "?=" => {
                        let Ok(value) = serde_json::from_str(rest) else { continue };
                        table.types[current].leaves.push(Leaf { member, value, replaces_zero: sign == "?=" });
                        continue;
                    }
                    "~" => Holder::Quantities,
                    "+" => Holder::Made(place_of(&mut table.types, rest)),
                    "." => Holder::Held(place_of(&mut table.types, rest)),
                    "[]" => Holder::Items(place_of(&mut table.types, rest)),
                    "{}" => Holder::Values(place_of(&mut table.types, rest)),
                    _ => continue,
                };
                table.types[current].inner.push(Inner { member, holder });
            } else {
                current = place_of(&mut table.types, line);
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_understood() {
        let table = DefaultsTable::get();
        let rows = TEXT.lines().filter(|line| line.starts_with(' ')).count();
        let read = table.types.iter().map(|rows| rows.leaves.len() + rows.inner.len()).sum::<usize>();
        assert_eq!(read, rows);
        let kinds = TEXT.lines().filter(|line| line.contains(" : ") && !line.starts_with('#')).count();
        assert_eq!(table.kinds.len(), kinds);
        let types = TEXT.lines().filter(|line| !line.contains(' ') && !line.starts_with('#')).count();
        assert!(types <= table.types.len());
        let by_hand = table.types.iter().filter(|rows| rows.by_hand.is_some()).count();
        assert_eq!(by_hand, by_hand::COUNT, "a type has another name");
    }
}
