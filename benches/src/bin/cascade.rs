//! The model of a tree of caches: calls the library.

fn main() -> std::process::ExitCode {
    benches::cascade::main()
}
