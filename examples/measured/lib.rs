//! Parts of the examples that measure a server: child processes, memory as counted by the kernel, and pictures.

pub mod child;
pub mod memory;
pub mod picture;
pub mod server;

/// Exit code of a program. Prints its error.
pub fn exit_code(program: &str, outcome: Result<(), Failure>) -> std::process::ExitCode {
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// Any error, printed as one line.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;
