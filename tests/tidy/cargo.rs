//! The workspace's crates as cargo resolves them: for this platform only, with the locked versions.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Root of the workspace.
pub(crate) fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.ancestors().nth(2).expect("tests/tidy/ lies in the workspace").to_owned()
}

/// Output of `cargo metadata`, with `more` arguments.
///
/// Limited to the crates that a build on this platform needs: after a first `cargo test --workspace`, crates for other
/// platforms are not downloaded yet.
pub(crate) fn metadata(more: &[&str]) -> Value {
    let version = Command::new(program()).arg("-vV").output().expect("cargo runs");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo prints its host");
    read(&root(), &[&["--locked", "--filter-platform", host], more].concat())
}

/// Output of `cargo metadata` for the workspace in a folder below the root: its own packages only, which needs no
/// downloads.
pub(crate) fn packages_of(folder: &str) -> Value {
    read(&root().join(folder), &["--no-deps"])
}

/// Names of the crates that a package needs with these features and without its default ones.
pub(crate) fn crates_of(package: &str, features: &str) -> BTreeSet<String> {
    let mut command = Command::new(program());
    command.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--package", package]);
    command.args(["--no-default-features", "--features", features]).current_dir(root());
    let output = command.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8_lossy(&output.stdout);
    names.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn read(folder: &Path, arguments: &[&str]) -> Value {
    let mut command = Command::new(program());
    command.args(["metadata", "--format-version", "1"]).args(arguments).current_dir(folder);
    let output = command.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

fn program() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}
