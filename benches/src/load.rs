//! Drives a server of the Kubernetes list/watch API: `load SCENARIO --server URL [--path /api/v1/pods] …`.

use std::process::ExitCode;

/// Runs the program with the process's own arguments.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::from(2)
}
