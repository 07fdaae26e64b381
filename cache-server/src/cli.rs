//! The command line: arguments and environment become settings here and nowhere else.
//!
//! INVARIANT: whatever is wrong with them, or with what they name, is one line on stderr and exit code 2, before
//! anything is served or sent. What fails later is one line and exit code 1.

mod client;
mod files;
mod serve;
mod units;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{Parser, Subcommand, error::ErrorKind};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A streaming watch cache that speaks the Kubernetes list/watch API.
#[derive(Debug, Parser)]
#[command(name = "cache-server", version, about, arg_required_else_help = false)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API until SIGTERM or SIGINT. A second one ends the process without waiting for open requests.
    Serve(Box<serve::Serve>),
    /// Create synthetic objects in a running server, as serve --populate does at start.
    Populate(client::Populate),
    /// Update, create and delete pods of a running server at a steady rate, then print a summary.
    Churn(client::Churn),
}

/// Exit code for arguments that cannot be used, and for what they name.
const BAD_INPUT: u8 = 2;

/// Exit code for what was begun and failed.
const FAILED: u8 = 1;

/// Runs the program with the process's own arguments.
#[must_use]
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

/// Runs the program with these arguments; the first is the program's name. Returns when it is done or told to stop.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    let command = match Arguments::try_parse_from(arguments) {
        Ok(Arguments { command }) => command,
        Err(error) => return explain(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail_input(&format!("cannot start: {error}")),
    };
    let code = match command {
        Command::Serve(serve) => serve::run(*serve, &runtime),
        Command::Populate(populate) => runtime.block_on(client::populate(&populate)),
        Command::Churn(churn) => runtime.block_on(client::churn(&churn)),
    };
    // Not dropped: that waits for every worker, and one may be stuck.
    runtime.shutdown_background();
    code
}

/// Help and version go to stdout as they are; everything else is one line.
fn explain(error: &clap::Error) -> ExitCode {
    let text = error.to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = write!(io::stdout(), "{text}");
        return ExitCode::SUCCESS;
    }
    if matches!(error.kind(), ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) {
        return fail_input("say what to do: serve, populate or churn; --help tells more");
    }
    // clap says what is wrong first, then a hint and the usage after an empty line.
    let first = text.split("\n\n").next().unwrap_or(&text);
    let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    fail_input(line.strip_prefix("error: ").unwrap_or(&line))
}

fn fail_input(line: &str) -> ExitCode {
    fail(BAD_INPUT, line)
}

fn fail(code: u8, line: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "error: {line}");
    ExitCode::from(code)
}

/// SIGTERM and SIGINT, of which neither ends the process by itself any more.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Takes the signals from now on. Needs a tokio runtime, whose workers must not be stuck.
    fn take() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Resolves at the next signal. Cancel safe.
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

    /// Goal: `--help` is enough to use every flag. Method: each says its unit or default or that it must be there.
    #[test]
    fn every_flag_says_what_it_needs() {
        let mut command = <Arguments as clap::CommandFactory>::command();
        command.build();
        for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
            for argument in subcommand.get_arguments().filter(|argument| argument.get_id() != "help") {
                let (id, help) = (argument.get_id(), argument.get_help().map(ToString::to_string).unwrap_or_default());
                let name = format!("{} {id}", subcommand.get_name());
                assert!(!help.is_empty(), "{name} has no help");
                assert!(argument.get_env().is_some(), "{name} reads no environment variable");
                let told = argument.is_required_set()
                    || !argument.get_default_values().is_empty()
                    || ["left out", "may be repeated", "default"].iter().any(|word| help.to_lowercase().contains(word));
                assert!(told, "{name} says no default: {help}");
            }
        }
    }
}
