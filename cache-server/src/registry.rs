//! The resource types this server holds, and what each asks of its objects: a table of built-in types, and what stored
//! CustomResourceDefinitions say.
//!
//! INVARIANT: a type is found by (group, version, plural) or by (apiVersion, kind), and both ways give the same `Arc`.
//! INVARIANT: what differs between types is a column here, never a `match` on names elsewhere.

mod definition;
mod live;
mod names;
mod order;
mod table;

use std::{
    cmp::Ordering,
    sync::{Arc, OnceLock},
};

use imbl::{HashMap, OrdMap};
use informer_core::wire::go::quote;
use watch_cache::{Field, Schema};

pub(crate) use definition::{Accepted, CLEANUP, Change, Definition, Object, Refused, TakenNames};
pub use live::Live;
pub use names::NameRule;
pub(crate) use names::refuse_namespace;
use names::refuse_service_label;
pub use table::{CreatedStatus, Fixed, Grace, StatusMetadata, Texts, UnknownField};

use crate::{http::table::Columns, schemas::Shape};

/// One resource type.
#[derive(Debug)]
pub struct ResourceType {
    /// API group, such as `apps`; empty for the core group.
    pub group: String,
    /// Version within the group, such as `v1`.
    pub version: String,
    /// The name in paths, such as `deployments`.
    pub plural: String,
    /// The lower-case singular that command lines accept.
    pub singular: String,
    /// The kind of one object.
    pub kind: String,
    /// What else command lines accept, such as `deploy`.
    pub short_names: Vec<String>,
    /// Groups of types that command lines know by one word, such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What the cache needs: kind, apiVersion and the selectable fields.
    pub schema: Arc<Schema>,
    /// Which names its objects may have.
    pub name_rule: NameRule,
    /// Whether `…/{name}/status` exists, and with it, whether the main resource leaves `.status` alone.
    pub has_status: bool,
    /// What a create does with `.status`.
    pub created_status: CreatedStatus,
    /// What a write of `…/{name}/status` does with metadata.
    pub status_metadata: StatusMetadata,
    /// The member that a create fills in and no update changes.
    pub fixed: Option<Fixed>,
    /// The member whose texts become base64 values of another one.
    pub texts: Option<Texts>,
    /// Whether `metadata.generation` counts changes of the desired state: of everything but metadata, and but the
    /// status unless it is a custom resource's that has no status subresource.
    pub tracks_generation: bool,
    /// Members of metadata whose changes `metadata.generation` counts too.
    pub tracked_metadata: &'static [&'static str],
    /// Whether an immediate delete answers the last object; otherwise it answers a Status.
    pub returns_deleted: bool,
    /// The time that its objects get to end before they go; `None` when they go at once.
    pub grace: Option<&'static Grace>,
    /// Whether other objects live in its objects and go with them: namespaces.
    pub holds_objects: bool,
    /// Whether an update may leave out the resourceVersion that it replaces.
    pub unconditional_update: bool,
    /// The words its objects are served under, in the order of discovery.
    pub verbs: &'static [&'static str],
    /// `…/{name}/scale`, where it exists.
    pub scale: Option<Scale>,
    /// What a CustomResourceDefinition says of it beyond this; `None` for built-in types.
    pub custom: Option<Arc<Custom>>,
    /// Whether an update of an object that does not exist creates it.
    pub create_on_update: bool,
    /// Whether its objects define types: CustomResourceDefinitions.
    pub defines_types: bool,
    /// Whether its definition is being deleted: nothing new is created.
    pub terminating: bool,
    /// The selectable fields besides name and namespace. A version of a custom type may have fewer than its schema.
    pub field_labels: Vec<String>,
    /// The words that refuse a field that objects cannot be selected by.
    pub unknown_field: UnknownField,
    /// Where the storage was when the schema was defined: a cache of an earlier one is out of date. Zero for built-in
    /// types.
    pub defined_at: u64,
    /// How it looks in tables, made on first use.
    pub(crate) columns: OnceLock<Arc<Columns>>,
    /// What is known about values of a custom type, made on first use.
    pub(crate) shape: OnceLock<Shape>,
    list_kind: String,
    id: String,
    api_version: String,
}

/// Where the numbers of `…/{name}/scale` stand. Paths are dotted, without a dot in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// The wanted number, such as `spec.replicas`.
    pub spec_replicas: String,
    /// The number there is, such as `status.replicas`.
    pub status_replicas: String,
    /// The selector of what is counted.
    pub selector: ScaleSelector,
}

