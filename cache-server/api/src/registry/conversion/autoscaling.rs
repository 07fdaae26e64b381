//! HorizontalPodAutoscalers of `autoscaling/v1`, from those of `autoscaling/v2`: what the older version has no members for
//! is JSON in annotations.
//!
//! Source: `pkg/apis/autoscaling/v1/{conversion,defaults}.go` and `pkg/apis/autoscaling/annotations.go` of
//! kubernetes/kubernetes.

use serde_json::{Map, Value, json};

use super::{super::Object, Conversion};
use crate::limits::AUTOSCALING_ANNOTATION_BYTES_MAX;

pub(super) static CONVERSION: Conversion =
    Conversion { kind: "HorizontalPodAutoscaler", api_version: "autoscaling/v1", labels: &[], to_stored, from_stored };

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// Annotations that only the older version has. The last two are of a release that did not keep them in the behaviour.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    BEHAVIOR,
    CURRENT_METRICS,
    CONDITIONS,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// Use of a processor without any metric, in percent.
const CPU_PERCENT: u32 = 80;

fn from_stored(autoscaler: &mut Object) {
    drop_annotations(autoscaler);
    let mut annotations = Vec::new();
    if let Some(spec) = member(autoscaler, "spec") {
        let metrics = take_list(spec, "metrics");
        let (of_cpu, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(|metric| cpu_percent(metric).is_some());
        if let Some(percent) = of_cpu.first().and_then(cpu_percent) {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), percent.clone());
        }
        if !others.is_empty() {
            annotations.push((METRICS, older(&others, &SPEC)));
        }
        if let Some(behavior) = spec.remove("behavior").filter(Value::is_object) {
            annotations.push((BEHAVIOR, capitalized(&behavior)));
        }
    }
    if let Some(status) = member(autoscaler, "status") {
        let current = take_list(status, "currentMetrics");
        let of_cpu = current.iter().filter(|metric| is_cpu(metric));
        let percent = of_cpu.filter_map(|metric| metric.pointer("/resource/current/averageUtilization")).next_back();
        if let Some(percent) = percent {
            status.insert("currentCPUUtilizationPercentage".to_owned(), percent.clone());
        }
        if !current.is_empty() {
            annotations.push((CURRENT_METRICS, older(&current, &STATUS)));
        }
        let conditions = take_list(status, "conditions");
        if !conditions.is_empty() {
            annotations.push((CONDITIONS, Value::Array(conditions)));
        }
    }
    if annotations.is_empty() {
        return;
    }
    if let Some(metadata) = member(autoscaler, "metadata") {
        if !metadata.get("annotations").is_some_and(Value::is_object) {
            metadata.insert("annotations".to_owned(), json!({}));
        }
        let Some(all) = member(metadata, "annotations") else { return };
        all.extend(annotations.into_iter().map(|(name, value)| (name.to_owned(), value.to_string().into())));
    }
}

fn to_stored(autoscaler: &mut Object) {
    let annotation = |name: &str| {
        let text = autoscaler.get("metadata")?.get("annotations")?.get(name)?.as_str()?;
        let is_short = text.len() <= AUTOSCALING_ANNOTATION_BYTES_MAX;
        is_short.then(|| serde_json::from_str::<Value>(text).ok()).flatten()
    };
    let list = |name: &str| annotation(name).and_then(|value| value.as_array().cloned());
    let (metrics, behavior) = (list(METRICS), annotation(BEHAVIOR));
    let (current, conditions) = (list(CURRENT_METRICS), list(CONDITIONS));
    drop_annotations(autoscaler);
    if let Some(spec) = member(autoscaler, "spec") {
        let percent = spec.remove("targetCPUUtilizationPercentage").filter(|percent| !percent.is_null());
        let mut all = metrics.map(|metrics| newer(&metrics, &SPEC)).unwrap_or_default();
        all.extend(percent.map(cpu_metric));
        if all.is_empty() {
            all.push(cpu_metric(CPU_PERCENT.into()));
        }
        spec.insert("metrics".to_owned(), Value::Array(all));
        if spec.get("minReplicas").is_none_or(Value::is_null) {
            spec.insert("minReplicas".to_owned(), json!(1));
        }
        if let Some(behavior) = behavior.map(|behavior| lowercase(&behavior)).filter(|found| found != &json!({})) {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    // A create has dropped it.
    if let Some(status) = member(autoscaler, "status") {
        let percent = status.remove("currentCPUUtilizationPercentage").filter(|percent| !percent.is_null());
        let of_cpu = |percent: Value| json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}}]);
        let current = current.map(|current| Value::Array(newer(&current, &STATUS))).or_else(|| percent.map(of_cpu));
        status.extend(current.map(|current| ("currentMetrics".to_owned(), current)));
        status.extend(conditions.map(|conditions| ("conditions".to_owned(), Value::Array(conditions))));
    }
}

