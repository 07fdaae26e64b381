//! Renders the tables that the server includes from the sources of other crates, and compares them with the committed
//! ones. `UPDATE=1` writes them instead.
//!
//! Goal: a new version of k8s-openapi or k8s-pb changes the tables, or this test fails. Method: the sources are in
//! cargo's registry. They are generated and uniform, so this test parses lines instead of Rust. Facts that they lack
//! are in `facts.txt`.

mod merge;
mod schemas;
mod source;
mod wire;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use self::source::{Definitions, Messages};
use super::cargo;

/// The source folder of a crate.
fn folder(package: &str) -> PathBuf {
    let metadata = cargo::metadata(&[]);
    let packages = metadata["packages"].as_array().expect("packages");
    let found = packages.iter().find(|found| found["name"] == package).unwrap_or_else(|| panic!("{package} is used"));
    Path::new(found["manifest_path"].as_str().expect("a path")).parent().expect("a folder").join("src")
}

/// Facts that are in no crate's source, by section and first word of the line.
struct Facts(BTreeMap<String, BTreeMap<String, String>>);

impl Facts {
    fn read() -> Self {
        let mut facts = Self(BTreeMap::new());
        let mut section = String::new();
        for line in
            include_str!("generated/facts.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                Some(name) => section = name.to_owned(),
                None => {
                    let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
                    let known = facts.0.entry(section.clone()).or_default().insert(what.to_owned(), rest.to_owned());
                    assert_eq!(known, None, "{what} stands twice in [{section}]");
                }
            }
        }
        facts
    }

    fn section(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        self.0.get(name).into_iter().flatten().map(|(what, rest)| (what.as_str(), rest.as_str()))
    }
}

/// Compares a table with the file that the server includes, or writes that file.
fn check(path: &str, rendered: &str) {
    let file = cargo::root().join("cache-server/api/src").join(path);
    if std::env::var_os("UPDATE").is_some() {
        return fs::write(&file, rendered).expect("a file of this project");
    }
    let committed = fs::read_to_string(&file).expect("a committed table");
    let differs = committed.lines().zip(rendered.lines()).find(|(old, new)| old != new);
    assert!(
        committed == rendered,
        "{path} is not what its sources say, first where {differs:?}: UPDATE=1 cargo test --workspace --test tidy generated"
    );
}

#[test]
fn merge_keys_are_those_of_the_sources() {
    let definitions = Definitions::read(&folder("k8s-openapi"));
    check("schemas/merge_keys.txt", &merge::render(&definitions, &Facts::read()));
}

#[test]
fn definitions_are_those_of_the_sources() {
    let definitions = Definitions::read(&folder("k8s-openapi"));
    check("schemas/definitions.txt", &schemas::render(&definitions));
}

#[test]
fn protobuf_fields_are_those_of_the_sources() {
    let definitions = Definitions::read(&folder("k8s-openapi"));
    let messages = Messages::read(&folder("k8s-pb"), &definitions);
    check("object/protobuf_fields.txt", &wire::render(&definitions, &messages, &Facts::read()));
}
