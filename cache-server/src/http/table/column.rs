//! Column definitions.

use super::row::escape;

/// A column of a built-in type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// OpenAPI type of the cells: `string`, `integer`, `boolean`, `date`.
    pub(super) kind: &'static str,
    /// `name` for the column with the object's name.
    pub(super) format: &'static str,
    pub(super) description: &'static str,
    /// 0: always shown; 1: only in wide output.
    pub(super) priority: i32,
}

/// A column of strings.
pub(super) const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0 }
}

/// A column of integers.
pub(super) const fn integer(name: &'static str, description: &'static str) -> Column {
    Column { kind: "integer", ..text(name, description) }
}

/// A column of booleans.
pub(super) const fn boolean(name: &'static str, description: &'static str) -> Column {
    Column { kind: "boolean", ..text(name, description) }
}

impl Column {
    /// Shows the column only in wide output.
    pub(super) const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// Writes the column's definition.
    pub(super) fn define(&self, out: &mut String) {
        define(self.name, self.kind, self.format, self.description, self.priority, out);
    }
}

pub(super) const NAME: Column =
    Column { format: "name", ..text("Name", "Unique within a namespace. Cannot be changed.") };
pub(super) const AGE: Column = text("Age", "How long ago the server stored the object first.");
pub(super) const CREATED: Column =
    Column { kind: "date", ..text("Created At", "When the server stored the object first.") };
pub(super) const CONTAINERS: Column = text("Containers", "Names of the template's containers.").wide();
pub(super) const IMAGES: Column = text("Images", "Images of the template's containers.").wide();
pub(super) const SELECTOR: Column = text("Selector", "Labels of the pods that belong to it.").wide();

/// Writes one column definition.
pub(super) fn define(name: &str, kind: &str, format: &str, description: &str, priority: i32, out: &mut String) {
    out.push(if out.is_empty() { '[' } else { ',' });
    out.push_str("{\"name\":\"");
    for (value, next) in [(name, "\",\"type\":\""), (kind, "\",\"format\":\""), (format, "\",\"description\":\"")] {
        escape(value, out);
        out.push_str(next);
    }
    escape(description, out);
    out.push_str("\",\"priority\":");
    out.push_str(&priority.to_string());
    out.push('}');
}
