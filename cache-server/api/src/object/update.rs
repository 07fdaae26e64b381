//! Replaces, patches and applies to existing objects.
//!
//! Source: apiserver `registry/generic/registry/store.go` (Update), `registry/rest/update.go`.

use std::sync::Arc;

use informer_serving::{
    go,
    status::{CauseExt as _, Status, StatusCause, StatusExt as _},
};
use parking_lot::Mutex;
use serde_json::Value;
use watch_cache::Entry;

use super::{
    WriteRequest, WriteTarget,
    apply::AppliedConfiguration,
    body::{Object, read_valid},
    metadata,
    options::Options,
    patch::{Patch, undecodable},
    plain::NormalEntry,
    sparse::SealedPair,
    validation,
};
use crate::{
    limits::UNREAD_BYTES_MAX,
    registry::{Registry, ResourceType},
};

/// Change that a client requests.
pub enum RequestedChange<'a> {
    /// Replace the object. Name and namespace match the path.
    Replace(SentObject<'a>),
    /// Patch the stored object.
    Patch(Patch),
    /// Apply a configuration to the stored object.
    Apply(AppliedConfiguration),
}

impl RequestedChange<'_> {
    /// Decodes of a stored object only what this change touches, for [`plan`] and
    /// [`sparse_draft`](super::draft::sparse_draft). Returns `None` if the change needs the whole object.
    pub fn sparse(&self, ty: &Arc<ResourceType>, stored: &Arc<Entry>) -> Option<(Object, SealedChange)> {
        // Rules for these types read, or move, members that a change does not name.
        if ty.texts.is_some() || ty.defines_types || ty.is_approved() || ty.conversion.is_some() {
            return None;
        }
        let text = stored.object_text();
        // Longer values are not checked.
        if !stored.is_normal() && UNREAD_BYTES_MAX < text.len() {
            return None;
        }
        let (object, config) = match self {
            Self::Patch(patch) => (patch.sparse(ty, text)?, None),
            Self::Apply(applied) => {
                let SealedPair { object, config, .. } = applied.sparse(ty, text)?;
                (object, Some(config))
            }
            Self::Replace(_) => return None,
        };
        let is_normal = stored.is_normal() || NormalEntry::of(ty, Arc::clone(stored)).is_some();
        is_normal.then_some((object, SealedChange { config }))
    }
}

/// An object as sent. The write consumes it without a copy; after a conflict, which is rare, it is parsed from the body
/// again.
pub struct SentObject<'a> {
    object: Mutex<Option<Object>>,
    again: &'a ParseAgain<'a>,
}

/// Parses the body again.
type ParseAgain<'a> = dyn Fn() -> Result<Object, Status> + Sync + 'a;

impl<'a> SentObject<'a> {
    /// Creates it from `object`, which equals the result of `again`.
    pub fn new(object: Object, again: &'a ParseAgain<'a>) -> Self {
        Self { object: Mutex::new(Some(object)), again }
    }

    /// Takes the object, parsing it again if it was taken before.
    pub fn take(&self) -> Result<Object, Status> {
        let object = self.object.lock().take();
        object.map_or_else(self.again, Ok)
    }

    /// Returns true if the object brings its own managedFields.
    pub fn is_managed(&self) -> bool {
        let object = self.object.lock();
        let fields = object.as_ref().and_then(|object| object.get("metadata")?.get("managedFields")?.as_array());
        fields.is_some_and(|entries| !entries.is_empty())
    }
}

/// Reads the object that a PUT sends.
///
/// # Errors
/// As [`read_valid`]; 400 if it has another name or namespace than the path.
pub fn read_sent(
    registry: &Registry,
    request: &WriteRequest<'_>,
    place: &WriteTarget<'_>,
    options: Options,
    warnings: &mut Vec<String>,
) -> Result<Object, Status> {
    let WriteRequest { ty, content_type, body, .. } = *request;
    stay(place, read_valid(registry, ty, content_type, body, options.validation, warnings)?)
}

/// Effect of a change.
#[derive(Debug, PartialEq)]
pub enum UpdatePlan {
    /// No effect: the object is as requested.
    Keep,
    /// Store this object.
    Put(Object),
    /// Delete the object, as its last finalizer was removed; this is its last state.
    Delete(Object),
}

