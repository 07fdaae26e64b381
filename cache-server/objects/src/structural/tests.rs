//! Pruning, defaults and causes of structural schemas, row by row.

use std::sync::Arc;

use api_rules::{
    limits::{WARNING_CHARS_MAX, WARNINGS_MAX},
    object::{body::Encoding, metadata::Part},
    registry::{Custom, Registry},
};
use informer_serving::status::{Status, StatusCause};
use serde_json::{Value, json};

use super::*;

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
    compare(include_bytes!("rows.yaml"));
}

#[test]
fn rules_are_enforced_as_by_kube_apiserver() {
    compare(include_bytes!("rules.yaml"));
}

/// Compares each row of a table.
fn compare(table: &[u8]) {
    let table = Encoding::Yaml.decode(table).expect("YAML");
    let mut failed = Vec::new();
    for group in table.as_array().expect("a list") {
        let schema = &group["schema"];
        if let Some(causes) = group.get("refused") {
            let found = json!(refusal(schema));
            if found != *causes {
                failed.push(format!("{}\n  found {found}\n  expected {causes}", group["about"]));
            }
            continue;
        }
        let ty = if group.get("whole").is_some() { typed(schema) } else { widgets(schema) };
        let part = if group.get("status").is_some() { Part::Status } else { Part::Main };
        for row in group["rows"].as_array().expect("a list") {
            let (found, expected) = (answer(&ty, part, row), expected(row));
            if found != expected {
                failed.push(format!("{} {row}\n  found {found}\n  expected {expected}", group["about"]));
            }
        }
    }
    assert!(failed.is_empty(), "{} rows:\n{}", failed.len(), failed.join("\n"));
}

/// Returns the causes for which a definition with a schema is refused.
fn refusal(schema: &Value) -> Vec<String> {
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}});
    let ty =
        Registry::builtin().find("apiextensions.k8s.io", "v1", "customresourcedefinitions").expect("a built-in type");
    let definition = object(json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "versions": [{"name": "v1", "schema": schema}]}}));
    check_patterns(&ty, &definition).map_or_else(|status| causes(&status), |()| Vec::new())
}

/// Returns what becomes of the spec, or of the status, that a row sends.
fn answer(ty: &ResourceType, part: Part, row: &Value) -> Value {
    let name = if part == Part::Status { "status" } else { "spec" };
    let widget =
        |value: &Value| object(json!({"kind": "Widget", "apiVersion": "v1", "metadata": {"name": "a"}, name: value}));
    let stored = row.get("stored").map(|spec| {
        let mut stored = widget(spec);
        complete(ty, &mut stored).expect("small defaults");
        stored
    });
    let mut sent = widget(&row["sent"]);
    let outcome = complete(ty, &mut sent).and_then(|unknown| {
        check(ty, part, &sent, stored.as_ref())?;
        Ok(unknown)
    });
    match outcome {
        Ok(mut unknown) => {
            unknown.sort();
            json!({"kept": plain(&sent[name]), "unknown": unknown})
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
    assert!(refused.contains("status.a: Invalid value: \"integer\": a in body must be of type string"), "{refused}");
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

/// Goal: schemas in schemas cost no more than they have parts. Method: many levels of two, none of which a value matches.
#[test]
fn levels_of_branches_do_not_multiply() {
    let mut schema = json!({"pattern": "^a$"});
    for _ in 0..25 {
        schema = json!({"anyOf": [schema, {"pattern": "^b$"}]});
    }
    schema["type"] = json!("string");
    let schema = json!({"type": "object", "properties": {"a": schema}});
    let refused = enforced(&schema, &json!({"a": "c"})).expect_err("matches neither");
    assert!(refused.contains("spec.a in body should match '^a$'") || refused.contains("'^b$'"), "{refused}");
    assert!(enforced(&schema, &json!({"a": "b"})).is_ok());
}

/// Goal: a write ends soon, whatever its definition demands. Method: a pattern of many states for long texts.
#[test]
fn an_object_that_takes_too_many_steps_is_refused() {
    let schema = json!({"type": "object", "additionalProperties": {"type": "string", "pattern": "^.{1,1000}x"}});
    let text = |bytes: usize| format!("{}x", "a".repeat(bytes));
    assert!(enforced(&schema, &json!({"a": text(1_000)})).is_ok());
    let refused = enforced(&schema, &json!({"a": text(1 << 20), "b": text(1 << 20)})).expect_err("is refused");
    assert!(refused.contains("validation takes more than 50000000 steps"), "{}", refused.len());
}

/// Goal: what a definition was stored with cannot stop the server. Method: a pattern that an older server accepted.
#[test]
fn a_stored_pattern_that_does_not_compile_refuses_texts() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}});
    let refused = enforced(&schema, &json!({"a": "x"})).expect_err("is refused");
    let why = "spec.a in body should match '(, but pattern is invalid: error parsing regexp: missing closing ): `(`'";
    assert!(refused.contains(why), "{refused}");
}

