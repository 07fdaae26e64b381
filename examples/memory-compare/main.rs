//! Compares the memory of list and watch-list: of the server with N clients, and of a client with a store of all pods.
//!
//! Starts the server as a child process with the pods of a published incident, lets N clients sync at once by buffered
//! LIST, streamed LIST, pages and watch-list, and reports the memory of both sides as counted by the kernel: a table on
//! the terminal and `memory-compare.svg` on disk. Every run has a new server, so that no run benefits from memory that
//! an earlier one has allocated. Fails if any client ends with a wrong count or checksum.

#![expect(clippy::print_stdout, reason = "the tables are the product, and the parts answer on stdout")]

mod chart;
mod checksum;
mod client;
mod fetch;
mod load;
mod plan;
mod report;
mod run;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use measured::{exit_code, server};

/// Server and client memory of list and watch-list, side by side.
#[derive(Debug, Parser)]
#[command(name = "memory-compare", version, about)]
struct Arguments {
    #[command(flatten)]
    options: plan::Options,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The child processes of this program.
#[derive(Debug, Subcommand)]
enum Role {
    /// The server under test.
    #[command(hide = true)]
    Server(server::Arguments),
    /// N-1 clients that count and checksum objects and drop the bytes.
    #[command(hide = true)]
    Load(load::Arguments),
    /// One client with a real store.
    #[command(hide = true)]
    Client(client::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.role {
        None => run::all(&arguments.options),
        Some(Role::Server(arguments)) => return server::main(&arguments),
        Some(Role::Load(arguments)) => load::main(&arguments),
        Some(Role::Client(arguments)) => client::main(&arguments),
    };
    exit_code("memory-compare", outcome)
}