/// The stored object that a change is made to.
#[derive(Clone, Copy, Debug)]
pub struct ChangedObject<'a> {
    /// Its content.
    pub object: &'a Object,
    /// The change as [`RequestedChange::sparse`] returned it with the object; `None` with a whole object.
    pub sealed: Option<&'a SealedChange>,
}

/// A change without what it has in common with the sparse object that it is made to.
#[derive(Debug)]
pub struct SealedChange {
    /// The configuration of an apply.
    config: Option<Object>,
}

/// Returns the object that the change asks for in place of `stored`, as sparse as `stored` is. The caller may complete or refuse
/// it before [`plan`], which restores what the writer cannot change. `now` becomes the time of an applying manager's entry.
///
/// # Errors
/// The Status to answer with.
pub fn requested(
    place: &WriteTarget<'_>,
    stored: ChangedObject<'_>,
    change: &RequestedChange<'_>,
    options: Options,
    now: &str,
    warnings: &mut Vec<String>,
) -> Result<Object, Status> {
    let ChangedObject { object: stored, sealed } = stored;
    match change {
        RequestedChange::Replace(sent) => {
            let object = sent.take()?;
            check_uid(place, stored, &object)?;
            Ok(object)
        }
        RequestedChange::Patch(patch) => {
            let mut object = patch.apply(place.ty, stored)?;
            let found = validation::check_as(place.ty, &mut object, sealed.is_some());
            if let Some(error) = found.mistyped {
                return Err(undecodable(&error));
            }
            let unknown = found.unknown.iter().map(|path| validation::unknown_field(path));
            let complaints = patch.complaints().iter().cloned().chain(unknown).collect();
            validation::report(options.validation, complaints, warnings).map_err(|error| undecodable(&error))?;
            stay(place, object)
        }
        RequestedChange::Apply(applied) => {
            let config = sealed.and_then(|sealed| sealed.config.as_ref());
            let mut object = applied.onto(place.ty, stored, config, now)?;
            if let Some(error) = validation::check_as(place.ty, &mut object, sealed.is_some()).mistyped {
                return Err(undecodable(&error));
            }
            stay(place, object)
        }
    }
}

/// Plans to put `sent` in place of `stored`.
///
/// # Errors
/// The Status to answer with.
pub fn plan(
    place: &WriteTarget<'_>,
    stored: ChangedObject<'_>,
    change: &RequestedChange<'_>,
    sent: Object,
) -> Result<UpdatePlan, Status> {
    let stored = stored.object;
    check_version(place, stored, &sent)?;
    let next = metadata::prepare_update(place.ty, stored, sent, place.part)?;
    // The grace period is not awaited. Namespaces are deleted by the namespace controller once they are empty.
    if metadata::is_terminating(stored) && metadata::finalizers(&next).is_empty() && !place.ty.holds_objects {
        return Ok(UpdatePlan::Delete(next));
    }
    let is_equal = next == *stored || (matches!(change, RequestedChange::Apply(_)) && equals_but_times(stored, &next));
    Ok(if is_equal { UpdatePlan::Keep } else { UpdatePlan::Put(next) })
}

/// Returns true if two objects differ at most in the times of their managers: `admit` filled in what an apply left out.
///
/// Source: apiserver `endpoints/handlers/fieldmanager/equality.go`.
fn equals_but_times(stored: &Object, next: &Object) -> bool {
    fn is_equal_but(name: &str, stored: &Object, next: &Object, is_equal: impl Fn(&Value, &Value) -> bool) -> bool {
        stored.len() == next.len()
            && stored.iter().all(|(member, value)| {
                next.get(member).is_some_and(|next| value == next || (member == name && is_equal(value, next)))
            })
    }
    fn both<'a>(stored: &'a Value, next: &'a Value) -> Option<(&'a Object, &'a Object)> {
        stored.as_object().zip(next.as_object())
    }
    let entry = |stored: &Value, next: &Value| {
        both(stored, next).is_some_and(|(stored, next)| is_equal_but("time", stored, next, |_, _| true))
    };
    // They are in the order of their times.
    fn by_manager(entries: &[Value]) -> Vec<&Value> {
        let mut sorted = entries.iter().collect::<Vec<_>>();
        let members = ["operation", "manager", "apiVersion", "subresource"];
        sorted.sort_by_cached_key(|entry| members.map(|member| entry[member].as_str().unwrap_or_default().to_owned()));
        sorted
    }
    let entries = |stored: &Value, next: &Value| {
        let lists = stored.as_array().zip(next.as_array()).filter(|(stored, next)| stored.len() == next.len());
        lists.is_some_and(|(stored, next)| {
            by_manager(stored).into_iter().zip(by_manager(next)).all(|(stored, next)| entry(stored, next))
        })
    };
    is_equal_but("metadata", stored, next, |stored, next| {
        both(stored, next).is_some_and(|(stored, next)| is_equal_but("managedFields", stored, next, entries))
    })
}

