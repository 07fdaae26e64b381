//! Defaults that kube-apiserver fills in while it reads a value, because they were not there to be stored: labels of Jobs
//! come from labels that its create adds to the template, a claim's phase is reset by its create, and protobuf has no place
//! for the kind of a claim template.
//!
//! Source: `SetDefaults_Job` in `pkg/apis/batch/v1/defaults.go`, `SetDefaults_PersistentVolumeClaim` in
//! `pkg/apis/core/v1/defaults.go`, `Convert_apps_StatefulSetSpec_To_v1_StatefulSetSpec` in
//! `pkg/apis/apps/v1/conversion.go` of kubernetes.

use serde_json::{Map, Value};

use crate::{object::Object, registry::ResourceType};

const JOBS: &str = "jobs.batch";
const CLAIMS: &str = "persistentvolumeclaims";
const STATEFUL_SETS: &str = "statefulsets.apps";

/// True if objects of this type have such defaults.
pub(super) fn concern(ty: &ResourceType) -> bool {
    ty.schema.builtin && [JOBS, CLAIMS, STATEFUL_SETS].contains(&ty.id())
}

/// Fills in the defaults of an object. Returns `None` if it lacks none.
pub(super) fn fill(ty: &ResourceType, mut object: Object) -> Option<Object> {
    let is_filled = match ty.id() {
        JOBS => label_job(&mut object),
        CLAIMS => member(&mut object, "status").is_some_and(|status| set_empty(status, "phase", "Pending")),
        STATEFUL_SETS => name_templates(&mut object),
        _ => false,
    };
    is_filled.then_some(object)
}

/// Gives a Job without labels those of its template.
fn label_job(job: &mut Object) -> bool {
    let labels = |metadata: &Value| metadata.get("labels").filter(|labels| is_filled_map(labels)).cloned();
    let template = job.get("spec").and_then(|spec| labels(spec.get("template")?.get("metadata")?));
    let (Some(template), Some(metadata)) = (template, member(job, "metadata")) else { return false };
    if metadata.get("labels").is_some_and(is_filled_map) {
        return false;
    }
    metadata.insert("labels".to_owned(), template);
    true
}

/// Gives each claim template its kind and apiVersion.
fn name_templates(set: &mut Object) -> bool {
    let templates = member(set, "spec").and_then(|spec| spec.get_mut("volumeClaimTemplates")?.as_array_mut());
    let mut is_filled = false;
    for template in templates.into_iter().flatten().filter_map(Value::as_object_mut) {
        is_filled |= set_empty(template, "kind", "PersistentVolumeClaim");
        is_filled |= set_empty(template, "apiVersion", "v1");
    }
    is_filled
}

fn is_filled_map(value: &Value) -> bool {
    value.as_object().is_some_and(|members| !members.is_empty())
}

/// Returns a member that is an object, and is created if it is missing.
fn member<'a>(object: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    object.entry(name).or_insert_with(|| Map::new().into()).as_object_mut()
}

/// Sets a text that is missing or empty. Returns false if there is another one.
fn set_empty(object: &mut Object, name: &str, text: &str) -> bool {
    let is_empty = object.get(name).is_none_or(|found| found.is_null() || found == "");
    if is_empty {
        object.insert(name.to_owned(), text.into());
    }
    is_empty
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    /// Goal: objects are as kube-apiserver shows them. Method: a table of stored objects with and without the members.
    #[test]
    fn members_that_were_not_stored_are_filled_in() {
        let template = json!({"template": {"metadata": {"labels": {"job-name": "j"}}}});
        let table = [
            (
                JOBS,
                json!({"metadata": {"name": "j"}, "spec": template}),
                Some(json!({"metadata": {"name": "j", "labels": {"job-name": "j"}}, "spec": template})),
            ),
            (JOBS, json!({"metadata": {"labels": {"own": "1"}}, "spec": template}), None),
            (JOBS, json!({"metadata": {"name": "j"}, "spec": {"template": {"metadata": {}}}}), None),
            (
                CLAIMS,
                json!({"metadata": {"name": "c"}, "status": {}}),
                Some(json!({"metadata": {"name": "c"}, "status": {"phase": "Pending"}})),
            ),
            (CLAIMS, json!({"metadata": {}}), Some(json!({"metadata": {}, "status": {"phase": "Pending"}}))),
            (CLAIMS, json!({"metadata": {}, "status": {"phase": "Bound"}}), None),
            (
                STATEFUL_SETS,
                json!({"metadata": {}, "spec": {"volumeClaimTemplates": [{"metadata": {"name": "a"}}, {}]}}),
                Some(json!({"metadata": {}, "spec": {"volumeClaimTemplates": [
                    {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "a"}},
                    {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}]}})),
            ),
            (STATEFUL_SETS, json!({"metadata": {}, "spec": {"replicas": 1}}), None),
            (STATEFUL_SETS, json!({"metadata": {}, "spec": "no object"}), None),
        ];
        for (id, stored, expected) in table {
            let ty = Registry::builtin().by_id(id).expect(id);
            assert!(concern(&ty));
            let Value::Object(object) = stored.clone() else { panic!("no object") };
            assert_eq!(fill(&ty, object).map(Value::Object), expected, "{stored}");
        }
        assert!(!concern(&Registry::builtin().by_id("pods").expect("a built-in type")));
    }
}
