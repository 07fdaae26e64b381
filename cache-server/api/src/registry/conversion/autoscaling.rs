//! HorizontalPodAutoscalers of `autoscaling/v1`, from those of `autoscaling/v2`: what the older version has no members for
//! is JSON in annotations.
//!
//! Source: `pkg/apis/autoscaling/v1/{conversion,defaults}.go` and `pkg/apis/autoscaling/annotations.go` of
//! kubernetes/kubernetes.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{super::Object, Conversion};
use crate::{
    limits::AUTOSCALING_ANNOTATION_BYTES_MAX,
    schemas::{self, JsonKind, ShapeMember, ValueShape},
};

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
            annotations.push((METRICS, older(&others, TARGET)));
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
            annotations.push((CURRENT_METRICS, older(&current, CURRENT)));
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
    // An annotation that Go could not decode counts for nothing.
    let metrics = annotation(METRICS).and_then(|found| fitting(["spec", "metrics"], newer(&found, TARGET)?));
    let behavior = annotation(BEHAVIOR).and_then(|found| fitting(["spec", "behavior"], lowercase(&found)));
    let current =
        annotation(CURRENT_METRICS).and_then(|found| fitting(["status", "currentMetrics"], newer(&found, CURRENT)?));
    let conditions = annotation(CONDITIONS).and_then(|found| fitting(["status", "conditions"], found));
    drop_annotations(autoscaler);
    if let Some(spec) = member(autoscaler, "spec") {
        let mut all = metrics.map_or_else(Vec::new, items);
        all.extend(take_percent(spec, "targetCPUUtilizationPercentage").map(cpu_metric));
        if all.is_empty() {
            all.push(cpu_metric(CPU_PERCENT.into()));
        }
        spec.insert("metrics".to_owned(), Value::Array(all));
        if spec.get("minReplicas").is_none_or(Value::is_null) {
            spec.insert("minReplicas".to_owned(), json!(1));
        }
        put_filled(spec, "behavior", behavior);
    }
    // A create has dropped it.
    if let Some(status) = member(autoscaler, "status") {
        let of_cpu = |percent: Value| json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}}]);
        let percent = take_percent(status, "currentCPUUtilizationPercentage");
        put_filled(status, "currentMetrics", current.or_else(|| percent.map(of_cpu)));
        put_filled(status, "conditions", conditions);
    }
}

fn take_percent(part: &mut Object, name: &str) -> Option<Value> {
    part.remove(name).filter(|percent| !percent.is_null())
}

/// Sets a member, unless its value is an empty object or list, which Go omits.
fn put_filled(part: &mut Object, name: &str, value: Option<Value>) {
    let value = value.filter(|value| *value != json!({}) && *value != json!([]));
    part.extend(value.map(|value| (name.to_owned(), value)));
}

/// Returns the value for a member of the newer version without members that the version does not know. `None` for a value
/// that Go would not decode, which has another type somewhere.
fn fitting(path: [&str; 2], value: Value) -> Option<Value> {
    let object = schemas::built_in("autoscaling/v2", CONVERSION.kind)?;
    let shape = path.iter().try_fold(object, |shape, name| match shape.member(name) {
        ShapeMember::Known(member) => Some(member),
        ShapeMember::Free(_) | ShapeMember::Unknown => None,
    })?;
    typed(value, &shape)
}

fn typed(value: Value, shape: &ValueShape) -> Option<Value> {
    match (shape.kind(), value) {
        (JsonKind::Object, Value::Object(members)) => {
            let mut known = Map::new();
            for (name, value) in members {
                match shape.member(&name) {
                    // Go's decoder ignores null for a field.
                    ShapeMember::Known(_) if value.is_null() => {}
                    ShapeMember::Known(member) | ShapeMember::Free(Some(member)) => {
                        known.insert(name, typed(value, &member)?);
                    }
                    ShapeMember::Free(None) | ShapeMember::Unknown => {}
                }
            }
            Some(Value::Object(known))
        }
        (JsonKind::Array, Value::Array(items)) => {
            let item = shape.item()?;
            items.into_iter().map(|value| typed(value, &item)).collect()
        }
        (JsonKind::Quantity, Value::Number(number)) => typed(number.to_string().into(), shape),
        (_, value) => {
            let text = value.as_str().unwrap_or_default();
            let is_read = match (shape.kind(), shape.format()) {
                (JsonKind::Quantity, _) => is_quantity(text),
                (_, "date-time") => text.parse::<Timestamp>().is_ok(),
                _ => true,
            };
            (is_read && shape.fits(&value)).then_some(value)
        }
    }
}

/// Returns true for a quantity such as `1500m`.
///
/// Source: apimachinery `pkg/api/resource/quantity.go` (parseQuantityString), `suffix.go`.
fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let suffix = unsigned.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let number = unsigned.strip_suffix(suffix).unwrap_or_default();
    let exponent = suffix.strip_prefix(['e', 'E']).filter(|exponent| exponent.parse::<i32>().is_ok());
    number.bytes().any(|byte| byte.is_ascii_digit())
        && number.matches('.').count() <= 1
        && (SUFFIXES.contains(&suffix) || exponent.is_some())
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