impl Scale {
    fn built_in(selector: fn(String) -> ScaleSelector) -> Self {
        Self {
            spec_replicas: "spec.replicas".to_owned(),
            status_replicas: "status.replicas".to_owned(),
            selector: selector("spec.selector".to_owned()),
        }
    }
}

/// Where the selector of a [`Scale`] stands, and in which form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScaleSelector {
    /// There is none.
    Nowhere,
    /// A selector's text at this path: custom resources.
    Text(String),
    /// A LabelSelector at this path, with matchLabels and matchExpressions.
    Labels(String),
    /// A map of labels at this path: replication controllers.
    Map(String),
}

/// What a CustomResourceDefinition says of one version of a type.
#[derive(Debug, Clone, PartialEq)]
pub struct Custom {
    /// `schema.openAPIV3Schema` as compact JSON; `null` when there is none. A text, because what is read from it takes
    /// five times the memory, and most types are never asked for it.
    pub schema: Arc<str>,
    /// `additionalPrinterColumns` as they stand there: a list; null when there are none.
    pub printer_columns: serde_json::Value,
    /// Whether objects may have members that the schema does not know: `preserveUnknownFields` of the whole type.
    pub preserve_unknown_fields: bool,
}

impl Custom {
    /// The schema, read. Cost: as long as it takes to parse it.
    #[must_use]
    pub fn read_schema(&self) -> serde_json::Value {
        serde_json::from_str(&self.schema).unwrap_or_default()
    }
}

/// The words that objects of most types are served under, in the order of discovery.
pub const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

impl ResourceType {
    /// The name in messages, logs and metrics: `pods`, `deployments.apps`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `v1`, `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// The kind of its lists.
    #[must_use]
    pub fn list_kind(&self) -> String {
        self.list_kind.clone()
    }

    /// The kind as messages about invalid objects name it: `Pod`, `Deployment.apps`.
    #[must_use]
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Whether objects are stored at another version than this one, so that their apiVersion is swapped.
    #[must_use]
    pub fn is_swapped(&self) -> bool {
        self.api_version != self.schema.api_version
    }

    /// Whether a replacement takes nothing over from what was there but metadata.
    #[must_use]
    pub(crate) fn is_replaced_whole(&self) -> bool {
        let takes_over = self.has_status || self.tracks_generation || self.holds_objects || self.defines_types;
        let takes_over = takes_over || self.fixed.is_some();
        self.schema.builtin && !takes_over && !self.is_swapped()
    }

    /// Why objects of this type cannot be selected by `label`, in Kubernetes' words.
    #[must_use]
    pub fn refuse_field(&self, label: &str) -> String {
        match self.unknown_field {
            UnknownField::Default => {
                let quoted = quote(label);
                format!("{quoted} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
            UnknownField::Plain => format!("field label not supported: {label}"),
            UnknownField::Kind(kind) => format!("field label not supported for {kind}: {label}"),
            UnknownField::Quoted(kind) => format!("field label {} not supported for {kind}", quote(label)),
        }
    }

    /// Whether `metadata.namespace` selects: cluster-scoped types with a field list of their own do not have it.
    #[must_use]
    pub fn selects_namespace(&self) -> bool {
        self.namespaced || self.unknown_field == UnknownField::Default
    }

    /// The key of an object: `namespace/name`, or `name` for a cluster-scoped type.
    #[must_use]
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }

    fn built_in(group: &table::Group, row: &table::Row) -> Self {
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
            holds_objects: row.holds_objects,
            unconditional_update: row.unconditional_update,
            create_on_update: row.create_on_update,
            defines_types: row.defines_types,
            terminating: false,
            field_labels,
            unknown_field: row.fields.unknown,
            defined_at: 0,
            verbs: row.verbs,
            scale: row.scale.map(Scale::built_in),
            custom: None,
            columns: OnceLock::new(),
            shape: OnceLock::new(),
            list_kind: format!("{}List", row.kind),
            id,
            api_version,
        }
    }
}

fn field(&(label, path, absent): &(&str, &str, &str)) -> Field {
    Field { label: label.to_owned(), path: path.to_owned(), absent: absent.to_owned(), or: None }
}

/// One group version and its types, in the order of discovery.
#[derive(Clone, Debug)]
pub struct GroupVersion {
    /// Empty for the core group.
    pub group: String,
    /// Such as `v1`.
    pub version: String,
    /// Its types, ordered by plural as discovery shows them.
    pub types: Vec<Arc<ResourceType>>,
    /// Whether it is there without any CustomResourceDefinition.
    pub builtin: bool,
}

