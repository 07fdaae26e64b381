//! List merging of strategic merge patches: by key or as sets, with ordering.
//!
//! INVARIANT: items are found by a hash of their identity, never by linear search.
//!
//! Source: apimachinery `pkg/util/strategicpatch/patch.go` (mergeSlice, normalizeElementOrder, mergeSortedSlice).

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{Directive, PATCH, PatchRefusal, bare_list, directive, merge_objects};
use crate::schemas::{Merge, ValueShape};

/// Merges a list by the strategy of its shape.
pub(crate) fn merge(
    before: Vec<Value>,
    patch: Vec<Value>,
    shape: Option<&ValueShape>,
) -> Result<Vec<Value>, PatchRefusal> {
    let Some(identity) = ItemIdentity::of(shape) else { return Ok(bare_list(patch)) };
    let stood = ItemPositions::of(&before, &identity);
    let (merged, order) = merge_items(before, patch, &identity, shape)?;
    Ok(match order {
        Some(order) => arrange(merged, &order, &stood, &identity),
        None => merged,
    })
}

/// Like `merge`, with an order for the items that `order` lists, by their keys or values.
pub(crate) fn merge_in_order(
    before: Vec<Value>,
    patch: Option<Vec<Value>>,
    order: &[Value],
    shape: Option<&ValueShape>,
) -> Result<Vec<Value>, PatchRefusal> {
    let Some(identity) = ItemIdentity::of(shape) else { return Ok(patch.map_or(before, bare_list)) };
    for named in order {
        identity.required(named)?;
    }
    let stood = ItemPositions::of(&before, &identity);
    let merged = match patch {
        None => before,
        Some(patch) => {
            check_order(&patch, order, &identity)?;
            merge_items(before, patch, &identity, shape)?.0
        }
    };
    Ok(arrange(merged, order, &stood, &identity))
}

/// Identity of items in a list.
enum ItemIdentity {
    /// Scalars: the value.
    Value,
    /// Objects: the value of this member.
    Key(String),
}

impl ItemIdentity {
    /// Returns the identity of a merged list; `None` for lists that are replaced.
    fn of(shape: Option<&ValueShape>) -> Option<Self> {
        match shape?.merge() {
            Merge::Atomic | Merge::Granular => None,
            Merge::Set => Some(Self::Value),
            Merge::ByKey(keys) => keys.first().map(|key| Self::Key(key.to_string())),
        }
    }

    fn find<'a>(&self, item: &'a Value) -> Option<&'a Value> {
        match self {
            Self::Value => Some(item),
            Self::Key(key) => item.get(key),
        }
    }

    /// Returns the identity of an item of a patch, which must have one.
    fn required<'a>(&self, item: &'a Value) -> Result<&'a Value, PatchRefusal> {
        match self {
            Self::Value => Ok(item),
            // Kubernetes prints the whole map here; this server does not, as it may be secret.
            Self::Key(key) => item.get(key).ok_or_else(|| {
                PatchRefusal::Unfit(format!("map: map[...] does not contain declared merge key: {key}"))
            }),
        }
    }
}

/// Positions of items by identity; the first one of duplicates.
pub(crate) struct ItemPositions(HashMap<String, usize>);

impl ItemPositions {
    pub(crate) fn of_scalars(items: &[Value]) -> Self {
        Self::of(items, &ItemIdentity::Value)
    }

    /// Items without an identity are left out.
    fn of(items: &[Value], identity: &ItemIdentity) -> Self {
        let mut places = Self(HashMap::new());
        for (at, item) in items.iter().enumerate() {
            if let Some(identity) = identity.find(item) {
                places.0.entry(identity.to_string()).or_insert(at);
            }
        }
        places
    }

    pub(crate) fn place(&self, identity: &Value) -> Option<usize> {
        self.0.get(&identity.to_string()).copied()
    }
}

