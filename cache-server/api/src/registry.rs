//! The resource types of this server and their rules: a table of built-in types, and types of
//! CustomResourceDefinitions.
//!
//! INVARIANT: a type is found by (group, version, plural) or by (apiVersion, kind), and both return the same `Arc`.
//! INVARIANT: differences between types are columns of the table, never a `match` on names elsewhere.

mod conversion;
mod custom;
mod definition;
mod derived;
mod names;
mod order;
mod scale;
mod subresource;
mod table;

use std::{cmp::Ordering, sync::Arc};

use imbl::{HashMap, OrdMap};
use informer_serving::go::quote;
use watch_cache::{Field, Schema};

use conversion::CONVERTED;
pub use conversion::Conversion;
pub use custom::{Converter, Custom};
pub use definition::{AcceptedStatus, CLEANUP, Definition, DefinitionChange, DefinitionRefusal, Object, TakenNames};
pub use derived::DerivedValues;
pub use names::{NameRule, refuse_namespace, refuse_service_label};
pub use scale::{Scale, ScaleSelector};
pub use subresource::Subresource;
pub use table::{CreatedStatus, Dependents, FixedMember, Grace, StatusMetadata, Texts, UnknownFieldText};

/// One resource type.
#[derive(Debug)]
pub struct ResourceType {
    /// API group, such as `apps`; empty for the core group.
    pub group: String,
    /// Version within the group, such as `v1`.
    pub version: String,
    /// Name in paths, such as `deployments`.
    pub plural: String,
    /// Lower-case singular, which clients such as kubectl accept too.
    pub singular: String,
    /// Kind of the objects.
    pub kind: String,
    /// Abbreviations that clients accept, such as `deploy`.
    pub short_names: Vec<String>,
    /// Groups of types that clients address by one word, such as `all`.
    pub categories: Vec<String>,
    /// True if objects live in namespaces.
    pub namespaced: bool,
    /// Kind, apiVersion and selectable fields, as the cache needs them.
    pub schema: Arc<Schema>,
    /// Rule for the names of objects.
    pub name_rule: NameRule,
    /// True if `…/{name}/status` exists; writes of the main resource then leave `.status` unchanged.
    pub has_status: bool,
    /// Treatment of `.status` by a create.
    pub created_status: CreatedStatus,
    /// Treatment of metadata by a write of `…/{name}/status`.
    pub status_metadata: StatusMetadata,
    /// A member that a create fills in and no update may change.
    pub fixed: Option<FixedMember>,
    /// A write-only member whose texts are stored as base64 values of another one, such as `stringData`.
    pub texts: Option<Texts>,
    /// True if `metadata.generation` counts changes of the desired state: of everything but metadata and status. For a
    /// custom resource without the status subresource, changes of the status count too.
    pub tracks_generation: bool,
    /// Members of metadata whose changes `metadata.generation` counts as well.
    pub tracked_metadata: &'static [&'static str],
    /// True if an immediate delete returns the last object, false if it returns a Status.
    pub returns_deleted: bool,
    /// Grace period of its objects; `None` if deletes are immediate.
    pub grace: Option<&'static Grace>,
    /// Fate of the objects that its objects own, unless a delete says another.
    pub dependents: Dependents,
    /// True for namespaces: other objects live in its objects and are deleted with them.
    pub holds_objects: bool,
    /// True if an update may omit the resourceVersion that it replaces.
    pub unconditional_update: bool,
    /// Verbs in the order of discovery.
    pub verbs: &'static [&'static str],
    /// Paths of `…/{name}/scale`, if the type has it.
    pub scale: Option<Scale>,
    /// Its subresources beside `status` and `scale`, sorted by name.
    pub subresources: &'static [Subresource],
    /// Further settings from the CustomResourceDefinition; `None` for built-in types.
    pub custom: Option<Arc<Custom>>,
    /// True if an update of a missing object creates it.
    pub create_on_update: bool,
    /// True for CustomResourceDefinitions: its objects define types.
    pub defines_types: bool,
    /// Folder of its objects in etcd where it is not the plural; see [`etcd::key_prefix`](crate::etcd::key_prefix).
    pub etcd_folder: Option<&'static str>,
    /// Other versions of the group at which a kube-apiserver may have stored objects, with members of equal names and
    /// meaning: kube-apiserver converts between them by copying fields.
    pub equal_versions: &'static [&'static str],
    /// True while its definition is being deleted: no object can be created.
    pub terminating: bool,
    /// Selectable fields besides name and namespace. A version of a custom type may have fewer than the shared schema.
    pub field_labels: Vec<String>,
    /// Form of the error for field selectors that the type does not support.
    pub unknown_field: UnknownFieldText,
    /// Position of the storage at which the schema was defined: a cache with a lower one is out of date. Zero for
    /// built-in types.
    pub defined_at: u64,
    /// The way to the type that its objects are stored as; `None` if that is this type, or if only the version differs.
    pub conversion: Option<&'static Conversion>,
    /// That type, if there is a conversion.
    pub stored: Option<Arc<Self>>,
    /// The webhook that makes its objects from those of the stored version; `None` if these are its objects.
    pub converter: Option<Arc<Converter>>,
    /// Values that other modules derive from the type.
    pub derived: DerivedValues,
    list_kind: String,
    id: String,
    cache_id: String,
    api_version: String,
}

