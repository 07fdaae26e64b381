//! The server's numbers beside their targets, each measured by [`load`](crate::load) against a server of its own.

use std::process::ExitCode;

/// Runs the program with the process's own arguments.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::from(2)
}
