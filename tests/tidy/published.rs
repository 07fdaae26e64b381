//! Checks the crates that are published: what a registry shows of them, and the Rust that they need.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use super::{cargo::root, metadata, text};

/// The published crates: those that programs use, and those that these need.
const PUBLISHED: &[&str] = &[
    "access-rules",
    "api-rules",
    "cache-server",
    "cache-server-admission",
    "cache-server-caches",
    "cache-server-controllers",
    "cache-server-stores",
    "cache-server-top",
    "cache-server-upstream",
    "cache-server-wire",
    "cache-server-workload",
    "informer",
    "informer-core",
    "informer-log",
    "informer-serving",
    "informer-testing",
    "object-rules",
    "watch-cache",
];

/// The packages of the workspace that have no `publish = false`, by name.
fn published(metadata: &Value) -> BTreeMap<&str, &Value> {
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let ours = packages.filter(|package| package["source"].is_null() && package["publish"].is_null());
    ours.map(|package| (text(&package["name"]), package)).collect()
}

/// Goal: the pages of a registry and of docs.rs are complete. Method: the manifest's fields, and the files beside it.
#[test]
fn published_crates_say_what_they_are() {
    let metadata = metadata();
    let published = published(&metadata);
    assert!(published.keys().eq(PUBLISHED), "{:?}", published.keys());
    let license = fs::read_to_string(root().join("LICENSE")).expect("the license");
    // Null until the repository has a public address.
    let repository = published["informer"]["repository"].clone();
    for (name, package) in published {
        for field in ["description", "documentation", "readme", "license", "rust_version"] {
            assert!(package[field].is_string(), "{name} has no {field}");
        }
        for field in ["keywords", "categories"] {
            let values = package[field].as_array().expect("a list");
            assert!((1..=5).contains(&values.len()), "{name} has {} {field}", values.len());
        }
        assert!(text(&package["description"]).len() <= 1000, "the registry refuses the description of {name}");
        for keyword in package["keywords"].as_array().expect("a list") {
            assert!(is_keyword(text(keyword)), "the registry refuses the keyword {keyword} of {name}");
        }
        assert_eq!(package["license"], "Apache-2.0", "{name}");
        assert_eq!(package["repository"], repository, "{name} has another repository than the others");
        let folder = Path::new(text(&package["manifest_path"])).parent().expect("a folder");
        let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read("LICENSE"), license, "{name}");
        let rust = format!("Needs Rust {}", text(&package["rust_version"]));
        assert!(read("README.md").contains(&rust), "README.md of {name} does not say: {rust}");
    }
}

/// True if crates.io takes this keyword.
fn is_keyword(keyword: &str) -> bool {
    let inner = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '+');
    keyword.len() <= 20
        && keyword.starts_with(|first: char| first.is_ascii_alphanumeric())
        && keyword.chars().all(inner)
}

/// Goal: no crate promises an older Rust than its dependencies need. Method: compare `rust-version` of all crates that a
/// build of it on this platform needs.
#[test]
fn dependencies_need_no_newer_rust_than_their_users_promise() {
    // Without the TLS backends that are off by default: OpenSSL's needs a newer Rust than the SDK.
    let metadata = super::cargo::metadata(&[]);
    let packages = metadata["packages"].as_array().expect("packages");
    let by_id: BTreeMap<&str, &Value> = packages.iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().expect("nodes");
    let needs: BTreeMap<&str, Vec<&str>> = nodes.iter().map(|node| (text(&node["id"]), built_with(node))).collect();
    for (name, package) in published(&metadata) {
        let promised = rust(package).expect("published crates have a rust-version");
        let (mut open, mut seen) = (vec![text(&package["id"])], Vec::new());
        while let Some(id) = open.pop() {
            if !seen.contains(&id) {
                seen.push(id);
                let needed = rust(by_id[id]);
                let id_text = text(&by_id[id]["name"]);
                assert!(
                    needed.is_none_or(|needed| needed <= promised),
                    "{name} needs {id_text}, which needs {needed:?}"
                );
                // Only the feature `writes` brings this arrow, and docs/semver.md says what that needs.
                let has_arrow = by_id[id]["name"] == "informer-testing";
                open.extend(needs[id].iter().filter(|need| !has_arrow || by_id[*need]["name"] != "api-rules"));
            }
        }
        assert!(seen.len() > 3, "the tree of {name} was read");
    }
}

/// The dependencies of a node without those of its tests.
fn built_with(node: &Value) -> Vec<&str> {
    let is_built = |kinds: &Value| kinds.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] != "dev"));
    let deps = node["deps"].as_array().expect("dependencies").iter();
    deps.filter(|dep| is_built(&dep["dep_kinds"])).map(|dep| text(&dep["pkg"])).collect()
}

/// The oldest Rust that a package promises to build with: its minor version.
fn rust(package: &Value) -> Option<u32> {
    let version = package["rust_version"].as_str()?;
    version.split('.').nth(1)?.parse().ok()
}