/// Checks that a change keeps name and namespace.
fn stay(place: &WriteTarget<'_>, mut object: Object) -> Result<Object, Status> {
    metadata::match_namespace(place.ty, place.namespace, &mut object)?;
    place.match_name(&object)?;
    Ok(object)
}

/// Checks that `object` is meant for the stored object: another uid is another object.
///
/// # Errors
/// 409 unless `object` has the uid of `stored`, or no uid.
pub fn check_uid(place: &WriteTarget<'_>, stored: &Object, object: &Object) -> Result<(), Status> {
    check_precondition(place, "UID", metadata::text(object, "uid"), metadata::text(stored, "uid"))
}

/// Checks that a member of the stored object, `what`, has the value that the request expects; empty expects any.
///
/// # Errors
/// 409 for another value.
pub(super) fn check_precondition(
    place: &WriteTarget<'_>,
    what: &str,
    expected: &str,
    found: &str,
) -> Result<(), Status> {
    if expected.is_empty() || expected == found {
        return Ok(());
    }
    let ResourceType { group, plural, .. } = &**place.ty;
    let text = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{plural}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: {what} in precondition: {expected}, {what} in object meta: {found}",
        place.key()
    );
    Err(Status::conflict(group, plural, place.name, &text))
}

/// Returns the resourceVersion of the change; zero if it has none.
///
/// # Errors
/// 500, as in kube-apiserver, if it is no number.
pub fn version(sent: &Object) -> Result<u64, Status> {
    let declared = metadata::text(sent, "resourceVersion");
    if declared.is_empty() { Ok(0) } else { go::parse_uint(declared).map_err(Status::unmapped) }
}

