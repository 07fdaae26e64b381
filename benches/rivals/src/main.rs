//! Compares the informer with kube's own runtime: memory, time, CPU and requests, measured in one run on one machine.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml -p rivals` prints Markdown tables; `--json FILE` also saves
//! the raw numbers.

#![expect(clippy::print_stdout, reason = "tables and the lines between its processes are its output")]

mod client;
mod client_go;
mod components;
mod controllers;
mod frames;
mod gate;
mod memory;
mod parts;
mod programs;
mod refusals;
mod report;
mod run;
mod socket;
mod targets;
mod types;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use peak_alloc::PeakAlloc;

/// Errors end the run and are printed.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Counts live bytes in every process of the run. Costs two atomic additions per allocation, for all clients alike.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

#[derive(Debug, Parser)]
#[command(about = "Measures the informer and kube's runtime in one run.")]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    options: run::Options,
}

#[derive(Debug, Subcommand)]
enum Part {
    #[command(hide = true)]
    Server(Server),
    #[command(hide = true)]
    Client(client::Arguments),
}

#[derive(Debug, Args)]
struct Server {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.part {
        Some(Part::Server(Server { rest })) => {
            return cache_server::cli::run(["cache-server".to_owned()].into_iter().chain(rest.iter().cloned()));
        }
        Some(Part::Client(arguments)) => client::main(arguments),
        None => run::all(&cli.options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rivals: {error}");
            ExitCode::FAILURE
        }
    }
}
