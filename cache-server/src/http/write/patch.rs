//! Merge patches (RFC 7386) and JSON patches (RFC 6902).
//!
//! Strategic merge patches and server-side apply are refused with the list of what is accepted.
//!
//! Source: apiserver `endpoints/handlers/patch.go`.

use informer_core::wire::{
    go::quote,
    status::{Cause, Status},
};
use json_patch::PatchOperation;
use serde_json::Value;

use super::{
    body::{Object, media_type},
    metadata::check_shape,
};
use crate::{limits::REQUEST_BODY_BYTES_MAX, registry::ResourceType};

/// Operations of one JSON patch.
const OPERATIONS_MAX: usize = 10_000;

/// Objects and arrays inside each other, as many as the decoder of bodies and stored objects reads.
const DEPTH_MAX: usize = 127;

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";
const ACCEPTED: [&str; 2] = [JSON, MERGE];
/// Known to Kubernetes, not to this server.
const REFUSED: [&str; 3] =
    ["application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/apply-patch+cbor"];

/// A change of one object, still to be applied.
#[derive(Debug)]
pub(super) enum Patch {
    /// Members to replace; null takes one away.
    Merge(Value),
    /// Operations, in order.
    Json(json_patch::Patch),
}

impl Patch {
    /// Reads the body of a PATCH by its Content-Type.
    ///
    /// # Errors
    /// 415 for other types, 400 for what is no patch, 413 for too many operations.
    pub(super) fn read(content_type: Option<&str>, body: &[u8]) -> Result<Self, Status> {
        match media_type(content_type).as_deref() {
            Some(MERGE) => match serde_json::from_slice(body) {
                Ok(value @ Value::Object(_)) => Ok(Self::Merge(value)),
                Ok(_) | Err(_) => Err(Status::bad_request("Invalid JSON Patch")),
            },
            Some(JSON) => read_operations(body),
            Some(known) if REFUSED.contains(&known) => Err(Status::unsupported_media_type(&ACCEPTED)),
            Some(_) | None => Err(Status::generic_unsupported_media_type()),
        }
    }

    /// The object after the patch, of the same type.
    ///
    /// # Errors
    /// 422 when an operation does not apply, or when the result is no such object.
    pub(super) fn apply(&self, ty: &ResourceType, object: &Object) -> Result<Object, Status> {
        let mut value = Value::Object(object.clone());
        match self {
            Self::Merge(patch) => json_patch::merge(&mut value, patch),
            Self::Json(operations) => run(&mut value, operations)?,
        }
        let Value::Object(object) = value else {
            return Err(undecodable("json: cannot unmarshal the result into an object"));
        };
        let same = |member: &str, wanted: &str| object.get(member).and_then(Value::as_str) == Some(wanted);
        if !same("kind", &ty.kind) || !same("apiVersion", ty.api_version()) {
            return Err(undecodable("the kind or apiVersion of the object changed"));
        }
        check_shape(&object).map_err(|error| undecodable(&error))?;
        Ok(object)
    }
}

/// Runs the operations in order. A few of them could make an object deeper than anybody can read, or, by copying what
/// was copied, larger than memory: both are refused before they happen.
fn run(value: &mut Value, operations: &[PatchOperation]) -> Result<(), Status> {
    let mut copied = 0;
    for operation in operations {
        let (path, put) = match operation {
            PatchOperation::Add(add) => (&add.path, Some(&add.value)),
            PatchOperation::Replace(replace) => (&replace.path, Some(&replace.value)),
            PatchOperation::Move(moved) => (&moved.path, value.pointer(moved.from.as_str())),
            PatchOperation::Copy(copy) => {
                let found = value.pointer(copy.from.as_str());
                copied += found.map_or(0, |found| found.to_string().len());
                (&copy.path, found)
            }
            PatchOperation::Remove(remove) => (&remove.path, None),
            PatchOperation::Test(test) => (&test.path, None),
        };
        let levels = path.as_str().matches('/').count() + put.map_or(0, depth);
        if levels > DEPTH_MAX || copied > REQUEST_BODY_BYTES_MAX {
            return Err(Status::generic_invalid());
        }
        json_patch::patch_unsafe(value, std::slice::from_ref(operation)).map_err(|_| Status::generic_invalid())?;
    }
    Ok(())
}

/// Objects and arrays inside each other.
fn depth(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
    }
}

