//! Models clusters of 100,000 nodes whose agents read through trees of cache-servers, in virtual time.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml --bin cascade` reads the measured costs in
//! `docs/benchmarks`, compares the model with measurements it was not fitted to, and prints each tier's load and what
//! the restart of each tier causes. With `--write docs` it replaces the tables of `docs/cascade.md` and its picture.

mod check;
mod costs;
mod flow;
mod link;
mod page;
mod shape;
#[cfg(test)]
mod tests;
mod world;

use std::{path::PathBuf, process::ExitCode, sync::Mutex, thread};

use clap::Parser;

use self::{
    costs::Measurements,
    shape::Scenario,
    world::{SECOND, World},
};
use crate::numbers::Failure;

/// Models a large cluster as a tree of caches, with measured costs. Deterministic for a seed.
#[derive(Clone, Debug, Parser)]
#[command(name = "cascade")]
pub(crate) struct Flags {
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 100_000, value_parser = positive)]
    nodes: usize,

    /// Pods on each node.
    #[arg(long, default_value_t = 30, value_parser = positive)]
    pods_per_node: usize,

    /// Agents on each node; each watches the pods of its node.
    #[arg(long, default_value_t = 5, value_parser = positive)]
    agents: usize,

    /// Changes of pods a second, in the whole cluster.
    #[arg(long, default_value_t = 500.0, value_parser = positive_number)]
    rate: f64,

    /// Bytes of one pod.
    #[arg(long, default_value_t = 5_332.0, value_parser = positive_number)]
    bytes: f64,

    /// API servers, and the cores of each.
    #[arg(long, default_value_t = 3, value_parser = positive)]
    api_servers: usize,
    #[arg(long, default_value_t = 16, value_parser = positive)]
    api_cores: usize,

    /// Nodes for each cache-server of the last tier, and the cores of each.
    #[arg(long, default_value_t = 10_000, value_parser = positive)]
    nodes_per_cache: usize,
    #[arg(long, default_value_t = 8, value_parser = positive)]
    cache_cores: usize,

    /// Members of the first of two tiers.
    #[arg(long, default_value_t = 3, value_parser = positive)]
    relays: usize,

    /// History window of each cache-server, in MiB.
    #[arg(long, default_value_t = 512.0, value_parser = positive_number)]
    window_mib: f64,

    /// Milliseconds between two machines.
    #[arg(long, default_value_t = 0.25, value_parser = positive_number)]
    hop_millis: f64,

    /// Seconds that a new process needs until it runs: a cache-server, and an API server.
    #[arg(long, default_value_t = 5.0, value_parser = positive_number)]
    down_seconds: f64,
    #[arg(long, default_value_t = 20.0, value_parser = positive_number)]
    api_down_seconds: f64,

    /// Microseconds to load one object of the saved state.
    #[arg(long, default_value_t = costs::SDK_OBJECT, value_parser = positive_number)]
    load_micros: f64,

    /// Seconds between two reviews of an open watch, where caches may not follow roles: the mean of its pauses.
    #[arg(long, default_value_t = 255.0, value_parser = positive_number)]
    review_seconds: f64,

    /// Virtual seconds of undisturbed events.
    #[arg(long, default_value_t = 60.0, value_parser = positive_number)]
    seconds: f64,

    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// The API servers serve initial state as lists, as without the feature WatchList.
    #[arg(long)]
    lists: bool,

    /// Folder with the measured numbers.
    #[arg(long, default_value = "docs/benchmarks", value_name = "FOLDER")]
    measured: PathBuf,

    /// Folder of the page `cascade.md` and its picture. Left out: tables are printed.
    #[arg(long, value_name = "FOLDER")]
    write: Option<PathBuf>,
}

fn positive(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| "not a number".to_owned())?;
    if (1..=1_000_000).contains(&number) { Ok(number) } else { Err("must be from 1 to 1,000,000".to_owned()) }
}

fn positive_number(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number > 0.0 && number < 1e9 { Ok(number) } else { Err("must be more than 0, below 10^9".to_owned()) }
}

/// Longest virtual time of a restart.
const RESTART_MAX: u64 = 7_200 * SECOND;

/// A scenario and the world at its end.
pub(crate) struct ScenarioRun {
    pub(crate) scenario: Scenario,
    pub(crate) world: World,
    /// Virtual seconds in which events were committed.
    pub(crate) seconds: f64,
}

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    match model(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cascade: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the tables are what the program is for")]
fn model(flags: &Flags) -> Result<(), Failure> {
    let measured = Measurements::read(&flags.measured)?;
    let checks = check::all(&measured, flags.seed)?;
    let runs = run_all(shape::scenarios(flags, &measured))?;
    let tables = page::tables(flags, &measured, &checks, &runs);
    match &flags.write {
        Some(folder) => page::write(folder, &tables, &runs),
        None => {
            println!("{tables}");
            Ok(())
        }
    }
}

/// Runs the scenarios on two threads. Each has its own generator, so the threads change no result.
fn run_all(scenarios: Vec<Scenario>) -> Result<Vec<ScenarioRun>, Failure> {
    let count = scenarios.len();
    let (queue, done) = (Mutex::new(scenarios.into_iter().enumerate()), Mutex::new(Vec::with_capacity(count)));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((number, scenario)) = next(&queue) {
                    let run = scenario.run();
                    if let Ok(mut done) = done.lock() {
                        done.push((number, run));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().map_err(|_| Failure::Page("a scenario panicked".to_owned()))?;
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, run)| run).collect()
}

fn next<T>(queue: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    queue.lock().ok()?.next()
}
