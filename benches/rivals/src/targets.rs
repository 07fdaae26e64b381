//! Targets of the informer beside the measurements.

use crate::{
    client::Kind,
    components::COMPONENTS,
    frames::Cost,
    programs::Program,
    run::{ASKING, Refused, Row, Wire},
    types::TYPES,
};

/// A target.
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) limit: f64,
    pub(crate) unit: &'static str,
}

impl Target {
    fn new(what: impl Into<String>, measured: f64, limit: f64, unit: &'static str) -> Self {
        Self { what: what.into(), measured, limit, unit }
    }

    pub(crate) fn holds(&self) -> bool {
        self.measured <= self.limit
    }
}

const MIB: f64 = 1024.0 * 1024.0;

/// Targets for stores with `pods` pods.
pub(crate) fn of_copies(pods: usize, wire: Wire, rows: &[Row]) -> Vec<Target> {
    let mut all = Vec::new();
    for row in rows {
        let name = format!("{pods} pods, {}", row.kind.name());
        let trimmed = wire.trimmed as f64 / MIB;
        let peak = row.relist.live_peak as f64 / row.sync.live as f64;
        match row.kind {
            Kind::KubePages | Kind::KubeStream | Kind::KubeStreamTrimmed | Kind::KubeController => continue,
            // Programs of other sections.
            Kind::KubeComponents
            | Kind::KubeComponentsShared
            | Kind::InformerComponents
            | Kind::InformerComponentsTyped
            | Kind::KubeTypes
            | Kind::InformerTypesHttp1
            | Kind::InformerTypes
            | Kind::InformerList
            | Kind::InformerListGzip
            | Kind::ClientGo
            | Kind::ClientGoProtobuf
            | Kind::ClientGoTrimmed
            | Kind::ClientGoComponents
            | Kind::Socket => continue,
            Kind::Informer | Kind::InformerPages => {
                let resident = row.sync.resident as f64 / MIB;
                all.push(Target::new(format!("{name}: resident"), resident, 1.3 * trimmed + 12.0, "MiB"));
                all.push(Target::new(format!("{name}: first object"), row.sync.first_object_ms, 5.0, "ms"));
            }
            Kind::InformerPacked => {
                let live = row.sync.live as f64 / MIB;
                all.push(Target::new(format!("{name}: live"), live, 0.4 * trimmed, "MiB"));
            }
            Kind::InformerTyped => {}
            Kind::InformerController => all.extend(of_controllers(pods, row, rows)),
        }
        all.push(Target::new(format!("{name}: relist peak ÷ steady"), peak, 1.1, ""));
    }
    all
}

/// Targets of the controller: a fifth of the memory of kube's, no more CPU, and no reconcile without a change.
fn of_controllers(pods: usize, row: &Row, rows: &[Row]) -> Vec<Target> {
    let name = format!("{pods} pods, {}", row.kind.name());
    let reconciles = row.relist_reconciles() as f64;
    let mut all = vec![Target::new(format!("{name}: after a relist"), reconciles, (pods / 100) as f64, "reconciles")];
    if let Some(kube) = rows.iter().find(|row| row.kind == Kind::KubeController) {
        let memory = row.relist.resident_peak as f64 / kube.relist.resident_peak as f64;
        all.push(Target::new(format!("{name}: peak ÷ kube's"), memory, 0.2, ""));
        let cpu = row.steady_us / kube.steady_us;
        all.push(Target::new(format!("{name}: CPU a change ÷ kube's"), cpu, 1.0, ""));
    }
    all
}

/// Targets of components that share a copy: one request, a fifth of the memory of a reflector each, and no more CPU.
pub(crate) fn of_components(programs: &[Program]) -> Vec<Target> {
    let mut all = Vec::new();
    let kube = programs.iter().find(|program| program.kind == Kind::KubeComponents);
    for ours in programs.iter().filter(|program| program.kind == Kind::InformerComponents) {
        let name = ours.kind.name();
        all.push(Target::new(
            format!("{name}: for {COMPONENTS} components"),
            ours.sync.requests as f64,
            1.0,
            "requests",
        ));
        if let Some(kube) = kube {
            let memory = ours.sync.resident as f64 / kube.sync.resident as f64;
            all.push(Target::new(format!("{name}: resident ÷ kube's"), memory, 0.2, ""));
            all.push(Target::new(format!("{name}: CPU a change ÷ kube's"), ours.steady_us / kube.steady_us, 1.0, ""));
        }
    }
    all
}

/// Targets beside client-go: half of its memory, and a third of its CPU.
pub(crate) fn of_client_go(programs: &[Program]) -> Vec<Target> {
    let of = |kind| programs.iter().find(|program| program.kind == kind);
    let pairs =
        [(Kind::Informer, Kind::ClientGoTrimmed), (Kind::InformerComponents, Kind::ClientGoComponents)].into_iter();
    let measured = pairs.filter_map(|(ours, go)| Some((of(ours)?, of(go)?)));
    let targets = measured.flat_map(|(ours, go)| {
        let name = ours.kind.name();
        let memory = ours.sync.resident as f64 / go.sync.resident as f64;
        [
            Target::new(format!("{name}: resident ÷ client-go's"), memory, 0.5, ""),
            Target::new(format!("{name}: CPU a change ÷ client-go's"), ours.steady_us / go.steady_us, 1.0 / 3.0, ""),
        ]
    });
    targets.collect()
}

/// Targets of a program with many types: one connection, and no more memory than over HTTP/1.1.
pub(crate) fn of_types(programs: &[Program]) -> Vec<Target> {
    let mut all = Vec::new();
    let http1 = programs.iter().find(|program| program.kind == Kind::InformerTypesHttp1);
    for ours in programs.iter().filter(|program| program.kind == Kind::InformerTypes) {
        let name = ours.kind.name();
        all.push(Target::new(format!("{name}: for {TYPES} types"), ours.sync.connections as f64, 1.0, "connections"));
        if let Some(http1) = http1 {
            let memory = ours.sync.resident as f64 / http1.sync.resident as f64;
            all.push(Target::new(format!("{name}: resident ÷ HTTP/1.1"), memory, 1.0, ""));
        }
    }
    all
}

/// The target for CPU time.
pub(crate) fn of_frames(cost: Cost) -> Vec<Target> {
    vec![Target::new("frame and store an object", cost.informer_us, 10.0, "µs")]
}

/// Targets for requests to a failing server: the maximum over the informer's initial list strategies.
pub(crate) fn of_refusals(all: &[Refused]) -> Vec<Target> {
    let most = |refused: &Refused| {
        let ours = ASKING.iter().zip(&refused.counted).filter(|((name, _), _)| name.starts_with("informer"));
        ours.map(|(_, counted)| counted.requests).max().unwrap_or_default() as f64
    };
    let limit = |refused: &Refused| if refused.span.as_secs() > 60 { 20.0 } else { 12.0 };
    all.iter().map(|refused| Target::new(refused.name, most(refused), limit(refused), "requests")).collect()
}
