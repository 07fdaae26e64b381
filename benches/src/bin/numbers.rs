//! The benchmarks of the server: calls the library.

fn main() -> std::process::ExitCode {
    benches::numbers::main()
}
