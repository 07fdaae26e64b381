//! Builds the document of `/openapi/v2`: the paths and schemas of all group versions, as Swagger 2.0.
//!
//! The older version has no values of several types, and its readers take schemas literally: kubectl refuses members beside
//! those listed. So what does not fit is left out, as kube-apiserver does, and the schema allows more than the server.
//!
//! Source: apiextensions-apiserver `pkg/controller/openapi`, kube-openapi `pkg/builder`.

use serde_json::{Map, Value, json, map::Entry};

use super::{operations, schemas::Schemas};
use crate::{registry::Registry, schemas::PREFIX, version::git_version};

const KINDS: &str = "x-kubernetes-group-version-kind";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Builds the document of all types.
///
/// Cost: builds all documents of version 3.
pub fn document(registry: &Registry) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for group in registry.groups() {
        for ty in group.types.iter().chain(&group.reviews) {
            operations::paths(ty, &mut paths);
        }
        let Value::Object(schemas) = Schemas::of(group).into_value() else { continue };
        for (name, definition) in schemas {
            add(&mut definitions, name, definition);
        }
    }
    paths.values_mut().for_each(path);
    json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": git_version() },
        "paths": paths,
        "definitions": definitions,
    })
}

/// Adds a definition. Several groups have those that all share, each with kinds of its own.
fn add(definitions: &mut Map<String, Value>, name: String, mut definition: Value) {
    match definitions.entry(name) {
        Entry::Vacant(place) => {
            if definition[PRESERVE] == true {
                // Members would forbid the unknown ones.
                definition = json!({ "type": "object", KINDS: definition[KINDS] });
            }
            schema(&mut definition);
            place.insert(definition);
        }
        Entry::Occupied(mut known) => {
            if let (Some(known), Value::Array(kinds)) =
                (known.get_mut().get_mut(KINDS).and_then(Value::as_array_mut), definition[KINDS].take())
            {
                known.extend(kinds.into_iter().filter(|kind| !known.contains(kind)).collect::<Vec<_>>());
            }
        }
    }
}

/// Converts a schema and those inside it.
fn schema(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    let all_of = members.remove("allOf");
    let reference = all_of.as_ref().and_then(|all| all.pointer("/0/$ref")).or_else(|| members.get("$ref"));
    if let Some(name) = reference.and_then(Value::as_str).and_then(|reference| reference.strip_prefix(PREFIX)) {
        let reference = format!("#/definitions/{name}");
        members.insert("$ref".to_owned(), reference.into());
    }
    let has_types = members.remove("oneOf").is_some();
    for junctor in ["anyOf", "not"] {
        members.remove(junctor);
    }
    restrict_less(members);
    // Of built-in types: numbers or texts. Those of custom types are marked.
    if has_types && !members.keys().any(|name| name == "type" || name.starts_with("x-kubernetes-")) {
        members.insert("type".to_owned(), "string".into());
    }
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.values_mut().for_each(self::schema);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = members.get_mut(name) {
            self::schema(inner);
        }
    }
}

/// Drops what would refuse null and unknown members where the schema allows them.
fn restrict_less(members: &mut Map<String, Value>) {
    let nullable = members.remove("nullable").is_some_and(|value| value == true);
    let preserves = members.get(PRESERVE).is_some_and(|value| value == true);
    if nullable || preserves {
        members.remove("items");
        members.remove("properties");
    }
    let is_array = members.get("type").is_some_and(|ty| ty == "array");
    let is_object = members.get("type").is_some_and(|ty| ty == "object");
    if nullable || is_array && !members.contains_key("items") || is_object && preserves {
        members.remove("type");
    }
    let may_be_null = |schema: Option<&Value>| schema.is_some_and(|schema| schema["nullable"] == true);
    let Some(Value::Array(mut required)) = members.remove("required") else { return };
    if may_be_null(members.get("additionalProperties")) {
        return;
    }
    let of_name = |name: &Value| members.get("properties")?.get(name.as_str()?);
    required.retain(|name| !may_be_null(of_name(name)));
    if !required.is_empty() {
        members.insert("required".to_owned(), required.into());
    }
}

/// Converts the parameters and operations of a path.
fn path(item: &mut Value) {
    for (name, member) in item.as_object_mut().into_iter().flatten() {
        if name == "parameters" {
            member.as_array_mut().into_iter().flatten().for_each(parameter);
        } else if let Value::Object(members) = member {
            operation(members);
        }
    }
}

/// Its schema's members become its own.
fn parameter(parameter: &mut Value) {
    if let Value::Object(members) = parameter
        && let Some(Value::Object(schema)) = members.remove("schema")
    {
        members.extend(schema);
    }
}

