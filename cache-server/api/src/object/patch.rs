//! Patches: merge patches, JSON patches and strategic merge patches.
//!
//! Source: apiserver `endpoints/handlers/patch.go`.

mod merge;
mod operations;

use informer_serving::{
    go::{self, quote},
    status::{CauseExt as _, Status, StatusCause, StatusExt as _},
};
use serde_json::Value;

use self::operations::Operation;
use super::{
    apply,
    body::{Encoding, Object, media_type},
    metadata::check_shape,
    options::FieldValidation,
    sparse::{self, ManagedTouch, Touch},
    strategic::{self, ListDirectives, PatchRefusal},
    validation,
};
use crate::{
    limits::STRICT_ERRORS_MAX,
    registry::ResourceType,
    schemas::{self, ValueShape},
};

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Type of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// A JSON merge patch, RFC 7386.
    Merge,
    /// A JSON patch, RFC 6902.
    Json,
    /// A strategic merge patch.
    Strategic,
    /// A configuration for server-side apply.
    Apply,
}

impl PatchType {
    /// Selects the type by the Content-Type header. Strategic merge patches require a built-in type with a schema.
    ///
    /// # Errors
    /// 415, with the accepted types where kube-apiserver lists them.
    pub fn of(ty: &ResourceType, content_type: Option<&str>) -> Result<Self, Status> {
        match media_type(content_type).as_deref() {
            Some(MERGE) => Ok(Self::Merge),
            Some(JSON) => Ok(Self::Json),
            Some(STRATEGIC) if ty.schema.builtin && schemas::of(ty).is_some() => Ok(Self::Strategic),
            Some(STRATEGIC) => Err(Status::unsupported_media_type(&[JSON, MERGE, apply::MEDIA_TYPE])),
            Some(apply::MEDIA_TYPE) => Ok(Self::Apply),
            Some(_) if ty.custom.is_some() => Err(Status::unsupported_media_type(&[JSON, MERGE, apply::MEDIA_TYPE])),
            Some(_) | None => Err(Status::generic_unsupported_media_type()),
        }
    }
}

/// A parsed patch.
#[derive(Debug)]
pub struct Patch {
    how: PatchKind,
    /// Complaints of strict validation about the patch itself.
    complaints: Vec<String>,
}

#[derive(Debug)]
enum PatchKind {
    /// Members to replace; null removes a member.
    Merge(Object),
    /// Operations, in order.
    Json(Vec<Operation>),
    /// Members to merge by the schema.
    Strategic(Object),
}

impl Patch {
    /// Parses the body of a PATCH.
    ///
    /// # Errors
    /// 400 if the body is no patch, 413 for too many operations.
    pub fn read(patch_type: PatchType, body: &[u8], validation: FieldValidation) -> Result<Self, Status> {
        let mut duplicates = false;
        let value = Encoding::Json.decode_noting(body, &mut duplicates).map_err(|_| {
            let text = go::json_error(body).unwrap_or_else(|| "invalid JSON document".to_owned());
            malformed(patch_type, validation, &text)
        })?;
        let malformed = |text: &str| malformed(patch_type, validation, text);
        let mistyped = |value: &Value, expected: &str| {
            let found = go::json_type(value);
            malformed(&format!("json: cannot unmarshal {found} into Go value of type {expected}"))
        };
        let mut complaints =
            if duplicates { validation::complaints(Encoding::Json, body, &[], true) } else { Vec::new() };
        let how = match (patch_type, value) {
            (PatchType::Json, Value::Array(operations)) => {
                complaints.extend(unknown_members(&operations));
                PatchKind::Json(operations::read(operations, validation != FieldValidation::Ignore, malformed)?)
            }
            // Go reads null as an empty patch.
            (PatchType::Json, Value::Null) => PatchKind::Json(Vec::new()),
            (PatchType::Strategic, Value::Null) => PatchKind::Strategic(Object::new()),
            (PatchType::Merge, Value::Null) => return Err(Status::bad_request("Invalid JSON Patch")),
            (PatchType::Json, other) => return Err(mistyped(&other, "[]handlers.jsonPatchOp")),
            (PatchType::Strategic, Value::Object(patch)) => PatchKind::Strategic(patch),
            (PatchType::Merge | PatchType::Apply, Value::Object(patch)) => PatchKind::Merge(patch),
            (PatchType::Merge | PatchType::Strategic | PatchType::Apply, other) => {
                return Err(mistyped(&other, "map[string]interface {}"));
            }
        };
        if patch_type == PatchType::Json {
            complaints.iter_mut().for_each(|text| text.insert_str(0, "json patch "));
        }
        Ok(Self { how, complaints })
    }

