//! Plans a delete: the object is removed, or marked to wait for its finalizers, or marked and then removed.
//!
//! INVARIANT: uses no storage and no clock; the caller passes the time.
//!
//! No kubelet ends pods here, so a pod with a grace period is removed right after its mark. Where no garbage collector can
//! run, its finalizers are removed by a delete that sets a propagation policy.
//!
//! Source: apiserver `registry/rest/delete.go` (BeforeDelete), `registry/generic/registry/store.go` (Delete),
//! `pkg/registry/core/{pod/strategy,namespace/storage/storage}.go` of kubernetes/kubernetes.

use informer_serving::status::{Status, StatusExt as _};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    WriteTarget, at,
    body::Object,
    definition_rules,
    draft::ordered,
    metadata,
    options::{DeleteOptions, PropagationPolicy},
};
use crate::registry::{Dependents, Grace, ResourceType};

/// Finalizers that only the garbage collector removes, and the policies that they stand for.
const COLLECTED: [(&str, PropagationPolicy); 2] =
    [("orphan", PropagationPolicy::Orphan), ("foregroundDeletion", PropagationPolicy::Foreground)];

/// Namespaces that cannot be deleted.
///
/// # Source
/// `plugin/pkg/admission/namespace/lifecycle` of kubernetes/kubernetes.
const KEPT_NAMESPACES: [&str; 3] = ["default", "kube-public", "kube-system"];

/// Returns true for an object that cannot be deleted.
pub fn is_protected(ty: &ResourceType, name: &str) -> bool {
    ty.holds_objects && KEPT_NAMESPACES.contains(&name)
}

