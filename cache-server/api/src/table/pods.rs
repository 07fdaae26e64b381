//! Columns of pods, with the computed `Status`.
//!
//! The status is the phase, overridden in this order: by the pod's reason, by the first init container that has not
//! succeeded, by the first container that waits or has terminated, and by a deletion.

use std::{borrow::Cow, collections::HashMap};

use super::{
    TypeColumns,
    column::{AGE, NAME, text},
    created,
    json::CellJson,
    name,
    row::RowWriter,
};

pub(crate) const KINDS: &[TypeColumns] = &[TypeColumns {
    id: "pods",
    columns: &[
        NAME,
        text("Ready", "Number of ready containers, and of all containers."),
        text("Status", "Summary of the state of the containers."),
        text("Restarts", "Number of restarts of the containers, and the time since the last one."),
        AGE,
        text("IP", "IP address of the pod.").wide(),
        text("Node", "Node that runs the pod.").wide(),
        text("Nominated Node", "Node on which pods are preempted for this pod.").wide(),
        text("Readiness Gates", "Number of satisfied readiness gates, and of all readiness gates.").wide(),
    ],
    print,
}];

/// Conditions of rows for terminated pods.
const SUCCEEDED: &str =
    r#"[{"type":"Completed","status":"True","reason":"Succeeded","message":"The pod has completed successfully."}]"#;
const FAILED: &str = r#"[{"type":"Completed","status":"True","reason":"Failed","message":"The pod failed."}]"#;

fn print(pod: &CellJson<'_>, row: &mut RowWriter) {
    let (spec, status) = (pod.get("spec"), pod.get("status"));
    let fares = Fares::read(pod);
    row.text(name(pod)).write(format_args!("{}/{}", fares.ready, fares.total)).text(&fares.word);
    match fares.restarts.last.filter(|_| fares.restarts.count != 0) {
        Some(last) => row.aged(&format!("{} (", fares.restarts.count), last, " ago)"),
        None => row.write(format_args!("{}", fares.restarts.count)),
    };
    let address = status.get("podIPs").items().first().map_or("", |first| first.get("ip").text());
    row.age(created(pod))
        .text(if address.is_empty() { status.get("podIP").text_or("<none>") } else { address })
        .text(spec.get("nodeName").text_or("<none>"))
        .text(status.get("nominatedNodeName").text_or("<none>"));
    let gates = spec.get("readinessGates").items();
    if gates.is_empty() {
        row.text("<none>");
    } else {
        let met = gates.iter().filter(|gate| is_met(status, gate.get("conditionType").text())).count();
        row.write(format_args!("{met}/{}", gates.len()));
    }
    match status.get("phase").text() {
        "Succeeded" => _ = row.conditions(SUCCEEDED),
        "Failed" => _ = row.conditions(FAILED),
        _ => {}
    }
}

/// Summary of the pod's container statuses.
struct Fares<'s> {
    ready: usize,
    total: usize,
    word: Cow<'s, str>,
    restarts: Restarts,
}

#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    /// Finish time of the most recent terminated run of a restarted container.
    last: Option<i64>,
}

impl Restarts {
    fn add(&mut self, report: &CellJson<'_>) {
        self.count = self.count.saturating_add(report.get("restartCount").integer());
        self.last = self.last.max(report.at("lastState.terminated.finishedAt").time());
    }
}

impl<'s> Fares<'s> {
    fn read(pod: &'s CellJson<'_>) -> Self {
        let (spec, status) = (pod.get("spec"), pod.get("status"));
        let inits = spec.get("initContainers").items();
        let sidecars = inits.iter().filter(|container| is_sidecar(container)).count();
        let mut fares = Self {
            ready: 0,
            total: spec.get("containers").items().len() + sidecars,
            word: Cow::Borrowed(own_word(status)),
            restarts: Restarts::default(),
        };
        let (initializing, of_sidecars) = fares.read_inits(status, inits);
        if !initializing || is_met(status, "Initialized") {
            fares.restarts = of_sidecars;
            fares.read_containers(status);
        }
        if !pod.at("metadata.deletionTimestamp").is_null() {
            if status.get("reason").text() == "NodeLost" {
                fares.word = "Unknown".into();
            } else if !matches!(status.get("phase").text(), "Succeeded" | "Failed") {
                fares.word = "Terminating".into();
            }
        }
        fares
    }