    /// Complaints of strict validation about the patch itself.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Returns the patched object, which has the same type.
    ///
    /// # Errors
    /// 422 if an operation does not apply, or the result is no object of the type; 400 for malformed directives.
    pub fn apply(&self, ty: &ResourceType, object: &Object) -> Result<Object, Status> {
        let shape = if matches!(self.how, PatchKind::Strategic(_)) { schemas::of(ty) } else { None };
        let mut object = self.edit(object, shape.as_ref())?;
        for (member, expected) in [("kind", ty.kind.as_str()), ("apiVersion", ty.api_version())] {
            // Bodies may omit the member, so a patch may remove it; strategic merge patches cannot change it.
            let found = object.entry(member).or_insert(Value::Null);
            if found.is_null() || shape.is_some() {
                *found = expected.into();
            }
            if found != expected {
                return Err(undecodable("the kind or apiVersion of the object changed"));
            }
        }
        Ok(object)
    }

    /// Decodes from `text` what [`apply`](Self::apply) may change of a normal object: see [`sparse`].
    pub(crate) fn sparse(&self, ty: &ResourceType, text: &[u8]) -> Option<Object> {
        let (PatchKind::Merge(patch) | PatchKind::Strategic(patch)) = &self.how else { return None };
        if !patch.values().all(sparse::is_free_of_seals) {
            return None;
        }
        // Directives name the member that they change at their end.
        let metadata = patch.get("metadata").and_then(Value::as_object);
        let is_managed = metadata.is_some_and(|metadata| metadata.keys().any(|name| name.ends_with("managedFields")));
        let managed = if is_managed { ManagedTouch::Whole } else { ManagedTouch::None };
        if let PatchKind::Merge(_) = self.how {
            return sparse::read(text, managed, &|name| Touch::by_merge(patch, name));
        }
        if patch.contains_key(strategic::PATCH) {
            return None;
        }
        let (shape, directives) = (schemas::of(ty), ListDirectives::of(patch));
        sparse::read(text, managed, &|name| Touch::by_strategic(patch, &directives, shape.as_ref(), name))
    }

    /// Like `apply`, for values of any kind; strategic merge patches follow `shape`.
    ///
    /// # Errors
    /// As [`Self::apply`], but the kind may change.
    pub fn edit(&self, object: &Object, shape: Option<&ValueShape>) -> Result<Object, Status> {
        let mut object = object.clone();
        match &self.how {
            PatchKind::Merge(patch) => merge::merge(&mut object, patch),
            PatchKind::Json(operations) => {
                let mut value = Value::Object(object);
                operations::run(&mut value, operations)?;
                let Value::Object(patched) = value else {
                    return Err(undecodable("json: cannot unmarshal the result into an object"));
                };
                object = patched;
            }
            PatchKind::Strategic(patch) => {
                let Some(shape) = shape else { return Err(Status::generic_unsupported_media_type()) };
                object = strategic::merge(object, patch.clone(), shape).map_err(refused)?;
            }
        }
        check_shape(&object).map_err(|error| undecodable(&error))?;
        Ok(object)
    }

    /// Builds a merge patch.
    #[cfg(test)]
    pub fn merge(patch: Value) -> Self {
        Self { how: PatchKind::Merge(patch.as_object().expect("an object").clone()), complaints: Vec::new() }
    }
}

/// Builds the error for a body that is no patch; the message depends on which decoder of kube-apiserver reads it first.
fn malformed(patch_type: PatchType, validation: FieldValidation, text: &str) -> Status {
    match (patch_type, validation) {
        (PatchType::Strategic, _) => Status::bad_request(text),
        (PatchType::Merge | PatchType::Apply, FieldValidation::Ignore) => Status::bad_request("Invalid JSON Patch"),
        (PatchType::Json, FieldValidation::Ignore) => Status::bad_request(text),
        (PatchType::Merge | PatchType::Json | PatchType::Apply, FieldValidation::Warn | FieldValidation::Strict) => {
            Status::bad_request(format!("error decoding patch: {text}"))
        }
    }
}

/// Maps a refused strategic merge patch to a Status. Where kube-apiserver prints a part of the patch, or answers 500,
/// this server gives the reason.
fn refused(refusal: PatchRefusal) -> Status {
    match refusal {
        PatchRefusal::Malformed(text) => Status::bad_request(text),
        PatchRefusal::ListOfLists => Status::generic_invalid(),
        PatchRefusal::Unfit(text) => undecodable(&text),
    }
}

