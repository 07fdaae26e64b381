//! What people see of objects: the columns of each type, and the cells of one object.
//!
//! INVARIANT: a row never fails. A field that is missing or of another type shows as Kubernetes shows what is not set.
//! INVARIANT: columns differ per type, never per request, so a row is made once for each version of an object. Cells of
//! columns that only wide output shows are always there, as in kube-apiserver. INVARIANT: a row costs about as much as
//! reading its object, whatever columns a definition names: no column of a built-in type compares all with all, and
//! custom ones share a budget.
//!
//! In reading order: an object as columns read it (`json`), what a row is written to (`row`), what a column says of
//! itself (`column`), labels as text (`labels`), then a file for each family of types, and custom ones (`custom`, whose
//! values stand at a `path`).
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
mod network;
mod pods;
mod storage;
mod workloads;

mod custom;
mod path;

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use watch_cache::{Cells, Rows};

pub(crate) use self::custom::PrinterColumn;
use self::{
    column::{AGE, CREATED, Column, NAME, define},
    custom::Printed,
    json::{GO_ZERO, Json},
    row::Row,
};
use crate::registry::ResourceType;

/// How one type looks in tables.
#[derive(Debug)]
pub(crate) struct Columns {
    definitions: Bytes,
    print: Print,
}

/// How the cells of an object are written.
#[derive(Debug)]
enum Print {
    BuiltIn(fn(&Json<'_>, &mut Row)),
    Custom(Box<[Printed]>),
}

/// The columns of one built-in type.
struct Kind {
    /// Its [`ResourceType::id`].
    id: &'static str,
    columns: &'static [Column],
    /// Writes one cell for each of them.
    print: fn(&Json<'_>, &mut Row),
}

impl Columns {
    /// The columns of a type, made once: who shows a row again knows by the `Arc` that its cells are still right.
    pub(crate) fn of(ty: &ResourceType) -> Arc<Self> {
        Arc::clone(ty.columns.get_or_init(|| {
            Arc::new(if ty.schema.builtin {
                let kind = FAMILIES.into_iter().flatten().find(|kind| kind.id == ty.id());
                Self::built_in(kind.unwrap_or(&OTHER))
            } else {
                let columns = ty.custom.as_ref().map(|custom| PrinterColumn::list(&custom.printer_columns));
                Self::custom(&columns.unwrap_or_default())
            })
        }))
    }

    /// The columns that a CustomResourceDefinition names; an age when it names none. A name stands before them.
    pub(crate) fn custom(columns: &[PrinterColumn]) -> Self {
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

    /// The columns of `…/{name}/scale`, whatever is scaled.
    pub(crate) fn scale() -> Arc<Self> {
        static SCALE: LazyLock<Arc<Columns>> = LazyLock::new(|| Arc::new(Columns::built_in(&workloads::SCALE)));
        Arc::clone(&SCALE)
    }

    /// The `columnDefinitions` of a table, as JSON.
    pub(crate) const fn definitions(&self) -> &Bytes {
        &self.definitions
    }

    fn built_in(kind: &Kind) -> Self {
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
        let (object, mut row) = (Json::read(text), Row::new());
        match &self.print {
            Print::BuiltIn(print) => print(&object, &mut row),
            Print::Custom(columns) => custom::print(columns, &object, text.len(), &mut row),
        }
        row.finish()
    }
}

/// The built-in types that have columns of their own.
const FAMILIES: [&[Kind]; 7] =
    [pods::KINDS, workloads::KINDS, autoscaling::KINDS, network::KINDS, storage::KINDS, cluster::KINDS, access::KINDS];

/// Built-in types without columns of their own: roles, limit ranges, definitions of custom resources.
const OTHER: Kind = Kind {
    id: "",
    columns: &[NAME, CREATED],
    print: |object, row| {
        let created = jiff::Timestamp::from_second(created(object).unwrap_or(GO_ZERO)).unwrap_or_default();
        row.text(name(object)).write(format_args!("{created}"));
    },
};

/// The object's name.
fn name<'s>(object: &'s Json<'_>) -> &'s str {
    object.at("metadata.name").text()
}

/// When the object was stored first.
fn created(object: &Json<'_>) -> Option<i64> {
    object.at("metadata.creationTimestamp").time()
}

#[cfg(test)]
mod tests;
