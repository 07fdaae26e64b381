//! Drops unknown members and nulls, and fills in defaults.

use api_rules::{
    limits::STRICT_ERRORS_MAX,
    object::{
        Object, body,
        validation::{self, Findings, ValuePath},
        weight::{TooHeavy, Weight},
    },
    registry::ResourceType,
};
use informer_serving::status::Status;
use serde_json::Value;

use super::{
    DEFAULTED, DEPTH_MAX, EMBEDDED, PRESERVE, SchemaNode, SchemaObject, default, flag, member, parsed, properties,
    strings,
};

/// Members of every object, which are checked by a schema of their own.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops unknown members of a custom resource, and nulls that its schema neither allows nor replaces, then fills in
/// defaults. Returns the paths of the unknown members, at most [`STRICT_ERRORS_MAX`]. Leaves built-in types unchanged.
///
/// Cost: a few look-ups for each member that the object has before or after.
///
/// # Errors
/// 400 for embedded metadata of another form; 413 if the defaults take more memory than one object may.
pub fn complete(ty: &ResourceType, object: &mut Object) -> Result<Vec<String>, Status> {
    let found = completed(ty, object, false, true)?;
    match found.mistyped {
        None => Ok(found.unknown),
        Some(error) => Err(body::cannot_be_handled(ty, &ty.kind, &ty.version, &error)),
    }
}

/// Completes a stored object. Embedded metadata of another form is dropped: the definition may have become stricter since,
/// and the object must stay writable.
///
/// # Errors
/// 413 if the defaults take more memory than one object may.
pub fn complete_stored(ty: &ResourceType, object: &mut Object) -> Result<(), Status> {
    completed(ty, object, true, true)?;
    Ok(())
}

/// Drops unknown members of an object that a webhook converted, and fills in nothing.
pub fn prune(ty: &ResourceType, object: &mut Object) {
    // The only error is about defaults.
    let _ = completed(ty, object, true, false);
}

fn completed(ty: &ResourceType, object: &mut Object, is_stored: bool, fills: bool) -> Result<Findings, TooHeavy> {
    let mut walk = Completion {
        keeps_unknown: ty.custom.as_ref().is_some_and(|custom| custom.preserve_unknown_fields),
        is_stored,
        fills,
        found: Findings::default(),
        defaults: Weight::default(),
    };
    if let Some(schema) = parsed(ty)
        && let Some(schema) = schema.schema.as_object()
    {
        walk.members(object, &SchemaNode::root(schema), flag(schema, PRESERVE))?;
    }
    Ok(walk.found)
}

struct Completion {
    /// True for types of old definitions, which drop neither unknown members nor nulls.
    keeps_unknown: bool,
    /// True if embedded metadata of another form is dropped.
    is_stored: bool,
    /// True if defaults are filled in.
    fills: bool,
    found: Findings,
    /// The defaults filled in.
    defaults: Weight,
}

impl Completion {
    /// Completes an object. `preserves` is true if it keeps its unknown members whatever its own schema says.
    fn members(&mut self, object: &mut Object, node: &SchemaNode<'_>, preserves: bool) -> Result<(), TooHeavy> {
        let SchemaNode { schema, path, .. } = node;
        let is_whole = matches!(path, ValuePath::Root) || flag(schema, EMBEDDED);
        let is_of_every = |name: &str| is_whole && OF_EVERY_OBJECT.contains(&name);
        let takes_any = takes_any(schema);
        if let Some(metadata) = object.get_mut("metadata").filter(|_| flag(schema, EMBEDDED)) {
            self.metadata(metadata, &ValuePath::Key(path, "metadata"));
        }
        if !self.keeps_unknown {
            if !preserves && !takes_any {
                self.prune(object, node, is_of_every);
            }
            object.retain(|name, value| {
                !value.is_null() || is_of_every(name) || member(schema, name).is_none_or(takes_null)
            });
        }
        let fills = self.fills;
        for name in strings(schema, DEFAULTED).filter(|_| fills) {
            self.fill_in(object, name, schema)?;
        }
        for (name, value) in object.iter_mut().filter(|(name, _)| !is_of_every(name)) {
            match node.member(name) {
                Some(inner) => {
                    self.replace_null(value, inner.schema)?;
                    self.value(value, &inner, false)?;
                }
                None if takes_any && !self.keeps_unknown => self.empty(value, &ValuePath::Key(path, name)),
                None => {}
            }
        }
        Ok(())
    }

    /// Completes the metadata of an embedded object, which has the schema of all metadata.
    fn metadata(&mut self, metadata: &mut Value, path: &ValuePath<'_>) {
        if metadata.is_null() {
            *metadata = Value::Object(Object::new());
        }
        let was_valid = self.found.mistyped.is_none();
        validation::check_embedded(metadata, path, &mut self.found);
        if self.is_stored && self.found.mistyped.take().is_some() {
            *metadata = Value::Object(Object::new());
        } else if let Some(error) = self.found.mistyped.as_mut().filter(|_| was_valid) {
            *error = format!("{}: Invalid value: {metadata}: {error}", path.text());
        }
    }

    /// Removes the members that the schema does not know.
    fn prune(&mut self, object: &mut Object, node: &SchemaNode<'_>, is_of_every: impl Fn(&str) -> bool) {
        let properties = properties(node.schema);
        object.retain(|name, _| {
            let is_known = properties.is_some_and(|properties| properties.contains_key(name)) || is_of_every(name);
            if !is_known {
                self.report(&ValuePath::Key(&node.path, name));
            }
            is_known
        });
    }

    /// Empties the objects in a value for which there is no schema: `additionalProperties: true` allows the value itself.
    fn empty(&mut self, value: &mut Value, path: &ValuePath<'_>) {
        match value {
            Value::Object(object) => {
                object.keys().for_each(|name| self.report(&ValuePath::Key(path, name)));
                object.clear();
            }
            Value::Array(list) => {
                list.iter_mut().enumerate().for_each(|(at, item)| self.empty(item, &ValuePath::Item(path, at)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn report(&mut self, unknown: &ValuePath<'_>) {
        if self.found.unknown.len() < STRICT_ERRORS_MAX {
            self.found.unknown.push(unknown.text());
        }
    }

    /// Completes a value. A list passes `preserves` on to its items, an object does not to its members.
    fn value(&mut self, value: &mut Value, node: &SchemaNode<'_>, preserves: bool) -> Result<(), TooHeavy> {
        if node.depth == DEPTH_MAX {
            return Ok(());
        }
        let preserves = preserves || flag(node.schema, PRESERVE);
        match value {
            Value::Object(object) => self.members(object, node, preserves),
            Value::Array(list) => list.iter_mut().enumerate().try_for_each(|(at, item)| {
                let Some(inner) = node.item(at) else { return Ok(()) };
                self.replace_null(item, inner.schema)?;
                self.value(item, &inner, preserves)
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    /// Gives a member its default if it is absent.
    fn fill_in(&mut self, object: &mut Object, name: &str, schema: &SchemaObject) -> Result<(), TooHeavy> {
        let Some(default) = member(schema, name).and_then(default).filter(|_| !object.contains_key(name)) else {
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

/// Returns true if an object may have members beside its properties.
fn takes_any(schema: &SchemaObject) -> bool {
    schema.get("additionalProperties").is_some_and(|rest| *rest != Value::Bool(false))
}

/// Returns true if a null member is kept, or replaced by a default.
fn takes_null(schema: &SchemaObject) -> bool {
    flag(schema, "nullable") || default(schema).is_some()
}