/// One kind of metric: a member of both versions.
struct MetricKind {
    name: &'static str,
    /// Pairs of a pointer in the newer version and a member of the older one.
    members: &'static [(&'static str, &'static str)],
    /// Values of its target or of its current state. The older version has them as members such as `targetValue`; Go
    /// writes the first one in the status without a value too.
    values: &'static [&'static str],
    /// True if Go writes the first one in the spec without a value too.
    has_target: bool,
}

const KINDS: [MetricKind; 5] = [
    MetricKind {
        name: "object",
        members: &[("/describedObject", "target"), METRIC_NAME, ("/metric/selector", "selector")],
        values: &["value", "averageValue"],
        has_target: true,
    },
    MetricKind {
        name: "pods",
        members: &[METRIC_NAME, ("/metric/selector", "selector")],
        values: &["averageValue"],
        has_target: true,
    },
    MetricKind {
        name: "resource",
        members: &[("/name", "name")],
        values: &["averageValue", "averageUtilization"],
        has_target: false,
    },
    MetricKind {
        name: "containerResource",
        members: &[("/name", "name"), ("/container", "container")],
        values: &["averageValue", "averageUtilization"],
        has_target: false,
    },
    MetricKind {
        name: "external",
        members: &[METRIC_NAME, ("/metric/selector", "metricSelector")],
        values: &["value", "averageValue"],
        has_target: false,
    },
];

const METRIC_NAME: (&str, &str) = ("/metric/name", "metricName");

/// The member with the values of a metric in the spec, and the one in the status.
const TARGET: &str = "target";
const CURRENT: &str = "current";

impl MetricKind {
    /// Returns pairs of a pointer in the newer version and a member of the older one, with true if Go writes the member
    /// without a value too.
    fn pairs(&self, part: &str) -> impl Iterator<Item = (String, String, bool)> {
        let members = self.members.iter().map(|(newer, older)| ((*newer).to_owned(), (*older).to_owned(), false));
        let values = self.values.iter().enumerate().map(move |(place, value)| {
            // The one name that does not tell the part.
            let is_short = (self.name, *value) == ("object", "averageValue");
            let older = if is_short { (*value).to_owned() } else { part.to_owned() + &capital(value) };
            (format!("/{part}/{value}"), older, place == 0 && (part == CURRENT || self.has_target))
        });
        members.chain(values)
    }
}

/// Converts metrics to the older version.
fn older(metrics: &[Value], part: &str) -> Value {
    let convert = |metric: &Value| {
        let mut made = Map::new();
        made.extend(metric.get("type").map(|ty| ("type".to_owned(), ty.clone())));
        for (kind, source) in KINDS.iter().filter_map(|kind| Some((kind, set(metric.get(kind.name))?))) {
            let mut converted = Map::new();
            for (pointer, member, is_always) in kind.pairs(part) {
                let value = set(source.pointer(&pointer)).cloned().or_else(|| is_always.then(|| ZERO.into()));
                converted.extend(value.map(|value| (member, value)));
            }
            made.insert(kind.name.to_owned(), Value::Object(converted));
        }
        Value::Object(made)
    };
    metrics.iter().map(convert).collect()
}

/// Converts metrics to the newer version; `None` if one of them is no object.
fn newer(metrics: &Value, part: &str) -> Option<Value> {
    let convert = |metric: &Value| {
        let mut made = Map::new();
        for (name, source) in metric.as_object()? {
            let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
                made.insert(name.clone(), source.clone());
                continue;
            };
            let Some(source) = set(Some(source)) else { continue };
            let (source, mut converted) = (source.as_object()?, json!({}));
            for (pointer, member, is_always) in kind.pairs(part) {
                let zero = is_always.then(|| Value::from(ZERO));
                if let Some(value) = set(source.get(&member)).cloned().or(zero) {
                    put(&mut converted, &pointer, value);
                }
            }
            if part == TARGET {
                target_type(kind.name, &mut converted);
            }
            made.insert(name.clone(), converted);
        }
        Some(Value::Object(made))
    };
    metrics.as_array()?.iter().map(convert).collect()
}

fn set(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
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
    renamed(value, capital)
}

fn lowercase(value: &Value) -> Value {
    renamed(value, |name| {
        let (first, rest) = name.split_at_checked(1).unwrap_or((name, ""));
        first.to_lowercase() + rest
    })
}

fn capital(name: &str) -> String {
    let (first, rest) = name.split_at_checked(1).unwrap_or((name, ""));
    first.to_uppercase() + rest
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
    object.remove(name).map_or_else(Vec::new, items)
}

/// Returns the items of a list; none of any other value.
fn items(value: Value) -> Vec<Value> {
    if let Value::Array(items) = value { items } else { Vec::new() }
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
