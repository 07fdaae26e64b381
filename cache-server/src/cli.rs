//! The command line: arguments and environment become a `Config` here and nowhere else.

use std::process::ExitCode;

/// Runs the program with the process's own arguments.
#[must_use]
pub fn main() -> ExitCode {
    run(std::env::args())
}

/// Runs the program with these arguments; the first is the program's name.
#[must_use]
pub fn run(arguments: impl IntoIterator<Item = String>) -> ExitCode {
    let _ = arguments.into_iter().count();
    ExitCode::SUCCESS
}
