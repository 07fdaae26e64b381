//! The server's numbers: one call.

fn main() -> std::process::ExitCode {
    benches::numbers::main()
}
