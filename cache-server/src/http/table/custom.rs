//! Custom resources: the columns that their definition names.
//!
//! Source: apiextensions-apiserver `pkg/registry/customresource/tableconvertor/tableconvertor.go`.

use std::borrow::Cow;

use serde_json::Value;

use super::{
    json::{Json, time},
    name,
    path::Path,
    row::{Row, escape},
};

/// One of a definition's `additionalPrinterColumns`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrinterColumn {
    pub(crate) name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i32,
    pub(crate) json_path: String,
}

/// A column as it is written.
#[derive(Clone, Debug)]
pub(super) struct Printed {
    kind: CellKind,
    /// `None` when it is not understood.
    path: Option<Path>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellKind {
    Text,
    Integer,
    Number,
    Bool,
    Date,
    Unknown,
}

/// The column of types whose definition names none.
pub(super) fn default_columns() -> Vec<PrinterColumn> {
    vec![PrinterColumn {
        name: "Age".to_owned(),
        kind: "date".to_owned(),
        description: super::AGE.description.to_owned(),
        json_path: ".metadata.creationTimestamp".to_owned(),
        ..PrinterColumn::default()
    }]
}

impl PrinterColumn {
    /// Reads `additionalPrinterColumns`. What is of another type counts as not said.
    pub(crate) fn list(columns: &Value) -> Vec<Self> {
        let text = |column: &Value, field: &str| column[field].as_str().unwrap_or_default().to_owned();
        let columns = columns.as_array().into_iter().flatten();
        let columns = columns.map(|column| Self {
            name: text(column, "name"),
            kind: text(column, "type"),
            format: text(column, "format"),
            description: text(column, "description"),
            priority: column["priority"].as_i64().and_then(|priority| priority.try_into().ok()).unwrap_or_default(),
            json_path: text(column, "jsonPath"),
        });
        columns.collect()
    }

    /// The description, or where the value stands.
    pub(super) fn describe(&self) -> Cow<'_, str> {
        if self.description.is_empty() {
            format!("Custom resource definition column (in JSONPath format): {}", self.json_path).into()
        } else {
            (&*self.description).into()
        }
    }

    pub(super) fn printed(&self) -> Printed {
        let kind = match &*self.kind {
            "string" => CellKind::Text,
            "integer" => CellKind::Integer,
            "number" => CellKind::Number,
            "boolean" => CellKind::Bool,
            "date" => CellKind::Date,
            _ => CellKind::Unknown,
        };
        Printed { kind, path: Path::parse(&self.json_path) }
    }
}

/// Writes the name, and a cell for each column.
pub(super) fn print(columns: &[Printed], object: &Json<'_>, row: &mut Row) {
    row.text(name(object));
    for column in columns {
        match column.path.as_ref().and_then(|path| path.find(object)) {
            Some(value) => column.kind.print(value, row),
            None => _ = row.null(),
        }
    }
}

impl CellKind {
    /// Writes a value, or `null` when it is of another kind.
    fn print(self, value: &Json<'_>, row: &mut Row) {
        match (self, value) {
            (Self::Text, Json::Text(text)) => row.text(text),
            (Self::Text, Json::Null) => row.text("<no value>"),
            (Self::Text, value) => {
                let mut text = String::new();
                write_json(value, &mut text);
                row.text(&text)
            }
            (Self::Integer | Self::Number, Json::Integer(number)) => row.integer(*number),
            (Self::Number, Json::Float(number)) => row.float(*number),
            (Self::Integer, Json::Float(number)) => row.float(number.trunc()),
            (Self::Bool, Json::Bool(value)) => row.boolean(*value),
            (Self::Date, Json::Text(text)) => match (time(text), &**text) {
                (Some(since), _) => row.age(Some(since)),
                (None, "" | "null" | "0001-01-01T00:00:00Z") => row.age(None),
                (None, _) => row.text("<invalid>"),
            },
            (Self::Integer | Self::Number | Self::Bool | Self::Date | Self::Unknown, _) => row.null(),
        };
    }
}

/// Writes JSON as Go does: compact, members in order.
fn write_json(value: &Json<'_>, out: &mut String) {
    let quote = |text: &str, out: &mut String| {
        out.push('"');
        escape(text, out);
        out.push('"');
    };
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Json::Integer(number) => out.push_str(&number.to_string()),
        Json::Float(number) => out.push_str(&number.to_string()),
        Json::Text(text) => quote(text, out),
        Json::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_json(item, out);
            }
            out.push(']');
        }
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(left, _), (right, _)| left.cmp(right));
            out.push('{');
            for (at, (key, member)) in members.into_iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                quote(key, out);
                out.push(':');
                write_json(member, out);
            }
            out.push('}');
        }
    }
}
