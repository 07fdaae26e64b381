//! Measures this project's server with [`load`](crate::load), a new server for each case, and compares the results with
//! targets.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml --bin numbers [-- [--row NAME]… [--quick]]` measures all
//! cases twice, prints targets beside measurements, and fails if a run misses a target. With `--write docs/benchmarks`
//! it writes the page, the curves and the raw numbers; cases that are not measured keep their numbers. With `--upstream` it measures the server in front of a stock kube-apiserver,
//! with `--storage` its storages.
//!
//! INVARIANT: a measured server is a separate process, started for one measurement.
//! INVARIANT: a run with a wrong, short or missing response is a failure, never a number.

mod busy;
mod case;
mod cases;
mod curves;
mod density;
mod large;
mod lease;
mod machine;
mod measure;
mod outcome;
mod page;
pub(crate) mod picture;
mod processes;
mod publish;
mod quiet;
mod run;
mod server;
mod stock;
mod storage;
mod upstream;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

pub(crate) use self::case::amount;
use self::{
    outcome::{Contender, Outcome, Report},
    picture::Graph,
};

/// Reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An I/O error.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The server did not start or behaved unexpectedly.
    #[error("the server: {0}")]
    Server(String),
    /// The load tool failed.
    #[error("the load: {0}")]
    Load(String),
    /// Invalid JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A request failed.
    #[error(transparent)]
    Request(#[from] crate::load::failure::Failure),
    /// The TLS certificate could not be made.
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
    /// A page could not be written.
    #[error("{0}")]
    Page(String),
    /// Other programs run.
    #[error(
        "the machine is not idle: load average {load:.2}, {busy:.2} cores busy, and at most {most} of either are \
         allowed; --allow-load measures anyway"
    )]
    Busy { load: f64, busy: f64, most: f64 },
    /// A graph could not be drawn.
    #[error("cannot draw: {0}")]
    Picture(String),
}

/// Measures the server and prints targets beside measurements. Exit 1: a target was missed.
#[derive(Debug, Parser)]
#[command(name = "numbers")]
struct Flags {
    /// Folder that the page, the curves and the raw numbers are written to. Left out: nothing is written.
    #[arg(long, value_name = "FOLDER")]
    write: Option<PathBuf>,

    /// Measure only cases and curves whose name begins with this. May be repeated.
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,

    /// Runs of each case. The page shows their mean. kube-apiserver and the curves run once.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=9))]
    runs: u8,

    /// Continue the last run of this program that wrote into the folder of `--write`: cases that it finished are not
    /// measured again.
    #[arg(long, requires = "write", conflicts_with_all = ["upstream", "storage"])]
    resume: bool,

    /// Measure although other programs use the CPU. Otherwise the machine must be idle: a load average and a number of
    /// busy cores of at most 0.5.
    #[arg(long)]
    allow_load: bool,

    /// Measure a few cases and no curves; with `--upstream`, all cases with small sizes.
    #[arg(long)]
    quick: bool,

    /// Measure the server in front of a stock kube-apiserver, beside that alone. Needs the programs of
    /// `--kube-apiserver`, by default in `target/kube-apiserver`. With `--row` and `--write`, other cases keep their
    /// earlier numbers.
    #[arg(long)]
    upstream: bool,

    /// Measure the memory of idle watches in the shape of client-go's, and a million of them beside the heartbeats of
    /// 200,000 nodes, which takes some fifteen minutes.
    #[arg(long, conflicts_with_all = ["upstream", "rows", "quick"])]
    density: bool,

    /// Measure the storages: writes of 64 clients, and starts with many objects, beside a stock kube-apiserver with etcd on
    /// the same disk, that of `TMPDIR`. Needs the programs of `--kube-apiserver` for the latter and for etcd, by default in
    /// `target/kube-apiserver`.
    #[arg(long, conflicts_with = "upstream")]
    storage: bool,

    /// Measure nothing: write the page again from the raw numbers in the folder of `--write`, for example after its
    /// notes changed.
    #[arg(long, requires = "write", conflicts_with_all = ["rows", "quick", "list", "kube_apiserver"])]
    page_only: bool,

    /// List the cases and curves, and measure nothing.
    #[arg(long)]
    list: bool,

