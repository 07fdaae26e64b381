//! Strategic merge patches: merge patches that follow the schema's merge strategy of each list.
//!
//! A patch is merged into an object by the object's [`ValueShape`]. Objects merge member by member, and null removes a
//! member. Lists with a merge strategy merge by their key, or as sets; all other lists are replaced. Unknown fields
//! merge as in a merge patch. Directives, members that begin with `$`, change that:
//!
//! - `$patch`: in an object, `replace` takes the patch as the new object, and `delete` clears the object. In an item of
//!   a merged list, `delete` removes the item with its key, and `replace` makes the other items the new list. `merge`
//!   is the default.
//! - `$retainKeys: [..]`: first removes all members that are not listed.
//! - `$deleteFromPrimitiveList/list: [..]`: removes these items from the set.
//! - `$setElementOrder/list: [..]`: sorts the listed items into this order. Other items keep their positions between
//!   the listed ones, as far as the order allows.
//!
//! INVARIANT: the result contains no directive. INVARIANT: applying a patch to its own result changes nothing.
//! INVARIANT: the cost is linear in object and patch, whatever lists they contain.
//!
//! Source: apimachinery `pkg/util/strategicpatch/patch.go`, `pkg/util/mergepatch/errors.go`.

mod list;

use serde_json::Value;

use super::body::Object;
use crate::schemas::{Merge, ShapeMember, ValueShape};

pub(crate) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Reason for refusing a patch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PatchRefusal {
    /// A malformed directive, with Kubernetes' message.
    Malformed(&'static str),
    /// A list inside a list that would be merged.
    ListOfLists,
    /// The patch does not fit the object; the reason.
    Unfit(String),
}

/// Returns the patched object.
///
/// # Errors
/// Invalid directives, and items without the key of their list.
pub(crate) fn merge(object: Object, patch: Object, shape: &ValueShape) -> Result<Object, PatchRefusal> {
    merge_objects(object, patch, Some(shape))
}

/// Value of `$patch`.
enum Directive {
    Merge,
    Replace,
    Delete,
}

/// Parses `$patch`; absent means merge.
fn directive(directive: Option<&Value>) -> Result<Directive, PatchRefusal> {
    match directive {
        None => Ok(Directive::Merge),
        Some(Value::String(word)) if word == "merge" => Ok(Directive::Merge),
        Some(Value::String(word)) if word == "replace" => Ok(Directive::Replace),
        Some(Value::String(word)) if word == "delete" => Ok(Directive::Delete),
        Some(_) => Err(PatchRefusal::Unfit("unknown patch type".to_owned())),
    }
}

fn merge_objects(mut object: Object, mut patch: Object, shape: Option<&ValueShape>) -> Result<Object, PatchRefusal> {
    match directive(patch.get(PATCH))? {
        Directive::Merge => patch.remove(PATCH),
        Directive::Delete => return Ok(Object::new()),
        Directive::Replace => return Ok(bare_object(patch)),
    };
    retain_keys(&mut object, &mut patch)?;
    let orders = take_lists(&mut patch, SET_ORDER, "invalid patch format of setElementOrder list")?;
    let deletions = take_lists(&mut patch, DELETE_FROM, "invalid patch format of primitive list")?;
    for (name, order) in orders {
        let inner = member(shape, &name);
        let requested = patch.remove(&name);
        set_order(&mut object, &name, requested, order, inner.as_ref())?;
    }
    for (name, value) in patch {
        let inner = member(shape, &name);
        merge_member(&mut object, name, value, inner.as_ref())?;
    }
    for (name, gone) in deletions {
        if let Some(Value::Array(items)) = object.get_mut(&name) {
            let gone = list::ItemPositions::of_scalars(&gone);
            items.retain(|item| gone.place(item).is_none());
        }
    }
    Ok(object)
}

/// Returns the shape of a member; `None` if the schema does not know it.
pub(crate) fn member(shape: Option<&ValueShape>, name: &str) -> Option<ValueShape> {
    match shape?.member(name) {
        ShapeMember::Known(inner) | ShapeMember::Free(Some(inner)) => Some(inner),
        ShapeMember::Free(None) | ShapeMember::Unknown => None,
    }
}

/// Carries out `$retainKeys`: removes the object's members that it does not list. It must list all members that the
/// patch sets.
fn retain_keys(object: &mut Object, patch: &mut Object) -> Result<(), PatchRefusal> {
    const MALFORMED: PatchRefusal = PatchRefusal::Malformed("invalid patch format of retainKeys");
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(MALFORMED) };
    let retained: std::collections::HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let is_directive = |name: &str| name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !is_directive(name) && !retained.contains(name.as_str())) {
        return Err(MALFORMED);
    }
    object.retain(|name, _| retained.contains(name.as_str()));
    Ok(())
}

