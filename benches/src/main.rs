//! The server binary: calls the library.

fn main() -> std::process::ExitCode {
    cache_server::cli::main()
}