/// Verbs of most types in the order of discovery.
pub const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Verbs of reviews.
pub const REVIEW_VERBS: [&str; 1] = ["create"];

impl ResourceType {
    /// True if its objects are questions or orders that a create answers: none is ever stored.
    #[must_use]
    pub fn is_review(&self) -> bool {
        self.verbs == REVIEW_VERBS
    }

    /// Name in messages, logs and metrics, such as `pods` or `deployments.apps`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Name of the cache of its objects: its [`id`](Self::id), with the version if a webhook converts them.
    #[must_use]
    pub fn cache_id(&self) -> &str {
        &self.cache_id
    }

    /// The apiVersion, such as `v1` or `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Kind of the lists.
    #[must_use]
    pub fn list_kind(&self) -> String {
        self.list_kind.clone()
    }

    /// Kind in messages about invalid objects, such as `Pod` or `Deployment.apps`.
    #[must_use]
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// True if objects are stored at another version than this one, so that reads replace their apiVersion.
    #[must_use]
    pub fn is_swapped(&self) -> bool {
        self.api_version != self.schema.api_version
    }

    /// Returns the type that the objects of `ty` are stored as: another one if they are converted.
    #[must_use]
    pub fn stored_as(ty: &Arc<Self>) -> &Arc<Self> {
        let converted = ty.converter.as_ref().map(|converter| &converter.stored);
        ty.stored.as_ref().or(converted).unwrap_or(ty)
    }

    /// True if a replacement keeps only metadata of the stored object.
    #[must_use]
    pub fn is_replaced_whole(&self) -> bool {
        let takes_over = self.has_status || self.tracks_generation || self.holds_objects || self.defines_types;
        let takes_over = takes_over || self.fixed.is_some();
        self.schema.builtin && !takes_over && !self.is_swapped()
    }