/// Merges the items; new ones are appended. Also returns the order of the patch's items, unless the list was replaced.
fn merge_items(
    before: Vec<Value>,
    patch: Vec<Value>,
    identity: &ItemIdentity,
    shape: Option<&ValueShape>,
) -> Result<(Vec<Value>, Option<Vec<Value>>), PatchRefusal> {
    if before.iter().chain(&patch).any(Value::is_array) {
        return Err(PatchRefusal::ListOfLists);
    }
    let ItemIdentity::Key(_) = identity else {
        let mut seen = HashSet::new();
        let merged = before.iter().chain(&patch).filter(|item| seen.insert(item.to_string())).cloned().collect();
        return Ok((merged, Some(patch)));
    };
    let Instructions { plain, deleted, replace } = Instructions::read(patch, identity)?;
    if replace {
        return Ok((bare_list(plain), None));
    }
    let mut merged: Vec<Value> = before;
    merged.retain(|item| !identity.find(item).is_some_and(|key| deleted.contains(&key.to_string())));
    let mut places = ItemPositions::of(&merged, identity);
    let inner = shape.and_then(ValueShape::item);
    let mut order = Vec::with_capacity(plain.len());
    for item in plain {
        let key = identity.required(&item)?;
        let place = places.place(key);
        if place.is_none() {
            places.0.insert(key.to_string(), merged.len());
            merged.push(Value::Object(super::Object::new()));
        }
        if let ItemIdentity::Key(name) = identity {
            order.push(serde_json::json!({ name: key }));
        }
        let slot = place.unwrap_or(merged.len() - 1);
        let (Value::Object(item), Value::Object(old)) = (item, merged[slot].take()) else { return Err(mixed()) };
        merged[slot] = Value::Object(merge_objects(old, item, inner.as_ref())?);
    }
    Ok((merged, Some(order)))
}

fn mixed() -> PatchRefusal {
    PatchRefusal::Unfit("list element types are not identical".to_owned())
}

/// The parsed patch of a list.
struct Instructions {
    /// Items to merge.
    plain: Vec<Value>,
    /// Keys of items to delete first.
    deleted: HashSet<String>,
    /// True if the patch replaces all items.
    replace: bool,
}

impl Instructions {
    fn read(patch: Vec<Value>, identity: &ItemIdentity) -> Result<Self, PatchRefusal> {
        let mut read = Self { plain: Vec::new(), deleted: HashSet::new(), replace: false };
        for mut item in patch {
            let Value::Object(object) = &mut item else { return Err(mixed()) };
            let marker = object.get(PATCH).cloned();
            match directive(marker.as_ref())? {
                Directive::Merge => {
                    object.remove(PATCH);
                    read.plain.push(item);
                }
                Directive::Delete => {
                    read.deleted.insert(identity.required(&item)?.to_string());
                }
                Directive::Replace => read.replace = true,
            }
        }
        Ok(read)
    }
}

/// Checks that the items of a patch, except deletions, are in the order that the patch requests.
fn check_order(patch: &[Value], order: &[Value], identity: &ItemIdentity) -> Result<(), PatchRefusal> {
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(PATCH).is_none()) {
        let key = identity.required(item)?;
        if !order.is_empty() && !rest.any(|named| identity.find(named) == Some(key)) {
            return Err(PatchRefusal::Unfit(
                "the order in the patch list doesn't match the $setElementOrder list".to_owned(),
            ));
        }
    }
    Ok(())
}

/// Sorts the items that `order` lists into that order. The others keep their order, each in front of the first listed
/// item that it preceded in the list before, where the items had the positions `stood`.
fn arrange(items: Vec<Value>, order: &[Value], stood: &ItemPositions, identity: &ItemIdentity) -> Vec<Value> {
    let requested = ItemPositions::of(order, identity);
    let place = |places: &ItemPositions, item: &Value| identity.find(item).and_then(|key| places.place(key));
    let (mut named, rest): (Vec<_>, Vec<_>) = items
        .into_iter()
        .map(|item| (place(&requested, &item), place(stood, &item), item))
        .partition(|(requested, _, _)| requested.is_some());
    named.sort_by_key(|(requested, _, _)| *requested);
    let mut arranged = Vec::with_capacity(named.len() + rest.len());
    let mut rest = rest.into_iter().peekable();
    for (_, stood, item) in named {
        while rest.peek().is_some_and(|(_, other, _)| other.is_some() && stood.is_some() && other < &stood) {
            arranged.extend(rest.next().map(|(_, _, other)| other));
        }
        arranged.push(item);
    }
    arranged.extend(rest.map(|(_, _, item)| item));
    arranged
}
