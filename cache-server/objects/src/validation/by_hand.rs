//! Rules that depend on other members, or that only one type has, by the name that the table gives them.

mod containers;
mod jobs;
mod networks;
mod objects;
mod pod_placement;
mod pod_volumes;
mod pods;
mod resources;
mod roles;
mod scaling;
mod services;
mod volumes;
mod workloads;

use super::{
    checks::{self, ValueCheck},
    found::{FoundCauses, ShownValue},
    place::Place,
    table::{RowArguments, ValidationTable},
    texts,
};

/// Functions by their names, of one file.
type FileRules = fn(&str) -> Option<ValueCheck>;

const FILES: [FileRules; 13] = [
    containers::find,
    jobs::find,
    networks::find,
    objects::find,
    pod_placement::find,
    pod_volumes::find,
    pods::find,
    resources::find,
    roles::find,
    scaling::find,
    services::find,
    volumes::find,
    workloads::find,
];

/// Finds a function.
pub(super) fn find(name: &str) -> Option<ValueCheck> {
    FILES.iter().find_map(|find| find(name))
}
