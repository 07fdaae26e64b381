//! Patterns in the schemas of a definition.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/schema/validation.go`.

use std::collections::HashMap;

use api_rules::{
    object::{Object, at, metadata},
    registry::ResourceType,
};
use informer_serving::{
    go::quote,
    status::{CauseExt as _, Causes, Status, StatusCause, StatusExt as _},
};
use serde_json::Value;

use crate::{
    limits::PATTERN_STATES_MAX,
    pattern::{Pattern, PatternError},
};

/// Checks the patterns in the schemas of a definition, whose other members are valid.
///
/// # Errors
/// 422 for patterns that are no regular expressions, and for too large ones.
pub fn check_patterns(ty: &ResourceType, definition: &Object) -> Result<(), Status> {
    let mut patterns =
        Patterns { compiled: HashMap::new(), states_left: PATTERN_STATES_MAX, causes: Causes::default() };
    let versions = at(definition, "spec.versions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let schemas: Vec<&Value> = versions.iter().map(|version| &version["schema"]["openAPIV3Schema"]).collect();
    match schemas.split_first() {
        Some((first, others)) if others.iter().all(|schema| schema == first) => {
            patterns.check(first, &|| "spec.validation.openAPIV3Schema".to_owned());
        }
        _ => {
            for (place, schema) in schemas.into_iter().enumerate() {
                patterns.check(schema, &|| format!("spec.versions[{place}].schema.openAPIV3Schema"));
            }
        }
    }
    if patterns.causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&ty.group, &ty.kind, metadata::text(definition, "name"), patterns.causes))
}

struct Patterns<'a> {
    /// Results by texts: most occur many times.
    compiled: HashMap<&'a str, Result<(), PatternError>>,
    states_left: usize,
    causes: Causes,
}

impl<'a> Patterns<'a> {
    fn check(&mut self, schema: &'a Value, path: &dyn Fn() -> String) {
        if let Some(text) = schema.get("pattern").and_then(Value::as_str).filter(|text| !text.is_empty()) {
            self.check_pattern(text, path);
        }
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.check(property, &|| format!("{}.properties[{name}]", path()));
        }
        for inner in ["items", "additionalProperties", "not"] {
            if let Some(schema) = schema.get(inner) {
                self.check(schema, &|| format!("{}.{inner}", path()));
            }
        }
        for inner in ["allOf", "anyOf", "oneOf"] {
            let schemas = schema.get(inner).and_then(Value::as_array).into_iter().flatten();
            for (place, schema) in schemas.enumerate() {
                self.check(schema, &|| format!("{}.{inner}[{place}]", path()));
            }
        }
    }

    fn check_pattern(&mut self, text: &'a str, path: &dyn Fn() -> String) {
        let Self { compiled, states_left, causes } = self;
        let result = compiled.entry(text).or_insert_with(|| Pattern::compile(text, states_left).map(drop));
        if let Err(error) = result {
            causes.push_with(|| {
                let why = format!("must be a valid regular expression, but isn't: {error}");
                StatusCause::invalid(&format!("{}.pattern", path()), &quote(text), &why)
            });
        }
    }
}
