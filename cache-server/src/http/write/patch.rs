//! Merge patches (RFC 7386) and JSON patches (RFC 6902).
//!
//! Strategic merge patches and server-side apply are refused with the list of what is accepted.
//!
//! Source: apiserver `endpoints/handlers/patch.go`.

use informer_core::wire::{
    go::quote,
    status::{Cause, Status},
};
use serde_json::Value;

use super::{
    body::{Object, media_type},
    metadata::check_shape,
};
use crate::registry::ResourceType;

/// Operations of one JSON patch.
const OPERATIONS_MAX: usize = 10_000;

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
            Self::Json(operations) => {
                json_patch::patch(&mut value, operations).map_err(|_| Status::generic_invalid())?;
            }
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
