//! The server binary: one call.

fn main() -> std::process::ExitCode {
    cache_server::cli::main()
}
