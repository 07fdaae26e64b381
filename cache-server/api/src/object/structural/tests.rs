//! Pruning, defaults and causes of structural schemas, row by row.

use std::sync::Arc;

use informer_serving::status::{CauseReason, Status};
use serde_json::{Value, json};

use super::{
    super::{Object, metadata::Part},
    *,
};
use crate::registry::{Custom, Registry};

/// A type `widgets.example.com` with this schema of `spec` and of `status`.
fn widgets(spec: &Value) -> ResourceType {
    let builtin = Registry::builtin().find("", "v1", "configmaps").expect("a built-in type");
    let mut ty = Arc::into_inner(builtin).unwrap_or_else(|| unreachable!("the registry is gone"));
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": spec}}).to_string();
    let custom = Custom { schema: schema.into(), printer_columns: Value::Null, preserve_unknown_fields: false };
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

#[test]
fn unknown_members_are_dropped_and_reported() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string"},
        "free": {"type": "object", PRESERVE: true},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {"type": "integer"}}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"c": {"type": "boolean"}}}},
        "rows": {"type": "array", PRESERVE: true, "items": {"type": "object", "properties": {"in": {"type": "object"}}}},
    }});
    let sent = json!({"a": "x", "z": 1, "free": {"y": 1}, "map": {"k": {"b": 1, "y": 2}}, "list": [{"c": true, "d": 1}],
        "rows": [{"e": 1, "in": {"f": 1}}]});
    let (rest, unknown) = enforced(&schema, &sent).expect("is valid");
    assert_eq!(
        rest,
        json!({"a": "x", "free": {"y": 1}, "map": {"k": {"b": 1}}, "list": [{"c": true}], "rows": [{"e": 1, "in": {}}]})
    );
    assert_eq!(unknown, ["spec.z", "spec.list[0].d", "spec.map.k.y", "spec.rows[0].in.f"]);
}

#[test]
fn defaults_fill_absent_members_inside_of_those_that_are_there() {
    let schema = json!({"type": "object", "properties": {
        "size": {"type": "integer", "default": 3},
        "note": {"type": "string", "default": "x", "nullable": true},
        "parts": {"type": "array", "items": {"type": "object", "properties": {"on": {"type": "boolean", "default": true}}}},
        "outer": {"type": "object", "default": {}, "properties": {"inner": {"type": "string", "default": "y"}}},
        "absent": {"type": "object", "properties": {"inner": {"type": "string", "default": "y"}}},
    }});
    let (filled, _) =
        enforced(&schema, &json!({"size": null, "note": null, "parts": [{}, {"on": false}]})).expect("is valid");
    assert_eq!(
        filled,
        json!({"size": 3, "note": null, "parts": [{"on": true}, {"on": false}], "outer": {"inner": "y"}})
    );
}

#[test]
fn values_that_the_schema_does_not_allow_are_refused() {
    let schema = json!({"type": "object", "required": ["needed"], "properties": {
        "needed": {"type": "boolean"},
        "count": {"type": "integer", "minimum": 1, "maximum": 5},
        "name": {"type": "string", "minLength": 2, "maxLength": 3},
        "mode": {"type": "string", "enum": ["on", "off"]},
        "items": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
        "port": {INT_OR_STRING: true},
    }});
    for (spec, why) in [
        (json!({}), "spec.needed: Required value"),
        (
            json!({"needed": "x"}),
            "spec.needed: Invalid value: \"string\": spec.needed in body must be of type boolean: \"string\"",
        ),
        (json!({"needed": 1}), "must be of type boolean: \"integer\""),
        (json!({"needed": null}), "spec.needed: Required value"),
        (json!({"needed": true, "items": [null]}), "spec.items[0] in body must be of type string: \"null\""),
        (json!({"needed": true, "count": 0}), "spec.count in body should be greater than or equal to 1"),
        (json!({"needed": true, "count": 6}), "spec.count in body should be less than or equal to 5"),
        (json!({"needed": true, "count": 1.5}), "must be of type integer: \"number\""),
        (
            json!({"needed": true, "name": "a"}),
            "Invalid value: \"a\": spec.name in body should be at least 2 chars long",
        ),
        (json!({"needed": true, "name": "abcd"}), "spec.name: Too long: may not be more than 3 bytes"),
        (
            json!({"needed": true, "mode": "x"}),
            "spec.mode: Unsupported value: \"x\": supported values: \"on\", \"off\"",
        ),
        (json!({"needed": true, "items": ["a", "b"]}), "spec.items: Too many: 2: must have at most 1 items"),
        (json!({"needed": true, "port": true}), "spec.port in body must be of type integer,string: \"boolean\""),
    ] {
        let refused = enforced(&schema, &spec).expect_err("is refused");
        assert!(refused.starts_with("Widget \"a\" is invalid: ") && refused.contains(why), "{refused}");
    }
    let valid = json!({"needed": true, "count": 5, "name": "ab", "mode": "on", "items": ["a"], "port": "http"});
    assert_eq!(enforced(&schema, &valid).expect("is valid").0, valid);
}

