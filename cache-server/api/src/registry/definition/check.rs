//! Defaults and validation of a definition on write.
//!
//! INVARIANT: an accepted object can be read as a [`Definition`] and defines types that the registry can hold. Schemas
//! are stored unchanged and not validated here, except for the paths of selectable fields.
//!
//! Source: apiextensions-apiserver `pkg/apis/apiextensions/{v1/defaults,validation/validation}.go`.

use std::collections::BTreeSet;

use informer_serving::{
    go::quote,
    status::{CauseExt as _, Causes, StatusCause},
};
use serde_json::{Value, json};

use super::{CLEANUP, Definition, DefinitionChange, Names, Object, ScalePaths, Version, accept};
use crate::{
    limits::{
        CATEGORIES_MAX, PRINTER_COLUMNS_MAX, SELECTABLE_FIELDS_READ_MAX, SHORT_NAMES_MAX, STORED_VERSIONS_MAX,
        VERSIONS_MAX,
    },
    registry::{NameRule, refuse_service_label},
};

/// Reason why a definition is rejected.
#[derive(Debug, PartialEq)]
pub enum DefinitionRefusal {
    /// A member has a wrong type.
    Malformed,
    /// Members have invalid values.
    Invalid(Causes),
}

/// Maximum of selectable fields per version, as in kube-apiserver.
const SELECTABLE_FIELDS_MAX: usize = 8;

const APPROVED: &str = "api-approved.kubernetes.io";
const APPROVAL: &str = "protected groups must have approval annotation \"api-approved.kubernetes.io\"";
const APPROVAL_SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

impl Definition {
    /// Fills in defaults and validates the result.
    ///
    /// # Errors
    /// [`DefinitionRefusal`]; the object may be partly filled in and must not be stored.
    pub fn prepare(object: &mut Object, change: DefinitionChange<'_>) -> Result<(), DefinitionRefusal> {
        let requested = Self::read(object).ok_or(DefinitionRefusal::Malformed)?;
        fill_in(object, &requested);
        let definition = Self::read(object).ok_or(DefinitionRefusal::Malformed)?;
        let mut causes = Causes::default();
        definition.check_names(&mut causes);
        definition.check_spec(&mut causes);
        match change {
            DefinitionChange::Create => definition.check_approval(&mut causes),
            DefinitionChange::Update(stored) => {
                definition.check_update(&Self::read(stored).unwrap_or_default(), &mut causes)
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(DefinitionRefusal::Invalid(causes)) }
    }

    /// Marks a definition as terminating: it is kept until its objects are deleted.
    pub fn terminate(object: &mut Object, now: &str) {
        accept::terminate(object, now);
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        match &mut metadata["finalizers"] {
            Value::Array(finalizers) if finalizers.iter().any(|finalizer| finalizer == CLEANUP) => {}
            Value::Array(finalizers) => finalizers.push(json!(CLEANUP)),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                *other = json!([CLEANUP]);
            }
        }
    }

    fn check_names(&self, causes: &mut Causes) {
        let (name, Self { spec, .. }) = (self.name(), self);
        if name != format!("{}.{}", spec.names.plural, spec.group) {
            let why = "must be spec.names.plural+\".\"+spec.group";
            causes.push(StatusCause::invalid("metadata.name", &quote(name), why));
        }
        let group = NameRule::Subdomain.refuse(&spec.group);
        if spec.group.is_empty() {
            causes.push(StatusCause::required("spec.group", ""));
        } else if !group.is_empty() {
            causes.push(StatusCause::invalid("spec.group", &quote(&spec.group), &group.join(",")));
        } else if !spec.group.contains('.') {
            let why = "should be a domain with at least one dot";
            causes.push(StatusCause::invalid("spec.group", &quote(&spec.group), why));
        }
        match &*spec.scope {
            "" => causes.push(StatusCause::required("spec.scope", "")),
            "Cluster" | "Namespaced" => {}
            other => causes.push(StatusCause::not_supported("spec.scope", other, &["Cluster", "Namespaced"])),
        }
        spec.names.check(causes);
    }

    fn check_spec(&self, causes: &mut Causes) {
        let spec = &self.spec;
        let mut seen = BTreeSet::new();
        let mut unique = true;
        if spec.versions.len() > VERSIONS_MAX {
            return causes.push(StatusCause::too_many("spec.versions", spec.versions.len(), VERSIONS_MAX));
        }
        for (place, version) in spec.versions.iter().enumerate() {
            version.check(&format!("spec.versions[{place}]"), causes);
            unique &= seen.insert(&version.name);
        }
        // List the names only: versions may be long.
        let shown = || format!("[{}]", spec.versions.iter().map(|one| quote(&one.name)).collect::<Vec<_>>().join(","));
        if !unique {
            causes.push(StatusCause::invalid("spec.versions", &shown(), "must contain unique version names"));
        }
        if spec.versions.iter().filter(|version| version.storage).count() != 1 {
            let why = "must have exactly one version marked as storage version";
            causes.push(StatusCause::invalid("spec.versions", &shown(), why));
        }
        if spec.preserve_unknown_fields {
            let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                       spec.versions[*].schema instead";
            causes.push(StatusCause::invalid("spec.preserveUnknownFields", "true", why));
        }
        if !["None", "Webhook"].contains(&&*spec.conversion.strategy) {
            let field = "spec.conversion.strategy";
            causes.push(StatusCause::not_supported(field, &spec.conversion.strategy, &["None", "Webhook"]));
        }
    }

