//! Defaults of the built-in types, as kube-apiserver fills them in after it decoded an object.
//!
//! Most are rows of a table, which is printed from kube-apiserver's own functions (`tests/clients/defaults`). Those
//! that depend on other members are functions here, by the type that they complete. The table also has the members that
//! Go cannot leave out, such as `status: {}`, so that an object has them as if kube-apiserver had answered.
//!
//! Not implemented, on purpose: what admission plugins add, such as tolerations and volumes of service accounts;
//! members that a conversion copies, such as `serviceAccount`; the canonical form of quantities that were sent; lists
//! that Go sends as null.
//!
//! INVARIANT: fills in members, and never refuses an object for its values. Members of a wrong type are left alone.
//!
//! Source: `pkg/apis/*/v1/{defaults,zz_generated.defaults}.go` of kubernetes/kubernetes 1.36.

mod by_hand;
mod image;
mod table;

#[cfg(test)]
mod tests;

use api_rules::{
    object::{
        Object,
        weight::{TooHeavy, Weight},
    },
    registry::ResourceType,
};
use informer_serving::status::Status;
use serde_json::Value;

use self::table::{DefaultsTable, Holder};
use crate::quantity::Quantity;

/// Fills in the defaults of an object. `now` is the present time in RFC 3339, for members that default to it.
///
/// Cost: a look-up for each row of each object inside.
///
/// # Errors
/// 413 if the defaults take more memory than one object may.
pub fn fill(ty: &ResourceType, object: &mut Object, now: &dyn Fn() -> String) -> Result<(), Status> {
    let table = DefaultsTable::get();
    let Some(kind) = table.kind(&ty.kind, &ty.group, &ty.version) else { return Ok(()) };
    Ok(DefaultsWalk { table, now, added: Weight::default() }.object(object, kind)?)
}

/// One walk through an object.
struct DefaultsWalk<'a> {
    table: &'a DefaultsTable,
    now: &'a dyn Fn() -> String,
    /// The members that were added.
    added: Weight,
}

/// Result of a step of a walk: an error if the defaults are too large.
type WalkResult = Result<(), TooHeavy>;

impl DefaultsWalk<'_> {
    /// Completes an object of the type at `place` of the table, in the order of the original functions: first its own
    /// members, then the objects inside.
    fn object(&mut self, object: &mut Object, place: usize) -> WalkResult {
        let table = self.table;
        let rows = &table.types[place];
        for leaf in &rows.leaves {
            let is_absent =
                object.get(&leaf.member).is_none_or(|found| found.is_null() || (leaf.replaces_zero && is_zero(found)));
            if is_absent {
                self.put(object, &leaf.member, leaf.value.clone())?;
            }
        }
        if let Some(complete) = rows.by_hand {
            complete(self, object)?;
        }
        for inner in &rows.inner {
            self.member(object, &inner.member, inner.holder)?;
        }
        Ok(())
    }

    fn member(&mut self, object: &mut Object, name: &str, holder: Holder) -> WalkResult {
        if let Holder::Made(_) = holder
            && is_unset(object, name)
        {
            self.put(object, name, Object::new())?;
        }
        let Some(found) = object.get_mut(name) else { return Ok(()) };
        match (holder, found) {
            (Holder::Made(place) | Holder::Held(place), Value::Object(inner)) => self.object(inner, place),
            (Holder::Items(place), Value::Array(items)) => {
                items.iter_mut().filter_map(Value::as_object_mut).try_for_each(|inner| self.object(inner, place))
            }
            (Holder::Values(place), Value::Object(values)) => {
                values.values_mut().filter_map(Value::as_object_mut).try_for_each(|inner| self.object(inner, place))
            }
            (Holder::Quantities, Value::Object(quantities)) => {
                round_up(quantities);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sets a member.
    fn put(&mut self, object: &mut Object, name: &str, value: impl Into<Value>) -> WalkResult {
        let value = value.into();
        self.added.member(object.len())?;
        self.added.text(name.len())?;
        self.added.value(&value)?;
        object.insert(name.to_owned(), value);
        Ok(())
    }

    /// Sets a member that is absent or null.
    fn default(&mut self, object: &mut Object, name: &str, value: impl Into<Value>) -> WalkResult {
        if is_unset(object, name) { self.put(object, name, value) } else { Ok(()) }
    }

    /// Copies the members that `to` lacks.
    fn copy_missing(&mut self, from: &Object, to: &mut Object) -> WalkResult {
        from.iter().try_for_each(
            |(name, value)| {
                if to.contains_key(name) { Ok(()) } else { self.put(to, name, value.clone()) }
            },
        )
    }
}

/// Rounds up each quantity of a map to a thousandth: `SetDefaults_ResourceList`.
fn round_up(quantities: &mut Object) {
    for quantity in quantities.values_mut() {
        let parsed = quantity.as_str().and_then(|text| Quantity::parse(text).ok());
        if let Some(rounded) = parsed.and_then(Quantity::rounded_up) {
            *quantity = rounded.to_string().into();
        }
    }
}

/// True for the values that Go's decoder does not tell from absent ones.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => false,
    }
}

/// True if the member is absent or null.
fn is_unset(object: &Object, name: &str) -> bool {
    object.get(name).is_none_or(Value::is_null)
}

/// Returns a text; empty if it is absent.
fn text<'a>(object: &'a Object, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a member that is an object with members.
fn filled_map<'a>(object: &'a Object, name: &str) -> Option<&'a Object> {
    object.get(name).and_then(Value::as_object).filter(|members| !members.is_empty())
}

/// Returns the objects in a list.
fn items_mut<'a>(object: &'a mut Object, name: &str) -> impl Iterator<Item = &'a mut Object> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}