/// Where a group version stands in the order of discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupPlace {
    /// Built-in ones stand in the order of their table, before all others.
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

/// All types of one server.
///
/// Cost: a look-up is one or two hash look-ups; a clone is some reference counts; a change is that of the types that
/// change, and a list of those beside them in their group version.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    groups: OrdMap<GroupPlace, Arc<GroupVersion>>,
    /// By apiVersion.
    places: HashMap<String, GroupPlace>,
    /// By apiVersion and plural, and by apiVersion and kind, with a slash between them.
    by_plural: HashMap<String, Arc<ResourceType>>,
    by_kind: HashMap<String, Arc<ResourceType>>,
    by_id: HashMap<String, Arc<ResourceType>>,
}

impl Registry {
    /// The types that are always there.
    #[must_use]
    pub fn builtin() -> Self {
        let mut registry = Self::default();
        for (number, group) in table::GROUPS.iter().enumerate() {
            let types: Vec<_> = group.rows.iter().map(|row| Arc::new(ResourceType::built_in(group, row))).collect();
            types.iter().for_each(|ty| registry.index(ty));
            let (name, version) = (group.name.to_owned(), group.version.to_owned());
            let place = GroupPlace { builtin: Some(number), group: name.clone(), version: version.clone() };
            registry.places.insert(api_version(group.name, group.version), place.clone());
            registry.groups.insert(place, Arc::new(GroupVersion { group: name, version, types, builtin: true }));
        }
        registry
    }

    /// The types of `self` without those that are `gone`, and with those that `come`. Groups of custom types follow the
    /// built-in ones, by name; the versions of a group stand in Kubernetes' order, the newest stable one first. All types
    /// of one definition come and go together.
    ///
    /// INVARIANT: no two types have the same apiVersion and plural, or the same apiVersion and kind.
    #[must_use]
    pub(crate) fn changed<'a>(
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
        self.by_plural.get(&*format!("{group}{slash}{version}/{plural}")).cloned()
    }

    /// The type of an object by what it says of itself.
    #[must_use]
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<Arc<ResourceType>> {
        self.by_kind.get(&*format!("{api_version}/{kind}")).cloned()
    }

    /// The type by its [`ResourceType::id`]: `pods`, `deployments.apps`.
    #[must_use]
    pub fn by_id(&self, id: &str) -> Option<Arc<ResourceType>> {
        self.by_id.get(id).cloned()
    }

    /// True if built-in types are served under some version of this group. Paths that are not served are answered
    /// differently there: kube-apiserver has a router for each such group.
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
            Arc::new(GroupVersion { group, version, types: Vec::new(), builtin: false })
        });
        let types = &mut Arc::make_mut(group).types;
        let at = types.partition_point(|other| other.plural < ty.plural);
        types.insert(at, Arc::clone(ty));
    }

    fn remove(&mut self, ty: &Arc<ResourceType>) {
        self.by_id.remove(&ty.id);
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
        // Of several versions, the one that objects are stored at stands for the type.
        if !self.by_id.contains_key(&ty.id) || !ty.is_swapped() {
            self.by_id.insert(ty.id.clone(), Arc::clone(ty));
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

    /// Goal: what objects can be selected by. Method: every type with fields of its own, as kube-apiserver has them.
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
            assert!(ty.field_labels.is_empty() && ty.unknown_field == UnknownField::Default, "{}", ty.id());
        }
        let events = registry.by_id("events").expect("events");
        let source = events.schema.fields.iter().find(|field| field.label == "source").expect("source");
        let other = source.or.map(|place| &*events.schema.fields[place].label);
        assert_eq!(other, Some("reportingComponent"), "who reports is the source unless it says another");
    }

    /// Goal: custom types beside built-in ones. Method: their order, and that the built-in ones are the same.
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

    /// Goal: a definition that changes costs its own types, however many others there are. Method: five thousand types of
    /// one group version each, and a thousand changes of one of them: by the million, were all of them made again.
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

    /// Goal: each dialect of refusing a field. Method: a type of each.
    #[test]
    fn unknown_fields_are_refused_in_the_words_of_the_type() {
        let registry = Registry::builtin();
        for (id, text) in [
            ("configmaps", "\"x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
            ("pods", "field label not supported: x"),
            ("jobs.batch", "field label \"x\" not supported for batchv1.Job"),
            (
                "resourceslices.resource.k8s.io",
                "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: x",
            ),
        ] {
            assert_eq!(registry.by_id(id).expect(id).refuse_field("x"), text, "{id}");
        }
    }
}
