//! Evictions: deletions of pods that the PodDisruptionBudgets allow.
//!
//! A budget counts: each eviction of a healthy pod takes one of the disruptions that its controller allows, and names the
//! pod to it. Without that controller, a client sets the budget's status.
//!
//! Source: `pkg/registry/core/pod/storage/eviction.go` of kubernetes/kubernetes.

use informer_serving::{
    go::quote,
    status::{CauseReason, Status, StatusCause, StatusExt as _},
};
use serde_json::{Value, json};

use super::{
    Object, WriteTarget, at, conditions,
    label_selector::LabelSelector,
    metadata,
    options::{DeleteOptions, Options},
    put,
};

/// Pods whose eviction the controller of a budget may not have seen yet.
const DISRUPTED_PODS_MAX: usize = 2_000;

/// Reads the options of the deletion that an Eviction requests.
///
/// # Errors
/// 400 for an Eviction of another pod; 422 for invalid options.
pub fn deletion(place: &WriteTarget<'_>, eviction: &Object, options: Options) -> Result<DeleteOptions, Status> {
    if metadata::text(eviction, "name") != place.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut deletion = match eviction.get("deleteOptions") {
        Some(Value::Object(sent)) => DeleteOptions::of(sent)?,
        _ => DeleteOptions::default(),
    };
    deletion.dry_run |= options.dry_run;
    Ok(deletion)
}

/// True if budgets count the pod: it has not ended, has been started, and is not being deleted.
pub fn is_counted(pod: &Object) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed" | "Pending") && !metadata::is_terminating(pod)
}

/// True if a pod that budgets do not count may be counted later, so that only the version that was read may be deleted.
pub fn may_be_counted(pod: &Object) -> bool {
    phase(pod) == "Pending" && !metadata::is_terminating(pod)
}

fn phase(pod: &Object) -> &str {
    at(pod, "status.phase").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the pod with the condition that it is evicted.
pub fn mark(pod: &Object, now: &str) -> Object {
    let mut next = pod.clone();
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting"});
    conditions::set(&mut next, condition, now);
    next
}

/// True if the budget guards the pod. A budget without a selector guards none, one with an empty selector all.
pub fn guards(budget: &Object, pod: &Object) -> bool {
    let selector = at(budget, "spec.selector").filter(|selector| selector.is_object()).and_then(LabelSelector::read);
    selector.is_some_and(|selector| selector.selects(pod))
}

/// True if the pod does not count for its budget: it is not ready, and the budget lets such pods go.
pub fn goes_uncounted(budget: &Object, pod: &Object) -> bool {
    if conditions::find(pod, "Ready").is_some_and(|ready| ready["status"] == "True") {
        return false;
    }
    let (healthy, desired) = (number(budget, "status.currentHealthy"), number(budget, "status.desiredHealthy"));
    let policy = at(budget, "spec.unhealthyPodEvictionPolicy").and_then(Value::as_str);
    policy == Some("AlwaysAllow") || (healthy >= desired && desired > 0)
}

/// Returns the budget after the eviction of one more pod.
///
/// # Errors
/// 429 if it allows none now, 403 if its status cannot be used.
pub fn take(budget: &Object, pod: &str, now: &str) -> Result<Object, Status> {
    let name = metadata::text(budget, "name");
    if number(budget, "status.observedGeneration") < number(budget, "metadata.generation") {
        return Err(still_processed(name));
    }
    let refuse = |why: &str, short: &str| {
        let text = format!("The disruption budget {name} does not allow evicting pods currently: {short}");
        caused(Status::forbidden("policy", "poddisruptionbudget", name, why), &text)
    };
    let allowed = number(budget, "status.disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(refuse(why, why));
    }
    let disrupted = at(budget, "status.disruptedPods").and_then(Value::as_object);
    if disrupted.is_some_and(|pods| pods.len() > DISRUPTED_PODS_MAX) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(refuse(why, "too many pending evictions not confirmed by PDB controller"));
    }
    if allowed == 0 {
        return Err(caused(Status::too_many_requests(VIOLATED, 0), &why_none(budget, name)));
    }
    let mut next = budget.clone();
    put(&mut next, "status.disruptionsAllowed", (allowed - 1).into());
    if allowed == 1 {
        let generation = number(budget, "status.observedGeneration");
        let condition = json!({"type": ALLOWED, "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": generation});
        conditions::set(&mut next, condition, now);
    }
    let mut pods = disrupted.cloned().unwrap_or_default();
    pods.insert(pod.to_owned(), now.into());
    put(&mut next, "status.disruptedPods", pods.into());
    Ok(next)
}

/// The condition of a budget.
const ALLOWED: &str = "DisruptionAllowed";
const VIOLATED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Returns why a budget allows no disruption.
fn why_none(budget: &Object, name: &str) -> String {
    let (healthy, desired) = (number(budget, "status.currentHealthy"), number(budget, "status.desiredHealthy"));
    let part = |member| {
        let condition = conditions::find(budget, ALLOWED).filter(|condition| condition["status"] == "False");
        condition.and_then(|condition| condition.get(member)?.as_str()).unwrap_or_default()
    };
    let (reason, message) = (part("reason"), part("message"));
    let none = format!("The disruption budget {name} does not allow evicting pods currently");
    match reason {
        "SyncFailed" if !message.is_empty() => format!("{none} because it failed sync: {message}"),
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        _ if !message.is_empty() => format!("{none} ({reason}): {message}"),
        _ => none,
    }
}

/// Returns the 429 of a budget whose controller has not seen its last change, or of a pod that changed meanwhile.
pub fn still_processed(budget: &str) -> Status {
    let text = format!("The disruption budget {budget} is still being processed by the server.");
    caused(Status::too_many_requests(VIOLATED, 10), &text)
}

/// Returns the 504 of a budget that other writes changed again and again.
pub fn contended(budget: &str) -> Status {
    Status::timeout(&format!("couldn't update PodDisruptionBudget {} due to conflicts", quote(budget)), 10)
}

/// Returns the 500 of a pod with several budgets.
pub fn several() -> Status {
    let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    Status::unmapped(text)
}

fn caused(mut status: Status, text: &str) -> Status {
    let reason = CauseReason::Other("DisruptionBudget".to_owned());
    let cause = StatusCause { reason, message: text.to_owned(), ..StatusCause::default() };
    status.details.get_or_insert_default().causes.push(cause);
    status
}

/// Returns a number of an object; zero without one.
fn number(object: &Object, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or_default()
}
