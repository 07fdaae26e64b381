//! The workspace's crates as cargo resolves them: for this platform only, with the locked versions.

use std::{
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
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let version = Command::new(&cargo).arg("-vV").output().expect("cargo runs");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo prints its host");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", host])
        .args(more)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}