    /// The error, in Kubernetes' words, for a field selector on an unsupported `label`.
    #[must_use]
    pub fn refuse_field(&self, label: &str) -> String {
        match self.unknown_field {
            UnknownFieldText::Default => {
                let quoted = quote(label);
                format!("{quoted} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
            UnknownFieldText::Plain => format!("field label not supported: {label}"),
            UnknownFieldText::Kind(kind) => format!("field label not supported for {kind}: {label}"),
            UnknownFieldText::Quoted(kind) => format!("field label {} not supported for {kind}", quote(label)),
        }
    }

    /// True if field selectors may use `metadata.namespace`: not for cluster-scoped types with their own list of
    /// fields.
    #[must_use]
    pub fn selects_namespace(&self) -> bool {
        self.namespaced || self.unknown_field == UnknownFieldText::Default
    }

    /// Key of an object: `namespace/name`, or `name` for a cluster-scoped type.
    #[must_use]
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if !self.namespaced {
            return name.to_owned();
        }
        let mut key = String::with_capacity(namespace.len() + 1 + name.len());
        key.push_str(namespace);
        key.push('/');
        key.push_str(name);
        key
    }

    fn built_in(group: &table::Group, row: &table::TypeRow) -> Self {
        let api_version =
            if group.name.is_empty() { group.version.to_owned() } else { format!("{}/{}", group.name, group.version) };
        let id = if group.name.is_empty() { row.plural.to_owned() } else { format!("{}.{}", row.plural, group.name) };
        let mut fields: Vec<Field> = row.fields.own.iter().map(field).collect();
        if let Some((empty, other)) = row.fields.or {
            let place = |label: &str| fields.iter().position(|field| field.label == label);
            let (empty, other) = (place(empty), place(other));
            if let Some(field) = empty.and_then(|empty| fields.get_mut(empty)) {
                field.or = other;
            }
        }
        let field_labels = fields.iter().map(|field| field.label.clone()).collect();
        let schema = Schema {
            kind: row.kind.to_owned(),
            api_version: api_version.clone(),
            builtin: true,
            node_field: fields.iter().position(|field| field.label == "spec.nodeName"),
            fields,
        };
        Self {
            group: group.name.to_owned(),
            version: group.version.to_owned(),
            plural: row.plural.to_owned(),
            singular: row.kind.to_ascii_lowercase(),
            kind: row.kind.to_owned(),
            short_names: row.short_names.iter().map(|&name| name.to_owned()).collect(),
            categories: row.categories.iter().map(|&category| category.to_owned()).collect(),
            namespaced: row.namespaced,
            schema: Arc::new(schema),
            name_rule: row.name_rule,
            has_status: row.has_status,
            created_status: row.created_status,
            status_metadata: row.status_metadata,
            fixed: row.fixed,
            texts: row.texts,
            tracks_generation: row.tracks_generation,
            tracked_metadata: row.tracked_metadata,
            returns_deleted: row.returns_deleted,
            grace: row.grace,
            dependents: row.dependents,
            holds_objects: row.holds_objects,
            unconditional_update: row.unconditional_update,
            create_on_update: row.create_on_update,
            defines_types: row.defines_types,
            etcd_folder: row.etcd_folder,
            equal_versions: row.equal_versions,
            terminating: false,
            field_labels,
            unknown_field: row.fields.unknown,
            defined_at: 0,
            verbs: row.verbs,
            scale: row.scale.map(Scale::built_in),
            subresources: row.subresources,
            custom: None,
            conversion: None,
            stored: None,
            converter: None,
            derived: DerivedValues::default(),
            list_kind: format!("{}List", row.kind),
            cache_id: id.clone(),
            id,
            api_version,
        }
    }
}

fn field(&(label, path, absent): &(&str, &str, &str)) -> Field {
    Field { label: label.to_owned(), path: path.to_owned(), absent: absent.to_owned(), or: None }
}

/// A group version and its types, in the order of discovery.
#[derive(Clone, Debug)]
pub struct GroupVersion {
    /// Group name; empty for the core group.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// Types, ordered by plural as in discovery.
    pub types: Vec<Arc<ResourceType>>,
    /// Reviews, which are not among the types: they have no objects.
    pub reviews: Vec<Arc<ResourceType>>,
    /// True if it has built-in types and exists without any CustomResourceDefinition.
    pub builtin: bool,
}

/// Position of a group version in the order of discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupPlace {
    /// Index in the table of built-in group versions, which come before all others.
    builtin: Option<usize>,
    group: String,
    version: String,
}

impl Ord for GroupPlace {
    fn cmp(&self, other: &Self) -> Ordering {
        let builtin = |place: &Self| place.builtin.unwrap_or(usize::MAX);
        (builtin(self).cmp(&builtin(other)))
            .then_with(|| self.group.cmp(&other.group))
            .then_with(|| order::compare(&other.version, &self.version))
    }
}