fn read_operations(body: &[u8]) -> Result<Patch, Status> {
    let operations: Vec<Value> =
        serde_json::from_slice(body).map_err(|error| Status::bad_request(format!("json patch: {error}")))?;
    if operations.len() > OPERATIONS_MAX {
        return Err(Status::request_entity_too_large(&format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    // The reason may repeat a part of the body, so it stays behind.
    serde_json::from_value(Value::Array(operations))
        .map(Patch::Json)
        .map_err(|_| Status::bad_request("json patch: an operation is incomplete or unknown"))
}

/// The words for a result that is no object of the type. Kubernetes prints the object here; this server keeps it to
/// itself.
fn undecodable(error: &str) -> Status {
    Status::invalid("", "", "", vec![Cause::invalid("patch", &quote("{...}"), error)])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    fn apply(content_type: &str, patch: &str) -> Result<Value, (u16, String)> {
        let ty = Registry::builtin().find("", "v1", "configmaps").expect("config maps");
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
        let object = object.as_object().expect("an object").clone();
        Patch::read(Some(content_type), patch.as_bytes())
            .and_then(|patch| patch.apply(&ty, &object))
            .map(Value::Object)
            .map_err(|status| (status.code, status.message))
    }

    #[test]
    fn merge_patches_replace_and_remove() {
        let patched = apply(MERGE, r#"{"data":{"k":null,"l":"w"},"metadata":{"labels":{"a":"b"}}}"#).expect("applies");
        assert_eq!(patched["data"], json!({"l": "w"}));
        assert_eq!(patched["metadata"], json!({"name": "a", "labels": {"a": "b"}}));
    }

    #[test]
    fn json_patches_run_their_operations() {
        let patch = r#"[{"op":"test","path":"/data/k","value":"v"},{"op":"replace","path":"/data/k","value":"w"},
            {"op":"add","path":"/metadata/labels","value":{"a":"b"}}]"#;
        let patched = apply("application/json-patch+json; charset=utf-8", patch).expect("applies");
        assert_eq!((&patched["data"]["k"], &patched["metadata"]["labels"]["a"]), (&json!("w"), &json!("b")));
    }

    /// Goal: what is stored can be read again, and a small patch makes no giant. Method: chains of adds, and of copies
    /// of what was copied.
    #[test]
    fn a_patch_has_bounds() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        for (levels, fits) in [(120, true), (121, false)] {
            let inner = nested(levels);
            let patch = format!(
                r#"[{{"op":"add","path":"/x","value":{inner}}},
                    {{"op":"add","path":"/d","value":{{"a":{{"b":{{"c":{{"d":{{"e":{{}}}}}}}}}}}}}},
                    {{"op":"move","from":"/x","path":"/d/a/b/c/d/e/f"}}]"#
            );
            let patched = apply(JSON, &patch);
            assert_eq!(patched.is_ok(), fits, "{levels}");
            if let Ok(patched) = patched {
                serde_json::from_str::<Value>(&patched.to_string()).expect("what is stored can be read");
            }
        }
        let copies: Vec<String> =
            (0..64).map(|n| format!(r#"{{"op":"copy","from":"/data","path":"/data/c{n}"}}"#)).collect();
        assert_eq!(apply(JSON, &format!("[{}]", copies.join(","))).expect_err("too large").0, 422);
    }

    /// Goal: what cannot be applied. Method: a table of media type, patch, code and text.
    #[test]
    fn bad_patches_are_refused() {
        let many = format!("[{}]", vec![r#"{"op":"remove","path":"/x"}"#; OPERATIONS_MAX + 1].join(","));
        let unknown = "the body of the request was in an unknown format - accepted media types include: \
                       application/json-patch+json, application/merge-patch+json";
        let table: &[(&str, &str, u16, &str)] = &[
            (MERGE, "[]", 400, "Invalid JSON Patch"),
            (MERGE, "{", 400, "Invalid JSON Patch"),
            (
                MERGE,
                r#"{"metadata":{"annotations":{"foo":["bar"]}}}"#,
                422,
                " \"\" is invalid: patch: Invalid value: \"{...}\": json: cannot unmarshal array into Go struct field \
                 ObjectMeta.metadata.annotations of type string",
            ),
            (
                MERGE,
                r#"{"kind":"Secret"}"#,
                422,
                " \"\" is invalid: patch: Invalid value: \"{...}\": the kind or apiVersion of the object changed",
            ),
            (
                JSON,
                r#"[{"op":"test","path":"/data/k","value":"other"}]"#,
                422,
                "the server rejected our request due to an error in our request",
            ),
            (
                JSON,
                r#"[{"op":"remove","path":"/none"}]"#,
                422,
                "the server rejected our request due to an error in our request",
            ),
            (JSON, r#"[{"op":"fly"}]"#, 400, "json patch: an operation is incomplete or unknown"),
            (
                JSON,
                &many,
                413,
                "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
            ),
            ("application/strategic-merge-patch+json", "{}", 415, unknown),
            ("application/apply-patch+yaml", "{}", 415, unknown),
            ("application/json", "{}", 415, "415: Unsupported Media Type"),
        ];
        for (content_type, patch, code, text) in table {
            let shown = &patch[..patch.len().min(80)];
            assert_eq!(apply(content_type, patch), Err((*code, (*text).to_owned())), "{content_type} {shown}");
        }
    }
}
