//! Patterns in the schemas of a definition.
//!
//! Source: apiextensions-apiserver `pkg/apiserver/schema/validation.go`.

use std::collections::HashMap;

use informer_serving::{
    go::quote,
    status::{CauseExt as _, Causes, StatusCause},
};
use serde_json::Value;

use super::Definition;
use crate::{
    limits::PATTERN_STATES_MAX,
    pattern::{Pattern, PatternError},
};

impl Definition {
    /// Adds causes for patterns that are no regular expressions.
    pub(super) fn check_patterns(&self, causes: &mut Causes) {
        let mut patterns = Patterns { compiled: HashMap::new(), states_left: PATTERN_STATES_MAX, causes };
        let versions = &self.spec.versions;
        let mut schemas = versions.iter().map(|version| &version.schema.schema);
        let first = schemas.next();
        if first.is_some() && schemas.all(|schema| Some(schema) == first) {
            let schema = versions.first().map_or("", |version| &*version.schema.schema);
            return patterns.check_schema(schema, &|| "spec.validation.openAPIV3Schema".to_owned());
        }
        for (place, version) in versions.iter().enumerate() {
            let path = || format!("spec.versions[{place}].schema.openAPIV3Schema");
            patterns.check_schema(&version.schema.schema, &path);
        }
    }
}

struct Patterns<'a> {
    /// Results by texts: most occur many times.
    compiled: HashMap<String, Result<(), PatternError>>,
    states_left: usize,
    causes: &'a mut Causes,
}

impl Patterns<'_> {
    fn check_schema(&mut self, schema: &str, path: &dyn Fn() -> String) {
        if schema.contains("\"pattern\":") {
            self.check(&serde_json::from_str(schema).unwrap_or_default(), path);
        }
    }

    fn check(&mut self, schema: &Value, path: &dyn Fn() -> String) {
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

    fn check_pattern(&mut self, text: &str, path: &dyn Fn() -> String) {
        if !self.compiled.contains_key(text) {
            let compiled = Pattern::compile(text, &mut self.states_left).map(drop);
            self.compiled.insert(text.to_owned(), compiled);
        }
        if let Some(Err(error)) = self.compiled.get(text) {
            self.causes.push_with(|| {
                let why = format!("must be a valid regular expression, but isn't: {error}");
                StatusCause::invalid(&format!("{}.pattern", path()), &quote(text), &why)
            });
        }
    }
}
