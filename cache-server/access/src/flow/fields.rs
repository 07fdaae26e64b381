//! Typed reads of the members of a JSON object, with errors that name the object and the field.

use serde_json::{Map, Value};
use thiserror::Error;

/// A FlowSchema or PriorityLevelConfiguration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{object}: {field}: {problem}")]
pub struct FlowObjectError {
    /// Kind and name, such as `FlowSchema "a"`.
    pub object: String,
    /// Path of the field, such as `spec.rules[0].subjects`.
    pub field: String,
    /// The problem, in Kubernetes' words where it has any.
    pub problem: String,
}

/// The members of one JSON object. `null` counts as absent, as in Go.
#[derive(Clone, Debug)]
pub(super) struct FieldReader<'a> {
    object: &'a str,
    path: String,
    members: Option<&'a Map<String, Value>>,
    /// True if members that no field reads are errors.
    strict: bool,
}

impl<'a> FieldReader<'a> {
    /// Begins at the root of an object that errors name as `object`.
    pub(super) fn root(object: &'a str, value: &'a Value, strict: bool) -> Result<Self, FlowObjectError> {
        let fields = Self { object, path: String::new(), members: None, strict };
        let members = value.as_object().ok_or_else(|| fields.error("", "must be an object"))?;
        Ok(Self { members: Some(members), ..fields })
    }

    /// Returns the error that a member has `problem`. An empty name means the object itself.
    pub(super) fn error(&self, name: &str, problem: impl Into<String>) -> FlowObjectError {
        FlowObjectError { object: self.object.to_owned(), field: self.path_of(name), problem: problem.into() }
    }

    /// Refuses members that are not `known`.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), FlowObjectError> {
        let mut names = self.members.into_iter().filter(|_| self.strict).flat_map(Map::keys);
        match names.find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(self.error(name, "unknown field")),
            None => Ok(()),
        }
    }

    /// Returns true if the member exists.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Reads a text; an absent one is empty.
    pub(super) fn text(&self, name: &str) -> Result<&'a str, FlowObjectError> {
        let Some(value) = self.get(name) else { return Ok("") };
        value.as_str().ok_or_else(|| self.error(name, "must be a string"))
    }

    /// Reads a number.
    pub(super) fn number(&self, name: &str) -> Result<Option<i32>, FlowObjectError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
        number.map(Some).ok_or_else(|| self.error(name, "must be a 32-bit integer"))
    }

    /// Reads a boolean; an absent one is false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, FlowObjectError> {
        let Some(value) = self.get(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.error(name, "must be a boolean"))
    }

    /// Reads a list of texts; an absent one is empty.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, FlowObjectError> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let texts = self.list(name)?.iter().map(|value| text(value).ok_or_else(|| self.error(name, "must be strings")));
        texts.collect()
    }

    /// Reads an object.
    pub(super) fn object(&self, name: &str) -> Result<Option<Self>, FlowObjectError> {
        self.get(name).map(|value| self.below(self.path_of(name), value)).transpose()
    }

    /// Reads a list of objects; an absent one is empty.
    pub(super) fn objects(&self, name: &str) -> Result<Vec<Self>, FlowObjectError> {
        let values = self.list(name)?.iter().enumerate();
        values.map(|(at, value)| self.below(format!("{}[{at}]", self.path_of(name)), value)).collect()
    }

    fn below(&self, path: String, value: &'a Value) -> Result<Self, FlowObjectError> {
        let fields = Self { object: self.object, path, members: None, strict: self.strict };
        let members = value.as_object().ok_or_else(|| fields.error("", "must be an object"))?;
        Ok(Self { members: Some(members), ..fields })
    }

    fn list(&self, name: &str) -> Result<&'a [Value], FlowObjectError> {
        let Some(value) = self.get(name) else { return Ok(&[]) };
        value.as_array().map(Vec::as_slice).ok_or_else(|| self.error(name, "must be a list"))
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.members?.get(name).filter(|value| !value.is_null())
    }

    fn path_of(&self, name: &str) -> String {
        match (&*self.path, name) {
            (path, "") => path.to_owned(),
            ("", name) => name.to_owned(),
            (path, name) => format!("{path}.{name}"),
        }
    }
}
