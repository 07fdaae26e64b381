//! Checks the order of the folders of the server's crates and of the SDK, and its drawing in `ARCHITECTURE.md`.

use std::fs;

use super::{cargo::root, sources, used_modules, without_tests};

/// The crates of the server from the lowest, each with its folders and files, lowest first: each knows only those before
/// it.
const LAYERS: &[(&str, &[&str])] = &[
    (
        "cache-server/caches",
        &[
            "clock",
            "ids",
            "limits",
            "term",
            "supervised",
            "watched",
            "config",
            "registry",
            "route",
            "storage",
            "coalesced",
            "cacher",
            "stored",
            "settled",
            "passes",
            "budget",
            "shares",
            "status",
        ],
    ),
    ("cache-server/stores", &["embedded", "durable", "etcd", "hooked", "faulty", "backup"]),
    ("cache-server/controllers", &["namespaces", "leftovers", "definitions"]),
    ("cache-server/workload", &["populate", "client", "churn"]),
    (
        "cache-server/upstream",
        &[
            "key",
            "last_answer",
            "error",
            "connect",
            "answers",
            "frequent",
            "identity",
            "own_requests",
            "forward",
            "rights",
            "sender",
            "source",
            "impersonator",
            "gateway",
            "absent",
        ],
    ),
    (
        "cache-server/admission",
        &["metrics", "authenticate", "peer", "audit", "authorize", "flow", "lease", "guard", "testing"],
    ),
    (
        "cache-server/wire",
        &[
            "body",
            "phase",
            "host",
            "origin",
            "flood",
            "own_wakes",
            "addresses",
            "descriptors",
            "listeners",
            "tap",
            "socket",
            "tls",
            "handler",
            "watch_sink",
            "takeover",
            "websocket",
            "tunnel",
            "http1",
            "http2",
            "connection",
            "accept",
        ],
    ),
    ("cache-server/top", &["limits", "exposition", "reading", "grid", "frame", "screen", "draw", "client", "run"]),
    (
        "cache-server",
        &[
            "storage",
            "traces",
            "metrics",
            "webhooks",
            "status",
            "allocator",
            "app",
            "read",
            "request",
            "write",
            "discovery",
            "openapi",
            "http",
            "workload",
            "serve",
            "testing",
            "cli",
        ],
    ),
];

/// The folders and files of `informer/src`, lowest first: each knows only those before it.
const SDK_LAYERS: &[&str] = &[
    "labels",
    "ended",
    "error",
    "config",
    "delays",
    "selectors",
    "resource_kind",
    "selection",
    "transform",
    "stats",
    "status",
    "progress",
    "lease",
    "checkpoint",
    "connection",
    "transport",
    "representation",
    "compression",
    "decode",
    "object_ref",
    "object",
    "index",
    "lifetime",
    "readiness",
    "keep_alive",
    "subscription",
    "store",
    "conditions",
    "shared",
    "cluster",
    "plain",
    "driver",
    "declaration",
    "raw",
    "informer",
    "controller",
    "metrics",
    "adapter",
    "kube1",
    "kube3",
    "kube4",
    "kube5",
    "testing",
    "world",
];

#[test]
fn folders_of_the_server_know_only_lower_ones() {
    for (name, layers) in LAYERS {
        know_only_lower_ones(&format!("{name}/src"), layers);
    }
}

#[test]
fn folders_of_the_sdk_know_only_lower_ones() {
    know_only_lower_ones("informer/src", SDK_LAYERS);
}

/// Goal: no circle between the folders of a crate. Method: names behind `crate::` in all code but tests.
fn know_only_lower_ones(folder: &str, layers: &[&str]) {
    let folder = root().join(folder);
    let mut files = Vec::new();
    sources(&folder, &mut files);
    let rank = |name: &str| layers.iter().position(|layer| *layer == name);
    for file in files {
        let path = file.strip_prefix(&folder).expect("it lies there").to_str().expect("a plain name");
        let is_test = path.split(['/', '.']).any(|part| part == "tests");
        let layer = path.split(['/', '.']).next().expect("a first part");
        if is_test || ["lib", "main"].contains(&layer) {
            continue;
        }
        let own = rank(layer).unwrap_or_else(|| panic!("{path} belongs to no layer: add it to the order"));
        let source = fs::read_to_string(&file).expect("a readable file");
        for used in used_modules(without_tests(&source)) {
            // Names that begin with a capital are items of `lib.rs`.
            let Some(other) = rank(&used) else { continue };
            assert!(other <= own, "{path} must not know {used}, which is above it");
        }
    }
}

/// Goal: the server knows the SDK and kube's client in one crate only. Method: paths in all code but tests.
#[test]
fn only_upstream_knows_the_sdk() {
    let mut files = Vec::new();
    for (name, _) in LAYERS {
        sources(&root().join(name).join("src"), &mut files);
    }
    for file in files {
        let path = file.strip_prefix(root()).expect("it lies there").to_str().expect("a plain name");
        if path.starts_with("cache-server/upstream") || path.split(['/', '.']).any(|part| part == "tests") {
            continue;
        }
        let source = fs::read_to_string(&file).expect("a readable file");
        for line in without_tests(&source).lines().filter_map(|line| line.split("//").next()) {
            let mut words = line.split(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter));
            let known = words.find(|word| word.starts_with("kube::") || word.starts_with("informer::"));
            assert!(known.is_none(), "{path} must not know {known:?}: only `upstream` does");
        }
    }
}

#[test]
fn the_map_draws_the_folders_of_the_server() {
    for (name, layers) in LAYERS {
        is_drawn(layers, &format!("{name}\n"));
    }
}

#[test]
fn the_map_draws_the_folders_of_the_sdk() {
    is_drawn(SDK_LAYERS, "world: ");
}

/// Goal: the drawing in `ARCHITECTURE.md` that begins with `first` is the tree as it is. Method: each folder stands on a
/// line that is not above that of a folder which it may know.
fn is_drawn(layers: &[&str], first: &str) {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let drawing = map.split("```text\n").find(|block| block.starts_with(first)).expect("the drawing");
    let drawing = drawing.split("```").next().expect("a first part");
    let draws = |line: &str, layer: &str| line.split("  ").any(|part| part.trim().split(':').next() == Some(layer));
    let mut above = 0;
    for layer in layers.iter().rev() {
        let line = drawing.lines().position(|line| draws(line, layer));
        let line = line.unwrap_or_else(|| panic!("{layer} is not in the drawing"));
        assert!(above <= line, "{layer} is drawn too high");
        above = line;
    }
}