/// A metric of the newer version that the older one has a member for.
fn cpu_metric(percent: Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn cpu_percent(metric: &Value) -> Option<&Value> {
    metric.pointer("/resource/target/averageUtilization").filter(|percent| is_cpu(metric) && !percent.is_null())
}

fn is_cpu(metric: &Value) -> bool {
    metric.get("type").is_some_and(|ty| ty == "Resource")
        && metric.pointer("/resource/name").is_some_and(|name| name == "cpu")
}

/// One kind of metric: its name, pairs of a pointer in the newer version and a member of the older one, and the member of
/// the older one that Go writes without a value, too.
struct MetricKind {
    name: &'static str,
    members: &'static [(&'static str, &'static str)],
    always: &'static str,
}

/// Metrics of the spec.
const SPEC: [MetricKind; 5] = [
    MetricKind {
        name: "object",
        members: &[
            ("/describedObject", "target"),
            ("/metric/name", "metricName"),
            ("/metric/selector", "selector"),
            ("/target/value", "targetValue"),
            ("/target/averageValue", "averageValue"),
        ],
        always: "targetValue",
    },
    MetricKind {
        name: "pods",
        members: &[
            ("/metric/name", "metricName"),
            ("/metric/selector", "selector"),
            ("/target/averageValue", "targetAverageValue"),
        ],
        always: "targetAverageValue",
    },
    MetricKind {
        name: "resource",
        members: &[
            ("/name", "name"),
            ("/target/averageUtilization", "targetAverageUtilization"),
            ("/target/averageValue", "targetAverageValue"),
        ],
        always: "",
    },
    MetricKind {
        name: "containerResource",
        members: &[
            ("/name", "name"),
            ("/container", "container"),
            ("/target/averageUtilization", "targetAverageUtilization"),
            ("/target/averageValue", "targetAverageValue"),
        ],
        always: "",
    },
    MetricKind {
        name: "external",
        members: &[
            ("/metric/name", "metricName"),
            ("/metric/selector", "metricSelector"),
            ("/target/value", "targetValue"),
            ("/target/averageValue", "targetAverageValue"),
        ],
        always: "",
    },
];

/// Metrics of the status.
const STATUS: [MetricKind; 5] = [
    MetricKind {
        name: "object",
        members: &[
            ("/describedObject", "target"),
            ("/metric/name", "metricName"),
            ("/metric/selector", "selector"),
            ("/current/value", "currentValue"),
            ("/current/averageValue", "averageValue"),
        ],
        always: "currentValue",
    },
    MetricKind {
        name: "pods",
        members: &[
            ("/metric/name", "metricName"),
            ("/metric/selector", "selector"),
            ("/current/averageValue", "currentAverageValue"),
        ],
        always: "currentAverageValue",
    },
    MetricKind {
        name: "resource",
        members: &[
            ("/name", "name"),
            ("/current/averageUtilization", "currentAverageUtilization"),
            ("/current/averageValue", "currentAverageValue"),
        ],
        always: "currentAverageValue",
    },
    MetricKind {
        name: "containerResource",
        members: &[
            ("/name", "name"),
            ("/container", "container"),
            ("/current/averageUtilization", "currentAverageUtilization"),
            ("/current/averageValue", "currentAverageValue"),
        ],
        always: "currentAverageValue",
    },
    MetricKind {
        name: "external",
        members: &[
            ("/metric/name", "metricName"),
            ("/metric/selector", "metricSelector"),
            ("/current/value", "currentValue"),
            ("/current/averageValue", "currentAverageValue"),
        ],
        always: "currentValue",
    },
];

/// Converts metrics to the older version.
fn older(metrics: &[Value], kinds: &[MetricKind]) -> Value {
    let convert = |metric: &Value| {
        let mut made = Map::new();
        made.extend(metric.get("type").map(|ty| ("type".to_owned(), ty.clone())));
        for (kind, source) in kinds.iter().filter_map(|kind| Some((kind, metric.get(kind.name)?))) {
            let found =
                kind.members.iter().filter_map(|(from, to)| Some(((*to).to_owned(), source.pointer(from)?.clone())));
            let mut source: Object = found.collect();
            if !kind.always.is_empty() {
                source.entry(kind.always).or_insert_with(|| ZERO.into());
            }
            made.insert(kind.name.to_owned(), Value::Object(source));
        }
        Value::Object(made)
    };
    metrics.iter().map(convert).collect()
}

/// Converts metrics to the newer version.
fn newer(metrics: &[Value], kinds: &[MetricKind]) -> Vec<Value> {
    let convert = |metric: &Value| {
        let mut made = Map::new();
        made.extend(metric.get("type").map(|ty| ("type".to_owned(), ty.clone())));
        for (kind, source) in kinds.iter().filter_map(|kind| Some((kind, metric.get(kind.name)?))) {
            let mut converted = json!({});
            for (to, from) in kind.members {
                let zero = (kind.always == *from).then(|| Value::from(ZERO));
                if let Some(value) = source.get(from).cloned().or(zero) {
                    put(&mut converted, to, value);
                }
            }
            if kinds[0].always == SPEC[0].always {
                target_type(kind.name, &mut converted);
            }
            made.insert(kind.name.to_owned(), converted);
        }
        Value::Object(made)
    };
    metrics.iter().map(convert).collect()
}

/// Names the type of a target, which the older version does not, and removes the value that only Go wrote.
fn target_type(kind: &str, source: &mut Value) {
    let has = |member: &str| source.pointer(member).is_some_and(|value| !value.is_null());
    let (has_value, has_average) = (has("/target/value"), has("/target/averageValue"));
    let ty = match kind {
        "resource" | "containerResource" if has("/target/averageUtilization") => "Utilization",
        "object" if !has_average => "Value",
        "external" if has_value => "Value",
        _ => "AverageValue",
    };
    if kind == "object" && has_average && source.pointer("/target/value").is_some_and(|value| value == ZERO) {
        source["target"].as_object_mut().map(|target| target.remove("value"));
    }
    put(source, "/target/type", ty.into());
}

/// A quantity without a value.
const ZERO: &str = "0";

/// Sets the value at a pointer of one or two members.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for member in pointer.split('/').skip(1) {
        at = &mut at[member];
    }
    *at = value;
}