/// The body becomes a parameter, and media types become members of the operation.
fn operation(members: &mut Map<String, Value>) {
    let mut consumes = vec!["*/*".into()];
    let body = members.remove("requestBody");
    if let Some(Value::Array(parameters)) = members.get_mut("parameters") {
        parameters.iter_mut().for_each(parameter);
        if let Some(mut body) = body {
            let (types, schema) = content(&mut body);
            consumes = types;
            parameters.push(json!({ "name": "body", "in": "body", "required": body["required"], "schema": schema }));
        }
    }
    let mut produces = Vec::new();
    for response in members.get_mut("responses").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut) {
        let (types, schema) = content(response);
        produces = types;
        response["schema"] = schema;
    }
    members.insert("consumes".to_owned(), consumes.into());
    members.insert("produces".to_owned(), produces.into());
}

/// Takes the content: its media types, and their schema.
fn content(of: &mut Value) -> (Vec<Value>, Value) {
    let content = of.as_object_mut().and_then(|members| members.remove("content"));
    let content = content.as_ref().and_then(Value::as_object);
    let types = content.into_iter().flat_map(Map::keys).map(|name| Value::from(&**name)).collect();
    let mut schema =
        content.and_then(|content| content.values().next()).map_or(Value::Null, |first| first["schema"].clone());
    self::schema(&mut schema);
    (types, schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(mut value: Value) -> Value {
        schema(&mut value);
        value
    }

    /// Goal: readers that know no null and no alternatives accept what the server accepts. Method: a table of schemas.
    #[test]
    fn schemas_lose_what_version_2_cannot_say() {
        let reference = json!({ "allOf": [{ "$ref": format!("{PREFIX}a.B") }], "description": "c" });
        let text = json!({ "type": "string" });
        for (given, expected) in [
            (reference, json!({ "$ref": "#/definitions/a.B", "description": "c" })),
            (json!({ "oneOf": [text, { "type": "number" }] }), text.clone()),
            (
                json!({ "oneOf": [text], "x-kubernetes-int-or-string": true }),
                json!({ "x-kubernetes-int-or-string": true }),
            ),
            (
                json!({ "type": "object", "properties": { "$ref": text } }),
                json!({ "type": "object", "properties": { "$ref": text } }),
            ),
            (json!({ "type": "object", "nullable": true, "properties": { "a": text } }), json!({})),
            (json!({ "type": "object", PRESERVE: true, "properties": { "a": text } }), json!({ PRESERVE: true })),
            (json!({ "type": "array", PRESERVE: true, "items": text }), json!({ PRESERVE: true })),
            (
                json!({ "required": ["a", "b"], "properties": { "a": text, "b": { "type": "string", "nullable": true } } }),
                json!({ "required": ["a"], "properties": { "a": text, "b": {} } }),
            ),
            (
                json!({ "required": ["a"], "additionalProperties": { "nullable": true } }),
                json!({ "additionalProperties": {} }),
            ),
            (
                json!({ "type": "array", "items": { "type": "integer", "allOf": [{ "minimum": 1 }], "not": { "enum": [2] } } }),
                json!({ "type": "array", "items": { "type": "integer" } }),
            ),
        ] {
            assert_eq!(converted(given.clone()), expected, "{given}");
        }
    }

    /// Goal: the document is whole and of one version. Method: all built-in types, and those of a cluster; references, and
    /// keywords of version 3.
    #[test]
    fn references_lead_to_definitions() {
        fn check(value: &Value, definitions: &Value, at: &str) {
            match value {
                Value::Object(members) => {
                    if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                        let found = reference.strip_prefix("#/definitions/").and_then(|name| definitions.get(name));
                        assert!(found.is_some(), "{at}: {reference}");
                    }
                    for (name, member) in members {
                        let is_keyword = matches!(&**name, "requestBody" | "content" | "oneOf" | "allOf")
                            && !at.ends_with("properties");
                        assert!(!is_keyword, "{at}: {name}");
                        check(member, definitions, name);
                    }
                }
                Value::Array(items) => items.iter().for_each(|item| check(item, definitions, at)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let of_cluster = document(&Registry::of_cluster());
        check(&of_cluster, &of_cluster["definitions"], "");
        for name in ["io.k8s.api.events.v1.Event", "io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler"] {
            assert!(of_cluster["definitions"][name]["properties"].is_object(), "{name}");
        }
        let document = document(&Registry::builtin());
        check(&document, &document["definitions"], "");
        let definitions = &document["definitions"];
        let quantity = &definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"];
        assert_eq!(quantity["type"], "string");
        let options = definitions["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"][KINDS].as_array().unwrap();
        assert!(options.contains(&json!({ "group": "apps", "version": "v1", "kind": "DeleteOptions" })), "{options:?}");
        let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
        assert_eq!(patch["consumes"].as_array().map(Vec::len), Some(4), "{patch}");
        assert_eq!(patch["responses"]["200"]["schema"]["$ref"], "#/definitions/io.k8s.api.core.v1.Pod");
    }
}
