//! Validation of the built-in types, as kube-apiserver does it before it stores an object: with its messages and causes, in
//! its order.
//!
//! Most are rows of a table (`validation/table.txt`), whose checks are in `checks`; those that depend on other members are
//! functions in `by_hand`. Rows that Kubernetes' own functions print (`tests/clients/validation`) prove both.
//!
//! Not implemented, on purpose: what rows of `validation/unequal.txt` show, with the reasons there; values that only a
//! storage fills in, such as cluster IPs; statuses. Where Go shows a value with its own names of members, the API's are
//! shown.
//!
//! INVARIANT: time and memory are linear in the size of both objects, and texts are built only for violations, up to their
//! limit. INVARIANT: a member of a wrong type counts as absent.
//!
//! Source: `pkg/apis/*/validation/validation.go` of kubernetes/kubernetes 1.36.

mod by_hand;
mod checks;
mod equality;
mod found;
mod place;
mod table;
mod texts;

#[cfg(test)]
mod tests;

use api_rules::{
    object::{
        Object,
        metadata::{self, Part},
    },
    registry::ResourceType,
};
use informer_serving::status::{Status, StatusExt as _};

use self::{found::FoundCauses, place::Place, table::ValidationTable};

/// Checks an object to store, after its defaults are filled in: a new one, or the successor of `stored`. Names and
/// immutable metadata were checked before.
///
/// # Errors
/// 422 for values that kube-apiserver refuses.
pub fn check(ty: &ResourceType, part: Part, object: &Object, stored: Option<&Object>) -> Result<(), Status> {
    if part != Part::Main {
        return Ok(());
    }
    let (table, mut found) = (ValidationTable::get(), FoundCauses::default());
    let place = Place::root(object, stored);
    let own_rules = if ty.custom.is_some() { None } else { table.kind(ty, stored.is_some()) };
    if let Some(rules) = own_rules {
        if stored.is_some() {
            table.run_named("update of all", &place, &mut found);
        }
        table.run(rules, &place, &mut found);
    }
    if found.causes.is_empty() && (own_rules.is_none() || stored.is_none()) {
        table.run_named("all", &place, &mut found);
    }
    if found.causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&ty.group, &ty.kind, metadata::text(object, "name"), found.causes))
}
