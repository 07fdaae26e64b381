//! The load tool for servers of the Kubernetes list/watch API: `load SCENARIO --server URL [--path /api/v1/pods] …`.
//!
//! INVARIANT: bad flags, and bad files or addresses they name, are one line on stderr and exit code 2, before any
//! request is sent. Later failures are counted by kind, and the exit code is 1.

pub mod client;
pub(crate) mod density;
pub mod failure;
pub(crate) mod fanout;
mod flags;
mod idle;
mod list;
mod paged;
mod reader;
pub mod report;
pub mod sampler;
pub mod scan;
mod session;
mod slow_readers;
pub(crate) mod storm;
mod watch_list;
pub(crate) mod writer;
pub(crate) mod writes;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Parser, Subcommand, error::ErrorKind};

use self::{client::Target, failure::Failure, report::Report};

/// Exit code for unusable flags, and for unusable files or addresses they name.
const BAD_INPUT: u8 = 2;

/// Drives a server of the Kubernetes list/watch API and measures the server's cost.
#[derive(Debug, Parser)]
#[command(name = "load", arg_required_else_help = false)]
struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// All clients list at once.
    List(list::Flags),
    /// All clients list at once, page by page.
    Paged(paged::Flags),
    /// All clients read the initial state as a stream at once, and may keep the stream open.
    WatchList(watch_list::Flags),
    /// All clients watch, without events.
    Idle(idle::Flags),
    /// Connections like those of client-go, with more and more idle watches on each.
    Density(density::Flags),
    /// All clients read at a fixed number of bytes per second.
    SlowReaders(slow_readers::Flags),
    /// Many clients watch while few write: cost and latency of a delivery.
    Fanout(Writing<fanout::Flags>),
    /// All watches are dropped at once and reconnect at once.
    ReconnectStorm(Writing<storm::Flags>),
    /// All clients write objects of their own, without watchers: rate, latency and cost of a write.
    Writes(Writing<writes::Flags>),
}

/// Flags of scenarios with writes.
#[derive(Clone, Debug, Args)]
struct Writing<F: Args> {
    #[command(flatten)]
    server: flags::Server,

    /// Duration of the writes.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = flags::seconds)]
    seconds: Duration,

    #[command(flatten)]
    flags: F,
}

impl<F: Args> Writing<F> {
    fn common(&self, target: Target) -> fanout::Common {
        let flags::Server { pid, clients, connect_rate, .. } = self.server;
        fanout::Common { target, pid, clients, connect_rate, time: self.seconds }
    }
}

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    main_of(std::env::args_os())
}