#[test]
fn nulls_that_are_not_allowed_are_dropped_or_replaced() {
    let schema = json!({"type": "object", "properties": {
        "plain": {"type": "string"},
        "nullable": {"type": "string", "nullable": true},
        "full": {"type": "string", "default": "x"},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "full_map": {"type": "object", "additionalProperties": {"type": "string", "default": "y"}},
        "list": {"type": "array", "items": {"type": "integer", "default": 7}},
        "open": {"type": "object", PRESERVE: true, "properties": {"known": {"type": "string"}}},
    }});
    let sent = json!({"plain": null, "nullable": null, "full": null, "map": {"k": null, "l": "v"},
        "full_map": {"k": null}, "list": [null, 1], "open": {"known": null, "other": null}});
    let (rest, unknown) = enforced(&schema, &sent).expect("is valid");
    assert_eq!(
        rest,
        json!({"nullable": null, "full": "x", "map": {"l": "v"}, "full_map": {"k": "y"}, "list": [7, 1],
            "open": {"other": null}})
    );
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_wrong_type_has_its_reason() {
    let ty = widgets(&json!({"type": "object"}));
    let object = object(json!({"metadata": {"name": "a"}, "spec": 1}));
    let status = check(&ty, Part::Main, &object, None).expect_err("is refused");
    let causes = status.details.expect("details").causes;
    assert_eq!(causes[0].reason, CauseReason::FieldValueTypeInvalid);
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

/// Goal: a stricter definition leaves old objects usable. Method: a table of stored and new values, and the field that is
/// refused, if any.
#[test]
fn values_that_were_stored_before_are_no_cause() {
    let schema = json!({"type": "object", "required": ["needed"], "minProperties": 2, "properties": {
        "needed": {"type": "integer"},
        "mode": {"type": "string", "enum": ["on", "off"], "minLength": 2},
        "list": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "size": {"type": "integer", "maximum": 3}}}},
    }});
    let ty = widgets(&schema);
    let widget = |spec: &Value| object(json!({"metadata": {"name": "a"}, "spec": spec}));
    for (stored, next, refused) in [
        (json!({"mode": "x"}), json!({"mode": "x"}), None),
        (json!({"mode": "x"}), json!({"mode": "on"}), Some("spec in body should have at least 2")),
        (json!({"mode": "x", "a": 1}), json!({"mode": "x"}), Some("spec in body should have at least 2")),
        (json!({"mode": "x", "needed": 1}), json!({"mode": "x", "a": 1}), Some("spec.needed: Required value")),
        (json!({"mode": "x", "a": 1}), json!({"mode": "yy", "a": 1}), Some("spec.mode: Unsupported value: \"yy\"")),
        (json!({"list": [1, 2], "a": 1}), json!({"list": [1, 2], "a": 2}), None),
        (json!({"list": [1, 2], "a": 1}), json!({"list": [1], "a": 1}), Some("spec.list[0] in body")),
        (
            json!({"keyed": [{"k": "a", "size": 9}, {"k": "b", "size": 8}], "a": 1}),
            json!({"keyed": [{"k": "b", "size": 8}], "a": 1}),
            None,
        ),
        (
            json!({"keyed": [{"k": "a", "size": 9}], "a": 1}),
            json!({"keyed": [{"k": "b", "size": 9}], "a": 1}),
            Some("spec.keyed[0].size in body"),
        ),
    ] {
        match (check(&ty, Part::Main, &widget(&next), Some(&widget(&stored))), refused) {
            (Ok(()), None) => {}
            (Err(status), Some(why)) => {
                assert!(status.message.contains(why), "{}", status.message);
                assert_eq!(status.details.map(|details| details.causes.len()), Some(1), "{}", status.message);
            }
            (found, _) => panic!("{stored} {next}: {found:?}"),
        }
    }
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