/// Returns why the preconditions of a delete do not hold for `stored`; `None` if they do.
pub fn mismatch(stored: &Object, options: &DeleteOptions) -> Option<String> {
    let (uid, version) = (metadata::text(stored, "uid"), metadata::text(stored, "resourceVersion"));
    match (options.uid.as_deref(), options.resource_version.as_deref()) {
        (Some(expected), _) if expected != uid => Some(format!(
            "the UID in the precondition ({expected}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        )),
        (_, Some(expected)) if expected != version => Some(format!(
            "the ResourceVersion in the precondition ({expected}) does not match the ResourceVersion in record \
             ({version}). The object might have been modified"
        )),
        _ => None,
    }
}

/// Encodes the answer for an object that was removed at once: the object or a Status, depending on its type. `version`
/// is the version of its removal; a dry run has none.
pub fn answer(place: &WriteTarget<'_>, mut last: Object, version: Option<u64>) -> Vec<u8> {
    let version = version.map(|version| version.to_string());
    if place.ty.returns_deleted {
        if let Some(version) = version {
            metadata::metadata_mut(&mut last).insert("resourceVersion".to_owned(), Value::String(version));
        }
        return ordered(place.ty, last);
    }
    let uid = metadata::text(&last, "uid");
    let mut status = Status::deleted(&place.ty.group, &place.ty.plural, place.name, uid);
    status.metadata.resource_version = version.unwrap_or_default();
    status.to_json()
}

/// Effect of a delete. Neither a mark nor a removal means that the object is terminating already.
#[derive(Debug, PartialEq)]
pub struct DeletePlan {
    /// The marked object to store first.
    pub mark: Option<Object>,
    /// True if the object is removed after the mark.
    pub goes: bool,
    /// True if there was no grace period: the answer reports the object as deleted.
    pub at_once: bool,
}

/// Plans the deletion of `stored` at `now`, a time in whole seconds.
pub fn plan(ty: &ResourceType, stored: &Object, options: &DeleteOptions, now: Timestamp) -> DeletePlan {
    let terminating = metadata::is_terminating(stored);
    if ty.holds_objects {
        let mark = (!terminating).then(|| ending(stored, now));
        return DeletePlan { mark, goes: false, at_once: false };
    }
    let mut next = stored.clone();
    let grace = ty.grace.and_then(|grace| seconds(grace, stored, options));
    // No policy changes while the time runs that an earlier delete gave.
    let is_pending = terminating && grace.is_none() && given(stored) != 0;
    if !(is_pending && options.is_collected) {
        set_policy(ty, &mut next, options);
    }
    definition_rules::hold(ty, &mut next, &now.to_string());
    let goes = metadata::finalizers(&next).is_empty();
    match grace {
        Some(seconds) => give(stored, &mut next, seconds, now),
        None if goes => return DeletePlan { mark: None, goes, at_once: true },
        None if !terminating => metadata::mark_terminating(&mut next, &now.to_string(), 0),
        None => {}
    }
    DeletePlan {
        mark: (next != *stored).then_some(next),
        goes,
        at_once: goes && grace.is_none_or(|seconds| seconds == 0),
    }
}

/// Gives the object the finalizer by which the garbage collector knows the policy of its deletion: the one that the delete
/// names, the one of its present finalizers, or the default of its type.
///
/// # Source
/// apiserver `registry/generic/registry/store.go` (deletionFinalizersForGarbageCollection).
fn set_policy(ty: &ResourceType, object: &mut Object, options: &DeleteOptions) {
    let finalizers = metadata::finalizers(object);
    let present = || COLLECTED.into_iter().find(|(name, _)| finalizers.contains(name)).map(|(_, policy)| policy);
    let policy = match (ty.dependents, options.policy) {
        (_, None) if !options.is_collected => return,
        _ if !options.is_collected => None,
        (Dependents::Uncollected, _) => None,
        (_, Some(policy)) => Some(policy),
        (Dependents::Orphaned { .. }, None) => present().or(Some(PropagationPolicy::Orphan)),
        (Dependents::Deleted, None) => present(),
    };
    let retained = COLLECTED.into_iter().find(|(_, stands_for)| Some(*stands_for) == policy).map(|(name, _)| name);
    let is_there = retained.is_some_and(|name| finalizers.contains(&name));
    for (name, _) in COLLECTED.into_iter().filter(|(name, _)| Some(*name) != retained) {
        metadata::remove_finalizers(object, &[name]);
    }
    if let Some(name) = retained.filter(|_| !is_there) {
        metadata::add_finalizer(object, name);
    }
}

/// Returns the warning about deletes that keep dependents because they name no policy, for a type that has one.
pub fn warning(ty: &ResourceType, options: &DeleteOptions) -> Option<String> {
    let Dependents::Orphaned { warning } = ty.dependents else { return None };
    (options.is_collected && options.policy.is_none() && !warning.is_empty()).then(|| warning.to_owned())
}

/// Returns the new grace period; `None` if it stays as it is.
fn seconds(grace: &Grace, stored: &Object, options: &DeleteOptions) -> Option<i64> {
    if metadata::is_terminating(stored) {
        // A grace period can only be shortened.
        return options.grace_seconds.filter(|&seconds| seconds < given(stored));
    }
    let text = |path: &str| at(stored, path).and_then(Value::as_str).unwrap_or_default();
    if text(grace.runs_at).is_empty() || grace.ended.contains(&text(grace.phase)) {
        return Some(0);
    }
    let own = || at(stored, grace.seconds).and_then(Value::as_i64);
    let seconds = options.grace_seconds.or_else(own).unwrap_or(grace.default_seconds);
    // Negative grace periods mean one second, as in kube-apiserver.
    Some(if seconds < 0 { 1 } else { seconds })
}

/// Marks an object with a grace period of `seconds`, counted from the first deletion, or from `now` if this is the
/// first.
fn give(stored: &Object, next: &mut Object, seconds: i64, now: Timestamp) {
    let later = |from: Timestamp, seconds: i64| {
        let end = from.checked_add(SignedDuration::from_secs(seconds));
        end.unwrap_or(if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX })
    };
    let before = metadata::text(stored, "deletionTimestamp").parse::<Timestamp>().ok();
    let end = match before {
        Some(end) => later(end, seconds.saturating_sub(given(stored))),
        None => later(now, seconds),
    };
    metadata::mark_terminating(next, &whole_second(end), seconds);
}

/// Returns the grace period of a marked object.
fn given(object: &Object) -> i64 {
    at(object, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default()
}

fn whole_second(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// Returns a namespace marked as terminating; the namespace controller removes it once it is empty.
fn ending(stored: &Object, now: Timestamp) -> Object {
    let mut next = stored.clone();
    metadata::metadata_mut(&mut next).insert("deletionTimestamp".to_owned(), now.to_string().into());
    match next.get_mut("status") {
        Some(Value::Object(status)) => {
            status.insert("phase".to_owned(), "Terminating".into());
        }
        _ => {
            next.insert("status".to_owned(), json!({"phase": "Terminating"}));
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::registry::Registry;

    fn ty(group: &str, plural: &str) -> Arc<ResourceType> {
        Registry::builtin().find(group, "v1", plural).expect("a built-in type")
    }

    fn object(value: Value) -> Object {
        value.as_object().expect("an object").clone()
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("a time")
    }

    fn options(grace_seconds: Option<i64>) -> DeleteOptions {
        DeleteOptions { grace_seconds, ..DeleteOptions::default() }
    }

    fn of(ty: &ResourceType, stored: &Value, options: &DeleteOptions) -> DeletePlan {
        plan(ty, &object(stored.clone()), options, now())
    }

    const AT_ONCE: DeletePlan = DeletePlan { mark: None, goes: true, at_once: true };
    const NOTHING: DeletePlan = DeletePlan { mark: None, goes: false, at_once: false };

    #[test]
    fn most_objects_go_at_once() {
        for grace in [None, Some(0), Some(60)] {
            assert_eq!(of(&ty("", "configmaps"), &json!({"metadata": {"name": "a"}}), &options(grace)), AT_ONCE);
        }
    }

    #[test]
    fn finalizers_hold_an_object_that_is_marked_once() {
        let deployments = ty("apps", "deployments");
        let held = json!({"metadata": {"name": "a", "generation": 2, "finalizers": ["x/y"]}});
        let marked = of(&deployments, &held, &options(Some(60)));
        let mark = marked.mark.clone().expect("a mark");
        assert_eq!((marked.goes, marked.at_once), (false, false));
        assert_eq!(
            mark["metadata"],
            json!({"name": "a", "generation": 3, "finalizers": ["x/y"], "deletionTimestamp": "2026-01-01T00:00:00Z",
                "deletionGracePeriodSeconds": 0})
        );
        assert_eq!(of(&deployments, &Value::Object(mark), &options(None)), NOTHING);
    }

    /// Goal: grace periods of pods. Method: a table of pod, requested and resulting grace period; each pod is removed
    /// after its mark.
    #[test]
    fn a_pod_gets_time_where_something_runs() {
        let running =
            |seconds: Option<i64>| json!({"spec": {"nodeName": "n", "terminationGracePeriodSeconds": seconds}});
        let table = [
            (running(None), None, 30),
            (running(Some(5)), None, 5),
            (running(Some(5)), Some(60), 60),
            (running(Some(5)), Some(0), 0),
            (running(Some(-5)), None, 1),
            (json!({"spec": {}}), None, 0),
            (json!({"spec": {"nodeName": ""}}), Some(60), 0),
            (json!({"spec": {"nodeName": "n"}, "status": {"phase": "Succeeded"}}), None, 0),
            (json!({"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}), None, 30),
        ];
        for (pod, wish, seconds) in table {
            let found = of(&ty("", "pods"), &pod, &options(wish));
            let metadata = found.mark.expect("a mark")["metadata"].clone();
            assert_eq!((found.goes, found.at_once), (true, seconds == 0), "{pod} {wish:?}");
            assert_eq!(metadata["deletionGracePeriodSeconds"], seconds, "{pod} {wish:?}");
            let end = now() + SignedDuration::from_secs(seconds);
            assert_eq!(metadata["deletionTimestamp"], end.to_string());
        }
        let for_ever = of(&ty("", "pods"), &running(None), &options(Some(i64::MAX)));
        assert!(for_ever.mark.expect("a mark")["metadata"]["deletionTimestamp"].is_string());
    }

    #[test]
    fn time_that_was_given_is_only_shortened() {
        let held = json!({"metadata": {"generation": 2, "finalizers": ["x"], "deletionTimestamp": "2026-01-01T00:00:20Z",
            "deletionGracePeriodSeconds": 30}, "spec": {"nodeName": "n"}});
        for same in [None, Some(30), Some(31)] {
            assert_eq!(of(&ty("", "pods"), &held, &options(same)), NOTHING, "{same:?}");
        }
        let shorter = of(&ty("", "pods"), &held, &options(Some(5)));
        assert!(!shorter.goes);
        assert_eq!(
            shorter.mark.expect("a mark")["metadata"],
            json!({"generation": 2, "finalizers": ["x"], "deletionTimestamp": "2025-12-31T23:59:55Z",
                "deletionGracePeriodSeconds": 5})
        );
        // Marked by a client that did not finish the deletion: removed now.
        let mut left = held;
        left["metadata"]["finalizers"].take();
        assert_eq!(of(&ty("", "pods"), &left, &options(None)), AT_ONCE);
    }

    #[test]
    fn what_a_collector_would_do_is_not_waited_for() {
        let stored = json!({"metadata": {"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}});
        assert!(of(&ty("", "configmaps"), &stored, &options(None)).mark.is_some(), "somebody wants it to be held");
        let says = DeleteOptions { policy: Some(PropagationPolicy::Orphan), ..DeleteOptions::default() };
        assert_eq!(of(&ty("", "configmaps"), &stored, &says), AT_ONCE);
    }

    /// Goal: an object waits for the garbage collector as its delete, its finalizers and its type say, in this order. Method: a
    /// table of type, policy, finalizers before and after; none after means that it goes at once.
    #[test]
    fn a_collector_finds_the_policy_of_a_deletion() {
        use PropagationPolicy::{Background, Foreground, Orphan};
        let (maps, jobs, events) = (ty("", "configmaps"), ty("batch", "jobs"), ty("", "events"));
        for (ty, policy, before, after) in [
            (&maps, None, json!([]), json!([])),
            (&maps, None, json!(["orphan"]), json!(["orphan"])),
            (&maps, None, json!(["foregroundDeletion", "x"]), json!(["foregroundDeletion", "x"])),
            (&maps, Some(Background), json!(["orphan", "foregroundDeletion"]), json!([])),
            (&maps, Some(Foreground), json!(["x", "orphan"]), json!(["x", "foregroundDeletion"])),
            (&maps, Some(Orphan), json!([]), json!(["orphan"])),
            (&jobs, None, json!([]), json!(["orphan"])),
            (&jobs, None, json!(["foregroundDeletion"]), json!(["foregroundDeletion"])),
            (&jobs, Some(Background), json!([]), json!([])),
            (&ty("", "replicationcontrollers"), None, json!(["x"]), json!(["x", "orphan"])),
            (&events, Some(Foreground), json!(["orphan"]), json!([])),
        ] {
            let stored = json!({"metadata": {"name": "a", "finalizers": before}});
            let options = DeleteOptions { policy, is_collected: true, ..DeleteOptions::default() };
            let planned = of(ty, &stored, &options);
            let found = planned.mark.map(|mark| mark["metadata"]["finalizers"].clone()).unwrap_or(json!([]));
            assert_eq!((&found, planned.goes), (&after, after == json!([])), "{} {policy:?} {before}", ty.id());
        }
    }

    #[test]
    fn the_policy_of_a_pod_stays_while_its_time_runs() {
        let stored = json!({"metadata": {"name": "a", "finalizers": ["x"], "deletionTimestamp": "2026-01-01T00:00:20Z",
            "deletionGracePeriodSeconds": 30}, "spec": {"nodeName": "n"}});
        let policy = Some(PropagationPolicy::Foreground);
        let later = DeleteOptions { policy, is_collected: true, ..DeleteOptions::default() };
        assert_eq!(of(&ty("", "pods"), &stored, &later), NOTHING);
        let sooner = DeleteOptions { grace_seconds: Some(5), ..later };
        let mark = of(&ty("", "pods"), &stored, &sooner).mark.expect("a mark");
        assert_eq!(mark["metadata"]["finalizers"], json!(["x", "foregroundDeletion"]));
    }

    #[test]
    fn a_namespace_is_marked_and_stays() {
        let stored =
            json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}});
        let found = of(&ty("", "namespaces"), &stored, &options(Some(0)));
        let mark = Value::Object(found.mark.expect("a mark"));
        assert_eq!(
            mark,
            json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"finalizers":
                ["kubernetes"]}, "status": {"phase": "Terminating"}})
        );
        assert_eq!(of(&ty("", "namespaces"), &mark, &options(None)), NOTHING);
    }
}
