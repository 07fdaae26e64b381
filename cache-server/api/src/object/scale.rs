//! The `scale` subresource: current and wanted replicas, in one form for every scalable type.
//!
//! INVARIANT: a Scale is never stored. It is read from the object at the type's paths and changed; then only the wanted
//! number is written back, as an update of the object at the version that was read.
//!
//! Source: `pkg/registry/apps/deployment/storage/storage.go` of kubernetes/kubernetes, apiextensions-apiserver
//! `registry/customresource/etcd.go`.

use informer_serving::{
    go,
    status::{CauseExt as _, Status, StatusCause, StatusExt as _},
};
use serde_json::{Value, json};

use super::{
    WriteRequest, WriteTarget, at,
    body::{Encoding, Object},
    label_selector,
    metadata::{self, Part},
};
use crate::registry::{Scale, ScaleSelector};

/// The kind of a Scale.
pub const KIND: &str = "Scale";
/// The apiVersion of a Scale.
pub const API_VERSION: &str = "autoscaling/v1";
/// Returns the location of the object, and the paths of its replicas.
pub fn target<'a>(request: &WriteRequest<'a>) -> Result<(WriteTarget<'a>, &'a Scale), Status> {
    let place = request.owner()?;
    let paths = request.ty.scale.as_ref().ok_or_else(Status::generic_not_found)?;
    debug_assert!(place.part == Part::Main, "a number of the spec is written");
    Ok((place, paths))
}

/// Builds the Scale of an object.
pub fn read(paths: &Scale, object: &Object) -> Object {
    let member = |name: &str| metadata::text(object, name);
    let mut metadata = json!({ "name": member("name") });
    for name in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !member(name).is_empty() {
            metadata[name] = member(name).into();
        }
    }
    let number = |path: &str| at(object, path).and_then(Value::as_i64);
    // kube-apiserver defaults the replicas of built-in types on creation.
    let replicas = number(&paths.spec_replicas).unwrap_or(1);
    let spec = if replicas == 0 { json!({}) } else { json!({ "replicas": replicas }) };
    let mut status = json!({ "replicas": number(&paths.status_replicas).unwrap_or_default() });
    let selector = selector(&paths.selector, object);
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    let scale = json!({"kind": KIND, "apiVersion": API_VERSION, "metadata": metadata, "spec": spec, "status": status});
    match scale {
        Value::Object(scale) => scale,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Object::new(),
    }
}

/// Returns the requested replicas of a changed Scale, after checking that it is a Scale of this object at this version.
pub fn requested_replicas(place: &WriteTarget<'_>, stored: &Object, scale: &Object) -> Result<i64, Status> {
    metadata::match_namespace(place.ty, place.namespace, &mut scale.clone())?;
    place.match_name(scale)?;
    let (uid, version) = (metadata::text(scale, "uid"), metadata::text(scale, "resourceVersion"));
    if !uid.is_empty() && uid != metadata::text(stored, "uid") {
        return Err(place.modified());
    }
    if !version.is_empty() {
        let version = go::parse_uint(version).map_err(Status::unmapped)?;
        if version != 0 && version.to_string() != metadata::text(stored, "resourceVersion") {
            return Err(place.modified());
        }
    }
    let replicas = scale.get("spec").and_then(|spec| spec.get("replicas")).unwrap_or(&Value::Null);
    let number = if replicas.is_null() { Some(0) } else { replicas.as_i64() };
    let replicas = number.filter(|&number| i32::try_from(number).is_ok()).ok_or_else(|| {
        let found = go::json_type(replicas);
        cannot_be_handled(&format!(
            "json: cannot unmarshal {found} into Go struct field ScaleSpec.spec.replicas of type int32"
        ))
    })?;
    if replicas < 0 {
        let why = "must be greater than or equal to 0";
        let cause = StatusCause::invalid("spec.replicas", &replicas.to_string(), why);
        return Err(Status::invalid("autoscaling", KIND, place.name, vec![cause]));
    }
    Ok(replicas)
}

/// Reads the Scale that a PUT sends.
///
/// # Errors
/// 400 for a body that is no Scale, 415 for an encoding that is not accepted.
pub fn read_sent(request: &WriteRequest<'_>) -> Result<Object, Status> {
    let unrecognized = |error: &str| {
        Status::bad_request(format!("the object provided is unrecognized (must be of type {KIND}): {error}"))
    };
    let encoding = Encoding::of(request.ty, request.content_type)?;
    let value = encoding.decode(request.body).map_err(|error| unrecognized(&error))?;
    let Value::Object(sent) = value else { return Err(unrecognized("couldn't get version/kind")) };
    let is = |member: &str, expected: &str| sent.get(member).is_none_or(|declared| declared == expected);
    if !is("kind", KIND) || !is("apiVersion", API_VERSION) {
        return Err(cannot_be_handled("another kind or version"));
    }
    Ok(sent)
}

/// Returns the 400 of a body that does not decode to a Scale.
pub fn cannot_be_handled(error: &str) -> Status {
    Status::bad_request(format!("{KIND} in version \"v1\" cannot be handled as a {KIND}: {error}"))
}

/// Formats the selector of the scaled pods.
fn selector(place: &ScaleSelector, object: &Object) -> String {
    match place {
        ScaleSelector::Nowhere => String::new(),
        ScaleSelector::Text(path) => at(object, path).and_then(Value::as_str).unwrap_or_default().to_owned(),
        ScaleSelector::Map(path) => label_selector::terms(at(object, path)).join(","),
        ScaleSelector::Labels(path) => at(object, path).and_then(label_selector::text).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(selector: ScaleSelector) -> Scale {
        let (spec_replicas, status_replicas) = ("spec.replicas".to_owned(), "status.replicas".to_owned());
        Scale { spec_replicas, status_replicas, selector }
    }

    fn object(value: Value) -> Object {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn a_scale_is_read_out_of_the_object() {
        let deployment = object(
            json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "ns", "uid": "u",
            "resourceVersion": "7", "labels": {"a": "b"}}, "spec": {"replicas": 3, "selector": {"matchLabels": {"b": "c",
            "app": "web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["y", "x"]},
            {"key": "old", "operator": "DoesNotExist"}]}}, "status": {"replicas": 2}}),
        );
        let scale = read(&paths(ScaleSelector::Labels("spec.selector".into())), &deployment);
        assert_eq!(
            Value::Object(scale),
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "web", "namespace": "ns",
                "uid": "u", "resourceVersion": "7"}, "spec": {"replicas": 3},
                "status": {"replicas": 2, "selector": "!old,app=web,b=c,tier in (x,y)"}})
        );
        let bare = object(json!({"metadata": {"name": "web"}, "spec": {"replicas": 0, "selector": {"a": "b"}}}));
        let scale = read(&paths(ScaleSelector::Map("spec.selector".into())), &bare);
        assert_eq!((&scale["spec"], &scale["status"]), (&json!({}), &json!({"replicas": 0, "selector": "a=b"})));
    }

    #[test]
    fn a_number_goes_where_the_path_leads() {
        let mut made = Object::new();
        super::super::put(&mut made, "spec.size.wanted", 4.into());
        assert_eq!(Value::Object(made.clone()), json!({"spec": {"size": {"wanted": 4}}}));
        super::super::put(&mut made, "spec.size.wanted", 5.into());
        assert_eq!(at(&made, "spec.size.wanted"), Some(&json!(5)));
        assert_eq!((at(&made, "spec.size.wanted.more"), at(&made, "none")), (None, None));
    }
}
