//! The server binary: one call. It is in this package so that its tests find it by their own `CARGO_BIN_EXE_…`.

fn main() -> std::process::ExitCode {
    cache_server::cli::main()
}