impl PartialOrd for GroupPlace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All types of a server.
///
/// Cost: a lookup is one or two hash lookups. A clone copies reference counts only. A change costs its changed types,
/// and a copy of the type list of their group version.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    groups: OrdMap<GroupPlace, Arc<GroupVersion>>,
    /// By apiVersion.
    places: HashMap<String, GroupPlace>,
    /// By `apiVersion/plural`, and below by `apiVersion/kind`.
    by_plural: HashMap<String, Arc<ResourceType>>,
    by_kind: HashMap<String, Arc<ResourceType>>,
    /// Also by [`ResourceType::cache_id`].
    by_id: HashMap<String, Arc<ResourceType>>,
    converts: bool,
}

impl Registry {
    /// The built-in types only.
    #[must_use]
    pub fn builtin() -> Self {
        let mut registry = Self::default();
        for (number, group) in table::GROUPS.iter().enumerate() {
            registry.add(number, group);
        }
        registry
    }

    /// The built-in types, and those that are converted from their objects.
    #[must_use]
    pub fn of_cluster() -> Self {
        let mut registry = Self { converts: true, ..Self::builtin() };
        for (number, converted) in CONVERTED.iter().enumerate() {
            registry.add(table::GROUPS.len() + number, &converted.group);
            let (group, version, plural) = converted.stored;
            let ty = registry.find(group, version, plural).and_then(|stored| converted.ty(&stored));
            ty.into_iter().for_each(|ty| registry.insert(&Arc::new(ty)));
        }
        registry
    }

    fn add(&mut self, number: usize, group: &table::Group) {
        let types: Vec<_> = group.rows.iter().map(|row| Arc::new(ResourceType::built_in(group, row))).collect();
        types.iter().for_each(|ty| self.index(ty));
        let (name, version) = (group.name.to_owned(), group.version.to_owned());
        let place = GroupPlace { builtin: Some(number), group: name.clone(), version: version.clone() };
        self.places.insert(api_version(group.name, group.version), place.clone());
        let reviews = table::REVIEWS.iter().filter(|reviews| reviews.name == group.name);
        let reviews = reviews.flat_map(|group| group.rows.iter().map(|row| ResourceType::built_in(group, row)));
        let reviews = reviews.map(Arc::new).collect();
        let group = GroupVersion { group: name, version, types, reviews, builtin: true };
        self.groups.insert(place, Arc::new(group));
    }

    /// True if webhooks convert custom resources.
    #[must_use]
    pub const fn converts(&self) -> bool {
        self.converts
    }

