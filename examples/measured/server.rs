//! The server process: `cache-server serve` inside this program's own binary.

use std::process::ExitCode;

use clap::Args;

/// Arguments passed on to the server's own command line.
#[derive(Debug, Args)]
pub struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs the server until a signal stops it.
#[must_use]
pub fn main(arguments: &Arguments) -> ExitCode {
    cache_server::cli::run(["cache-server".to_owned()].into_iter().chain(arguments.rest.iter().cloned()))
}
