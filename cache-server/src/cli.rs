//! The command line: the only place that turns arguments and environment into settings.
//!
//! INVARIANT: bad arguments, and bad files or addresses they name, are one line on stderr and exit code 2, before
//! anything is served or sent. A later failure, a data folder that cannot be used, and a running server that is not
//! replaced, is one line and exit code 1.

mod absent;
#[cfg(feature = "assets")]
mod assets;
mod audit;
mod authentication;
mod authorization;
#[cfg(feature = "workload")]
mod client;
#[cfg(feature = "etcd")]
mod etcd;
mod files;
mod flow;
mod log;
mod manual;
#[cfg(feature = "embedded")]
mod objects;
mod serve;
#[cfg(feature = "upstream")]
mod state;
#[cfg(feature = "durable")]
mod storage;
#[cfg(feature = "top")]
mod top;
#[cfg(feature = "traces")]
mod traces;
mod units;
#[cfg(feature = "upstream")]
mod upstream;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    panic,
    process::ExitCode,
    thread,
};

use clap::{Parser, Subcommand, error::ErrorKind};
use informer_core::text::one_line;
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};

use crate::allocator;

/// A streaming watch cache that speaks the Kubernetes list/watch API.
#[derive(Debug, Parser)]
#[command(name = "cache-server", version, about, arg_required_else_help = false)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Tasks that a busy worker runs before it looks for new input. With tokio's 61, a short request waits for as many
/// handshakes or parts of lists. Cost: a call of `epoll_wait`, about 0.3 µs, for so many tasks.
const SOCKETS_CHECKED_AFTER: u32 = 16;

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API until SIGTERM or SIGINT. A second one ends the process without waiting for open requests.
    Serve(Box<serve::Serve>),
    /// Create synthetic objects in a running server, as serve --populate does at start.
    #[cfg(feature = "workload")]
    Populate(client::Populate),
    /// Update, create and delete pods of a running server at a steady rate, then print a summary.
    #[cfg(feature = "workload")]
    Churn(client::Churn),
    /// Show the state of a running server: health, types, watches, flow control and memory.
    #[cfg(feature = "top")]
    Top(top::Top),
    /// Check, compact, export or import the folder of serve --data-dir.
    #[cfg(feature = "durable")]
    Storage(storage::Storage),
    /// Drop states that serve --upstream saved in its --state-dir.
    #[cfg(feature = "upstream")]
    State(state::StateArgs),
    /// Write a folder for KUBEBUILDER_ASSETS, and print its path: envtest starts this server in place of kube-apiserver.
    #[cfg(feature = "assets")]
    Assets(assets::Assets),
    /// Print the completions of a shell, such as bash.
    Completions(manual::Completions),
    /// Print the manual page, or write the pages of all commands.
    Man(manual::Manual),
}

/// Heading of the flags that most people need: the first one of `--help`, which is clap's own.
const COMMON: Option<&str> = None;

/// The flags that choose where objects come from: at most one of them is given.
const STORAGE: &str = "storage";

/// Heading of the flags about sockets.
const CONNECTIONS: &str = "Connections";

/// Exit code for unusable arguments, and for unusable files or addresses they name.
const BAD_INPUT: u8 = 2;

/// Exit code for a failure after the start.
const FAILED: u8 = 1;

/// Runs the program with the arguments of the process.
#[must_use]
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

/// Runs the program with these arguments; the first is the program's name. Returns when the command ends or a signal
/// stops it.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString>>) -> ExitCode {
    run_all(arguments.into_iter().map(Into::into).collect())
}

/// Not generic, so that the server is compiled with this crate, and not again with every program that runs it.
fn run_all(arguments: Vec<OsString>) -> ExitCode {
    #[cfg(feature = "assets")]
    if let Some(program) = assets::Program::started_as(&arguments) {
        return with_runtime(|runtime| program.run(&arguments, runtime));
    }
    let command = match Arguments::try_parse_from(arguments) {
        Ok(Arguments { command }) => command,
        Err(error) => return explain(&error),
    };
    with_runtime(|runtime| match command {
        Command::Serve(serve) => serve::run(*serve, runtime),
        #[cfg(feature = "workload")]
        Command::Populate(populate) => runtime.block_on(client::populate(&populate)),
        #[cfg(feature = "workload")]
        Command::Churn(churn) => runtime.block_on(client::churn(&churn)),
        #[cfg(feature = "top")]
        Command::Top(top) => runtime.block_on(top::run(top)),
        #[cfg(feature = "durable")]
        Command::Storage(storage) => runtime.block_on(storage::run(&storage)),
        #[cfg(feature = "upstream")]
        Command::State(state) => state::run(&state),
        #[cfg(feature = "assets")]
        Command::Assets(options) => assets::run(&options),
        Command::Completions(options) => manual::completions(&options),
        Command::Man(options) => manual::manual(&options),
    })
}

/// Runs a command on a runtime that is left behind when the command ends.
fn with_runtime(command: impl FnOnce(&Runtime) -> ExitCode) -> ExitCode {
    allocator::prepare();
    let mut runtime = Builder::new_multi_thread();
    runtime.event_interval(SOCKETS_CHECKED_AFTER).thread_name(WORKER).enable_all();
    let runtime = match runtime.build() {
        Ok(runtime) => runtime,
        Err(error) => return fail_input(&format!("cannot start: {error}")),
    };
    let code = command(&runtime);
    silence_workers();
    // Dropping the runtime would wait for every worker, and a worker may be stuck.
    runtime.shutdown_background();
    code
}

/// Name of the runtime's threads.
const WORKER: &str = "server-worker";

