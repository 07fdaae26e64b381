//! The types of a definition: one per served version.

use std::sync::Arc;

use watch_cache::{Field, Schema};

use super::{Definition, ScalePaths, Version};
use crate::registry::{
    Converter, Custom, DerivedValues, NameRule, ResourceType, Scale, ScaleSelector, VERBS,
    table::{CreatedStatus, Dependents, StatusMetadata, UnknownFieldText},
};

/// Verbs allowed while the definition is being deleted.
const TERMINATING_VERBS: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];

impl Definition {
    /// Schema for the cache of the objects, with the selectable fields of all versions.
    pub fn schema(&self) -> Schema {
        let mut fields: Vec<Field> = Vec::new();
        for label in self.spec.versions.iter().flat_map(Version::labels) {
            if !fields.iter().any(|field| field.label == label) {
                fields.push(Field { label: label.to_owned(), path: label.to_owned(), absent: String::new(), or: None });
            }
        }
        let version = self.stored_version().map_or("", |version| &version.name);
        Schema {
            kind: self.status.accepted_names.kind.clone(),
            api_version: format!("{}/{version}", self.spec.group),
            builtin: false,
            fields,
            node_field: None,
        }
    }

    /// Names of the served versions, in order.
    pub fn served(&self) -> Vec<&str> {
        self.spec.versions.iter().filter(|version| version.served).map(|version| &*version.name).collect()
    }

    /// The uid: a definition with another uid is a different definition, even if its content is equal.
    pub fn uid(&self) -> &str {
        &self.metadata.uid
    }

    /// One type per served version, with the accepted names. `schema` is [`Self::schema`], or an equal one made
    /// earlier, and `defined_at` is the position at which it was made.
    pub fn types(&self, schema: &Arc<Schema>, defined_at: u64) -> Vec<Arc<ResourceType>> {
        let served = self.spec.versions.iter().filter(|version| version.served);
        let stored = self.stored_version().filter(|_| self.is_converted());
        let Some(stored) = stored.map(|version| Arc::new(self.at_version(version, schema, defined_at))) else {
            return served.map(|version| Arc::new(self.at_version(version, schema, defined_at))).collect();
        };
        let ty = |version: &Version| {
            if version.name == stored.version {
                Arc::clone(&stored)
            } else {
                Arc::new(self.converted(version, &stored))
            }
        };
        served.map(ty).collect()
    }

    /// A version whose objects a webhook makes from the stored ones.
    fn converted(&self, version: &Version, stored: &Arc<ResourceType>) -> ResourceType {
        let api_version = format!("{}/{}", self.spec.group, version.name);
        let schema = Arc::new(Schema { api_version, ..(*stored.schema).clone() });
        let ty = self.at_version(version, &schema, stored.defined_at);
        let webhook = self.spec.conversion.webhook.clone();
        let converter = Some(Arc::new(Converter { stored: Arc::clone(stored), webhook }));
        ResourceType { converter, cache_id: format!("{}/{}", ty.id, version.name), ..ty }
    }

    /// The type at the version of the stored objects, served or not. `None` if the definition was never established, so has no
    /// objects.
    pub fn stored_type(&self, schema: &Arc<Schema>, defined_at: u64) -> Option<Arc<ResourceType>> {
        let stored = self.stored_version().filter(|_| self.is_established())?;
        Some(Arc::new(self.at_version(stored, schema, defined_at)))
    }

    fn at_version(&self, version: &Version, schema: &Arc<Schema>, defined_at: u64) -> ResourceType {
        let (names, group) = (&self.status.accepted_names, &self.spec.group);
        let has_status = version.subresources.status.is_some();
        let custom = Custom {
            schema: if version.schema.schema.is_empty() { "null".into() } else { Arc::clone(&version.schema.schema) },
            printer_columns: version.additional_printer_columns.clone(),
            preserve_unknown_fields: self.spec.preserve_unknown_fields,
        };
        ResourceType {
            group: group.clone(),
            version: version.name.clone(),
            plural: names.plural.clone(),
            singular: names.singular.clone(),
            kind: names.kind.clone(),
            short_names: names.short_names.clone(),
            categories: names.categories.clone(),
            namespaced: self.spec.scope == "Namespaced",
            schema: Arc::clone(schema),
            name_rule: NameRule::Subdomain,
            has_status,
            created_status: if has_status { CreatedStatus::Dropped } else { CreatedStatus::Retained },
            status_metadata: StatusMetadata::Stays,
            fixed: None,
            texts: None,
            tracks_generation: true,
            tracked_metadata: &[],
            returns_deleted: false,
            grace: None,
            dependents: Dependents::Deleted,
            holds_objects: false,
            unconditional_update: false,
            verbs: if self.is_terminating() { &TERMINATING_VERBS } else { &VERBS },
            scale: version.subresources.scale.as_ref().map(ScalePaths::scale),
            subresources: &[],
            conversion: None,
            stored: None,
            converter: None,
            custom: Some(Arc::new(custom)),
            create_on_update: false,
            defines_types: false,
            etcd_folder: None,
            equal_versions: &[],
            terminating: self.is_terminating(),
            field_labels: version.labels().map(str::to_owned).collect(),
            unknown_field: UnknownFieldText::Plain,
            defined_at,
            derived: DerivedValues::default(),
            list_kind: names.list_kind.clone(),
            id: format!("{}.{group}", names.plural),
            cache_id: format!("{}.{group}", names.plural),
            api_version: format!("{group}/{}", version.name),
        }
    }
}

impl Version {
    /// Labels of the selectable fields, which are also their paths.
    fn labels(&self) -> impl Iterator<Item = &str> {
        self.selectable_fields.iter().map(|field| plain(&field.json_path))
    }
}

impl ScalePaths {
    fn scale(&self) -> Scale {
        let selector = plain(&self.label_selector_path);
        Scale {
            spec_replicas: plain(&self.spec_replicas_path).to_owned(),
            status_replicas: plain(&self.status_replicas_path).to_owned(),
            selector: match selector {
                "" => ScaleSelector::Nowhere,
                path => ScaleSelector::Text(path.to_owned()),
            },
        }
    }
}

/// Strips the leading dot of a path.
fn plain(path: &str) -> &str {
    path.strip_prefix('.').unwrap_or(path)
}
