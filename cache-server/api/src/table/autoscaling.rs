//! Columns of horizontal pod autoscalers, with current and target values of their metrics.

use std::borrow::Cow;

use super::{
    TypeColumns,
    column::{AGE, NAME, text},
    created,
    json::CellJson,
    name,
    row::RowWriter,
};

pub(crate) const KINDS: &[TypeColumns] = &[TypeColumns {
    id: "horizontalpodautoscalers.autoscaling",
    columns: &[
        NAME,
        text("Reference", "Scaled object."),
        text("Targets", "Current and target value of each metric."),
        text("MinPods", "Minimum number of pods."),
        text("MaxPods", "Maximum number of pods."),
        text("Replicas", "Current number of pods."),
        AGE,
    ],
    print,
}];

/// Metrics that are shown; further ones are counted.
const SHOWN_MAX: usize = 2;

fn print(object: &CellJson<'_>, row: &mut RowWriter) {
    let (spec, status) = (object.get("spec"), object.get("status"));
    let target = spec.get("scaleTargetRef");
    row.text(name(object)).write(format_args!("{}/{}", target.get("kind").text(), target.get("name").text()));
    row.text(&metrics(spec.get("metrics").items(), status.get("currentMetrics").items()));
    match spec.get("minReplicas").as_integer() {
        Some(replicas) => row.write(format_args!("{replicas}")),
        None => row.text("<unset>"),
    };
    row.integer(spec.get("maxReplicas").integer()).integer(status.get("currentReplicas").integer());
    row.age(created(object));
}

fn metrics(specs: &[CellJson<'_>], statuses: &[CellJson<'_>]) -> String {
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let missing = CellJson::Null;
    let shown = specs.iter().enumerate().take(SHOWN_MAX);
    let texts: Vec<String> = shown.map(|(at, spec)| metric(spec, statuses.get(at).unwrap_or(&missing))).collect();
    let text = texts.join(", ");
    if specs.len() > SHOWN_MAX { format!("{text} + {} more...", specs.len() - SHOWN_MAX) } else { text }
}

/// Formats one metric and its current status.
fn metric(spec: &CellJson<'_>, status: &CellJson<'_>) -> String {
    let (source, named) = match spec.get("type").text() {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let (spec, status) = (spec.get(source), status.get(source));
    let (target, current) = (spec.get("target"), status.get("current"));
    let average = target.get("averageValue").plain();
    let now = |field: &str| current.get(field).plain_or("<unknown>");
    if named {
        let percent = |value: &CellJson<'_>, absent: &'static str| {
            value.as_integer().map_or(Cow::Borrowed(absent), |percent| format!("{percent}%").into())
        };
        let name = spec.get("name").text();
        return match average {
            Some(average) => format!("{name}: {}/{average}", now("averageValue")),
            None => format!(
                "{name}: {}/{}",
                percent(current.get("averageUtilization"), "<unknown>"),
                percent(target.get("averageUtilization"), "<auto>")
            ),
        };
    }
    match average {
        Some(average) if source == "pods" => format!("{}/{average}", now("averageValue")),
        Some(average) => format!("{}/{average} (avg)", now("averageValue")),
        None => format!("{}/{}", now("value"), target.get("value").plain_or("0")),
    }
}
