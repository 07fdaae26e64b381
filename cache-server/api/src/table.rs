//! Tables: the columns of each type, and the cells of one object.
//!
//! INVARIANT: printing a row never fails. A field that is missing or has another type is shown as Kubernetes shows
//! unset fields. INVARIANT: columns differ by type, never by request, so a row is made once for each version of an
//! object. Wide columns always have cells, as in kube-apiserver. INVARIANT: a row costs about as much as parsing its
//! object, whatever columns a definition has: no column of a built-in type takes quadratic time, and custom columns
//! share a budget.
//!
//! In reading order: the parsed object (`json`), a row and its cells (`row`), column definitions (`column`), labels as
//! text (`labels`), then a file for each family of types, and custom types (`custom`, with JSONPath in `path`).
//!
//! Source: `pkg/printers/internalversion/printers.go`; for custom resources apiextensions-apiserver
//! `pkg/registry/customresource/tableconvertor`; for other types apiserver `registry/rest/table.go`.

mod column;
mod json;
mod labels;
mod row;

mod access;
mod autoscaling;
mod cluster;
mod devices;
mod network;
mod pods;
mod storage;
mod workloads;

mod custom;
mod path;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use watch_cache::{Cells, Rows};

pub use self::custom::PrinterColumn;
use self::{
    column::{AGE, CREATED, Column, NAME, define},
    custom::PrintedColumn,
    json::{CellJson, GO_ZERO},
    row::RowWriter,
};
use crate::registry::ResourceType;

/// Columns of one type, and how to print them.
#[derive(Debug)]
pub struct Columns {
    definitions: Bytes,
    print: Print,
}

/// Prints the cells of an object.
#[derive(Debug)]
enum Print {
    BuiltIn(fn(&CellJson<'_>, &mut RowWriter)),
    Custom(Box<[PrintedColumn]>),
}

/// Columns of one built-in type.
struct TypeColumns {
    /// The type's [`ResourceType::id`].
    id: &'static str,
    columns: &'static [Column],
    /// Writes one cell for each column.
    print: fn(&CellJson<'_>, &mut RowWriter),
}

impl Columns {
    /// Returns the columns of a type, created once: an equal `Arc` means that cached cells are still valid.
    pub fn of(ty: &ResourceType) -> Arc<Self> {
        ty.derived.get_or_make(|| {
            if ty.schema.builtin {
                let kind = FAMILIES.into_iter().flatten().find(|kind| kind.id == ty.id());
                Self::built_in(kind.unwrap_or(&OTHER))
            } else {
                let columns = ty.custom.as_ref().map(|custom| PrinterColumn::list(&custom.printer_columns));
                Self::custom(&columns.unwrap_or_default())
            }
        })
    }

    /// Creates the columns of a CustomResourceDefinition; the age if it defines none. The name comes first.
    pub fn custom(columns: &[PrinterColumn]) -> Self {
        let absent = if columns.is_empty() { custom::default_columns() } else { Vec::new() };
        let columns = if columns.is_empty() { &*absent } else { columns };
        let mut definitions = String::new();
        NAME.define(&mut definitions);
        for column in columns {
            let (description, priority) = (column.describe(), column.priority);
            define(&column.name, &column.kind, &column.format, &description, priority, &mut definitions);
        }
        definitions.push(']');
        let printed = columns.iter().map(PrinterColumn::printed).collect();
        Self { definitions: definitions.into(), print: Print::Custom(printed) }
    }

    /// Returns the columns of `…/{name}/scale`, for every type.
    pub fn scale() -> Arc<Self> {
        static SCALE: LazyLock<Arc<Columns>> = LazyLock::new(|| Arc::new(Columns::built_in(&workloads::SCALE)));
        Arc::clone(&SCALE)
    }

    /// Returns the `columnDefinitions` of a table, as JSON.
    pub const fn definitions(&self) -> &Bytes {
        &self.definitions
    }

    fn built_in(kind: &TypeColumns) -> Self {
        let mut definitions = String::new();
        for column in kind.columns {
            column.define(&mut definitions);
        }
        definitions.push(']');
        Self { definitions: definitions.into(), print: Print::BuiltIn(kind.print) }
    }
}

impl Rows for Columns {
    fn cells(&self, text: &[u8]) -> Cells {
        let (object, mut row) = (CellJson::read(text), RowWriter::new());
        match &self.print {
            Print::BuiltIn(print) => print(&object, &mut row),
            Print::Custom(columns) => custom::print(columns, &object, text.len(), &mut row),
        }
        row.finish()
    }
}

/// The built-in types with columns of their own.
const FAMILIES: [&[TypeColumns]; 8] = [
    pods::KINDS,
    workloads::KINDS,
    autoscaling::KINDS,
    network::KINDS,
    storage::KINDS,
    cluster::KINDS,
    access::KINDS,
    devices::KINDS,
];

/// Columns of all other built-in types, such as roles, limit ranges and CustomResourceDefinitions.
const OTHER: TypeColumns = TypeColumns {
    id: "",
    columns: &[NAME, CREATED],
    print: |object, row| {
        let created = jiff::Timestamp::from_second(created(object).unwrap_or(GO_ZERO)).unwrap_or_default();
        row.text(name(object)).write(format_args!("{created}"));
    },
};

/// Returns the object's name.
fn name<'s>(object: &'s CellJson<'_>) -> &'s str {
    object.at("metadata.name").text()
}

/// Returns the object's creationTimestamp, in Unix seconds.
fn created(object: &CellJson<'_>) -> Option<i64> {
    object.at("metadata.creationTimestamp").time()
}

#[cfg(test)]
mod tests;
