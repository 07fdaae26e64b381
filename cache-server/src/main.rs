//! The server binary.

fn main() -> std::process::ExitCode {
    cache_server::cli::main()
}