/// Lists unknown members of operations, as `unknown field "[0].x"`.
fn unknown_members(operations: &[Value]) -> Vec<String> {
    let members = operations.iter().enumerate().flat_map(|(at, operation)| {
        let members = operation.as_object().into_iter().flat_map(Object::keys);
        let unknown = members.filter(|member| !operations::MEMBERS.contains(&member.as_str()));
        unknown.map(move |member| validation::unknown_field(&format!("[{at}].{member}")))
    });
    members.take(STRICT_ERRORS_MAX).collect()
}

/// Builds the error for a result that is no object of the type. kube-apiserver prints the object here; this server does
/// not, as it may be secret.
pub fn undecodable(error: &str) -> Status {
    Status::invalid("", "", "", vec![StatusCause::invalid("patch", &quote("{...}"), error)])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{operations::OPERATIONS_MAX, *};
    use crate::registry::Registry;

    fn apply(content_type: &str, patch: &str) -> Result<Value, (u16, String)> {
        let ty = Registry::builtin().find("", "v1", "configmaps").expect("config maps");
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
        let object = object.as_object().expect("an object").clone();
        PatchType::of(&ty, Some(content_type))
            .and_then(|patch_type| Patch::read(patch_type, patch.as_bytes(), FieldValidation::Warn))
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

    /// Goal: results can be decoded again, and a small patch cannot make a huge object. Method: chains of adds, and
    /// copies of copies.
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

    /// Goal: a patch that would take minutes is refused, and one with as many cheap operations is not. Method:
    /// thousands of moves of a list, and of removals of its first item.
    #[test]
    fn long_lists_are_not_moved_for_ever() {
        for (items, fits) in [(20_000, false), (100, true)] {
            let list = vec!["1"; items].join(",");
            let add = format!(r#"{{"op":"add","path":"/x","value":[{list}]}}"#);
            let there = r#"{"op":"move","from":"/x","path":"/y"},{"op":"move","from":"/y","path":"/x"}"#;
            let turn = r#"{"op":"remove","path":"/x/0"},{"op":"add","path":"/x/0","value":1}"#;
            for step in [there, turn] {
                let began = std::time::Instant::now();
                let patched = apply(JSON, &format!("[{add},{}]", vec![step; 4_999].join(",")));
                assert_eq!(patched.is_ok(), fits, "{items} {step}");
                assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
            }
        }
    }

    /// Goal: bad patches are refused. Method: a table of media type, patch, code and message.
    #[test]
    fn bad_patches_are_refused() {
        let many = format!("[{}]", vec![r#"{"op":"remove","path":"/x"}"#; OPERATIONS_MAX + 1].join(","));
        let table: &[(&str, &str, u16, &str)] = &[
            (
                MERGE,
                "[]",
                400,
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (MERGE, "{", 400, "error decoding patch: unexpected end of JSON input"),
            (
                JSON,
                "{}",
                400,
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                MERGE,
                r#"{"metadata":{"annotations":{"foo":["bar"]}}}"#,
                422,
                " \"\" is invalid: patch: Invalid value: \"{...}\": json: cannot unmarshal array into Go struct field \
                 ObjectMeta.metadata.annotations of type string",
            ),
            (
                MERGE,
                r#"{"kind":"Secret","apiVersion":null}"#,
                422,
                " \"\" is invalid: patch: Invalid value: \"{...}\": the kind or apiVersion of the object changed",
            ),
            (
                JSON,
                r#"[{"op":"test","path":"/data/k","value":"other"}]"#,
                422,
                "the server rejected our request due to an error in our request: JSON patch operation 0 (test \"/data/k\"): \
                 the value is another",
            ),
            (
                JSON,
                r#"[{"op":"remove","path":"/none"}]"#,
                422,
                "the server rejected our request due to an error in our request: JSON patch operation 0 (remove \
                 \"/none\"): there is no such member",
            ),
            (
                JSON,
                "[7]",
                400,
                "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            ),
            (
                JSON,
                r#"[{"op":7}]"#,
                400,
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            ),
            (
                JSON,
                &many,
                413,
                "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
            ),
            ("application/apply-patch+cbor", "{}", 415, "415: Unsupported Media Type"),
            ("application/json", "{}", 415, "415: Unsupported Media Type"),
        ];
        for (content_type, patch, code, text) in table {
            let shown = &patch[..patch.len().min(80)];
            assert_eq!(apply(content_type, patch), Err((*code, (*text).to_owned())), "{content_type} {shown}");
        }
    }
}
