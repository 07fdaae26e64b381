//! `numbers --upstream`: `cache-server serve --upstream` beside a stock kube-apiserver without it.
//!
//! Each case measures both in the same run and on the same objects: first clients that use kube-apiserver directly, then
//! the same clients at this server in front of it.
//!
//! INVARIANT: each side of a case has a kube-apiserver of its own, unless requests to both sides alternate.

mod etcd;
pub(super) mod fill;
mod front;
mod gets;
mod held;
mod incident;
mod metrics;
mod page;
mod passing;
mod reads;
mod row;
mod staleness;
mod start;
mod watchers;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use cache_server::populate::PopulateSpec;
use serde::{Deserialize, Serialize};

use self::{incident::ListLoad, row::SideRow, watchers::WatchLoad};
use super::{
    Failure, Flags, exit_code,
    machine::{self, Machine},
    quiet,
    stock::{self, Cluster},
};

/// Folder in which `benches/kube-apiserver/prepare` puts its programs.
pub(super) const PROGRAMS: &str = "target/kube-apiserver";

/// Results of all cases: the content of `upstream.json` and the input of the page.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct UpstreamReport {
    command: String,
    machine: Machine,
    /// Versions of both programs, as they print them.
    versions: Vec<String>,
    cases: Vec<CaseResult>,
}

/// Result of one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CaseResult {
    name: String,
    /// Description of the measurement.
    method: String,
    /// UTC date of the measurement.
    date: String,
    /// Versions of both programs; empty in results of before.
    #[serde(default)]
    versions: Vec<String>,
    /// Duration, without the preparation of the cluster.
    seconds: f64,
    /// Reason why there are no numbers.
    problem: Option<String>,
    rows: Vec<SideRow>,
}

/// A measurement of both sides.
struct UpstreamCase<'a> {
    name: &'static str,
    holds: Holding,
    method: String,
    run: CaseRun<'a>,
}

/// The code of a case.
type CaseRun<'a> = Box<dyn Fn(&Cluster) -> Result<Vec<SideRow>, Failure> + 'a>;

/// The objects in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holding {
    /// 100,000 pods, written into etcd.
    Large,
    /// The pods of the published incident, created through kube-apiserver.
    Incident,
}

/// Sizes and durations of the loads.
#[derive(Clone, Debug)]
struct LoadSizes {
    large: PopulateSpec,
    incident: PopulateSpec,
    /// Starts of this server, of which the median counts.
    starts: usize,
    /// Seconds of writes.
    seconds: u64,
    /// Lists of each node in the incident.
    lists: u32,
    watchers: u32,
    /// Requests of each kind that pass through.
    requests: usize,
}

impl LoadSizes {
    fn full() -> Self {
        Self {
            large: PopulateSpec { pods: 100_000, nodes: 1_000, namespaces: 100, seed: 1 },
            incident: PopulateSpec::default(),
            starts: 3,
            seconds: 30,
            lists: 60,
            watchers: 1_000,
            requests: 2_000,
        }
    }

    /// A check that everything works, in some minutes.
    fn quick() -> Self {
        Self {
            large: PopulateSpec { pods: 2_000, nodes: 20, namespaces: 10, seed: 1 },
            incident: PopulateSpec { pods: 800, nodes: 80, namespaces: 10, seed: 1 },
            starts: 1,
            seconds: 4,
            lists: 2,
            watchers: 50,
            requests: 100,
        }
    }
}

/// All cases, in the order of measurement. Cases with equal objects follow each other.
fn cases(sizes: &LoadSizes) -> Vec<UpstreamCase<'_>> {
    use Holding::{Incident, Large};
    let lists = |name, load: ListLoad| UpstreamCase {
        name,
        holds: Incident,
        method: load.method(),
        run: Box::new(move |cluster| load.rows(cluster)),
    };
    let watches = |name, load: WatchLoad| UpstreamCase {
        name,
        holds: Incident,
        method: load.method(),
        run: Box::new(move |cluster| load.rows(cluster)),
    };
    vec![
        UpstreamCase {
            name: "start",
            holds: Large,
            method: start::method(sizes),
            run: Box::new(|cluster| start::run(cluster, sizes)),
        },
        UpstreamCase {
            name: "reads",
            holds: Large,
            method: reads::method(sizes),
            run: Box::new(|cluster| reads::run(cluster, sizes)),
        },
        UpstreamCase {
            name: "staleness",
            holds: Incident,
            method: staleness::method(sizes),
            run: Box::new(|cluster| staleness::run(cluster, sizes)),
        },
        lists("incident", ListLoad::most_recent(sizes)),
        watches("watchers-node", WatchLoad::by_node(sizes)),
        watches("watchers-all", WatchLoad::of_all(sizes)),
        UpstreamCase {
            name: "passing",
            holds: Incident,
            method: passing::method(sizes),
            run: Box::new(|cluster| passing::run(cluster, sizes)),
        },
        UpstreamCase {
            name: "gets",
            holds: Incident,
            method: gets::method(sizes),
            run: Box::new(|cluster| gets::run(cluster, sizes)),
        },
        UpstreamCase { name: "held", holds: Incident, method: held::method(), run: Box::new(held::run) },
        // Last, because etcd keeps memory that they make it take.
        lists("incident-etcd-80", ListLoad::one_each(sizes)),
        lists("incident-etcd", ListLoad::exact(sizes)),
    ]
}