/// Takes the members `prefix/list` out of the patch; returns the names of the lists and the values.
fn take_lists(
    patch: &mut Object,
    prefix: &str,
    malformed: &'static str,
) -> Result<Vec<(String, Vec<Value>)>, PatchRefusal> {
    let names: Vec<String> = patch.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
    let mut lists = Vec::new();
    for name in names {
        let list = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('/')).filter(|list| !list.is_empty());
        match (list, patch.remove(&name)) {
            // As everywhere in a patch, null for an absent value has no effect.
            (Some(_), Some(Value::Null)) => {}
            (Some(list), Some(Value::Array(items))) => lists.push((list.to_owned(), items)),
            _ => return Err(PatchRefusal::Malformed(malformed)),
        }
    }
    Ok(lists)
}

/// The lists of an object that a patch orders, or deletes items from.
pub(crate) struct ListDirectives<'a> {
    orders: Vec<&'a str>,
    deletions: Vec<&'a str>,
}

impl<'a> ListDirectives<'a> {
    pub(crate) fn of(patch: &'a Object) -> Self {
        // In the order of the members, so the lists are sorted.
        let lists =
            |prefix: &str| patch.keys().filter_map(|name| name.strip_prefix(prefix)?.strip_prefix('/')).collect();
        Self { orders: lists(SET_ORDER), deletions: lists(DELETE_FROM) }
    }

    pub(crate) fn orders(&self, list: &str) -> bool {
        self.orders.binary_search(&list).is_ok()
    }

    pub(crate) fn deletes_from(&self, list: &str) -> bool {
        self.deletions.binary_search(&list).is_ok()
    }
}

/// Merges one member into the object, or into an empty value if the object lacks it.
fn merge_member(
    object: &mut Object,
    name: String,
    value: Value,
    shape: Option<&ValueShape>,
) -> Result<(), PatchRefusal> {
    let before = object.remove(&name);
    let after = match (before, value) {
        (_, Value::Null) => None,
        (Some(Value::Object(before)), Value::Object(patch)) if !is_replaced(shape) => {
            Some(Value::Object(merge_objects(before, patch, shape)?))
        }
        // Deleting an absent object has no effect.
        (_, Value::Object(patch)) if matches!(directive(patch.get(PATCH))?, Directive::Delete) => None,
        (_, Value::Object(patch)) => Some(Value::Object(merge_objects(Object::new(), patch, shape)?)),
        (before, Value::Array(patch)) => {
            let before = if let Some(Value::Array(items)) = before { items } else { Vec::new() };
            Some(Value::Array(list::merge(before, patch, shape)?))
        }
        (_, scalar) => Some(scalar),
    };
    if let Some(after) = after {
        object.insert(name, after);
    }
    Ok(())
}

/// Returns true if the existing object is replaced as a whole.
pub(crate) fn is_replaced(shape: Option<&ValueShape>) -> bool {
    shape.is_some_and(|shape| shape.merge() == Merge::Atomic)
}

/// Carries out `$setElementOrder` for one list: merges the patch's items, and sorts the result.
fn set_order(
    object: &mut Object,
    name: &str,
    patch: Option<Value>,
    order: Vec<Value>,
    shape: Option<&ValueShape>,
) -> Result<(), PatchRefusal> {
    let before = match object.remove(name) {
        Some(Value::Array(items)) => Some(items),
        Some(_) | None => None,
    };
    let patch = match patch {
        Some(Value::Array(items)) => Some(items),
        // Null removes the list, whatever order is requested.
        Some(Value::Null) => return Ok(()),
        Some(_) => return Err(PatchRefusal::Unfit("the value of an ordered list is no list".to_owned())),
        None => None,
    };
    if before.is_none() && patch.is_none() {
        return Ok(());
    }
    let items = list::merge_in_order(before.unwrap_or_default(), patch, &order, shape)?;
    object.insert(name.to_owned(), Value::Array(items));
    Ok(())
}

/// Converts a patch value to its stored form, without directives and without nulls in objects. `None` if it is a
/// deletion.
fn bare(value: Value) -> Option<Value> {
    match value {
        Value::Object(object) if object.get(PATCH).is_some_and(|directive| directive == "delete") => None,
        Value::Object(object) => Some(Value::Object(bare_object(object))),
        Value::Array(items) => Some(Value::Array(bare_list(items))),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => Some(scalar),
    }
}

fn bare_object(object: Object) -> Object {
    let is_directive = |name: &str| {
        matches!(name, PATCH | RETAIN_KEYS) || name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER)
    };
    let members = object.into_iter().filter(|(name, value)| !value.is_null() && !is_directive(name));
    members.filter_map(|(name, value)| bare(value).map(|value| (name, value))).collect()
}

/// Drops items that carry a directive.
fn bare_list(items: Vec<Value>) -> Vec<Value> {
    items.into_iter().filter(|item| item.get(PATCH).is_none()).filter_map(bare).collect()
}

#[cfg(test)]
mod tests;
