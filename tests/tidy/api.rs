//! Checks the files of the public API in `docs/api` against the promises of `docs/semver.md`. `.ci/api` compares the files
//! with the code.

use std::{collections::BTreeSet, fs};

use super::cargo::root;

/// The crates whose API has a file: those that programs use. With their folders.
const CRATES: &[(&str, &str)] = &[
    ("cache-server", "cache-server"),
    ("informer", "informer"),
    ("informer-core", "informer/core"),
    ("informer-testing", "informer/testing"),
    ("watch-cache", "cache-server/core"),
];

/// The standard library, and the primitive type whose name begins a path.
const STANDARD: &[&str] = &["alloc", "core", "std", "str"];

/// Crates that define the items which another crate re-exports under its own name.
const FACADES: &[(&str, &str)] = &[
    ("clap_builder", "clap"),
    ("futures_core", "futures"),
    ("kube_client", "kube"),
    ("kube_core", "kube"),
    ("kube_runtime", "kube"),
    ("serde_core", "serde"),
];

/// The API of a crate: a line for each item.
fn api(name: &str) -> String {
    let path = root().join(format!("docs/api/{name}.txt"));
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}: run UPDATE=1 .ci/api"))
}

/// A section of `docs/semver.md`.
fn section(heading: &str) -> String {
    let page = fs::read_to_string(root().join("docs/semver.md")).expect("the page");
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).expect("the section");
    section.split("\n## ").next().expect("a first part").to_owned()
}

/// Goal: a program that upgrades another crate knows whether it has to upgrade ours. Method: each path in a
/// signature begins with one of these crates, one of the standard library's, or one that the table names.
#[test]
fn foreign_types_in_signatures_are_justified() {
    let justified = section("Types of others").replace('_', "-");
    let mut seen = BTreeSet::new();
    for (name, _) in CRATES {
        let api = api(name);
        assert!(api.lines().count() > 50, "{name}: {} lines", api.lines().count());
        for line in api.lines() {
            for foreign in
                crates_of(line).filter(|root| !CRATES.iter().any(|(ours, _)| ours.replace('-', "_") == *root))
            {
                let facade = FACADES.iter().find(|(defining, _)| *defining == foreign);
                let foreign = facade.map_or(foreign, |(_, facade)| facade).replace('_', "-");
                assert!(
                    justified.contains(&format!("`{foreign}` ")),
                    "docs/semver.md justifies no {foreign} in: {line}"
                );
                seen.insert(foreign);
            }
        }
    }
    assert!(seen.contains("kube"), "{seen:?}");
}

/// Goal: a new value of an enum breaks no program, unless the page says so. Method: each enum without `#[non_exhaustive]`
/// is named there.
#[test]
fn exhaustive_enums_are_listed() {
    let listed = section("Enums");
    let mut unlisted = Vec::new();
    // A new value in `informer-core` may break its users, which are of the same version.
    for (name, _) in CRATES.iter().filter(|(name, _)| *name != "informer-core") {
        let api = api(name);
        let enums = api.lines().filter_map(|line| line.strip_prefix("pub enum "));
        let paths = enums.filter_map(|path| path.split(['<', ' ']).next());
        let is_listed = |path: &str| path.rsplit("::").next().is_some_and(|item| listed.contains(&format!("`{item}`")));
        unlisted.extend(paths.filter(|path| !is_listed(path)).map(str::to_owned));
    }
    assert!(unlisted.is_empty(), "docs/semver.md does not list these exhaustive enums: {unlisted:#?}");
}

/// Goal: the files are not older than a module. Method: each public module at the root of a crate is in its file, but those
/// of older kubes: they are made from the files of `kube5`.
#[test]
fn public_modules_are_in_the_api() {
    let mut missing = Vec::new();
    for (name, folder) in CRATES {
        let path = root().join(folder).join("src/lib.rs");
        let code = fs::read_to_string(path).expect("the crate");
        let (api, root) = (api(name), name.replace('-', "_"));
        let modules = code.lines().filter_map(|line| line.strip_prefix("pub mod ")?.split([';', ' ']).next());
        let modules = modules.filter(|module| *module == "kube5" || !module.starts_with("kube"));
        let paths = modules.map(|module| format!("pub mod {root}::{module}"));
        missing.extend(paths.filter(|path| !api.lines().any(|line| line == path)));
    }
    assert!(missing.is_empty(), "docs/api is stale: run UPDATE=1 .ci/api, which lacks: {missing:#?}");
}

/// The crates whose paths are in a line, without the standard library.
fn crates_of(line: &str) -> impl Iterator<Item = &str> {
    let paths = line.split(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter));
    let crates = paths.filter_map(|path| path.split_once("::")).map(|(root, _)| root);
    // Generic parameters and `Self` begin with a capital.
    crates.filter(|root| root.starts_with(char::is_lowercase) && !STANDARD.contains(root))
}