/// Keeps panics of the runtime's threads off stderr. Long work that outlives the runtime finds no timers any more, which is a
/// panic in tokio.
fn silence_workers() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().name() != Some(WORKER) {
            usual(info);
        }
    }));
}

/// Prints help and version to stdout unchanged; reduces every other error to one line on stderr.
fn explain(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = write!(io::stdout(), "{text}");
        return ExitCode::SUCCESS;
    }
    if matches!(error.kind(), ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) {
        return fail_input("say what to do, such as serve; --help has all commands");
    }
    if let Some(reason) = absent::reason(error) {
        return fail_input(reason);
    }
    // clap puts the error first, then an empty line, a hint and the usage.
    let first = text.split("\n\n").next().unwrap_or(&text);
    let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    fail_input(line.strip_prefix("error: ").unwrap_or(&line))
}

fn fail_input(line: &str) -> ExitCode {
    fail(BAD_INPUT, line)
}

fn fail(code: u8, line: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "error: {}", one_line(line));
    ExitCode::from(code)
}

/// Runs `serve` on a runtime of its own, with the signals that end it: timers of the workers' runtime stop when all workers
/// are busy.
fn supervised(serve: impl AsyncFnOnce(StopSignals) -> ExitCode) -> ExitCode {
    let supervisor = match Builder::new_current_thread().enable_all().build() {
        Ok(supervisor) => supervisor,
        Err(error) => return fail_input(&format!("cannot start: {error}")),
    };
    supervisor.block_on(async {
        match StopSignals::take() {
            Ok(signals) => serve(signals).await,
            Err(error) => fail_input(&format!("cannot listen for signals: {error}")),
        }
    })
}

/// SIGTERM and SIGINT. Once taken, neither ends the process by default.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the handlers. Needs a tokio runtime whose workers do not block.
    fn take() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal. Cancel safe.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    /// Goal: `--help` has the flags that most people need first, and each other one under its subject. Method: the printed
    /// text, because the heading of a group holds for the flags after it.
    #[cfg(feature = "etcd")]
    #[test]
    fn every_flag_is_printed_under_its_heading() {
        assert_eq!(
            printed_flags(&["serve"]),
            [
                "Options: listen data-dir etcd-endpoints upstream load populate tls-cert tls-key authorization log \
                 log-format help",
                "Objects in this server: first-revision forks object-bytes-max",
                "Connections: grace upgrade-socket unsent-bytes connections-max watches-max unix-socket host",
                "Watch cache: window-bytes window-age bookmark-interval list-encoding",
                "Authentication: client-ca-file token-auth-file service-account-issuer service-account-jwks \
                 service-account-signing-key-file api-audiences oidc-issuer-url oidc-client-id oidc-username-claim \
                 oidc-username-prefix oidc-groups-claim oidc-groups-prefix oidc-jwks oidc-ca-file token-review insecure-anonymous",
                "Flow control: flow-config max-requests-inflight",
                "Audit log: audit-log audit-policy-file audit-log-maxsize audit-log-maxbackup",
                #[cfg(feature = "traces")]
                "Traces: otlp-endpoint otlp-sampling-rate-per-million",
                "In front of an API server: kubeconfig context upstream-token-file upstream-ca peer peer-ca \
                 listen-when-ready resources scope refuse-outside-scope max-staleness upstream-impersonate state-dir \
                 state-secrets",
                "Objects in etcd: etcd-prefix etcd-allow-writes etcd-cafile etcd-certfile etcd-keyfile etcd-user \
                 etcd-password-file etcd-compaction-interval",
            ]
        );
        assert_eq!(printed_flags(&["storage", "import"])[1], "Options: overwrite etcd-endpoints help");
    }

    /// The headings of a command's help, each with its flags in the printed order.
    #[cfg(feature = "etcd")]
    fn printed_flags(path: &[&str]) -> Vec<String> {
        let mut command = <Arguments as clap::CommandFactory>::command();
        command.build();
        let command = path.iter().fold(&mut command, |of, name| of.find_subcommand_mut(name).expect("a command"));
        let mut printed: Vec<String> = Vec::new();
        for line in command.render_long_help().to_string().lines() {
            if let Some(heading) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
                printed.push(format!("{heading}:"));
            } else if let (Some((_, flag)), Some(flags)) =
                (line.split_once("  --").or_else(|| line.split_once("-h, --")), printed.last_mut())
            {
                flags.push(' ');
                flags.push_str(flag.split([' ', '[']).next().unwrap_or_default());
            }
        }
        printed
    }

    /// Goal: `--help` is enough to use every flag. Method: the help of each flag has a default or the word for one, or
    /// the flag is required.
    #[test]
    fn every_flag_says_what_it_needs() {
        let mut command = <Arguments as clap::CommandFactory>::command();
        command.build();
        // The last two are run by packagers, not by deployments.
        let without_flags = ["help", "completions", "man"];
        for subcommand in command.get_subcommands().filter(|command| !without_flags.contains(&command.get_name())) {
            for argument in subcommand.get_arguments().filter(|argument| argument.get_id() != "help") {
                let (id, help) = (argument.get_id(), argument.get_help().map(ToString::to_string).unwrap_or_default());
                let name = format!("{} {id}", subcommand.get_name());
                assert!(!help.is_empty(), "{name} has no help");
                assert!(argument.get_env().is_some(), "{name} reads no environment variable");
                let has_default = argument.is_required_set()
                    || !argument.get_default_values().is_empty()
                    || ["left out", "may be repeated", "default"].iter().any(|word| help.to_lowercase().contains(word));
                assert!(has_default, "{name} says no default: {help}");
            }
        }
    }
}
