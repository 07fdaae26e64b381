//! Column definitions.

use super::row::escape;

/// A column of a built-in type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub name: &'static str,
    /// OpenAPI type of the cells: `string`, `integer`, `boolean`, `date`.
    pub kind: &'static str,
    /// `name` for the column with the object's name.
    pub format: &'static str,
    pub description: &'static str,
    /// 0: always shown; 1: only in wide output.
    pub priority: i32,
}

/// A column of strings.
pub(crate) const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0 }
}

/// A column of integers.
pub(crate) const fn integer(name: &'static str, description: &'static str) -> Column {
    Column { kind: "integer", ..text(name, description) }
}

/// A column of booleans.
pub(crate) const fn boolean(name: &'static str, description: &'static str) -> Column {
    Column { kind: "boolean", ..text(name, description) }
}

impl Column {
    /// Shows the column only in wide output.
    pub(crate) const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    /// Writes the column's definition.
    pub(crate) fn define(&self, out: &mut String) {
        define(self.name, self.kind, self.format, self.description, self.priority, out);
    }
}

pub(crate) const NAME: Column =
    Column { format: "name", ..text("Name", "Unique within a namespace. Cannot be changed.") };
pub(crate) const AGE: Column = text("Age", "Time since the creation of the object.");
pub(crate) const CREATED: Column = Column { kind: "date", ..text("Created At", "Time of the creation of the object.") };
pub(crate) const CONTAINERS: Column = text("Containers", "Names of the template's containers.").wide();
pub(crate) const IMAGES: Column = text("Images", "Images of the template's containers.").wide();
pub(crate) const SELECTOR: Column = text("Selector", "Labels of the selected pods.").wide();

/// Writes one column definition.
pub(crate) fn define(name: &str, kind: &str, format: &str, description: &str, priority: i32, out: &mut String) {
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
