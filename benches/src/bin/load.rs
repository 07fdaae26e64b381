//! The load tool: calls the library.

fn main() -> std::process::ExitCode {
    benches::load::main()
}