    /// A registry without the types `gone` and with the types `come`. Custom groups follow the built-in ones, sorted by
    /// name; versions of a group are in Kubernetes' order, the newest stable one first. The types of a definition are
    /// added and removed together.
    ///
    /// INVARIANT: no two types share both apiVersion and plural, or both apiVersion and kind.
    #[must_use]
    pub fn changed<'a>(
        &self,
        gone: impl IntoIterator<Item = &'a Arc<ResourceType>>,
        come: impl IntoIterator<Item = &'a Arc<ResourceType>>,
    ) -> Self {
        let mut registry = self.clone();
        gone.into_iter().for_each(|ty| registry.remove(ty));
        come.into_iter().for_each(|ty| registry.insert(ty));
        registry
    }

    /// The type served under `/api/{version}/…` (empty group) or `/apis/{group}/{version}/…`.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceType>> {
        let slash = if group.is_empty() { "" } else { "/" };
        self.by_plural.get(&*[group, slash, version, "/", plural].concat()).cloned()
    }

    /// The review served under `/apis/{group}/{version}/…`.
    #[must_use]
    pub fn review(&self, group: &str, version: &str, plural: &str) -> Option<Arc<ResourceType>> {
        self.group(group, version)?.reviews.iter().find(|ty| ty.plural == plural).cloned()
    }

    /// True if a type or review has this [`ResourceType::id`].
    #[must_use]
    pub fn has_id(&self, id: &str) -> bool {
        self.by_id.contains_key(id) || self.groups().any(|group| group.reviews.iter().any(|ty| ty.id == id))
    }

    /// The type of an object with this apiVersion and kind.
    #[must_use]
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<Arc<ResourceType>> {
        self.by_kind.get(&*format!("{api_version}/{kind}")).cloned()
    }

    /// The type with this [`ResourceType::id`], such as `pods` or `deployments.apps`: the version of the stored objects, if it
    /// is served. Or the one with this [`ResourceType::cache_id`].
    #[must_use]
    pub fn by_id(&self, id: &str) -> Option<Arc<ResourceType>> {
        self.by_id.get(id).cloned()
    }

    /// True if some version of this group has built-in types. Unknown paths in such groups get other responses, because
    /// kube-apiserver has a router for each of them.
    #[must_use]
    pub fn serves(&self, group: &str) -> bool {
        self.groups().any(|version| version.group == group && version.builtin)
    }

    /// All types in the order of discovery.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.groups().flat_map(|group| group.types.iter())
    }

    /// All group versions in the order of discovery, the core group first.
    pub fn groups(&self) -> impl Iterator<Item = &GroupVersion> {
        self.groups.values().map(|group| &**group)
    }

    /// One group version.
    #[must_use]
    pub fn group(&self, group: &str, version: &str) -> Option<&GroupVersion> {
        self.groups.get(self.places.get(&*api_version(group, version))?).map(|group| &**group)
    }

    fn insert(&mut self, ty: &Arc<ResourceType>) {
        self.index(ty);
        let place = self.places.entry(ty.api_version.clone()).or_insert_with(|| GroupPlace {
            builtin: None,
            group: ty.group.clone(),
            version: ty.version.clone(),
        });
        let group = self.groups.entry(place.clone()).or_insert_with(|| {
            let (group, version) = (ty.group.clone(), ty.version.clone());
            Arc::new(GroupVersion { group, version, types: Vec::new(), reviews: Vec::new(), builtin: false })
        });
        let types = &mut Arc::make_mut(group).types;
        let at = types.partition_point(|other| other.plural < ty.plural);
        types.insert(at, Arc::clone(ty));
    }

    fn remove(&mut self, ty: &Arc<ResourceType>) {
        self.by_id.remove(&ty.id);
        self.by_id.remove(&ty.cache_id);
        self.by_plural.remove(&*format!("{}/{}", ty.api_version, ty.plural));
        self.by_kind.remove(&*format!("{}/{}", ty.api_version, ty.kind));
        let Some(place) = self.places.get(&ty.api_version).cloned() else { return };
        let Some(group) = self.groups.get_mut(&place) else { return };
        let group = Arc::make_mut(group);
        group.types.retain(|other| !Arc::ptr_eq(other, ty));
        if group.types.is_empty() && !group.builtin {
            self.groups.remove(&place);
            self.places.remove(&ty.api_version);
        }
    }

    fn index(&mut self, ty: &Arc<ResourceType>) {
        // If a type has several versions, the id refers to the one that objects are stored at.
        let by_id = ResourceType::stored_as(ty);
        if !self.by_id.contains_key(&ty.id) || !ty.is_swapped() {
            self.by_id.insert(ty.id.clone(), Arc::clone(if ty.converter.is_some() { by_id } else { ty }));
        }
        if ty.converter.is_some() {
            self.by_id.insert(ty.cache_id.clone(), Arc::clone(ty));
        }
        self.by_plural.insert(format!("{}/{}", ty.api_version, ty.plural), Arc::clone(ty));
        self.by_kind.insert(format!("{}/{}", ty.api_version, ty.kind), Arc::clone(ty));
    }
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn both_ways_lead_to_the_same_type() {
        let registry = Registry::builtin();
        for ty in registry.iter() {
            let by_path = registry.find(&ty.group, &ty.version, &ty.plural).expect("by path");
            let by_kind = registry.by_kind(ty.api_version(), &ty.kind).expect("by kind");
            let by_id = registry.by_id(ty.id()).expect("by id");
            assert!(Arc::ptr_eq(ty, &by_path) && Arc::ptr_eq(ty, &by_kind) && Arc::ptr_eq(ty, &by_id), "{}", ty.id());
        }
        assert!(registry.find("", "v1", "deployments").is_none());
        assert!(registry.find("core", "v1", "pods").is_none());
        assert!(registry.find("apps", "v2", "deployments").is_none());
        assert!(registry.serves("") && registry.serves("apps") && !registry.serves("none"));
    }

    #[test]
    fn words_of_the_command_line_are_not_given_twice() {
        let registry = Registry::builtin();
        let mut words = HashSet::new();
        for ty in registry.iter() {
            for word in ty.short_names.iter().chain([&ty.plural]) {
                assert!(words.insert(word.clone()), "{word} of {}", ty.id());
            }
        }
    }

    #[test]
    fn types_of_one_group_stand_in_the_order_of_discovery() {
        for group in Registry::builtin().groups() {
            let plurals: Vec<_> = group.types.iter().map(|ty| &ty.plural).collect();
            assert!(plurals.is_sorted(), "{plurals:?}");
        }
    }

    #[test]
    fn a_type_knows_its_names() {
        let registry = Registry::builtin();
        let pods = registry.find("", "v1", "pods").expect("pods");
        assert_eq!((pods.id(), pods.api_version(), &*pods.list_kind()), ("pods", "v1", "PodList"));
        assert_eq!((&*pods.qualified_kind(), &*pods.key("a", "b")), ("Pod", "a/b"));
        let policies = registry.by_kind("networking.k8s.io/v1", "NetworkPolicy").expect("network policies");
        assert_eq!(policies.id(), "networkpolicies.networking.k8s.io");
        assert_eq!(policies.api_version(), "networking.k8s.io/v1");
        assert_eq!(policies.qualified_kind(), "NetworkPolicy.networking.k8s.io");
        assert_eq!(policies.singular, "networkpolicy");
        let nodes = registry.find("", "v1", "nodes").expect("nodes");
        assert_eq!(nodes.key("ignored", "n1"), "n1");
    }

    #[test]
    fn pods_and_their_devices_are_watched_by_node() {
        let registry = Registry::builtin();
        for ty in registry.iter() {
            let by_node = ty.schema.node_field.map(|at| &*ty.schema.fields[at].path);
            let has_node = ["pods", "resourceslices.resource.k8s.io"].contains(&ty.id());
            assert_eq!(by_node, has_node.then_some("spec.nodeName"), "{}", ty.id());
        }
    }

    /// Goal: field selectors support the fields that kube-apiserver supports. Method: a table of all types with fields
    /// of their own.
    #[test]
    fn fields_are_those_of_kube_apiserver() {
        let registry = Registry::builtin();
        let of = |id: &str| registry.by_id(id).expect(id).field_labels.join(" ");
        let table = [
            (
                "pods",
                "spec.nodeName spec.host spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork \
                 status.phase status.podIP status.podIPs status.nominatedNodeName",
            ),
            ("nodes", "spec.unschedulable"),
            ("namespaces", "status.phase"),
            ("secrets", "type"),
            ("services", "spec.clusterIP spec.type"),
            ("replicationcontrollers", "status.replicas"),
            (
                "events",
                "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid \
                 involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason \
                 reportingComponent source type",
            ),
            ("jobs.batch", "status.successful"),
            ("certificatesigningrequests.certificates.k8s.io", "spec.signerName"),
            ("resourceslices.resource.k8s.io", "spec.nodeName spec.driver"),
        ];
        for (id, labels) in table {
            assert_eq!(of(id), labels, "{id}");
        }
        let others = registry.iter().filter(|ty| !table.iter().any(|(id, _)| *id == ty.id()));
        for ty in others {
            assert!(ty.field_labels.is_empty() && ty.unknown_field == UnknownFieldText::Default, "{}", ty.id());
        }
        let events = registry.by_id("events").expect("events");
        let source = events.schema.fields.iter().find(|field| field.label == "source").expect("source");
        let other = source.or.map(|place| &*events.schema.fields[place].label);
        assert_eq!(other, Some("reportingComponent"), "who reports is the source unless it says another");
    }

    /// Goal: custom types can be added and removed beside built-in ones. Method: check the order of the groups, and
    /// that the built-in types keep their `Arc`s.
    #[test]
    fn custom_types_come_and_go_around_the_built_in_ones() {
        let builtin = Registry::builtin();
        let definition = |name: &str, versions: &[&str]| {
            let (plural, group) = name.split_once('.').expect("plural.group");
            let versions: Vec<_> = versions
                .iter()
                .map(|version| serde_json::json!({"name": version, "served": true, "storage": *version == "v1"}))
                .collect();
            let names = serde_json::json!({"plural": plural, "kind": plural.to_uppercase()});
            let object = serde_json::json!({"metadata": {"name": name}, "spec": {"group": group, "versions": versions},
                "status": {"acceptedNames": names}});
            let definition = Definition::read(object.as_object().expect("an object")).expect("a definition");
            definition.types(&Arc::new(definition.schema()), 1)
        };
        let types =
            [definition("b.z.io", &["v1beta1", "v1"]), definition("a.z.io", &["v1"]), definition("c.a.io", &["v2"])];
        let registry = builtin.changed([], types.iter().flatten());
        let added: Vec<_> = registry
            .groups()
            .skip(builtin.groups().count())
            .map(|group| (&*group.group, &*group.version, group.types.len(), group.builtin))
            .collect();
        assert_eq!(added, [("a.io", "v2", 1, false), ("z.io", "v1", 2, false), ("z.io", "v1beta1", 1, false)]);
        let pods = |registry: &Registry| registry.by_id("pods").expect("pods");
        assert!(Arc::ptr_eq(&pods(&builtin), &pods(&registry)));
        assert_eq!(registry.by_id("b.z.io").expect("it is served").version, "v1", "the stored version stands for it");
        assert!(registry.serves("apps") && !registry.serves("z.io"));
        let beta = registry.find("z.io", "v1beta1", "b").expect("it is served");
        assert!(beta.is_swapped() && Arc::ptr_eq(&beta.schema, &registry.by_id("b.z.io").expect("same").schema));
        let again = registry.changed(types.iter().flatten(), []);
        let count = |registry: &Registry| (registry.groups().count(), registry.iter().count());
        assert_eq!(count(&again), count(&builtin));
        assert!(again.by_id("b.z.io").is_none() && again.find("z.io", "v1beta1", "b").is_none());
        assert!(again.by_kind("z.io/v1", "B").is_none() && again.group("z.io", "v1").is_none());
    }

    /// Goal: the cost of a definition's change does not grow with the number of other types. Method: 5,000 types in as
    /// many groups and 1,000 changes of one of them, within a time that rebuilding all types would exceed.
    #[test]
    fn a_change_costs_what_changes() {
        let types = |name: &str| {
            let names = serde_json::json!({"plural": name, "kind": name});
            let object = serde_json::json!({"metadata": {"name": name}, "spec": {"group": format!("{name}.io"),
                "versions": [{"name": "v1", "served": true, "storage": true}]}, "status": {"acceptedNames": names}});
            let definition = Definition::read(object.as_object().expect("an object")).expect("a definition");
            definition.types(&Arc::new(definition.schema()), 1)
        };
        let begun = std::time::Instant::now();
        let all: Vec<_> = (0..5_000).flat_map(|number| types(&format!("t{number}"))).collect();
        let mut registry = Registry::builtin().changed([], &all);
        let mut old = types("t7");
        registry = registry.changed(&all[7..8], &old);
        for _ in 0..1_000 {
            let new = types("t7");
            registry = registry.changed(&old, &new);
            old = new;
        }
        assert!(Arc::ptr_eq(&registry.by_id("t7.t7.io").expect("it is served"), &old[0]));
        assert_eq!(registry.iter().count(), Registry::builtin().iter().count() + 5_000);
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }

    /// Goal: every form of the field selector error. Method: one type per form.
    #[test]
    fn unknown_fields_are_refused_in_the_words_of_the_type() {
        let registry = Registry::builtin();
        for (id, text) in [
            ("configmaps", "\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
            ("pods", "field label not supported: x"),
            ("jobs.batch", "field label \"x\" not supported for Job"),
            (
                "resourceslices.resource.k8s.io",
                "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: x",
            ),
        ] {
            assert_eq!(registry.by_id(id).expect(id).refuse_field("x"), text, "{id}");
        }
    }
}
