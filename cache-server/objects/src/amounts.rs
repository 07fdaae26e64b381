//! Amounts of resources by name, as containers, pods and quotas have them.
//!
//! Source: component-helpers `resource/helpers.go`; `pkg/apis/core/helper` of kubernetes/kubernetes 1.36.

use std::collections::BTreeMap;

use api_rules::object::Object;
use serde_json::Value;

use crate::quantity::Quantity;

/// Amounts by the names of their resources.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// Reads a quantity; `None` if it is none.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Reads amounts, and leaves out those that are none.
pub(crate) fn read(list: Option<&Value>) -> Amounts {
    let list = list.and_then(Value::as_object).into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name.clone(), quantity(amount)?))).collect()
}

/// True for the resources that a pod may have as a whole.
pub(crate) fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || name.starts_with("hugepages-")
}

/// True for resources of Kubernetes itself.
pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Amounts of one resource in a pod; `None` where no container states one.
#[derive(Default)]
struct PodTotal {
    /// Of all containers that run side by side at last.
    all: Option<Quantity>,
    /// Of the init containers so far that keep running.
    beside: Quantity,
    /// Greatest one while init containers run.
    first: Option<Quantity>,
}

/// Returns the sum over all containers that run side by side, or more if an init container needs more.
/// `AggregateContainerRequests` and `AggregateContainerLimits`.
pub(crate) fn of_containers(spec: &Object, list: &str, is_counted: impl Fn(&str) -> bool) -> Amounts {
    let mut totals: BTreeMap<&str, PodTotal> = BTreeMap::new();
    for (member, is_init) in [("containers", false), ("initContainers", true)] {
        for container in spec.get(member).and_then(Value::as_array).into_iter().flatten() {
            let is_beside = !is_init || container["restartPolicy"] == "Always";
            let found = container.get("resources").and_then(|resources| resources.get(list)?.as_object());
            for (name, amount) in found.into_iter().flatten().filter(|(name, _)| is_counted(name)) {
                let Some(amount) = quantity(amount) else { continue };
                let total = totals.entry(name).or_default();
                if is_beside {
                    total.all = Some(total.all.unwrap_or_default().plus(amount));
                }
                if is_init {
                    let needed = total.beside.plus(amount);
                    total.first = Some(total.first.map_or(needed, |first| first.or_greater(needed)));
                    total.beside = if is_beside { needed } else { total.beside };
                }
            }
        }
    }
    let greatest = |PodTotal { all, first, .. }| match (all, first) {
        (Some(all), Some(first)) => Some(all.or_greater(first)),
        (all, first) => all.or(first),
    };
    totals.into_iter().filter_map(|(name, total)| Some((name.to_owned(), greatest(total)?))).collect()
}

/// Returns what a pod requests, or its limits, without its overhead.
pub(crate) fn of_pod(spec: &Object, list: &str) -> Amounts {
    let whole = read(spec.get("resources").and_then(|resources| resources.get(list)));
    let mut all = of_containers(spec, list, |_| true);
    all.extend(whole.into_iter().filter(|(name, _)| is_pod_level(name)));
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_takes_what_its_containers_take_at_their_greatest() {
        let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let beside = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        for (containers, first, expected) in [
            (vec![container("1"), container("500m")], vec![], "1500m"),
            (vec![container("1")], vec![container("3"), container("2")], "3"),
            (vec![container("1")], vec![beside("1"), container("3")], "4"),
            (vec![container("3")], vec![container("3"), beside("1"), beside("2")], "6"),
        ] {
            let spec = json!({"containers": containers, "initContainers": first});
            let all = of_pod(spec.as_object().expect("an object"), "requests");
            assert_eq!(all["cpu"].to_string(), expected, "{spec}");
        }
        let spec = json!({"containers": [container("1")],
            "resources": {"requests": {"cpu": "2", "example.com/card": "1"}, "limits": {"memory": 1024}}});
        let spec = spec.as_object().expect("an object");
        let requests = of_pod(spec, "requests");
        assert_eq!((requests["cpu"].to_string().as_str(), requests.len()), ("2", 1));
        assert_eq!(of_pod(spec, "limits")["memory"].to_string(), "1024");
    }
}
