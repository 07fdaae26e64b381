//! Validation of the built-in types, as kube-apiserver does it before it stores an object: with its messages and
//! causes, in its order.
//!
//! Most are rows of a table (`validation/table.txt`), whose checks are in `checks`; those that depend on other members
//! are functions in `by_hand`. Rows that Kubernetes' own functions print (`tests/clients/validation`) prove both.
//!
//! Not implemented, on purpose: what rows of `validation/unequal.txt` show, with the reasons there; values that only a
//! storage fills in, such as cluster IPs; statuses; what only `events.k8s.io` demands of its Events. Where Go shows a
//! value with its own names of members, the API's are shown.
//!
//! A value that an update leaves as it is stored is not checked again: kube-apiserver spares many of them, and this
//! server may have got its objects from elsewhere.
//!
//! INVARIANT: time and memory are linear in the size of both objects, and texts are built only for violations, up to
//! their limit. Causes for pairs of values are counted, not made. INVARIANT: a member of a wrong type counts as absent.
//!
//! Source: `pkg/apis/*/validation/validation.go` of kubernetes/kubernetes 1.36.

mod by_hand;
mod checks;
mod equality;
mod found;
mod place;
mod steps;
mod table;
pub(crate) mod texts;

#[cfg(test)]
mod tests;

use api_rules::{
    object::{
        Object,
        metadata::{self, Part},
    },
    registry::ResourceType,
};
use informer_serving::status::{Causes, Status, StatusExt as _};

use self::{found::FoundCauses, place::Place, table::ValidationTable};

/// Checks an object to store: a new one, or the successor of `stored`. The defaults of both are filled in, and names
/// and immutable metadata were checked before. A type that is converted is checked as it is stored.
///
/// # Errors
/// 422 for values that kube-apiserver refuses.
pub fn check(ty: &ResourceType, part: Part, object: &Object, stored: Option<&Object>) -> Result<(), Status> {
    let causes = match (part, ty.conversion, &ty.stored) {
        (Part::Finalize, ..) => named("finalize of Namespace", &Place::root(object, stored)),
        (Part::Main, Some(conversion), Some(stored_ty)) => {
            let converted = |object: &Object| {
                let mut object = object.clone();
                (conversion.to_stored)(&mut object);
                object
            };
            causes(stored_ty, &converted(object), stored.map(converted).as_ref())
        }
        (Part::Main, ..) => causes(ty, object, stored),
        (Part::Status | Part::Approval | Part::EphemeralContainers, ..) => return Ok(()),
    };
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&ty.group, &ty.kind, metadata::text(object, "name"), causes))
}

/// Returns what is wrong with the metadata of an object, but for what `stored` has too.
pub(crate) fn metadata_complaints(object: &Object, stored: &Object) -> Option<String> {
    let causes = named("all", &Place::root(object, Some(stored)));
    let message = (!causes.is_empty()).then(|| Status::invalid("", "", "", causes).message)?;
    message.split_once(" is invalid: ").map(|(_, causes)| causes.to_owned())
}

fn named(rules: &str, place: &Place<'_>) -> Causes {
    let mut found = FoundCauses::default();
    ValidationTable::get().run_named(rules, place, &mut found);
    found.causes
}

fn causes(ty: &ResourceType, object: &Object, stored: Option<&Object>) -> Causes {
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
    found.causes
}
