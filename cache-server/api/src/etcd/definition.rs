//! Converts CustomResourceDefinitions from apiextensions.k8s.io/v1beta1, the version at which every kube-apiserver stores
//! them: it is shorter where all versions of a definition have one schema.
//!
//! Source: `pkg/controlplane/apiserver/apiextensions.go` in kubernetes; `pkg/apis/apiextensions/v1/conversion.go` and
//! `v1beta1/defaults.go` in apiextensions-apiserver.

use serde_json::{Value, json};

use crate::object::{
    Object,
    weight::{TooHeavy, Weight},
};

/// The stored version.
pub(super) const VERSION: &str = "v1beta1";
/// Its message.
pub(super) const MESSAGE: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1beta1.CustomResourceDefinition";

/// Members of `spec` that apply to every version, and their names in a version.
const SHARED: [(&str, &str); 4] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Changes the members of a v1beta1 definition into those of v1. Cost: a copy of the shared members for each version.
///
/// # Errors
/// [`TooHeavy`] before copies exceed the bound of one document.
pub(super) fn convert(object: &mut Object) -> Result<(), TooHeavy> {
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return Ok(()) };
    let first = spec.remove("version").filter(|name| name.as_str().is_some_and(|name| !name.is_empty()));
    let shared: Vec<_> = SHARED
        .iter()
        .filter_map(|(from, to)| Some((*to, spec.remove(*from).filter(|value| !value.is_null())?)))
        .collect();
    let versions = spec.entry("versions").or_insert_with(|| json!([]));
    if versions.as_array().is_none_or(Vec::is_empty)
        && let Some(name) = first
    {
        *versions = json!([{"name": name, "served": true, "storage": true}]);
    }
    let mut weight = Weight::default();
    for version in versions.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        for (name, value) in &shared {
            weight.value(value)?;
            version.insert((*name).to_owned(), value.clone());
        }
        rename_paths(version);
    }
    if let Some(Value::Object(conversion)) = spec.get_mut("conversion") {
        nest_webhook(conversion);
    }
    // v1beta1 omits true, v1 omits false.
    match spec.get("preserveUnknownFields") {
        Some(Value::Bool(false)) => drop(spec.remove("preserveUnknownFields")),
        _ => drop(spec.insert("preserveUnknownFields".to_owned(), Value::Bool(true))),
    }
    Ok(())
}

/// Renames `JSONPath` of printer columns, which has this name in JSON only.
fn rename_paths(version: &mut Object) {
    let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut);
    for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(path) = column.remove("JSONPath") {
            column.insert("jsonPath".to_owned(), path);
        }
    }
}

fn nest_webhook(conversion: &mut Object) {
    let mut webhook = Object::new();
    for (from, to) in
        [("webhookClientConfig", "clientConfig"), ("conversionReviewVersions", "conversionReviewVersions")]
    {
        if let Some(value) = conversion.remove(from).filter(|value| !value.is_null()) {
            webhook.insert(to.to_owned(), value);
        }
    }
    if !webhook.is_empty() {
        conversion.insert("webhook".to_owned(), Value::Object(webhook));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: definitions are read as kube-apiserver shows them. Method: shared members, a single version, members of
    /// versions, a webhook, and the two defaults of unknown fields.
    #[test]
    fn shared_members_belong_to_every_version() {
        let schema = json!({"openAPIV3Schema": {"type": "object"}});
        let column = json!({"name": "c", "type": "string", "jsonPath": ".c"});
        let table = [
            (
                json!({"version": "v1", "validation": schema, "subresources": {"status": {}}, "preserveUnknownFields": false,
                    "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v2", "served": false}]}),
                json!({"versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}},
                    {"name": "v2", "served": false, "schema": schema, "subresources": {"status": {}}},
                ]}),
            ),
            (
                json!({"version": "v1", "additionalPrinterColumns": [{"name": "c", "type": "string", "JSONPath": ".c"}]}),
                json!({"preserveUnknownFields": true, "versions": [
                    {"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [column]}]}),
            ),
            (
                json!({"versions": [{"name": "v1", "schema": schema}], "preserveUnknownFields": false, "conversion":
                    {"strategy": "Webhook", "webhookClientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]}}),
                json!({"versions": [{"name": "v1", "schema": schema}], "conversion": {"strategy": "Webhook",
                    "webhook": {"clientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]}}}),
            ),
        ];
        for (stored, expected) in table {
            let mut object = Object::from_iter([("spec".to_owned(), stored)]);
            convert(&mut object).expect("is small");
            assert_eq!(Value::Object(object), json!({"spec": expected}));
        }
    }

    #[test]
    fn copies_of_a_large_schema_have_a_bound() {
        let (schema, version) = (json!({"x": "x".repeat(1 << 20)}), json!({"name": "v"}));
        let spec = json!({"validation": schema, "versions": vec![version; 1_000]});
        assert!(convert(&mut Object::from_iter([("spec".to_owned(), spec)])).is_err());
    }
}
