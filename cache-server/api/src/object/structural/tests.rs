//! Pruning, defaults and causes of structural schemas, row by row.

use std::sync::Arc;

use informer_serving::status::{Status, StatusCause};
use serde_json::{Value, json};

use super::{
    super::{Object, body::Encoding, metadata::Part},
    *,
};
use crate::registry::{Custom, Registry};

/// A type `widgets.example.com` with this schema of `spec` and of `status`.
fn widgets(spec: &Value) -> ResourceType {
    typed(&json!({"type": "object", "properties": {"spec": spec, "status": spec}}))
}

/// A type `widgets.example.com` with this schema.
fn typed(schema: &Value) -> ResourceType {
    let builtin = Registry::builtin().find("", "v1", "configmaps").expect("a built-in type");
    let mut ty = Arc::into_inner(builtin).unwrap_or_else(|| unreachable!("the registry is gone"));
    let custom =
        Custom { schema: schema.to_string().into(), printer_columns: Value::Null, preserve_unknown_fields: false };
    (ty.custom, ty.kind) = (Some(Arc::new(custom)), "Widget".to_owned());
    ty
}

fn enforced(schema: &Value, spec: &Value) -> Result<(Value, Vec<String>), String> {
    let object = json!({"kind": "Widget", "apiVersion": "v1", "metadata": {"name": "a", "x": 1}, "spec": spec});
    let Value::Object(mut object) = object else { unreachable!("an object") };
    let (ty, text) = (widgets(schema), |status: Status| status.message);
    let unknown = complete(&ty, &mut object).map_err(text)?;
    check(&ty, Part::Main, &object, None).map_err(text)?;
    assert_eq!(object["metadata"]["x"], 1, "metadata is checked elsewhere");
    Ok((object.remove("spec").unwrap_or_default(), unknown))
}

/// Goal: schemas are enforced as kube-apiserver enforces them. Method: its answers in `rows.yaml`.
#[test]
fn objects_are_kept_and_refused_as_by_kube_apiserver() {
    let table = Encoding::Yaml.decode(include_bytes!("rows.yaml")).expect("YAML");
    let mut failed = Vec::new();
    for group in table.as_array().expect("a list") {
        let schema = &group["schema"];
        let ty = if group.get("whole").is_some() { typed(schema) } else { widgets(schema) };
        for row in group["rows"].as_array().expect("a list") {
            let (found, expected) = (answer(&ty, row), expected(row));
            if found != expected {
                failed.push(format!("{} {row}\n  found {found}\n  expected {expected}", group["about"]));
            }
        }
    }
    assert!(failed.is_empty(), "{} rows:\n{}", failed.len(), failed.join("\n"));
}

/// Returns what becomes of the spec that a row sends.
fn answer(ty: &ResourceType, row: &Value) -> Value {
    let widget =
        |spec: &Value| object(json!({"kind": "Widget", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": spec}));
    let stored = row.get("stored").map(|spec| {
        let mut stored = widget(spec);
        complete(ty, &mut stored).expect("small defaults");
        stored
    });
    let mut sent = widget(&row["sent"]);
    let outcome = complete(ty, &mut sent).and_then(|unknown| {
        check(ty, Part::Main, &sent, stored.as_ref())?;
        Ok(unknown)
    });
    match outcome {
        Ok(mut unknown) => {
            unknown.sort();
            json!({"kept": plain(&sent["spec"]), "unknown": unknown})
        }
        Err(status) => json!({"refused": causes(&status)}),
    }
}

/// Returns the causes of a refusal in order, or its message if it has none.
fn causes(status: &Status) -> Vec<String> {
    let text = |cause: &StatusCause| {
        let reason = format!("{:?}", cause.reason);
        format!("{} {}: {}", reason.trim_start_matches("FieldValue"), cause.field, cause.message)
    };
    let mut causes: Vec<String> = status.causes().iter().map(text).collect();
    causes.sort();
    if causes.is_empty() { vec![status.message.clone()] } else { causes }
}

fn expected(row: &Value) -> Value {
    match row.get("refused") {
        Some(causes) => json!({"refused": causes}),
        None => json!({
            "kept": plain(row.get("kept").unwrap_or_else(|| &row["sent"])),
            "unknown": row.get("unknown").unwrap_or(&json!([])),
        }),
    }
}

/// Writes whole numbers without a fraction, as kube-apiserver does.
fn plain(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), plain(value))).collect(),
        Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            serde_json::from_str(text.strip_suffix(".0").unwrap_or(&text)).expect("a number")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[test]
fn a_write_of_status_is_checked_by_its_status_alone() {
    let ty = widgets(&json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    let check = |object: Value| {
        let Value::Object(object) = object else { unreachable!("an object") };
        check(&ty, Part::Status, &object, None).map_err(|status| status.message)
    };
    assert_eq!(check(json!({"spec": {"a": 1}, "status": {"a": "x"}})), Ok(()));
    let refused = check(json!({"spec": {"a": "x"}, "status": {"a": 1}})).expect_err("is refused");
    assert!(refused.contains("status.a in body must be of type string"), "{refused}");
}

/// Goal: an answer is bounded, whatever a definition lists. Method: a long enum, and many values that it lacks.
#[test]
fn causes_of_a_long_enum_are_short() {
    let names: Vec<String> = (0..2_000).map(|name| format!("{name:04}-{}", "x".repeat(100))).collect();
    let schema = json!({"type": "object", "properties": {"list": {"type": "array", "items": {"enum": names}}}});
    let refused = enforced(&schema, &json!({"list": vec!["y"; 1_000]})).expect_err("is refused");
    assert!(refused.len() < 500_000 && refused.contains("and 1961 more"), "{}", refused.len());
}

/// Goal: memory is bounded by what one object may take. Method: a short list whose items each get a long default.
#[test]
fn defaults_that_multiply_beyond_the_bound_are_refused() {
    let schema = json!({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "object",
        "properties": {"a": {"type": "string", "default": "x".repeat(100_000)}}}}}});
    let list = |items: usize| json!({"list": vec![json!({}); items]});
    assert!(enforced(&schema, &list(10)).is_ok());
    let refused = enforced(&schema, &list(1_000)).expect_err("is refused");
    assert!(refused.contains("decoded, it has more than"), "{refused}");
}

fn object(value: Value) -> Object {
    let Value::Object(object) = value else { unreachable!("an object") };
    object
}

#[test]
fn a_stored_object_is_completed_although_its_embedded_metadata_has_another_form() {
    let ty = widgets(&json!({"type": "object", "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true}));
    let mut sent = object(json!({"spec": {"metadata": {"labels": {"a": 1}}, "kept": 1}}));
    assert!(complete(&ty, &mut sent.clone()).is_err(), "a request is refused");
    complete_stored(&ty, &mut sent).expect("no defaults");
    assert_eq!(sent["spec"], json!({"metadata": {}, "kept": 1}));
}

#[test]
fn causes_beyond_the_limit_are_counted() {
    let ty = widgets(&json!({"type": "object", "additionalProperties":
        {"type": "array", "items": {"type": "integer", "minimum": 5}}}));
    let sent = object(json!({"metadata": {"name": "a"}, "spec": {"x": vec![1.5; 1_000]}}));
    let refused = check(&ty, Part::Main, &sent, None).expect_err("numbers with fractions");
    // Each number has three: type, format, bound.
    assert!(refused.message.ends_with(", and 2900 more]"));
}
