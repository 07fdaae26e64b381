//! Acceptance of a definition's names beside the names of other types in its group, and the resulting status.
//!
//! INVARIANT: accepted names are never revoked in favour of a later definition; the first definition keeps them.
//!
//! Source: apiextensions-apiserver `pkg/controller/status/naming_controller.go`, `pkg/controller/establish`.

use std::collections::HashMap;

use informer_serving::go::quote;
use serde_json::Value;

use super::{Condition, Definition, Names, Object};
use crate::registry::ResourceType;

/// The names in use in a group, by definitions and built-in types, each with its number of users.
#[derive(Clone, Debug, Default)]
pub struct TakenNames {
    resources: HashMap<String, usize>,
    kinds: HashMap<String, usize>,
}

impl TakenNames {
    /// Names of the built-in types of `group`.
    pub fn of_builtin<'a>(group: &str, types: impl IntoIterator<Item = &'a ResourceType>) -> Self {
        let mut taken = Self::default();
        for ty in types.into_iter().filter(|ty| ty.group == group && ty.custom.is_none()) {
            let resources = [&ty.plural, &ty.singular].into_iter().chain(&ty.short_names);
            resources.for_each(|name| count(&mut taken.resources, name));
            [&ty.kind, &ty.list_kind].into_iter().for_each(|name| count(&mut taken.kinds, name));
        }
        taken
    }

    /// Adds the accepted names of a definition.
    pub fn add(&mut self, definition: &Definition) {
        let names = &definition.status.accepted_names;
        names.resources().for_each(|name| count(&mut self.resources, name));
        names.kinds().for_each(|name| count(&mut self.kinds, name));
    }

    /// Removes the names that [`Self::add`] added for this definition.
    pub fn remove(&mut self, definition: &Definition) {
        let names = &definition.status.accepted_names;
        names.resources().for_each(|name| discount(&mut self.resources, name));
        names.kinds().for_each(|name| discount(&mut self.kinds, name));
    }
}

fn count(names: &mut HashMap<String, usize>, name: &str) {
    *names.entry(name.to_owned()).or_default() += 1;
}

fn discount(names: &mut HashMap<String, usize>, name: &str) {
    if let Some(count) = names.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            names.remove(name);
        }
    }
}

impl Names {
    fn resources(&self) -> impl Iterator<Item = &String> {
        [&self.plural, &self.singular].into_iter().filter(|name| !name.is_empty()).chain(&self.short_names)
    }

    fn kinds(&self) -> impl Iterator<Item = &String> {
        [&self.kind, &self.list_kind].into_iter().filter(|name| !name.is_empty())
    }
}

impl Definition {
    /// Returns true if all requested names are accepted, so that names of other definitions no longer matter.
    pub fn has_its_names(&self) -> bool {
        self.status.accepted_names == self.spec.names
    }

    /// The new status of this definition if other types use the `taken` names. `None` if the status is up to date.
    /// Cost: proportional to its own names.
    pub fn accept(&self, taken: &TakenNames, now: &str) -> Option<AcceptedStatus> {
        let (names, conflict) = self.deconflict(taken);
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
        let mut changed = [accepted, established].map(|condition| set(&mut conditions, condition, now)).contains(&true);
        let stored = self.stored_versions();
        changed |= names != self.status.accepted_names || stored != self.status.stored_versions;
        changed.then_some(AcceptedStatus { names, conditions, stored })
    }

    /// `status.storedVersions`, with the current storage version added.
    pub fn stored_versions(&self) -> Vec<String> {
        let mut stored = self.status.stored_versions.clone();
        let storage = self.spec.versions.iter().find(|version| version.storage).map(|version| &version.name);
        stored.extend(storage.filter(|storage| !self.status.stored_versions.contains(storage)).cloned());
        stored
    }

    /// The names that are accepted, and the reason and message of a conflict.
    fn deconflict(&self, taken: &TakenNames) -> (Names, Option<(&'static str, String)>) {
        let (requested, mut names) = (&self.spec.names, self.status.accepted_names.clone());
        let in_use = |name: &str| format!("{} is already in use", quote(name));
        let choose = |reason, requested: &String, name: &mut String, taken: &HashMap<String, usize>| {
            if requested == name || !taken.contains_key(requested) {
                name.clone_from(requested);
                return None;
            }
            Some((reason, in_use(requested)))
        };
        let plural = choose("PluralConflict", &requested.plural, &mut names.plural, &taken.resources);
        let singular = choose("SingularConflict", &requested.singular, &mut names.singular, &taken.resources);
        let refused: Vec<String> = requested
            .short_names
            .iter()
            .filter(|short| !names.short_names.contains(short) && taken.resources.contains_key(*short))
            .map(|short| in_use(short))
            .collect();
        let short_names = match &*refused {
            [] => None,
            [one] => Some(one.clone()),
            many => Some(format!("[{}]", many.join(", "))),
        };
        if short_names.is_none() {
            names.short_names.clone_from(&requested.short_names);
        }
        let short_names = short_names.map(|text| ("ShortNamesConflict", text));
        let kind = choose("KindConflict", &requested.kind, &mut names.kind, &taken.kinds);
        let list_kind = choose("ListKindConflict", &requested.list_kind, &mut names.list_kind, &taken.kinds);
        // Of several conflicts the last one is reported, in the order of kube-apiserver's naming controller.
        let conflict = [plural, singular, short_names, kind, list_kind].into_iter().flatten().last();
        names.categories.clone_from(&requested.categories);
        (names, conflict)
    }
}

/// A new status.
#[derive(Debug, PartialEq)]
pub struct AcceptedStatus {
    names: Names,
    conditions: Vec<Condition>,
    stored: Vec<String>,
}

impl AcceptedStatus {
    /// Writes the new status into the definition.
    pub fn write(&self, object: &mut Object) {
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

/// Sets a condition; its transition time changes only with its status. Returns true if anything changed.
fn set(conditions: &mut Vec<Condition>, mut condition: Condition, now: &str) -> bool {
    let Some(found) = conditions.iter_mut().find(|found| found.kind == condition.kind) else {
        now.clone_into(&mut condition.last_transition_time);
        conditions.push(condition);
        return true;
    };
    if found.status == condition.status && found.reason == condition.reason && found.message == condition.message {
        return false;
    }
    let since = if found.status == condition.status { &found.last_transition_time } else { now };
    condition.last_transition_time = since.to_owned();
    *found = condition;
    true
}

/// Sets the condition of a definition that is being deleted.
pub(crate) fn terminate(object: &mut Object, now: &str) {
    let mut conditions = Definition::read(object).unwrap_or_default().status.conditions;
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set(&mut conditions, condition("Terminating", true, "InstanceDeletionPending", message), now);
    let status = object.entry("status").or_insert_with(|| Value::Object(Object::new()));
    if status.is_object() {
        status["conditions"] = serde_json::to_value(&conditions).expect("conditions are texts");
    }
}
