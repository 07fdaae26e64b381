//! Ephemeral containers: they are added to a pod that runs, and stay as they are.
//!
//! Source: `pkg/apis/core/validation` (ValidatePodEphemeralContainersUpdate) of kubernetes/kubernetes.

use std::collections::HashMap;

use informer_serving::{
    go::quote,
    status::{CauseExt as _, Causes, StatusCause},
};
use serde_json::Value;

use super::{Object, at};

const FIELD: &str = "spec.ephemeralContainers";
/// Annotation of a pod that a node has by its own configuration.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Checks a change of the containers.
pub(super) fn check(stored: &Object, next: &Object, causes: &mut Causes) {
    if at(stored, "metadata.annotations").is_some_and(|annotations| annotations.get(MIRROR).is_some()) {
        return causes.push(StatusCause::forbidden("", "static pods do not support ephemeral containers"));
    }
    let all = |pod| at(pod, FIELD).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let name = |container: &Value| container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut new: HashMap<String, &Value> = HashMap::new();
    for (at, container) in all(next).iter().enumerate() {
        if new.insert(name(container), container).is_some() {
            let field = format!("{FIELD}[{at}].name");
            causes.push_with(|| StatusCause::duplicate(&field, &quote(&name(container))));
        }
    }
    for old in all(stored) {
        let what = match new.get(&name(old)) {
            None => "removed",
            Some(now) if *now != old => "changed",
            Some(_) => continue,
        };
        causes.push_with(|| {
            let why = format!("existing ephemeral containers {} may not be {what}\n", quote(&name(old)));
            StatusCause::forbidden(FIELD, &why)
        });
    }
}
