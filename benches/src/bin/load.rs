//! The load tool: one call.

fn main() -> std::process::ExitCode {
    benches::load::main()
}