/// Like [`main`], with the given arguments; the first is the program's name.
pub(crate) fn main_of(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let scenario = match Arguments::try_parse_from(arguments) {
        Ok(Arguments { scenario }) => scenario.settled(),
        Err(error) => return explain(&error),
    };
    let (server, streams) = scenario.server();
    let target = scenario.check().and_then(|()| server.check(streams)).and_then(|()| server.target(streams));
    let target = match target {
        Ok(target) => target,
        Err(line) => return fail(BAD_INPUT, &line),
    };
    let runtime = match runtime(server.threads) {
        Ok(runtime) => runtime,
        Err(error) => return fail(BAD_INPUT, &format!("cannot start: {error}")),
    };
    let (json, result) = (server.json, runtime.block_on(scenario.run(target)));
    match result {
        Ok(report) => {
            report.print(json);
            if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(failure) => fail(1, &failure.to_string()),
    }
}

/// Checks arguments without running them; the first is the program's name.
#[cfg(test)]
pub(crate) fn understands(arguments: impl IntoIterator<Item = String>) -> Result<(), String> {
    let arguments = Arguments::try_parse_from(arguments).map_err(|error| error.to_string())?;
    arguments.scenario.settled().check()
}

impl Scenario {
    /// Applies the defaults that depend on the scenario.
    fn settled(self) -> Self {
        match self {
            Self::SlowReaders(flags) => Self::SlowReaders(flags.with_small_buffers()),
            Self::List(_)
            | Self::Paged(_)
            | Self::WatchList(_)
            | Self::Idle(_)
            | Self::Density(_)
            | Self::Fanout(_)
            | Self::ReconnectStorm(_)
            | Self::Writes(_) => self,
        }
    }

    /// Checks combinations of a scenario's flags. The error is one line.
    fn check(&self) -> Result<(), String> {
        match self {
            Self::Idle(flags) => flags.check(),
            Self::Density(flags) => flags.check(),
            Self::Fanout(writing) => writing.flags.check(writing.seconds),
            Self::ReconnectStorm(writing) => writing.flags.check(writing.seconds),
            Self::Writes(writing) => writing.flags.check(),
            Self::List(_) | Self::Paged(_) | Self::WatchList(_) | Self::SlowReaders(_) => Ok(()),
        }
    }

    /// The server, and the number of streams per connection.
    const fn server(&self) -> (&flags::Server, u32) {
        let reading = match self {
            Self::List(flags) => &flags.reading,
            Self::Paged(flags) => &flags.reading,
            Self::WatchList(flags) => &flags.reading,
            Self::Idle(flags) => &flags.reading,
            Self::Density(flags) => return (&flags.server, 1),
            Self::SlowReaders(flags) => &flags.reading,
            Self::Fanout(writing) => return (&writing.server, writing.flags.streams),
            Self::ReconnectStorm(writing) => return (&writing.server, writing.flags.writes.streams),
            Self::Writes(writing) => return (&writing.server, 1),
        };
        (&reading.server, reading.streams)
    }

    async fn run(&self, target: Target) -> Result<Report, Failure> {
        match self {
            Self::List(flags) => list::run(flags, target).await,
            Self::Paged(flags) => paged::run(flags, target).await,
            Self::WatchList(flags) => watch_list::run(flags, target).await,
            Self::Idle(flags) => idle::run(flags, target).await,
            Self::Density(flags) => density::run(flags, target).await,
            Self::SlowReaders(flags) => slow_readers::run(flags, target).await,
            Self::Fanout(writing) => fanout::run(&writing.common(target), &writing.flags).await,
            Self::ReconnectStorm(writing) => storm::run(&writing.common(target), &writing.flags).await,
            Self::Writes(writing) => writes::run(&writing.common(target), &writing.flags).await,
        }
    }
}

/// The runtime with `threads` threads, by default half of the cores. A single thread needs no work-stealing scheduler.
fn runtime(threads: Option<u16>) -> io::Result<tokio::runtime::Runtime> {
    let half = || std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
    match threads.map_or_else(half, usize::from) {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        more => tokio::runtime::Builder::new_multi_thread().worker_threads(more).enable_all().build(),
    }
}

/// Prints help to stdout unchanged; reduces every other error to one line on stderr.
fn explain(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = write!(io::stdout(), "{text}");
        return ExitCode::SUCCESS;
    }
    if matches!(error.kind(), ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) {
        return fail(BAD_INPUT, "say which scenario; --help tells more");
    }
    // clap puts the error first, then an empty line, a hint and the usage.
    let first = text.split("\n\n").next().unwrap_or(&text);
    let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    fail(BAD_INPUT, line.strip_prefix("error: ").unwrap_or(&line))
}

fn fail(code: u8, line: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "error: {line}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    /// Goal: `--help` is enough to use every flag. Method: each has a help text.
    #[test]
    fn every_flag_says_what_it_does() {
        let mut command = <Arguments as clap::CommandFactory>::command();
        command.build();
        for scenario in command.get_subcommands().filter(|scenario| scenario.get_name() != "help") {
            for argument in scenario.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty(), "{} {} has no help", scenario.get_name(), argument.get_id());
            }
        }
    }
}