/// Returns a behaviour with the members of Go's type, which has no names for JSON.
fn capitalized(value: &Value) -> Value {
    renamed(value, |name| {
        let (first, rest) = name.split_at_checked(1).unwrap_or((name, ""));
        first.to_uppercase() + rest
    })
}

fn lowercase(value: &Value) -> Value {
    renamed(value, |name| {
        let (first, rest) = name.split_at_checked(1).unwrap_or((name, ""));
        first.to_lowercase() + rest
    })
}

/// Renames all members, and leaves out those that are null.
fn renamed(value: &Value, name: fn(&str) -> String) -> Value {
    match value {
        Value::Object(members) => {
            let set = members.iter().filter(|(_, value)| !value.is_null());
            Value::Object(set.map(|(key, value)| (name(key), renamed(value, name))).collect())
        }
        Value::Array(items) => items.iter().map(|item| renamed(item, name)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn member<'a>(object: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    object.get_mut(name).and_then(Value::as_object_mut)
}

fn take_list(object: &mut Object, name: &str) -> Vec<Value> {
    match object.remove(name) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn drop_annotations(autoscaler: &mut Object) {
    let Some(metadata) = member(autoscaler, "metadata") else { return };
    let Some(annotations) = member(metadata, "annotations") else { return };
    let before = annotations.len();
    annotations.retain(|name, _| !ANNOTATIONS.contains(&name.as_str()));
    if annotations.is_empty() && before > 0 {
        metadata.remove("annotations");
    }
}

#[cfg(test)]
mod tests;
