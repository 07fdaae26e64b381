//! Bindings: the decision of a scheduler that a pod runs on a node.
//!
//! Source: `pkg/registry/core/pod/storage/storage.go` (BindingREST) and `pkg/apis/core/validation` (ValidatePodBinding)
//! of kubernetes/kubernetes.

use informer_serving::{
    go::quote,
    status::{CauseExt as _, Status, StatusCause, StatusExt as _},
};
use serde_json::{Value, json};

use super::{
    Object, WriteTarget, at, conditions,
    metadata::{self, metadata_mut},
    put,
    update::{check_precondition, check_uid},
};
use crate::registry::NameRule;

/// Checks a Binding that is sent for the pod at `place`.
///
/// # Errors
/// 400 for a Binding of another pod; 500 for another target than a node, as in kube-apiserver.
pub fn check(place: &WriteTarget<'_>, binding: &Object) -> Result<(), Status> {
    if metadata::text(binding, "name") != place.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let (kind, node) = (text(binding, "target.kind"), text(binding, "target.name"));
    let is_node = matches!(kind, "" | "Node");
    let mut causes = Vec::new();
    if !is_node {
        causes.push(StatusCause::not_supported("target.kind", kind, &["Node", "<empty>"]));
    }
    if node.is_empty() {
        causes.push(StatusCause::required("target.name", ""));
    } else if is_node {
        let refused = NameRule::Subdomain.refuse(node);
        causes.extend(refused.iter().map(|why| StatusCause::invalid("target.name", &quote(node), why)));
    }
    let texts: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    match texts.as_slice() {
        [] => Ok(()),
        [text] => Err(Status::unmapped(text)),
        texts => Err(Status::unmapped(format!("[{}]", texts.join(", ")))),
    }
}

/// Returns the pod as a checked Binding leaves it at `now`.
///
/// # Errors
/// 409 if the pod is bound or deleted already, is not ready to be scheduled, or is not the one that the Binding means.
pub fn bind(place: &WriteTarget<'_>, pod: &Object, binding: &Object, now: &str) -> Result<Object, Status> {
    check_uid(place, pod, binding)?;
    let [expected, found] = [binding, pod].map(|object| metadata::text(object, "resourceVersion"));
    check_precondition(place, "ResourceVersion", expected, found)?;
    let refuse = |text: String| Err(Status::conflict("", "pods/binding", place.name, &text));
    let (name, bound) = (place.name, text(pod, "spec.nodeName"));
    if metadata::is_terminating(pod) {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if !bound.is_empty() {
        return refuse(format!("pod {name} is already assigned to node {}", quote(bound)));
    }
    if at(pod, "spec.schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut next = pod.clone();
    put(&mut next, "spec.nodeName", text(binding, "target.name").into());
    for member in ["annotations", "labels"] {
        let Some(Value::Object(sent)) = at(binding, &format!("metadata.{member}")) else { continue };
        match metadata_mut(&mut next).get_mut(member) {
            Some(Value::Object(own)) => own.extend(sent.clone()),
            _ => drop(metadata_mut(&mut next).insert(member.to_owned(), sent.clone().into())),
        }
    }
    // The scheduler's wish is over.
    if let Some(Value::Object(status)) = next.get_mut("status") {
        status.remove("nominatedNodeName");
    }
    conditions::set(&mut next, json!({"type": "PodScheduled", "status": "True"}), now);
    Ok(next)
}

fn text<'a>(object: &'a Object, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}
