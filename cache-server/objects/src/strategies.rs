//! Members that kube-apiserver's strategies add to a new object of a built-in type, once it has its name and uid.
//!
//! INVARIANT: fills in members, and replaces none that has a value. Members of a wrong type are left alone.
//!
//! Source: `PrepareForCreate` in `pkg/registry/{batch/job,core/pod}/strategy.go`, and
//! `pkg/apis/core/v1/helper/qos/qos.go`, of kubernetes/kubernetes 1.36.

use api_rules::{object::Object, registry::ResourceType};
use serde_json::{Value, json};

use crate::amounts;

/// Completes an object to create, after its defaults. `now` is the present time in RFC 3339.
///
/// Cost: constant, but for pods, whose containers are read.
pub fn prepare_create(ty: &ResourceType, object: &mut Object, now: &dyn Fn() -> String) {
    // `None`: a member of a wrong type.
    let _ = match (&*ty.group, &*ty.plural) {
        ("batch", "jobs") => generate_selector(object),
        ("", "pods") => complete_status(object, now),
        _ => None,
    };
}

/// Lets a Job select its own pods, unless it brings a selector.
fn generate_selector(job: &mut Object) -> Option<()> {
    let metadata = &job["metadata"];
    let (name, uid) = (metadata["name"].clone(), metadata["uid"].clone());
    let spec = job.get_mut("spec")?.as_object_mut()?;
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return None;
    }
    let labels = inner(inner(inner(spec, "template")?, "metadata")?, "labels")?;
    for (label, value) in [("job-name", &name), ("controller-uid", &uid)] {
        labels.entry(label).or_insert_with(|| value.clone());
        labels.entry(format!("batch.kubernetes.io/{label}")).or_insert_with(|| value.clone());
    }
    inner(inner(spec, "selector")?, "matchLabels")?.entry("batch.kubernetes.io/controller-uid").or_insert(uid);
    Some(())
}

/// Returns the object at a member, which is created if it is missing.
pub(crate) fn inner<'a>(object: &'a mut Object, member: &str) -> Option<&'a mut Object> {
    let value = object.entry(member).or_insert(Value::Null);
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// Tells the class of a pod's quality of service, and that the scheduler has to wait for its gates.
fn complete_status(pod: &mut Object, now: &dyn Fn() -> String) -> Option<()> {
    let class = QosClass::of(&pod["spec"]).name();
    let is_gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    let status = inner(pod, "status")?;
    status.entry("qosClass").or_insert_with(|| class.into());
    if is_gated && !status.contains_key("conditions") {
        let gated = json!([{"type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": now(),
            "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}]);
        status.insert("conditions".to_owned(), gated);
    }
    Some(())
}

/// Class of a pod's quality of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QosClass {
    BestEffort,
    Burstable,
    Guaranteed,
}

impl QosClass {
    const fn name(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }

    pub(crate) fn of(spec: &Value) -> Self {
        if is_set(&spec["resources"]) {
            return Self::of_resources(&spec["resources"]);
        }
        let containers = ["initContainers", "containers"].iter().filter_map(|member| spec[member].as_array()).flatten();
        Self::shared(containers.map(|container| Self::of_resources(&container["resources"])))
    }

    fn of_resources(resources: &Value) -> Self {
        Self::shared(["cpu", "memory"].into_iter().map(|name| {
            let amount = |member: &str| amount(&resources[member][name]);
            match (amount("requests"), amount("limits")) {
                (request, limit) if request != limit => Self::Burstable,
                (0, _) => Self::BestEffort,
                _ => Self::Guaranteed,
            }
        }))
    }

    /// The class that all have; `Burstable` if they differ.
    fn shared(mut classes: impl Iterator<Item = Self>) -> Self {
        let first = classes.next().unwrap_or(Self::BestEffort);
        if classes.all(|class| class == first) { first } else { Self::Burstable }
    }
}

/// True if resources of the whole pod count.
pub(crate) fn is_set(resources: &Value) -> bool {
    ["requests", "limits"].iter().any(|member| {
        resources[member].as_object().is_some_and(|found| found.keys().any(|name| amounts::is_pod_level(name)))
    })
}

/// The billionths of a quantity; 0 if there is none.
fn amount(quantity: &Value) -> i128 {
    amounts::quantity(quantity).map_or(0, |quantity| quantity.billionths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(resources: &[Value]) -> &'static str {
        let containers: Vec<_> = resources.iter().map(|resources| json!({"resources": resources})).collect();
        QosClass::of(&json!({"containers": containers})).name()
    }

    #[test]
    fn classes_follow_requests_and_limits_of_all_containers() {
        let both = |text: &str| json!({"cpu": "1", "memory": text});
        let full = json!({"requests": both("1Gi"), "limits": both("1024Mi")});
        assert_eq!(of(&[]), "BestEffort");
        assert_eq!(of(&[json!({}), json!({"requests": {"cpu": "0", "example.com/card": "1"}})]), "BestEffort");
        assert_eq!(of(&[full.clone(), full.clone()]), "Guaranteed");
        assert_eq!(of(&[full.clone(), json!({})]), "Burstable");
        assert_eq!(of(&[json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}})]), "Burstable");
        assert_eq!(of(&[json!({"limits": {"cpu": "1"}})]), "Burstable");
        let whole = json!({"resources": full, "containers": [{"resources": {"limits": {"cpu": "1"}}}]});
        assert_eq!(QosClass::of(&whole), QosClass::Guaranteed);
    }
}
