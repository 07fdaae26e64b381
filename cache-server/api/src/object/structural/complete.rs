//! Drops unknown members and nulls, and fills in defaults.

use informer_serving::status::Status;
use serde_json::Value;

use super::{
    super::{
        Object,
        validation::ValuePath,
        weight::{TooHeavy, Weight},
    },
    DEPTH_MAX, EMBEDDED, OF_EVERY_OBJECT, PRESERVE, SchemaObject, flag, items, member, parsed, properties,
};
use crate::{limits::STRICT_ERRORS_MAX, registry::ResourceType};

/// Drops unknown members of a custom resource, and nulls that its schema neither allows nor replaces, then fills in
/// defaults. Returns the paths of the unknown members, at most [`STRICT_ERRORS_MAX`]. Leaves built-in types unchanged.
///
/// # Errors
/// 413 if the defaults take more memory than one object may.
pub fn complete(ty: &ResourceType, object: &mut Object) -> Result<Vec<String>, Status> {
    let (Some(custom), Some(schema)) = (&ty.custom, parsed(ty)) else { return Ok(Vec::new()) };
    let Some(schema) = schema.0.as_object() else { return Ok(Vec::new()) };
    let mut walk =
        Completion { keeps_unknown: custom.preserve_unknown_fields, unknown: Vec::new(), defaults: Weight::default() };
    walk.members(object, schema, &ValuePath::Root, 0, flag(schema, PRESERVE))?;
    Ok(walk.unknown)
}

struct Completion {
    /// True for types of old definitions, which drop neither unknown members nor nulls.
    keeps_unknown: bool,
    unknown: Vec<String>,
    /// The defaults filled in.
    defaults: Weight,
}

impl Completion {
    /// Completes an object. `preserves` is true if it keeps its unknown members whatever its own schema says.
    fn members(
        &mut self,
        object: &mut Object,
        schema: &SchemaObject,
        path: &ValuePath<'_>,
        depth: usize,
        preserves: bool,
    ) -> Result<(), TooHeavy> {
        let is_whole = matches!(path, ValuePath::Root) || flag(schema, EMBEDDED);
        let is_of_every = |name: &str| is_whole && OF_EVERY_OBJECT.contains(&name);
        if !preserves && !self.keeps_unknown {
            self.prune(object, schema, path, is_of_every);
        }
        if !self.keeps_unknown {
            object.retain(|name, value| {
                !value.is_null() || is_of_every(name) || member(schema, name).is_none_or(takes_null)
            });
        }
        for (name, inner) in properties(schema).into_iter().flatten() {
            self.fill_in(object, name, inner)?;
        }
        for (name, value) in object.iter_mut().filter(|(name, _)| !is_of_every(name)) {
            if let Some(inner) = member(schema, name) {
                self.replace_null(value, inner)?;
                self.value(value, inner, &ValuePath::Key(path, name), depth + 1, false)?;
            }
        }
        Ok(())
    }

    /// Removes the members that the schema does not know.
    fn prune(
        &mut self,
        object: &mut Object,
        schema: &SchemaObject,
        path: &ValuePath<'_>,
        is_of_every: impl Fn(&str) -> bool,
    ) {
        let takes_any = match schema.get("additionalProperties") {
            None | Some(Value::Bool(false)) => false,
            Some(_) => true,
        };
        if takes_any {
            return;
        }
        let (properties, unknown) = (properties(schema), &mut self.unknown);
        object.retain(|name, _| {
            let is_known = properties.is_some_and(|properties| properties.contains_key(name)) || is_of_every(name);
            if !is_known && unknown.len() < STRICT_ERRORS_MAX {
                unknown.push(ValuePath::Key(path, name).text());
            }
            is_known
        });
    }

    /// Completes a value. A list passes `preserves` on to its items, an object does not to its members.
    fn value(
        &mut self,
        value: &mut Value,
        schema: &SchemaObject,
        path: &ValuePath<'_>,
        depth: usize,
        preserves: bool,
    ) -> Result<(), TooHeavy> {
        if depth == DEPTH_MAX {
            return Ok(());
        }
        let preserves = preserves || flag(schema, PRESERVE);
        match value {
            Value::Object(object) => self.members(object, schema, path, depth, preserves),
            Value::Array(list) => {
                let Some(inner) = items(schema) else { return Ok(()) };
                list.iter_mut().enumerate().try_for_each(|(at, item)| {
                    self.replace_null(item, inner)?;
                    self.value(item, inner, &ValuePath::Item(path, at), depth + 1, preserves)
                })
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    /// Gives an absent member its default.
    fn fill_in(&mut self, object: &mut Object, name: &str, schema: &Value) -> Result<(), TooHeavy> {
        let Some(default) = schema.as_object().and_then(default).filter(|_| !object.contains_key(name)) else {
            return Ok(());
        };
        self.defaults.member(object.len())?;
        self.defaults.text(name.len())?;
        self.defaults.value(default)?;
        object.insert(name.to_owned(), default.clone());
        Ok(())
    }

    /// Gives a null that the schema does not allow its default, if there is one.
    fn replace_null(&mut self, value: &mut Value, schema: &SchemaObject) -> Result<(), TooHeavy> {
        let is_absent = value.is_null() && !flag(schema, "nullable");
        if let Some(default) = default(schema).filter(|_| is_absent) {
            self.defaults.value(default)?;
            *value = default.clone();
        }
        Ok(())
    }
}

/// Returns true if a null member is kept, or replaced by a default.
fn takes_null(schema: &SchemaObject) -> bool {
    flag(schema, "nullable") || default(schema).is_some()
}

fn default(schema: &SchemaObject) -> Option<&Value> {
    schema.get("default").filter(|default| !default.is_null())
}
