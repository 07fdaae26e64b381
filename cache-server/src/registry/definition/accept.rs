//! Which names a definition gets beside the other types of its group, and what its status says of that.
//!
//! INVARIANT: names that were accepted are never taken away by a later definition; who comes first keeps them.
//!
//! Source: apiextensions-apiserver `pkg/controller/status/naming_controller.go`, `pkg/controller/establish`.

use std::collections::BTreeSet;

use informer_core::wire::go::quote;
use serde_json::Value;

use super::{Condition, Definition, Names, Object};
use crate::registry::ResourceType;

/// The names of one group that are taken, by other definitions and by built-in types.
#[derive(Debug, Default)]
struct Taken<'a> {
    resources: BTreeSet<&'a str>,
    kinds: BTreeSet<&'a str>,
}

impl<'a> Taken<'a> {
    fn add(&mut self, names: &'a Names) {
        self.resources.extend([&*names.plural, &*names.singular].into_iter().filter(|name| !name.is_empty()));
        self.resources.extend(names.short_names.iter().map(String::as_str));
        self.kinds.extend([&*names.kind, &*names.list_kind].into_iter().filter(|name| !name.is_empty()));
    }

    fn add_type(&mut self, ty: &'a ResourceType) {
        self.resources.extend([&*ty.plural, &*ty.singular]);
        self.resources.extend(ty.short_names.iter().map(String::as_str));
        self.kinds.extend([&*ty.kind, &*ty.list_kind]);
    }
}

impl Definition {
    /// What the status of this definition must become beside `others`, all definitions (it may be among them), and the
    /// `builtin` types. `None` when it is that already.
    pub(crate) fn accept<'a>(
        &self,
        others: impl IntoIterator<Item = &'a Self>,
        builtin: impl IntoIterator<Item = &'a ResourceType>,
        now: &str,
    ) -> Option<Accepted> {
        let mut taken = Taken::default();
        let same_group = |other: &&Self| other.spec.group == self.spec.group && other.name() != self.name();
        others.into_iter().filter(same_group).for_each(|other| taken.add(&other.status.accepted_names));
        builtin.into_iter().filter(|ty| ty.group == self.spec.group).for_each(|ty| taken.add_type(ty));
        let (names, conflict) = self.deconflict(&taken);
        let accepted = match conflict {
            None => condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
            Some((reason, message)) => condition("NamesAccepted", false, reason, &message),
        };
        let established = if self.is_established() || accepted.status == "True" {
            condition("Established", true, "InitialNamesAccepted", "the initial names have been accepted")
        } else {
            condition("Established", false, "NotAccepted", "not all names are accepted")
        };
        let mut conditions = self.status.conditions.clone();
        let mut changed = [accepted, established].map(|wanted| set(&mut conditions, wanted, now)).contains(&true);
        let stored = self.stored_versions();
        changed |= names != self.status.accepted_names || stored != self.status.stored_versions;
        changed.then_some(Accepted { names, conditions, stored })
    }

    /// The versions that objects were stored at, and now are.
    pub(super) fn stored_versions(&self) -> Vec<String> {
        let mut stored = self.status.stored_versions.clone();
        let storage = self.spec.versions.iter().find(|version| version.storage).map(|version| &version.name);
        stored.extend(storage.filter(|storage| !self.status.stored_versions.contains(storage)).cloned());
        stored
    }

    /// The names it gets, and what is wrong with the others.
    fn deconflict(&self, taken: &Taken<'_>) -> (Names, Option<(&'static str, String)>) {
        let (asked, mut names) = (&self.spec.names, self.status.accepted_names.clone());
        let mut conflict = None;
        let in_use = |name: &str| format!("{} is already in use", quote(name));
        let mut choose = |reason, asked: &String, name: &mut String, taken: &BTreeSet<&str>| {
            if asked == name || !taken.contains(asked.as_str()) {
                name.clone_from(asked);
            } else {
                conflict = Some((reason, in_use(asked)));
            }
        };
        // Of several conflicts the last one is told.
        choose("PluralConflict", &asked.plural, &mut names.plural, &taken.resources);
        choose("SingularConflict", &asked.singular, &mut names.singular, &taken.resources);
        let refused: Vec<String> = asked
            .short_names
            .iter()
            .filter(|short| !names.short_names.contains(short) && taken.resources.contains(short.as_str()))
            .map(|short| in_use(short))
            .collect();
        let short_names = match &*refused {
            [] => None,
            [one] => Some(one.clone()),
            many => Some(format!("[{}]", many.join(", "))),
        };
        if short_names.is_none() {
            names.short_names.clone_from(&asked.short_names);
        }
        choose("KindConflict", &asked.kind, &mut names.kind, &taken.kinds);
        choose("ListKindConflict", &asked.list_kind, &mut names.list_kind, &taken.kinds);
        let conflict = conflict.or_else(|| Some(("ShortNamesConflict", short_names?)));
        names.categories.clone_from(&asked.categories);
        (names, conflict)
    }
}

/// A status to be.
#[derive(Debug, PartialEq)]
pub(crate) struct Accepted {
    names: Names,
    conditions: Vec<Condition>,
    stored: Vec<String>,
}

impl Accepted {
    /// Writes it into the definition's status.
    pub(crate) fn write(&self, object: &mut Object) {
        let status = object.entry("status").or_insert_with(|| Value::Object(Object::new()));
        if !status.is_object() {
            *status = Value::Object(Object::new());
        }
        status["conditions"] = serde_json::to_value(&self.conditions).expect("conditions are texts");
        status["acceptedNames"] = serde_json::to_value(&self.names).expect("names are texts");
        status["storedVersions"] = self.stored.clone().into();
    }
}

fn condition(kind: &str, status: bool, reason: &str, message: &str) -> Condition {
    let status = if status { "True" } else { "False" }.to_owned();
    let (kind, reason, message) = (kind.to_owned(), reason.to_owned(), message.to_owned());
    Condition { kind, status, last_transition_time: String::new(), reason, message }
}

/// Puts a condition in. Its time is that of the last change of its status. Returns whether anything changed.
fn set(conditions: &mut Vec<Condition>, mut wanted: Condition, now: &str) -> bool {
    let Some(found) = conditions.iter_mut().find(|found| found.kind == wanted.kind) else {
        now.clone_into(&mut wanted.last_transition_time);
        conditions.push(wanted);
        return true;
    };
    if found.status == wanted.status && found.reason == wanted.reason && found.message == wanted.message {
        return false;
    }
    let kept = if found.status == wanted.status { &found.last_transition_time } else { now };
    wanted.last_transition_time = kept.to_owned();
    *found = wanted;
    true
}

/// Puts the condition in that a definition has from the moment it is deleted.
pub(super) fn terminate(object: &mut Object, now: &str) {
    let mut conditions = Definition::read(object).unwrap_or_default().status.conditions;
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set(&mut conditions, condition("Terminating", true, "InstanceDeletionPending", message), now);
    let status = object.entry("status").or_insert_with(|| Value::Object(Object::new()));
    if status.is_object() {
        status["conditions"] = serde_json::to_value(&conditions).expect("conditions are texts");
    }
}