/// Measures, prints and writes. Exit 1: a target was missed.
pub(crate) fn main(flags: &Flags) -> ExitCode {
    if flags.list {
        return list();
    }
    let names: Vec<&str> = cases(&LoadSizes::full()).iter().map(|case| case.name).collect();
    if let Some(row) = flags.rows.iter().find(|row| !names.iter().any(|name| name.starts_with(row.as_str()))) {
        eprintln!("numbers: no case begins with {row}; --list names them");
        return ExitCode::from(2);
    }
    let report = match &flags.write {
        Some(folder) if flags.page_only => page::read(folder),
        _ => measure(flags),
    };
    let written = report.and_then(|report| {
        if let Some(folder) = &flags.write {
            page::write(folder, &report)?;
        }
        Ok(flags.page_only || report.holds())
    });
    exit_code(written)
}

#[expect(clippy::print_stdout, reason = "what was asked for")]
fn list() -> ExitCode {
    for case in cases(&LoadSizes::full()) {
        println!("{:<16} {}", case.name, case.method);
    }
    ExitCode::SUCCESS
}

fn measure(flags: &Flags) -> Result<UpstreamReport, Failure> {
    let programs = flags.kube_apiserver.clone().unwrap_or_else(|| PathBuf::from(PROGRAMS));
    let sizes = if flags.quick { LoadSizes::quick() } else { LoadSizes::full() };
    let mut report = UpstreamReport {
        command: flags.command(),
        machine: quiet::machine(flags.allow_load)?,
        versions: versions(&programs)?,
        cases: Vec::new(),
    };
    let (stolen_before, ticks_before) = machine::ticks();
    let mut prepared: Option<(Holding, Cluster)> = None;
    for case in cases(&sizes).into_iter().filter(|case| flags.wants(case.name, true)) {
        if prepared.as_ref().is_none_or(|(holds, _)| *holds != case.holds) {
            // The memory of the last cluster is free before the next one starts.
            drop(prepared.take());
            prepared = Some((case.holds, prepare(&programs, case.holds, &sizes)?));
        }
        let Some((_, cluster)) = &prepared else { continue };
        let begun = Instant::now();
        let found = (case.run)(cluster).map_err(|error| error.to_string());
        let result = CaseResult {
            name: case.name.to_owned(),
            method: case.method,
            date: report.machine.date.clone(),
            versions: report.versions.clone(),
            seconds: begun.elapsed().as_secs_f64(),
            problem: found.as_ref().err().cloned(),
            rows: found.unwrap_or_default(),
        };
        page::print(&result);
        report.cases.push(result);
    }
    let (stolen, ticks) = machine::ticks();
    report.machine.stolen_percent = machine::share(stolen - stolen_before, ticks - ticks_before) * 100.0;
    if !flags.rows.is_empty()
        && let Some(earlier) = flags.write.as_deref().and_then(|folder| page::read(folder).ok())
    {
        report.keep(earlier);
    }
    Ok(report)
}

/// Starts a cluster and fills it.
fn prepare(programs: &Path, holds: Holding, sizes: &LoadSizes) -> Result<Cluster, Failure> {
    let begun = Instant::now();
    let cluster = match holds {
        Holding::Incident => Cluster::start(programs, &sizes.incident)?,
        Holding::Large => {
            let cluster = Cluster::empty(programs)?;
            stock::fill(&cluster.serve()?, &sizes.large, &["namespaces", "nodes"])?;
            fill::pods(&cluster, &sizes.large)?;
            cluster
        }
    };
    eprintln!("numbers: the objects of {holds:?} were stored in {:.0} s", begun.elapsed().as_secs_f64());
    Ok(cluster)
}

/// The first line that each program prints about its version.
pub(super) fn versions(programs: &Path) -> Result<Vec<String>, Failure> {
    let version = |name: &str| {
        let output = Command::new(programs.join(name)).arg("--version").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().next().unwrap_or_default().trim().to_owned())
    };
    let found: Result<Vec<String>, std::io::Error> = ["kube-apiserver", "etcd"].into_iter().map(version).collect();
    found.map_err(|error| {
        Failure::Server(format!("{}: {error}; benches/kube-apiserver/prepare builds it", programs.display()))
    })
}

impl UpstreamReport {
    fn holds(&self) -> bool {
        self.cases.iter().all(CaseResult::holds)
    }

    /// Takes the cases that were not measured again from an earlier report, in the usual order.
    fn keep(&mut self, earlier: Self) {
        let kept = earlier.cases.into_iter().filter(|old| !self.cases.iter().any(|new| new.name == old.name));
        let kept: Vec<CaseResult> = kept.collect();
        self.cases.extend(kept);
        let sizes = LoadSizes::full();
        let order: Vec<&str> = cases(&sizes).iter().map(|case| case.name).collect();
        self.cases.sort_by_key(|result| order.iter().position(|name| *name == result.name));
        // The page shows the run that measured most of it, and names the cases of others.
        (self.command, self.machine, self.versions) = (earlier.command, earlier.machine, earlier.versions);
    }
}

impl CaseResult {
    fn holds(&self) -> bool {
        self.problem.is_none() && self.rows.iter().all(SideRow::holds)
    }
}
