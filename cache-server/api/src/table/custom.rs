//! Columns of custom resources, from their CustomResourceDefinition.
//!
//! Source: apiextensions-apiserver `pkg/registry/customresource/tableconvertor/tableconvertor.go`.

use std::borrow::Cow;

use serde_json::Value;

use super::{
    json::{CellJson, time},
    name,
    path::Path,
    row::{RowWriter, escape},
};
use crate::limits::{ROW_BYTES_MAX, ROW_LOOKS_MAX, ROW_LOOKS_MIN, ROW_LOOKS_PER_BYTE};

/// One of a definition's `additionalPrinterColumns`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrinterColumn {
    /// Name, which is the heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    /// Format of the values, such as `date-time`; may be empty.
    pub format: String,
    /// Description; may be empty.
    pub description: String,
    /// 0 if the column is always shown; higher if only wide output shows it.
    pub priority: i32,
    /// JSONPath of the value.
    pub json_path: String,
}

/// A column, ready to print.
#[derive(Clone, Debug)]
pub(crate) struct PrintedColumn {
    kind: CellKind,
    /// `None` if the path is not supported.
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

/// Returns the default column of definitions without columns.
pub(crate) fn default_columns() -> Vec<PrinterColumn> {
    vec![PrinterColumn {
        name: "Age".to_owned(),
        kind: "date".to_owned(),
        description: super::AGE.description.to_owned(),
        json_path: ".metadata.creationTimestamp".to_owned(),
        ..PrinterColumn::default()
    }]
}

impl PrinterColumn {
    /// Parses `additionalPrinterColumns`. Fields of a wrong type count as absent.
    pub fn list(columns: &Value) -> Vec<Self> {
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

    /// Returns the description, or a default text with the path.
    pub fn describe(&self) -> Cow<'_, str> {
        if self.description.is_empty() {
            format!("Custom resource definition column (in JSONPath format): {}", self.json_path).into()
        } else {
            (&*self.description).into()
        }
    }

    pub(crate) fn printed(&self) -> PrintedColumn {
        let kind = match &*self.kind {
            "string" => CellKind::Text,
            "integer" => CellKind::Integer,
            "number" => CellKind::Number,
            "boolean" => CellKind::Bool,
            "date" => CellKind::Date,
            _ => CellKind::Unknown,
        };
        PrintedColumn { kind, path: Path::parse(&self.json_path) }
    }
}

/// Remaining work for one row. A cell that would exceed it is `null`.
struct CellBudget {
    /// Values and members to visit: proportional to the object, so that a row costs about as much as parsing its
    /// object, whatever the definition.
    looks: usize,
    /// Bytes of values to write.
    bytes: usize,
}

impl CellBudget {
    /// Budget for the row of an object of `bytes`.
    fn of(bytes: usize) -> Self {
        let looks = ROW_LOOKS_MIN.saturating_add(ROW_LOOKS_PER_BYTE.saturating_mul(bytes));
        Self { looks: looks.min(ROW_LOOKS_MAX), bytes: ROW_BYTES_MAX }
    }

    /// Subtracts `bytes`; returns false if fewer are left.
    fn write(&mut self, bytes: usize) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(0);
        left.is_some()
    }
}

/// Writes the name, and a cell for each column. `bytes` is the length of the object's JSON.
pub(crate) fn print(columns: &[PrintedColumn], object: &CellJson<'_>, bytes: usize, row: &mut RowWriter) {
    let mut budget = CellBudget::of(bytes);
    row.text(name(object));
    for column in columns {
        match column.path.as_ref().and_then(|path| path.find(object, &mut budget.looks)) {
            Some(value) => column.kind.print(value, &mut budget, row),
            None => _ = row.null(),
        }
    }
}

impl CellKind {
    /// Writes a value, or `null` if its type does not fit the column. A string column shows other values as JSON.
    fn print(self, value: &CellJson<'_>, budget: &mut CellBudget, row: &mut RowWriter) {
        match (self, value) {
            (Self::Text, CellJson::Text(text)) if budget.write(text.len()) => row.text(text),
            (Self::Text, CellJson::Text(_)) => row.null(),
            (Self::Text, CellJson::Null) => row.text("<no value>"),
            (Self::Text, value) => {
                let mut text = String::new();
                if write_json(value, budget, &mut text) { row.text(&text) } else { row.null() }
            }
            (Self::Integer | Self::Number, CellJson::Integer(number)) => row.integer(*number),
            (Self::Number, CellJson::Float(number)) => row.float(*number),
            (Self::Integer, CellJson::Float(number)) => row.float(number.trunc()),
            (Self::Bool, CellJson::Bool(value)) => row.boolean(*value),
            (Self::Date, CellJson::Text(text)) => match (time(text), &**text) {
                (Some(since), _) => row.age(Some(since)),
                (None, "" | "null" | "0001-01-01T00:00:00Z") => row.age(None),
                (None, _) => row.text("<invalid>"),
            },
            (Self::Integer | Self::Number | Self::Bool | Self::Date | Self::Unknown, _) => row.null(),
        };
    }
}

/// Writes JSON as Go does: compact, members sorted. Stops and returns false when the budget is exhausted.
fn write_json(value: &CellJson<'_>, budget: &mut CellBudget, out: &mut String) -> bool {
    let quote = |text: &str, budget: &mut CellBudget, out: &mut String| {
        let fits = budget.write(text.len() + 2);
        if fits {
            out.push('"');
            escape(text, out);
            out.push('"');
        }
        fits
    };
    let plain = |text: &str, budget: &mut CellBudget, out: &mut String| {
        out.push_str(text);
        budget.write(text.len())
    };
    match value {
        CellJson::Null => plain("null", budget, out),
        CellJson::Bool(value) => plain(if *value { "true" } else { "false" }, budget, out),
        CellJson::Integer(number) => plain(&number.to_string(), budget, out),
        CellJson::Float(number) => plain(&number.to_string(), budget, out),
        CellJson::Text(text) => quote(text, budget, out),
        CellJson::List(items) => {
            out.push('[');
            let written = items
                .iter()
                .enumerate()
                .all(|(at, item)| plain(if at == 0 { "" } else { "," }, budget, out) && write_json(item, budget, out));
            out.push(']');
            written
        }
        CellJson::Object(members) => {
            // Sorting costs more than writing: skip it if the members cannot fit anyway.
            if budget.bytes < members.len() {
                return false;
            }
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(left, _), (right, _)| left.cmp(right));
            out.push('{');
            let written = members.into_iter().enumerate().all(|(at, (key, member))| {
                let begun = plain(if at == 0 { "" } else { "," }, budget, out) && quote(key, budget, out);
                out.push(':');
                begun && budget.write(1) && write_json(member, budget, out)
            });
            out.push('}');
            written
        }
    }
}