    /// Kubernetes' own groups are reserved for approved types.
    fn check_approval(&self, causes: &mut Causes) {
        let group = &self.spec.group;
        let protected = ["k8s.io", "kubernetes.io"]
            .iter()
            .any(|domain| group.strip_suffix(domain).is_some_and(|before| before.is_empty() || before.ends_with('.')));
        if !protected {
            return;
        }
        let field = format!("metadata.annotations[{APPROVED}]");
        let approval = self.metadata.annotations.get(APPROVED).and_then(Value::as_str).unwrap_or_default();
        let is_url = approval.split_once("://").is_some_and(|(scheme, rest)| {
            !scheme.is_empty() && rest.split('/').next().is_some_and(|host| !host.is_empty())
        });
        if approval.is_empty() {
            causes.push(StatusCause::required(&field, &format!("{APPROVAL}, {APPROVAL_SEE}")));
        } else if !is_url && !approval.starts_with("unapproved") {
            let why = format!("{APPROVAL} with either a URL or a reason starting with \"unapproved\", {APPROVAL_SEE}");
            causes.push(StatusCause::invalid(&field, &quote(approval), &why));
        }
    }

    fn check_update(&self, stored: &Self, causes: &mut Causes) {
        let (new, old) = (&self.spec, &stored.spec);
        let fixed = [
            ("spec.scope", &new.scope, &old.scope, stored.is_established()),
            ("spec.names.kind", &new.names.kind, &old.names.kind, stored.is_established()),
            ("spec.group", &new.group, &old.group, true),
            ("spec.names.plural", &new.names.plural, &old.names.plural, true),
        ];
        for (field, new, old, is_fixed) in fixed {
            if is_fixed && new != old {
                causes.push(StatusCause::invalid(field, &quote(new), "field is immutable"));
            }
        }
        let stored_versions = &self.status.stored_versions;
        if stored_versions.len() > STORED_VERSIONS_MAX {
            let (field, count) = ("status.storedVersions", stored_versions.len());
            return causes.push(StatusCause::too_many(field, count, STORED_VERSIONS_MAX));
        }
        for (place, stored) in stored_versions.iter().enumerate() {
            if !new.versions.iter().any(|version| version.name == *stored) {
                let why = format!(
                    "missing from spec.versions; {stored} was previously a storage version, and must remain in \
                     spec.versions until a storage migration ensures no data remains persisted in {stored} and removes \
                     {stored} from status.storedVersions"
                );
                causes.push(StatusCause::invalid(&format!("status.storedVersions[{place}]"), &quote(stored), &why));
            }
        }
    }
}

impl Names {
    fn check(&self, causes: &mut Causes) {
        let mut label = |field: &str, name: &str, any_case: bool| {
            let field = format!("spec.names.{field}");
            if name.is_empty() {
                return causes.push(StatusCause::required(&field, ""));
            }
            let mut why = refuse_service_label(&if any_case { name.to_ascii_lowercase() } else { name.to_owned() });
            if why.is_empty() {
                return;
            }
            if any_case {
                why.insert_str(0, "may have mixed case, but should otherwise match: ");
            }
            causes.push(StatusCause::invalid(&field, &quote(name), &why));
        };
        label("plural", &self.plural, false);
        label("singular", &self.singular, false);
        label("kind", &self.kind, true);
        label("listKind", &self.list_kind, true);
        // Check only the allowed number of items of a list that is too long, so that a rejected definition costs
        // bounded work.
        for (place, short) in self.short_names.iter().enumerate().take(SHORT_NAMES_MAX) {
            label(&format!("shortNames[{place}]"), short, false);
        }
        for (place, category) in self.categories.iter().enumerate().take(CATEGORIES_MAX) {
            label(&format!("categories[{place}]"), category, false);
        }
        for (field, count, max) in [
            ("spec.names.shortNames", self.short_names.len(), SHORT_NAMES_MAX),
            ("spec.names.categories", self.categories.len(), CATEGORIES_MAX),
        ] {
            if count > max {
                causes.push(StatusCause::too_many(field, count, max));
            }
        }
        if !self.kind.is_empty() && self.kind == self.list_kind {
            let why = "kind and listKind may not be the same";
            causes.push(StatusCause::invalid("spec.names.listKind", &quote(&self.list_kind), why));
        }
    }
}