/// Returns the causes by the rules in the schema of `spec`.
fn rule_causes(schema: &Value, spec: Value, stored: Option<Value>) -> Vec<String> {
    let whole = |spec| object(json!({"kind": "Widget", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": spec}));
    let stored = stored.map(whole);
    check(&widgets(schema), Part::Main, &whole(spec), stored.as_ref())
        .map_or_else(|status| causes(&status), |()| Vec::new())
}

/// Goal: many rules over many values take bounded time. Method: rules that are skipped, far more often than there are steps.
#[test]
fn each_rule_takes_a_step() {
    let rules = vec![json!({"rule": "self == oldSelf"}); 3_000];
    let schema = json!({"type": "array", "items": {"type": "integer", "x-kubernetes-validations": rules}});
    let found = rule_causes(&schema, json!(vec![1; 5_000]), None);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("running out of cost budget"), "{found:?}");
}

/// Goal: small objects of a large schema are checked in bounded time. Method: 40,000,000 pairs of them.
#[test]
fn small_objects_of_a_large_schema_are_checked() {
    let property = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]});
    let properties: Object = (0..20_000).map(|at| (format!("p{at}"), property.clone())).collect();
    let schema = json!({"type": "array", "items": {"type": "object", "properties": properties}});
    let mut items = vec![json!({}); 20_000];
    items[19_999] = json!({"p7": 0, "p8": 1});
    let found = rule_causes(&schema, Value::Array(items), None);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("spec[19999].p7"), "{found:?}");
}

#[test]
fn messages_of_rules_are_bounded() {
    let rule = json!({"rule": "false", "message": "m".repeat(700_000)});
    let schema = json!({"type": "array", "items": {"type": "integer", "x-kubernetes-validations": [rule]}});
    let found = rule_causes(&schema, json!(vec![1; 20_000]), None);
    assert!(found.iter().all(|cause| cause.len() < 20_000), "{}", found[0].len());
}

#[test]
fn a_stored_null_is_no_old_value() {
    let with = |rule: Value| {
        let a = json!({"type": "string", "nullable": true, "x-kubernetes-validations": [rule]});
        json!({"type": "object", "properties": {"a": a}})
    };
    let causes = |rule| rule_causes(&with(rule), json!({"a": "x"}), Some(json!({"a": null})));
    assert!(causes(json!({"rule": "self == oldSelf"})).is_empty(), "the rule is skipped");
    assert!(causes(json!({"rule": "!oldSelf.hasValue()", "optionalOldSelf": true})).is_empty());
}

#[test]
fn warnings_about_rules_are_few_and_short() {
    let definition = |schema: Value| object(json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}));
    let rules = vec![json!({"rule": format!("{}()", "f".repeat(1_000))}); 200];
    let found = unenforced_rules(&definition(json!({"type": "object", "x-kubernetes-validations": rules})));
    assert_eq!(found.len(), WARNINGS_MAX);
    assert!(found.iter().all(|warning| warning.len() <= WARNING_CHARS_MAX));
    let part = json!({"properties": {"a": {"x-kubernetes-validations": [{"rule": "true"}]}}});
    let found = unenforced_rules(&definition(json!({"type": "object", "allOf": [part]})));
    assert_eq!(found, ["spec.versions[0].schema.openAPIV3Schema.allOf: not enforced by this server: rules in it"]);
}
