//! Runs all measurements in order.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use clap::{Args, ValueEnum as _};
use informer::InitialList;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    Failure,
    client::{Kind, Report, Section, ServerAddress},
    frames,
    parts::Part,
    programs,
    refusals::{self, Counted, Trouble, Who},
    report,
    targets::{self, Target},
};

/// Settings of a run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Pods on the server, one round each.
    #[arg(long, value_delimiter = ',', default_value = "7130,50000", value_name = "N,…")]
    pods: Vec<usize>,
    /// Only these clients.
    #[arg(long, value_delimiter = ',', value_name = "KIND,…")]
    kinds: Vec<Kind>,
    /// Only these sections.
    #[arg(long, value_delimiter = ',', value_name = "SECTION,…")]
    sections: Vec<Section>,
    /// Seconds of steady updates.
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) steady_seconds: u32,
    /// Updates per second meanwhile.
    #[arg(long, default_value_t = 500, value_name = "N")]
    pub(crate) steady_rate: u32,
    /// File for the raw numbers.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Options {
    /// The clients that a section measures.
    pub(crate) fn kinds(&self, section: Section) -> Vec<Kind> {
        let is_wanted =
            |kind: &&Kind| kind.section() == section && (self.kinds.is_empty() || self.kinds.contains(kind));
        if self.has(section) { Kind::value_variants().iter().filter(is_wanted).copied().collect() } else { Vec::new() }
    }

    fn has(&self, section: Section) -> bool {
        self.sections.is_empty() || self.sections.contains(&section)
    }
}

/// Results of a client at one size.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct Row {
    pub(crate) pods: usize,
    pub(crate) kind: Kind,
    pub(crate) sync: Report,
    pub(crate) relist: Report,
    /// CPU microseconds per live change.
    pub(crate) steady_us: f64,
    pub(crate) steady_events: u64,
}

impl Row {
    /// Reconciles because of the relist, in which one pod of a hundred had changed.
    pub(crate) const fn relist_reconciles(&self) -> u64 {
        self.relist.events.saturating_sub(self.sync.events)
    }
}

/// Requests of all clients to a server that fails in one way.
pub(crate) struct Refused {
    pub(crate) name: &'static str,
    pub(crate) span: Duration,
    pub(crate) counted: Vec<Counted>,
}

/// Columns of the table of refusals.
pub(crate) const ASKING: [(&str, Who); 5] = [
    ("kube, pages", Who::KubePages),
    ("kube, watch-list", Who::KubeStream),
    ("informer, Auto", Who::Informer(InitialList::Auto)),
    ("informer, Stream", Who::Informer(InitialList::Stream)),
    ("informer, Paged", Who::Informer(InitialList::Paged)),
];

/// Runs all measurements and prints the tables.
pub(crate) fn all(options: &Options) -> Result<(), Failure> {
    let (rows, mut promised) = copies(options)?;
    promised.extend(programs::components(options)?);
    promised.extend(programs::types(options)?);
    promised.extend(programs::client_go(options)?);
    programs::lists(options)?;
    if options.has(Section::Frames) {
        eprintln!("framing and storing");
        let cost = frames::measure()?;
        report::frames(cost);
        promised.extend(targets::of_frames(cost));
    }
    if options.has(Section::Refusals) {
        eprintln!("refusals");
        let refused = refused()?;
        report::refusals(&refused);
        promised.extend(targets::of_refusals(&refused));
    }
    report::targets(&promised);
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    match promised.iter().filter(|target| !target.holds()).count() {
        0 => Ok(()),
        missed => Err(format!("{missed} targets are missed").into()),
    }
}

/// Measures one copy of all pods by each client, at each size.
fn copies(options: &Options) -> Result<(Vec<Row>, Vec<Target>), Failure> {
    let (mut rows, mut promised) = (Vec::new(), Vec::new());
    let kinds = options.kinds(Section::Copies);
    for &pods in options.pods.iter().filter(|_| !kinds.is_empty()) {
        let (_server, address) = Part::server(pods)?;
        let wire = wire(&address)?;
        let from = rows.len();
        for &kind in &kinds {
            eprintln!("{pods} pods: {}", kind.name());
            rows.push(one(options, pods, kind, &address)?);
        }
        report::copies(pods, wire, &rows[from..]);
        report::controllers(&rows[from..]);
        promised.extend(targets::of_copies(pods, wire, &rows[from..]));
    }
    Ok((rows, promised))
}

fn one(options: &Options, pods: usize, kind: Kind, address: &ServerAddress) -> Result<Row, Failure> {
    let mut client = Part::client(kind, address)?;
    let sync = client.ask("sync")?;
    client.ask("cut")?;
    change(address, pods / 100)?;
    let relist = client.ask("relist")?;
    let before = client.ask("now")?;
    let changes = Part::churn(address, options.steady_rate, options.steady_seconds)?;
    let after = client.ask("now")?;
    let steady_us = (after.cpu_s - before.cpu_s) * 1e6 / changes.max(1) as f64;
    Ok(Row { pods, kind, sync, relist, steady_us, steady_events: after.events - before.events })
}

/// Total bytes of the objects, as sent and without managedFields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wire {
    pub(crate) sent: usize,
    pub(crate) trimmed: usize,
}

fn wire(address: &ServerAddress) -> Result<Wire, Failure> {
    runtime()?.block_on(async {
        let api = Api::<Pod>::all(address.client()?);
        let mut wire = Wire { sent: 0, trimmed: 0 };
        let mut page = ListParams::default().limit(500);
        loop {
            let list = api.list(&page).await?;
            for mut pod in list.items {
                wire.sent += serde_json::to_vec(&pod)?.len();
                pod.managed_fields_mut().clear();
                wire.trimmed += serde_json::to_vec(&pod)?.len();
            }
            match list.metadata.continue_ {
                Some(token) if !token.is_empty() => page = page.continue_token(&token),
                Some(_) | None => return Ok(wire),
            }
        }
    })
}

/// Changes a label of the first `count` pods.
fn change(address: &ServerAddress, count: usize) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let client = address.client()?;
        let all = Api::<Pod>::all(client.clone());
        let some = all.list(&ListParams::default().limit(u32::try_from(count)?)).await?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        // A new value each time, because a no-op patch makes no new version.
        let patch = Patch::Merge(json!({"metadata": {"labels": {"rivals": now.as_millis().to_string()}}}));
        for pod in some.items {
            let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
            let patched = pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
            if patched.resource_version() == pod.resource_version() {
                return Err("a pod that should change did not".into());
            }
        }
        Ok(())
    })
}

fn refused() -> Result<Vec<Refused>, Failure> {
    let ten = Duration::from_mins(10);
    let troubles = [
        ("connection refused", Trouble::Refused, ten),
        ("403", Trouble::Code(403), ten),
        ("429", Trouble::Code(429), ten),
        ("500", Trouble::Code(500), ten),
        ("503", Trouble::Code(503), ten),
        ("504", Trouble::Code(504), ten),
        ("every watch closed at once", Trouble::InstantCloses, Duration::from_mins(1)),
    ];
    let mut all = Vec::new();
    for (name, trouble, span) in troubles {
        let counted: Result<_, Failure> = ASKING.iter().map(|(_, who)| refusals::count(*who, trouble, span)).collect();
        all.push(Refused { name, span, counted: counted? });
    }
    Ok(all)
}

/// A runtime of one thread, for requests of this process.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