impl Version {
    fn check(&self, path: &str, causes: &mut Causes) {
        let why = refuse_service_label(&self.name);
        if !why.is_empty() {
            causes.push(StatusCause::invalid(&format!("{path}.name"), &quote(&self.name), &why));
        }
        if self.schema.schema.is_empty() {
            causes.push(StatusCause::required(&format!("{path}.schema.openAPIV3Schema"), "schemas are required"));
        }
        if let Some(scale) = &self.subresources.scale {
            scale.check(&format!("{path}.subresources.scale"), causes);
        }
        let columns = self.additional_printer_columns.as_array().map_or(0, Vec::len);
        if columns > PRINTER_COLUMNS_MAX {
            let field = format!("{path}.additionalPrinterColumns");
            causes.push(StatusCause::too_many(&field, columns, PRINTER_COLUMNS_MAX));
        }
        self.check_selectable(&format!("{path}.selectableFields"), causes);
    }

    fn check_selectable(&self, path: &str, causes: &mut Causes) {
        if self.selectable_fields.is_empty() {
            return;
        }
        let schema: Value = serde_json::from_str(&self.schema.schema).unwrap_or_default();
        let mut seen = BTreeSet::new();
        if self.selectable_fields.len() > SELECTABLE_FIELDS_READ_MAX {
            return causes.push(StatusCause::too_many(path, self.selectable_fields.len(), SELECTABLE_FIELDS_MAX));
        }
        for (place, field) in self.selectable_fields.iter().enumerate() {
            let (at, shown) = (format!("{path}[{place}]"), quote(&field.json_path));
            if field.json_path.is_empty() {
                causes.push(StatusCause::required(&format!("{at}.jsonPath"), ""));
                continue;
            }
            let members: Vec<&str> = field.json_path.split('.').skip(1).collect();
            let in_metadata = members.first() == Some(&"metadata");
            let kind = value_type(&schema, &members).filter(|_| field.json_path.starts_with('.'));
            match kind {
                _ if in_metadata => {
                    causes.push(StatusCause::invalid(&at, &shown, "must not point to fields in metadata"));
                }
                None => {
                    let why = "is an invalid path: does not refer to a valid field";
                    causes.push(StatusCause::invalid(&format!("{at}.jsonPath"), &shown, why));
                }
                Some("string" | "boolean" | "integer") => {}
                Some(_) => {
                    let why = "must point to a field of type string, boolean or integer. Enum string fields and \
                               strings with formats are allowed.";
                    causes.push(StatusCause::invalid(&at, &shown, why));
                }
            }
            if !seen.insert(&field.json_path) {
                causes.push(StatusCause::duplicate(&at, &shown));
            }
        }
        if seen.len() > SELECTABLE_FIELDS_MAX {
            let why = format!("must have at most {SELECTABLE_FIELDS_MAX} items");
            causes.push(StatusCause::invalid(path, &seen.len().to_string(), &why));
        }
    }
}

/// The `type` at a path of members; empty if missing there, `None` if the schema has no such path.
fn value_type<'a>(schema: &'a Value, members: &[&str]) -> Option<&'a str> {
    let at = members.iter().try_fold(schema, |schema, member| schema.get("properties")?.get(member))?;
    Some(at.get("type").and_then(Value::as_str).unwrap_or_default())
}

impl ScalePaths {
    fn check(&self, path: &str, causes: &mut Causes) {
        let places = [
            ("specReplicasPath", &self.spec_replicas_path, &[".spec."][..], "should be a json path under .spec"),
            ("statusReplicasPath", &self.status_replicas_path, &[".status."], "should be a json path under .status"),
        ];
        for (member, declared, under, why) in places {
            let field = format!("{path}.{member}");
            if declared.is_empty() {
                causes.push(StatusCause::required(&field, ""));
            } else if !under.iter().any(|under| declared.starts_with(under)) {
                causes.push(StatusCause::invalid(&field, &quote(declared), why));
            }
        }
        let selector = &self.label_selector_path;
        if !selector.is_empty() && ![".spec.", ".status."].iter().any(|under| selector.starts_with(under)) {
            let (field, why) =
                (format!("{path}.labelSelectorPath"), "should be a json path under either .spec or .status");
            causes.push(StatusCause::invalid(&field, &quote(selector), why));
        }
    }
}

/// Fills in names derived from others, the conversion strategy `None`, and the current storage version.
fn fill_in(object: &mut Object, requested: &Definition) {
    let names = &requested.spec.names;
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        if let Some(given) = spec.get_mut("names").and_then(Value::as_object_mut) {
            if names.singular.is_empty() {
                given.insert("singular".to_owned(), names.kind.to_lowercase().into());
            }
            if names.list_kind.is_empty() && !names.kind.is_empty() {
                given.insert("listKind".to_owned(), format!("{}List", names.kind).into());
            }
        }
        if requested.spec.conversion.strategy.is_empty() {
            spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
        }
    }
    let status = object.entry("status").or_insert_with(|| json!({}));
    if !status.is_object() {
        *status = json!({});
    }
    let members = status.as_object_mut().expect("made an object above");
    members.entry("conditions").or_insert(Value::Null);
    members.entry("acceptedNames").or_insert_with(|| json!({"plural": "", "kind": ""}));
    members.insert("storedVersions".to_owned(), requested.stored_versions().into());
}

#[cfg(test)]
mod tests;
