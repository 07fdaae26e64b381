//! The server's numbers beside their targets, each measured by [`load`](crate::load) against a server of its own.
//!
//! `cargo run --release -p benches --bin numbers [-- --write docs/benchmarks] [--row NAME]… [--quick]` measures all, prints
//! target and measurement side by side, and fails when one is missed. With `--write` the page, the curves and the raw
//! numbers are written.
//!
//! INVARIANT: whoever is measured is a process of its own, started for that one measurement.
//! INVARIANT: a run in which an answer was wrong, short or missing is no number but a failure.

mod case;
mod server;

use std::process::ExitCode;

/// Why a number could not be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The operating system said no.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The server did not do what was asked of it.
    #[error("the server: {0}")]
    Server(String),
    /// The load tool failed.
    #[error("the load: {0}")]
    Load(String),
    /// What should be JSON is not.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// No certificate could be made.
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
    /// A picture could not be drawn.
    #[error("cannot draw: {0}")]
    Picture(String),
}

/// Runs the program with the process's own arguments.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::from(2)
}
