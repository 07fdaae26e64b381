//! Drives a server of the Kubernetes list/watch API: `load SCENARIO --server URL [--path /api/v1/pods] …`.

pub mod client;
pub mod failure;
pub(crate) mod fanout;
pub mod report;
pub mod sampler;
pub mod scan;
pub(crate) mod storm;
pub(crate) mod writer;

use std::process::ExitCode;

/// Runs the program with the process's own arguments.
#[must_use]
pub fn main() -> ExitCode {
    main_of(std::env::args())
}

/// The same with arguments of somebody else; the first one is the program's name.
pub(crate) fn main_of(_arguments: impl Iterator<Item = String>) -> ExitCode {
    ExitCode::from(2)
}