    /// Reads the statuses of init containers up to the first that has not succeeded. Returns true if there is one, and
    /// the restarts of the sidecars.
    fn read_inits(&mut self, status: &'s CellJson<'_>, inits: &[CellJson<'_>]) -> (bool, Restarts) {
        let mut of_sidecars = Restarts::default();
        let mut sidecars = HashMap::new();
        for container in inits {
            // The first container of several with one name counts.
            sidecars.entry(container.get("name").text()).or_insert_with(|| is_sidecar(container));
        }
        for (place, report) in status.get("initContainerStatuses").items().iter().enumerate() {
            self.restarts.add(report);
            let sidecar = sidecars.get(report.get("name").text()).copied().unwrap_or_default();
            if sidecar {
                of_sidecars.add(report);
            }
            let (waits_for, ended) = (report.at("state.waiting.reason").text(), report.at("state.terminated"));
            if !ended.is_null() && ended.get("exitCode").integer() == 0 {
                continue;
            }
            if sidecar && report.get("started").is_true() {
                self.ready += usize::from(report.get("ready").is_true());
                continue;
            }
            self.word = if !ended.is_null() {
                format!("Init:{}", end_word(ended)).into()
            } else if !matches!(waits_for, "" | "PodInitializing") {
                format!("Init:{waits_for}").into()
            } else {
                format!("Init:{place}/{}", inits.len()).into()
            };
            return (true, of_sidecars);
        }
        (false, of_sidecars)
    }

    /// Reads the statuses of containers in reverse, so that the first container's status wins.
    fn read_containers(&mut self, status: &'s CellJson<'_>) {
        let mut running = false;
        for report in status.get("containerStatuses").items().iter().rev() {
            self.restarts.add(report);
            let (waits_for, ended) = (report.at("state.waiting.reason").text(), report.at("state.terminated"));
            if !waits_for.is_empty() {
                self.word = waits_for.into();
            } else if !ended.is_null() {
                self.word = end_word(ended);
            } else if report.get("ready").is_true() && !report.at("state.running").is_null() {
                running = true;
                self.ready += 1;
            }
        }
        // One container has succeeded while another one still runs.
        if self.word == "Completed" && running {
            self.word = if is_met(status, "Ready") { "Running" } else { "NotReady" }.into();
        }
    }
}

/// Returns the status of the pod as a whole.
fn own_word<'s>(status: &'s CellJson<'_>) -> &'s str {
    let gated = |condition: &CellJson<'_>| {
        condition.get("type").text() == "PodScheduled" && condition.get("reason").text() == "SchedulingGated"
    };
    if status.get("conditions").items().iter().any(gated) {
        return "SchedulingGated";
    }
    status.get("reason").text_or(status.get("phase").text())
}

/// Returns why a container terminated.
fn end_word<'s>(ended: &'s CellJson<'_>) -> Cow<'s, str> {
    let (reason, signal) = (ended.get("reason").text(), ended.get("signal").integer());
    if !reason.is_empty() {
        reason.into()
    } else if signal != 0 {
        format!("Signal:{signal}").into()
    } else {
        format!("ExitCode:{}", ended.get("exitCode").integer()).into()
    }
}

/// Returns true if an init container is a sidecar, which runs beside the others.
fn is_sidecar(container: &CellJson<'_>) -> bool {
    container.get("restartPolicy").text() == "Always"
}

/// Returns true if the first condition of that type is true.
pub(crate) fn is_met(status: &CellJson<'_>, kind: &str) -> bool {
    let conditions = status.get("conditions").items();
    let condition = conditions.iter().find(|condition| condition.get("type").text() == kind);
    condition.is_some_and(|condition| condition.get("status").text() == "True")
}
