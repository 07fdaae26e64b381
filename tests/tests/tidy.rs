//! Checks the rules of `ARCHITECTURE.md` and `CONTRIBUTING.md`: arrows between crates, pure cores, one unsafe block, and
//! the words of comments and pages.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tests::cargo::{self, root};

/// The allowed dependencies between our crates. A new one needs a decision in `docs/adr/`.
const ARROWS: &[(&str, &[&str])] = &[
    ("informer-core", &[]),
    ("informer", &["informer-core"]),
    ("watch-cache", &["informer-core"]),
    ("cache-server", &["informer-core", "watch-cache"]),
    ("examples", &["cache-server", "informer", "informer-core"]),
    ("tests", &["cache-server", "informer", "informer-core", "watch-cache"]),
    ("benches", &["cache-server", "informer", "informer-core", "watch-cache"]),
    ("rivals", &["cache-server", "informer", "informer-core"]),
];

/// Crates that a pure core must not depend on.
const FORBIDDEN_IN_CORES: &[&str] = &[
    "tokio",
    "kube",
    "kube-client",
    "kube-core",
    "hyper",
    "http",
    "mio",
    "socket2",
    "tracing",
    "log",
    "jiff",
    "chrono",
];

const LINES_MAX: usize = 700;

/// The whole graph. Optional features name crates that the build did not fetch, so cargo may fetch them here.
fn metadata() -> Value {
    cargo::metadata(&["--all-features"])
}

/// Package names by id, and the ids of each package's normal dependencies.
fn graph(metadata: &Value) -> (BTreeMap<&str, &str>, BTreeMap<&str, Vec<&str>>) {
    let names = metadata["packages"].as_array().expect("packages").iter();
    let names = names.map(|package| (text(&package["id"]), text(&package["name"]))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes").iter();
    let needs = nodes
        .map(|node| {
            let deps = node["deps"].as_array().expect("deps").iter();
            let normal = deps
                .filter(|dep| dep["dep_kinds"].as_array().expect("kinds").iter().any(|kind| kind["kind"].is_null()));
            (text(&node["id"]), normal.map(|dep| text(&dep["pkg"])).collect())
        })
        .collect();
    (names, needs)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

#[test]
fn arrows_between_crates_point_one_way() {
    let metadata = metadata();
    let ours: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    for package in metadata["packages"].as_array().expect("packages") {
        let Some((name, allowed)) = ARROWS.iter().find(|(name, _)| *name == package["name"]) else { continue };
        let needs = package["dependencies"].as_array().expect("dependencies").iter();
        let needs = needs.map(|dep| text(&dep["name"])).filter(|dep| ours.contains(dep));
        for dep in needs {
            assert!(allowed.contains(&dep), "{name} must not know {dep}: write an ADR first");
        }
    }
}

#[test]
fn cores_know_no_task_socket_or_clock() {
    let metadata = metadata();
    let (names, needs) = graph(&metadata);
    for core in ["informer-core", "watch-cache"] {
        let mut open: Vec<&str> = names.iter().filter(|(_, name)| **name == core).map(|(id, _)| *id).collect();
        assert_eq!(open.len(), 1, "{core} is in the workspace");
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                assert!(!FORBIDDEN_IN_CORES.contains(&names[id]), "{core} came to depend on {}", names[id]);
                open.extend(&needs[id]);
            }
        }
        assert!(seen.len() > 3, "the tree of {core} was read");
    }
}

#[test]
fn one_tls_provider() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("a lock file");
    for denied in ["aws-lc-sys", "openssl-sys"] {
        assert!(!lock.contains(&format!("name = \"{denied}\"")), "{denied} came into the tree");
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn files_say_what_they_are_and_fit_a_reader() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    assert!(files.len() > 50);
    for file in files {
        let source = fs::read_to_string(&file).expect("a readable file");
        assert!(source.starts_with("//! "), "{} does not say what it is", file.display());
        let lines = source.lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines: look for the noun that wants its own file", file.display());
    }
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let mut files: Vec<PathBuf> =
        fs::read_dir(root().join("docs/adr")).expect("decisions").map(|file| file.expect("an entry").path()).collect();
    files.sort();
    for (number, file) in (1..).zip(files) {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let text = fs::read_to_string(&file).expect("a readable decision");
        let is_next = name.starts_with(&format!("{number:04}-")) && text.starts_with(&format!("# {number}. "));
        assert!(is_next, "{name} is not decision {number}");
    }
}

/// Goal: unsafe code stays in one place. Method: count the keyword where it opens a block, in every source.
#[test]
fn one_unsafe_block() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let keyword = concat!("unsafe", " {");
    let holding: Vec<String> = files
        .iter()
        .filter(|file| !file.ends_with("tests/tests/tidy.rs"))
        .flat_map(|file| {
            let count = fs::read_to_string(file).expect("a readable file").matches(keyword).count();
            std::iter::repeat_n(file.display().to_string(), count)
        })
        .collect();
    assert!(holding.len() == 1 && holding[0].ends_with("cache-server/src/allocator.rs"), "{holding:?}");
}

#[test]
fn the_gate_runs_the_readmes_commands() {
    let gate = fs::read_to_string(root().join(".ci/run")).expect("the gate");
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    for command in ["cargo test --workspace", "cargo run --release --example memory-compare"] {
        assert!(readme.contains(command), "the README names {command}");
        let words: Vec<&str> = command.split(' ').collect();
        let runs = gate.lines().any(|line| words.iter().all(|word| line.split(' ').any(|other| other == *word)));
        assert!(runs, "the gate runs {command}");
    }
}