    /// Folder with `kube-apiserver` and `etcd`, to put them under the same load in comparable cases; see
    /// `benches/kube-apiserver/prepare`.
    #[arg(long, value_name = "FOLDER")]
    kube_apiserver: Option<PathBuf>,
}

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    // The same binary also serves, is the bare server, generates the load, and runs churn, as child processes.
    match std::env::args().nth(1).as_deref() {
        Some("serve" | "churn") => return cache_server::cli::main(),
        Some("load") => return crate::load::main_of(std::env::args().skip(1)),
        Some("bare") => return crate::bare::main_of(std::env::args().skip(1)),
        Some(_) | None => {}
    }
    let flags = Flags::parse();
    if flags.upstream {
        return upstream::main(&flags);
    }
    if flags.storage {
        return storage::main(&flags);
    }
    if flags.list {
        return list();
    }
    if let Some(row) = flags.unknown() {
        eprintln!("numbers: no case and no curve begins with {row}; --list names them");
        return ExitCode::from(2);
    }
    let report = if flags.page_only { page::read(flags.write.as_deref()) } else { measure::measure(&flags) };
    exit_code(report.and_then(|report| write(&flags, &report)))
}

/// Exit 1 if a target was missed, or for an error, which it prints.
fn exit_code(all_met: Result<bool, Failure>) -> ExitCode {
    match all_met {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("numbers: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "what was asked for")]
fn list() -> ExitCode {
    for case in cases::all() {
        println!("{:<20} {:?}", case.name, case.how);
    }
    for name in curves::NAMES {
        println!("{name:<20} a curve");
    }
    ExitCode::SUCCESS
}

impl Flags {
    fn wants(&self, name: &str, is_quick: bool) -> bool {
        if self.density || name == density::MILLION {
            return self.density && name.starts_with(density::NAME) || self.rows.iter().any(|row| row == name);
        }
        let is_asked = self.rows.is_empty() || self.rows.iter().any(|row| name.starts_with(row.as_str()));
        is_asked && (!self.quick || is_quick)
    }

    /// True if some cases or curves are left out.
    fn is_partial(&self) -> bool {
        !self.rows.is_empty() || self.quick || self.density
    }

    /// The first `--row` that matches no case and no curve.
    fn unknown(&self) -> Option<&str> {
        let cases = cases::all();
        let names: Vec<&str> = cases.iter().map(|case| &*case.name).chain(curves::NAMES).collect();
        self.rows.iter().map(String::as_str).find(|row| !names.iter().any(|name| name.starts_with(row)))
    }

    /// The command line of this run.
    fn command(&self) -> String {
        let mut words = vec!["cargo run --release --manifest-path benches/Cargo.toml --bin numbers".to_owned()];
        let mut rest: Vec<String> = std::env::args().skip(1).collect();
        if !rest.is_empty() {
            words.push("--".to_owned());
            words.append(&mut rest);
        }
        words.join(" ")
    }
}

/// Writes the requested files. Returns true if all targets were met or nothing was measured.
fn write(flags: &Flags, report: &Report) -> Result<bool, Failure> {
    if let Some(folder) = &flags.write {
        if !flags.page_only {
            page::write_raw(folder, report)?;
        }
        page::write(folder, report)?;
    }
    Ok(flags.page_only || report.holds())
}

/// Prints an outcome, with the cells of the page.
#[expect(clippy::print_stdout, reason = "the report is what the program is for")]
fn tell(outcome: &Outcome, by: Contender) {
    let whose = match by {
        Contender::Own => "",
        Contender::Stock => "kube-apiserver: ",
        Contender::Bare => "floor: ",
    };
    for row in &outcome.rows {
        let [what, unit, target, measured] = page::cells(outcome, row);
        let case = &outcome.case;
        let target = if target.is_empty() { target } else { format!(" (target {target})") };
        println!("{whose}{case}: {what}: {measured} {unit}{target}");
    }
    if let Some(problem) = &outcome.problem {
        println!("{whose}{}: FAILED: {problem}", outcome.case);
    }
}

#[expect(clippy::print_stdout, reason = "the report is what the program is for")]
fn tell_curve(graphs: &[Graph]) {
    for (graph, series) in graphs.last().into_iter().flat_map(|graph| graph.series.iter().map(move |one| (graph, one)))
    {
        let points: Vec<String> =
            series.points.iter().map(|(x, y)| format!("{}: {}", amount(*x), amount(*y))).collect();
        println!("{}, {} ({} by {}): {}", graph.name, series.label, graph.y, graph.x, points.join(", "));
    }
}
