//! Compares the workspace in `benches/` with the root: versions, lints and profiles.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use super::cargo::root;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The versions of each package in a lock file.
fn versions(lock: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut versions = BTreeMap::<&str, BTreeSet<&str>>::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
            line.and_then(|value| value.strip_suffix('"')).expect("a package has a name and a version")
        };
        versions.entry(value("name")).or_default().insert(value("version"));
    }
    versions
}

/// The lines of each section of a manifest, without comments.
fn sections(manifest: &str) -> BTreeMap<String, Vec<&str>> {
    let mut sections = BTreeMap::<String, Vec<&str>>::new();
    let mut section = String::new();
    for line in manifest.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            section = name.to_owned();
        } else if !line.is_empty() {
            sections.entry(section.clone()).or_default().push(line);
        }
    }
    sections
}

/// Goal: benches measure the crates that tests check. Method: a package in both lock files has the same versions.
#[test]
fn both_lock_files_have_the_same_versions() {
    let (root, benches) = (read("Cargo.lock"), read("benches/Cargo.lock"));
    let (root, benches) = (versions(&root), versions(&benches));
    assert!(root.len() > 100 && benches.len() > 100);
    let differ: Vec<_> = benches
        .iter()
        .filter_map(|(name, versions)| Some((name, versions, root.get(name)?)))
        .filter(|(_, benches, root)| !benches.is_subset(root))
        .collect();
    assert!(
        differ.is_empty(),
        "{differ:?}: cp Cargo.lock benches/Cargo.lock && cargo check --manifest-path benches/Cargo.toml"
    );
}

/// Goal: both workspaces follow one set of rules, and share compiled crates. Method: compare the lines of their
/// manifests.
#[test]
fn both_manifests_have_the_same_lints_profiles_and_requirements() {
    let (root, benches) = (read("Cargo.toml"), read("benches/Cargo.toml"));
    let (root, benches) = (sections(&root), sections(&benches));
    // Programs for users are built from the root alone. Those that measure others' crates optimise all for speed.
    let is_of_users = |section: &str| ["profile.dist", "profile.release"].iter().any(|name| section.starts_with(name));
    let is_common = |section: &str| {
        let mut shared = ["workspace.package", "workspace.lints", "profile"].into_iter();
        shared.any(|name| section.starts_with(name)) && !is_of_users(section)
    };
    let common = |sections: &BTreeMap<String, Vec<&str>>| -> Vec<(String, String)> {
        let common = sections.iter().filter(|(section, _)| is_common(section));
        common.map(|(section, lines)| (section.clone(), lines.join("\n"))).collect()
    };
    assert!(common(&root).len() > 3);
    assert_eq!(common(&benches), common(&root));
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let required = &root["workspace.dependencies"];
    for line in benches["workspace.dependencies"].iter().filter(|line| !line.contains("path = ")) {
        let same = required.iter().find(|required| name(required) == name(line));
        assert!(same.is_none_or(|same| same == line), "benches/Cargo.toml: {line}, Cargo.toml: {same:?}");
    }
}
