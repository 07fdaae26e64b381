//! Columns of device classes, claims and slices.

use super::{
    TypeColumns,
    column::{AGE, NAME, text},
    created,
    json::CellJson,
    name,
    row::RowWriter,
};

pub(crate) const KINDS: &[TypeColumns] = &[
    TypeColumns { id: "deviceclasses.resource.k8s.io", columns: &[NAME, AGE], print: age },
    TypeColumns {
        id: "resourceclaims.resource.k8s.io",
        columns: &[NAME, text("State", "Progress of the claim."), AGE],
        print: |object, row| {
            row.text(name(object)).text(&state(object)).age(created(object));
        },
    },
    TypeColumns { id: "resourceclaimtemplates.resource.k8s.io", columns: &[NAME, AGE], print: age },
    TypeColumns {
        id: "resourceslices.resource.k8s.io",
        columns: &[
            NAME,
            text("Node", "Node that has the devices."),
            text("Driver", "Driver of the devices."),
            text("Pool", "Pool of the devices."),
            AGE,
        ],
        print: |object, row| {
            row.text(name(object)).text(object.at("spec.nodeName").text()).text(object.at("spec.driver").text());
            row.text(object.at("spec.pool.name").text()).age(created(object));
        },
    },
];

fn age(object: &CellJson<'_>, row: &mut RowWriter) {
    row.text(name(object)).age(created(object));
}

/// Returns the states of a claim, such as `allocated,reserved`.
fn state(object: &CellJson<'_>) -> String {
    let is_deleted = !object.at("metadata.deletionTimestamp").text().is_empty();
    let is_allocated = !object.at("status.allocation").members().is_empty();
    let is_reserved = is_allocated && !object.at("status.reservedFor").items().is_empty();
    let states = [
        (is_deleted, "deleted"),
        (!is_allocated && !is_deleted, "pending"),
        (is_allocated, "allocated"),
        (is_reserved, "reserved"),
    ];
    let states: Vec<&str> = states.into_iter().filter_map(|(holds, state)| holds.then_some(state)).collect();
    states.join(",")
}