/// Checks that the resourceVersion of the change, if any, equals the stored one.
fn check_version(place: &WriteTarget<'_>, stored: &Object, sent: &Object) -> Result<(), Status> {
    let declared = metadata::text(sent, "resourceVersion");
    let ResourceType { group, plural, unconditional_update, .. } = &**place.ty;
    match version(sent)? {
        0 if *unconditional_update => Ok(()),
        // kube-apiserver puts the plural here, where other messages have the kind.
        0 => Err(Status::invalid(
            group,
            plural,
            place.name,
            vec![StatusCause::invalid("metadata.resourceVersion", "0", "must be specified for an update")],
        )),
        _ if declared == metadata::text(stored, "resourceVersion") => Ok(()),
        _ => Err(place.modified()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{super::metadata::Part, *};

    struct Case {
        ty: Arc<ResourceType>,
        stored: Value,
        part: Part,
    }

    impl Case {
        fn new(group: &str, plural: &str, stored: Value) -> Self {
            let ty = Registry::builtin().find(group, "v1", plural).expect("a built-in type");
            Self { ty, stored, part: Part::Main }
        }

        fn plan(&self, change: &RequestedChange<'_>) -> Result<UpdatePlan, (u16, String)> {
            let place = WriteTarget { ty: &self.ty, namespace: "ns", name: "a", part: self.part };
            let (stored, options, now) = (object(self.stored.clone()), Options::default(), "2026-01-03T00:00:00Z");
            let stored = ChangedObject { object: &stored, sealed: None };
            requested(&place, stored, change, options, now, &mut Vec::new())
                .and_then(|sent| plan(&place, stored, change, sent))
                .map_err(|status| (status.code, status.message))
        }

        fn replace(&self, sent: Value) -> Result<UpdatePlan, (u16, String)> {
            self.plan(&RequestedChange::Replace(SentObject::new(object(sent.clone()), &|| Ok(object(sent.clone())))))
        }

        fn merge(&self, patch: Value) -> Result<UpdatePlan, (u16, String)> {
            self.plan(&RequestedChange::Patch(Patch::merge(patch)))
        }
    }

    fn object(value: Value) -> Object {
        value.as_object().expect("an object").clone()
    }

    fn put(plan: Result<UpdatePlan, (u16, String)>) -> Value {
        match plan.expect("is accepted") {
            UpdatePlan::Put(object) => Value::Object(object),
            other @ (UpdatePlan::Keep | UpdatePlan::Delete(_)) => panic!("{other:?}"),
        }
    }

    fn config_map() -> Case {
        Case::new(
            "",
            "configmaps",
            json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v"}, "metadata": {"name": "a", "namespace":
                "ns", "uid": "u1", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"manager": "m"}]}}),
        )
    }

    fn deployment() -> Case {
        Case::new(
            "apps",
            "deployments",
            json!({"kind": "Deployment", "apiVersion": "apps/v1", "spec": {"replicas": 1}, "status": {"replicas": 1},
                "metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7", "generation": 3}}),
        )
    }

    fn metadata(mut members: Value) -> Value {
        members["name"] = json!("a");
        members["namespace"] = json!("ns");
        json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v"}, "metadata": members})
    }

    #[test]
    fn what_the_server_set_may_be_left_out() {
        let case = config_map();
        assert_eq!(case.replace(metadata(json!({}))), Ok(UpdatePlan::Keep));
        assert_eq!(case.replace(metadata(json!({"creationTimestamp": null, "uid": ""}))), Ok(UpdatePlan::Keep));
        // As exported from another cluster.
        let exported = json!({"creationTimestamp": "2020-01-01T00:00:00Z", "selfLink": "/x", "generation": 9});
        assert_eq!(case.replace(metadata(exported.clone())), Ok(UpdatePlan::Keep));
        assert_eq!(case.merge(json!({ "metadata": exported })), Ok(UpdatePlan::Keep));
        assert_eq!(case.merge(json!({})), Ok(UpdatePlan::Keep));
        assert_eq!(case.merge(json!({"data": {"k": "v"}, "metadata": {"labels": null}})), Ok(UpdatePlan::Keep));
    }

    #[test]
    fn a_change_keeps_identity_and_drops_nothing_that_was_sent() {
        let next = put(config_map().merge(json!({"data": {"l": "w"}, "metadata": {"labels": {"x": "y"}}})));
        assert_eq!(next["data"], json!({"k": "v", "l": "w"}));
        assert_eq!(next["metadata"]["labels"], json!({"x": "y"}));
        assert_eq!((&next["metadata"]["uid"], &next["metadata"]["resourceVersion"]), (&json!("u1"), &json!("7")));
        assert!(next["metadata"].get("generation").is_none());
    }

    /// Goal: refusals of update and patch. Method: a table of metadata sent, code and message.
    #[test]
    fn writes_that_do_not_fit_are_refused() {
        let modified = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply \
                        your changes to the latest version and try again";
        let table = [
            (json!({"resourceVersion": "6"}), 409, modified.to_owned()),
            (json!({"resourceVersion": "8"}), 409, modified.to_owned()),
            (json!({"resourceVersion": "x"}), 500, "strconv.ParseUint: parsing \"x\": invalid syntax".to_owned()),
            (
                json!({"uid": "u2"}),
                409,
                "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, Key: \
                 /registry/configmaps/ns/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
                 precondition: u2, UID in object meta: u1"
                    .to_owned(),
            ),
            (
                json!({"deletionTimestamp": "2020-01-01T00:00:00Z"}),
                422,
                "ConfigMap \"a\" is invalid: metadata.deletionTimestamp: Invalid value: \"2020-01-01T00:00:00Z\": \
                 field is immutable"
                    .to_owned(),
            ),
        ];
        for (sent, code, text) in table {
            assert_eq!(config_map().replace(metadata(sent)), Err((code, text)));
        }
        let moved = [
            (json!({"metadata": {"name": "b"}}), "the name of the object (b) does not match the name on the URL (a)"),
            (
                json!({"metadata": {"namespace": "other"}}),
                "the namespace of the provided object does not match the namespace sent on the request",
            ),
        ];
        for (patch, text) in moved {
            assert_eq!(config_map().merge(patch), Err((400, text.to_owned())));
        }
        assert_eq!(config_map().merge(json!({"metadata": {"resourceVersion": "6"}})), Err((409, modified.to_owned())));
        assert_eq!(config_map().merge(json!({"metadata": {"resourceVersion": "7"}})), Ok(UpdatePlan::Keep));
        assert_eq!(config_map().merge(json!({"metadata": {"namespace": null}})), Ok(UpdatePlan::Keep));
        // resourceVersion of a store that starts at the current time in microseconds, far above 2^32.
        let mut case = config_map();
        case.stored["metadata"]["resourceVersion"] = json!("1882386878955521");
        assert_eq!(case.merge(json!({})), Ok(UpdatePlan::Keep));
    }

    #[test]
    fn some_types_must_be_updated_at_a_version() {
        let stored = json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "a",
            "namespace": "ns", "resourceVersion": "7"}});
        let case = Case::new("coordination.k8s.io", "leases", stored.clone());
        let mut sent = stored;
        sent["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
        assert_eq!(
            case.replace(sent),
            Err((
                422,
                "leases.coordination.k8s.io \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
                 specified for an update"
                    .to_owned()
            ))
        );
    }

    #[test]
    fn generation_counts_changes_of_the_desired_state() {
        let generation = |patch: Value| put(deployment().merge(patch))["metadata"]["generation"].clone();
        assert_eq!(generation(json!({"spec": {"replicas": 2}})), json!(4));
        assert_eq!(generation(json!({"metadata": {"labels": {"a": "b"}}})), json!(3));
        assert_eq!(generation(json!({"metadata": {"annotations": {"a": "b"}}})), json!(4), "of this type");
        assert_eq!(generation(json!({"spec": {"replicas": 2}, "metadata": {"generation": 99}})), json!(4));
    }

    #[test]
    fn status_is_written_by_its_subresource_alone() {
        let mut case = deployment();
        assert_eq!(case.merge(json!({"status": {"replicas": 9}})), Ok(UpdatePlan::Keep));
        case.part = Part::Status;
        let next = put(case.merge(json!({"status": {"replicas": 9}, "spec": {"replicas": 9}, "metadata": {"labels":
            {"a": "b"}}})));
        assert_eq!((&next["status"]["replicas"], &next["spec"]["replicas"]), (&json!(9), &json!(1)));
        assert!(next["metadata"].get("labels").is_none(), "its labels are the main resource's alone");
        assert_eq!(next["metadata"]["generation"], json!(3));
        let next = put(case.merge(json!({"metadata": {"annotations": {"a": "b"}, "finalizers": ["x/y"]}})));
        let metadata = &next["metadata"];
        assert_eq!((&metadata["annotations"], &metadata["finalizers"]), (&json!({"a": "b"}), &json!(["x/y"])));
        assert_eq!(put(case.merge(json!({"status": null}))).get("status"), None);
    }

    #[test]
    fn an_apply_that_changes_times_alone_changes_nothing() {
        let managed = |times: [&str; 2], label: &str| {
            let mut entries = [("a", times[0]), ("b", times[1])].map(|(manager, time)| {
                json!({"manager": manager, "operation": "Apply", "time": time, "fieldsV1": {"f:data": {}}})
            });
            entries.sort_by_key(|entry| entry["time"].to_string());
            object(json!({"metadata": {"name": "a", "labels": {"l": label}, "managedFields": entries}}))
        };
        let stored = managed(["1", "2"], "x");
        assert!(equals_but_times(&stored, &managed(["3", "2"], "x")));
        assert!(!equals_but_times(&stored, &managed(["3", "2"], "y")));
        let mut other = managed(["3", "2"], "x");
        other["metadata"]["managedFields"][0]["fieldsV1"] = json!({});
        assert!(!equals_but_times(&stored, &other));
        other["metadata"]["managedFields"] = json!([]);
        assert!(!equals_but_times(&stored, &other));
    }

    #[test]
    fn finalizers_hold_a_deleted_object_until_the_last_is_gone() {
        let mut case = config_map();
        case.stored["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
        case.stored["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        case.stored["metadata"]["finalizers"] = json!(["x/y", "z"]);
        let next = put(case.merge(json!({"metadata": {"finalizers": ["z"]}})));
        assert_eq!(next["metadata"]["deletionTimestamp"], json!("2026-01-02T00:00:00Z"));
        assert_eq!(
            case.merge(json!({"metadata": {"finalizers": ["x/y", "z", "new", "er"]}})),
            Err((
                422,
                "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the \
                 object is being deleted, found new finalizers []string{\"new\", \"er\"}"
                    .to_owned()
            ))
        );
        for patch in [json!({"metadata": {"finalizers": null}}), json!({"metadata": {"finalizers": []}})] {
            match case.merge(patch) {
                Ok(UpdatePlan::Delete(last)) => assert!(metadata::finalizers(&last).is_empty()),
                other => panic!("{other:?}"),
            }
        }
    }
}
