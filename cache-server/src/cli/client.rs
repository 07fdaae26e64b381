//! `cache-server populate` and `cache-server churn`, the clients of a running server.

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    time::{Duration, Instant},
};

use cache_server_workload::{
    churn::{self, ChurnSettings, Rate},
    client::{
        ServerUrl,
        populate::{self, Counts},
    },
};
use clap::Args;
use informer_core::text::one_line;

use super::{FAILED, StopSignals, fail, fail_input};
use crate::config::PopulateSpec;

/// Each flag also reads the environment variable shown with it.
#[derive(Debug, Args)]
pub(super) struct Populate {
    /// The server to fill. Required.
    #[arg(long, env = "CACHE_SERVER_SERVER", value_name = "http://HOST:PORT")]
    server: ServerUrl,

    /// Objects to create; parts left out default to 7130 pods, 80 nodes, 40 namespaces, seed 1. Required.
    #[arg(env = "CACHE_SERVER_POPULATE", value_name = "pods=N,nodes=N,namespaces=N,seed=N")]
    spec: PopulateSpec,
}

/// Each flag also reads the environment variable shown with it.
#[derive(Debug, Args)]
pub(super) struct Churn {
    /// The server whose pods are written. Required.
    #[arg(long, env = "CACHE_SERVER_SERVER", value_name = "http://HOST:PORT")]
    server: ServerUrl,

    /// Writes per second (N/s) or per minute (N/m): 80 % patches of labels, annotations and status, 10 % creates, 10 %
    /// deletes. Required.
    #[arg(long, env = "CACHE_SERVER_RATE", value_name = "N/s")]
    rate: Rate,

    /// Seconds after which it ends. Left out: at SIGTERM or SIGINT.
    #[arg(long, env = "CACHE_SERVER_SECONDS", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: Option<u64>,

    /// Seed of the choice of pods and writes: equal seeds on equal pods make equal writes.
    #[arg(long, env = "CACHE_SERVER_SEED", value_name = "N", default_value = "1")]
    seed: u64,
}

/// Ten years: tokio's timers cannot represent much longer durations.
const SECONDS_MAX: u64 = 10 * 365 * 24 * 3600;

pub(super) async fn populate(Populate { server, spec }: &Populate) -> ExitCode {
    let begun = Instant::now();
    let mut progress = ProgressLine::new();
    let populated = populate::populate(server, spec, |counts| progress.show(counts)).await;
    progress.clear();
    match populated {
        Ok(Counts { created, existed }) => {
            let seconds = begun.elapsed().as_secs_f64();
            say(&format!("created {created} objects, {existed} existed already, in {seconds:.1} s"))
        }
        Err(error) => fail(FAILED, &error.to_string()),
    }
}

pub(super) async fn churn(churn: &Churn) -> ExitCode {
    let mut stop = match StopSignals::take() {
        Ok(stop) => stop,
        Err(error) => return fail_input(&format!("cannot listen for signals: {error}")),
    };
    let &Churn { ref server, rate, seconds, seed } = churn;
    let plan = ChurnSettings { server: server.clone(), rate, duration: seconds.map(Duration::from_secs), seed };
    match churn::run(&plan, stop.next()).await {
        Ok(summary) => say(&summary.to_string()),
        Err(error) => fail(FAILED, &format!("cannot list pods: {error}")),
    }
}

/// Prints the result. The command succeeded even if stdout is closed.
fn say(line: &str) -> ExitCode {
    let _ = writeln!(io::stdout(), "{}", one_line(line));
    ExitCode::SUCCESS
}

/// A count that is updated in place on a terminal; prints nothing elsewhere.
struct ProgressLine {
    /// Time of the last update; `None` if stderr is not a terminal.
    shown: Option<Instant>,
}

/// Time between two updates of the progress line.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Moves to the start of the line and clears it.
const CLEAR_LINE: &str = "\r\x1b[K";

impl ProgressLine {
    fn new() -> Self {
        Self { shown: io::stderr().is_terminal().then(Instant::now) }
    }

    fn show(&mut self, counts: Counts) {
        if let Some(shown) = &mut self.shown
            && shown.elapsed() >= PROGRESS_EVERY
        {
            *shown = Instant::now();
            let _ = write!(io::stderr(), "{CLEAR_LINE}{} objects", counts.total());
        }
    }

    fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "{CLEAR_LINE}");
        }
    }
}
