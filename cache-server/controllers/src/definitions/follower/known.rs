//! The known definitions, and the work still to do for each.
//!
//! INVARIANT: does no I/O. Work stays recorded here until the follower reports it done.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem,
    sync::Arc,
};

use cache_server_caches::registry::{AcceptedStatus, Definition, Registry, ResourceType, TakenNames};
use watch_cache::Schema;

type TypeList = Vec<Arc<ResourceType>>;

/// A definition as of the last pass, with its schema and types.
pub(super) struct KnownDefinition {
    pub(super) definition: Definition,
    pub(super) schema: Arc<Schema>,
    pub(super) defined_at: u64,
    pub(super) resource_version: u64,
    types: TypeList,
}

/// All definitions, by name.
#[derive(Default)]
pub(super) struct KnownDefinitions {
    known: BTreeMap<String, KnownDefinition>,
    groups: HashMap<String, GroupDefinitions>,
    /// The types served for each definition.
    served: HashMap<String, TypeList>,
    /// Definitions whose status must be checked.
    unjudged: BTreeSet<String>,
    /// Definitions whose served types may be out of date.
    unpublished: BTreeSet<String>,
    /// Terminating definitions whose objects must be deleted.
    ending: BTreeSet<String>,
}

/// The definitions of one API group.
struct GroupDefinitions {
    taken: TakenNames,
    /// Definitions without all requested names; a change of another definition may free some.
    waiting: BTreeSet<String>,
    /// Number of definitions in the group.
    count: usize,
}

impl KnownDefinitions {
    /// No definitions, and the custom types that are served at present.
    pub(super) fn serving(registry: &Registry) -> Self {
        let mut known = Self::default();
        for ty in registry.iter().filter(|ty| ty.custom.is_some()) {
            // The id of a custom type is the name of its definition.
            known.served.entry(ty.id().to_owned()).or_default().push(Arc::clone(ty));
        }
        known
    }

    pub(super) fn get(&self, name: &str) -> Option<&KnownDefinition> {
        self.known.get(name)
    }

    /// The resourceVersion of the definition that was read last.
    pub(super) fn version(&self, name: &str) -> Option<u64> {
        self.known.get(name).map(|known| known.resource_version)
    }

    /// Records the current version of a definition. `registry` provides the built-in types.
    pub(super) fn learn(&mut self, definition: Definition, resource_version: u64, position: u64, registry: &Registry) {
        let name = definition.name().to_owned();
        let before = self.take_out(&name);
        let known = KnownDefinition::new(definition, resource_version, before, position);
        if known.definition.awaits_cleanup() {
            self.ending.insert(name.clone());
        }
        self.unjudged.insert(name.clone());
        self.unpublished.insert(name);
        self.enter(known, registry);
    }

    /// Records a definition that is in effect: its types are served.
    pub(super) fn take_over(&mut self, definition: Definition, resource_version: u64, registry: &Registry) {
        let Some(types) = self.served.get(definition.name()).cloned() else { return };
        let stored = types.first().map(ResourceType::stored_as);
        let Some((schema, defined_at)) = stored.map(|ty| (Arc::clone(&ty.schema), ty.defined_at)) else { return };
        self.enter(KnownDefinition { definition, schema, defined_at, resource_version, types }, registry);
    }

    fn enter(&mut self, known: KnownDefinition, registry: &Registry) {
        let definition = &known.definition;
        let name = definition.name().to_owned();
        let group = self.groups.entry(definition.group().to_owned()).or_insert_with(|| {
            // Built-in groups come first, so the iteration can stop at the first custom one.
            let builtin = registry.groups().take_while(|group| group.builtin).flat_map(|group| &group.types);
            let taken = TakenNames::of_builtin(definition.group(), builtin.map(|ty| &**ty));
            GroupDefinitions { taken, waiting: BTreeSet::new(), count: 0 }
        });
        group.taken.add(definition);
        group.count += 1;
        if !definition.has_its_names() {
            group.waiting.insert(name.clone());
        }
        self.known.insert(name, known);
    }

    /// Forgets a definition that was deleted or cannot be read.
    pub(super) fn forget(&mut self, name: &str) {
        if self.take_out(name).is_some() || self.served.contains_key(name) {
            self.unpublished.insert(name.to_owned());
        }
    }

    /// Removes a definition from everything but `served` and `unpublished`, which the next publication still needs.
    fn take_out(&mut self, name: &str) -> Option<KnownDefinition> {
        let known = self.known.remove(name)?;
        for left in [&mut self.unjudged, &mut self.ending] {
            left.remove(name);
        }
        if let Some(group) = self.groups.get_mut(known.definition.group()) {
            group.taken.remove(&known.definition);
            group.waiting.remove(name);
            group.count -= 1;
            // Its names may now be free for the waiting definitions.
            self.unjudged.extend(group.waiting.iter().cloned());
            if group.count == 0 {
                self.groups.remove(known.definition.group());
            }
        }
        Some(known)
    }

    /// Takes the definitions whose status must be checked; [`Self::recheck`] puts one back.
    pub(super) fn take_unjudged(&mut self) -> BTreeSet<String> {
        mem::take(&mut self.unjudged)
    }

    pub(super) fn recheck(&mut self, name: String) {
        self.unjudged.insert(name);
    }

    pub(super) fn has_unjudged(&self) -> bool {
        !self.unjudged.is_empty()
    }

    /// The new status of a definition; `None` if the status is up to date or the definition is terminating.
    pub(super) fn accept(&mut self, name: &str, now: &str) -> Option<AcceptedStatus> {
        let definition = &self.known.get(name)?.definition;
        let taken = &mut self.groups.get_mut(definition.group())?.taken;
        if definition.is_terminating() {
            return None;
        }
        // A definition does not conflict with its own names.
        taken.remove(definition);
        let accepted = definition.accept(taken, now);
        taken.add(definition);
        accepted
    }

    pub(super) fn awaiting_cleanup(&self) -> Vec<String> {
        self.ending.iter().cloned().collect()
    }

    /// Returns the types to stop serving and the types to serve instead, and records the latter as served. `None` if
    /// nothing changed.
    pub(super) fn take_unpublished(&mut self) -> Option<(TypeList, TypeList)> {
        if self.unpublished.is_empty() {
            return None;
        }
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for name in mem::take(&mut self.unpublished) {
            let types = self.known.get(&name).map(|known| known.types.clone()).unwrap_or_default();
            come.extend(types.iter().cloned());
            let before = if types.is_empty() { self.served.remove(&name) } else { self.served.insert(name, types) };
            gone.extend(before.unwrap_or_default());
        }
        Some((gone, come))
    }
}

impl KnownDefinition {
    fn new(definition: Definition, resource_version: u64, before: Option<Self>, position: u64) -> Self {
        let schema = definition.schema();
        let before = before.filter(|before| {
            // Keep schema and `defined_at` if no cached object and no open watch becomes wrong: same uid, equal schema,
            // equal conversion, and all versions still served.
            let served = definition.served();
            before.definition.uid() == definition.uid()
                && *before.schema == schema
                && before.definition.converts_as(&definition)
                && before.definition.served().iter().all(|version| served.contains(version))
        });
        let (schema, defined_at) = match before {
            Some(before) => (before.schema, before.defined_at),
            None => (Arc::new(schema), position.max(resource_version)),
        };
        let types = if definition.is_established() { definition.types(&schema, defined_at) } else { Vec::new() };
        Self { definition, schema, defined_at, resource_version, types }
    }
}
