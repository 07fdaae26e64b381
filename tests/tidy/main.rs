//! Checks the rules of `ARCHITECTURE.md` and `CONTRIBUTING.md`: arrows between crates, pure cores, one unsafe block,
//! short files, and the words and lines of comments and pages.

mod api;
mod cargo;
mod features;
mod generated;
mod layers;
mod limits;
mod pages;
mod published;
mod workspaces;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use cargo::root;

/// The allowed dependencies between our crates. A new one needs a decision in `docs/adr/`.
const ARROWS: &[(&str, &[&str])] = &[
    ("informer-core", &[]),
    ("informer-log", &[]),
    ("informer-serving", &["informer-core"]),
    ("informer-testing", &["api-rules", "informer-core", "informer-serving"]),
    ("informer", &["informer-core", "informer-log", "informer-testing"]),
    ("watch-cache", &["informer-core", "informer-serving"]),
    ("api-rules", &["informer-core", "informer-serving", "watch-cache"]),
    ("object-rules", &["api-rules", "informer-serving"]),
    ("access-rules", &["informer-core", "informer-serving"]),
    (
        "cache-server-caches",
        &["access-rules", "api-rules", "informer-core", "informer-log", "informer-serving", "watch-cache"],
    ),
    ("cache-server-stores", &["api-rules", "cache-server-caches", "informer-core", "watch-cache"]),
    (
        "cache-server-upstream",
        &[
            "access-rules",
            "cache-server-caches",
            "cache-server-stores",
            "informer",
            "informer-core",
            "informer-serving",
            "watch-cache",
        ],
    ),
    (
        "cache-server-admission",
        &[
            "access-rules",
            "api-rules",
            "cache-server-caches",
            "cache-server-upstream",
            "informer-core",
            "informer-serving",
            "watch-cache",
        ],
    ),
    ("cache-server-wire", &["access-rules", "cache-server-caches", "watch-cache"]),
    ("cache-server-controllers", &["api-rules", "cache-server-caches", "informer-core", "watch-cache"]),
    ("cache-server-top", &[]),
    ("cache-server-workload", &["api-rules", "cache-server-caches", "informer-core", "informer-serving"]),
    (
        "cache-server",
        &[
            "access-rules",
            "api-rules",
            "cache-server-admission",
            "cache-server-caches",
            "cache-server-controllers",
            "cache-server-stores",
            "cache-server-top",
            "cache-server-upstream",
            "cache-server-wire",
            "cache-server-workload",
            "informer-core",
            "informer-serving",
            "object-rules",
            "watch-cache",
        ],
    ),
    ("examples", &["cache-server", "informer", "informer-core"]),
    ("example-controller", &["cache-server", "informer"]),
    ("tidy", &[]),
    ("tests", &["cache-server", "cache-server-top", "informer", "informer-core", "informer-serving", "watch-cache"]),
    ("counts", &["cache-server", "informer-core", "informer-serving", "watch-cache"]),
    ("benches", &["cache-server", "informer", "informer-core", "informer-serving", "watch-cache"]),
    ("rivals", &["cache-server", "examples", "informer", "informer-core"]),
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
    let (metadata, benches) = (metadata(), cargo::packages_of("benches"));
    let ours: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let packages = [&metadata, &benches].map(|metadata| metadata["packages"].as_array().expect("packages"));
    for package in packages.into_iter().flatten() {
        let Some((name, allowed)) = ARROWS.iter().find(|(name, _)| *name == package["name"]) else { continue };
        let needs = package["dependencies"].as_array().expect("dependencies").iter();
        let needs = needs.map(|dep| text(&dep["name"])).filter(|dep| ours.contains(dep));
        for dep in needs {
            assert!(allowed.contains(&dep), "{name} must not know {dep}: write an ADR first");
        }
    }
}

#[test]
fn a_client_carries_no_server() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let informer = packages.iter().find(|package| package["name"] == "informer").expect("in the workspace");
    let mut needs = informer["dependencies"].as_array().expect("dependencies").iter();
    let is_testing = |dep: &&Value| dep["name"] == "informer-testing" && dep["kind"].is_null();
    let testing = needs.find(is_testing).expect("the feature `testing` needs it");
    assert_eq!(testing["optional"], true, "only the feature `testing` brings the fake API server");
}

/// Goal: a server of its own objects carries and waits for no client of a cluster, and for no schemas. Method: the crates of a build with
/// `embedded` alone.
#[test]
fn a_server_of_its_own_objects_carries_no_client() {
    let crates = cargo::crates_of("cache-server", "embedded");
    assert!(crates.contains("cache-server-stores"), "{crates:?}");
    for absent in ["informer", "kube", "k8s-openapi", "object-rules", "ratatui", "regex"] {
        assert!(
            !crates.contains(absent),
            "{absent} is needed by `cargo build --no-default-features --features embedded`"
        );
    }
}

/// Goal: a cache in front of a cluster carries no storage and no schemas. Method: the crates of a build with `upstream` alone.
#[test]
fn a_cache_in_front_of_a_cluster_carries_no_storage() {
    let crates = cargo::crates_of("cache-server", "upstream");
    assert!(crates.contains("cache-server-upstream"), "{crates:?}");
    for absent in
        ["cache-server-stores", "cache-server-top", "cache-server-workload", "object-rules", "redb", "tonic", "prost"]
    {
        assert!(
            !crates.contains(absent),
            "{absent} is needed by `cargo build --no-default-features --features upstream`"
        );
    }
}

#[test]
fn a_server_without_traces_carries_no_crate_for_them() {
    let crates = cargo::crates_of("cache-server", "default");
    assert!(crates.contains("tonic") && !crates.iter().any(|name| name.starts_with("opentelemetry")), "{crates:?}");
}

#[test]
fn cores_know_no_task_socket_or_clock() {
    let metadata = metadata();
    let (names, needs) = graph(&metadata);
    // jiff computes deletion times; `the_rules_of_the_api_read_no_clock` checks that nothing asks it for the time. The reader
    // of YAML logs.
    let cores = [
        ("informer-core", &[][..]),
        ("informer-serving", &[]),
        ("watch-cache", &[]),
        ("api-rules", &["jiff", "log"]),
        ("object-rules", &["jiff", "log"]),
        ("access-rules", &["log"]),
    ];
    for (core, allowed) in cores {
        let mut open: Vec<&str> = names.iter().filter(|(_, name)| **name == core).map(|(id, _)| *id).collect();
        assert_eq!(open.len(), 1, "{core} is in the workspace");
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                let name = names[id];
                assert!(
                    allowed.contains(&name) || !FORBIDDEN_IN_CORES.contains(&name),
                    "{core} came to depend on {name}"
                );
                open.extend(&needs[id]);
            }
        }
        assert!(seen.len() > 3, "the tree of {core} was read");
    }
}

#[test]
fn the_rules_of_the_api_read_no_clock() {
    let mut files = Vec::new();
    for folder in ["cache-server/api/src", "cache-server/objects/src"] {
        sources(&root().join(folder), &mut files);
    }
    assert!(files.len() > 60);
    for file in files.iter().filter(|file| !file.components().any(|part| part.as_os_str() == "tests")) {
        let source = fs::read_to_string(file).expect("a readable file");
        for clock in ["::now()", "SystemTime", "Instant::"] {
            assert!(!without_tests(&source).contains(clock), "{} reads a clock: {clock}", file.display());
        }
    }
}

/// A source without the module of tests at its end.
fn without_tests(source: &str) -> &str {
    source.split("#[cfg(test)]\nmod tests {").next().expect("a first part")
}

/// The first names behind `crate::`, in paths and in groups of `use`. Comments are left out.
fn used_modules(code: &str) -> BTreeSet<String> {
    let code: String =
        code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            found.insert(first_name(rest));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, letter) in group.char_indices() {
            match letter {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                _ if begins && !letter.is_whitespace() => {
                    found.insert(first_name(&group[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    found
}

fn first_name(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect()
}

/// Goal: our programs and tests have one TLS provider; the others are for users of the SDK. Method: the tree of default
/// features.
#[test]
fn one_tls_provider() {
    let metadata = cargo::metadata(&[]);
    let (names, needs) = graph(&metadata);
    assert!(needs.len() > 100);
    let built: BTreeSet<&str> = needs.keys().map(|id| names[id]).collect();
    for denied in ["aws-lc-sys", "openssl-sys"] {
        assert!(!built.contains(denied), "{denied} came into the tree");
    }
}

/// Goal: every example in a page is compiled. Method: crates without doc tests have no blocks of code.
#[test]
fn crates_without_doc_tests_have_no_examples() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let ours = packages.filter(|package| ARROWS.iter().any(|(name, _)| package["name"] == *name));
    let targets = ours.flat_map(|package| package["targets"].as_array().expect("targets"));
    let is_library = |target: &&Value| target["kind"][0] == "lib" && target["doctest"] == false;
    let mut files = Vec::new();
    for target in targets.filter(is_library) {
        sources(Path::new(text(&target["src_path"])).parent().expect("a folder"), &mut files);
    }
    assert!(files.len() > 100);
    for file in files {
        let source = fs::read_to_string(&file).expect("a readable file");
        let has_block = source.lines().any(|line| ["//! ```", "/// ```"].contains(&line.trim()));
        assert!(!has_block, "{} has an example: its crate needs `doctest = true`", file.display());
    }
}

/// Goal: a command that selects a suite runs it; a filter without a match would run nothing and pass. Method: the words
/// after `--test` are a binary and, below its folder, a file.
#[test]
fn commands_select_suites_that_exist() {
    let mut commands = 0;
    for page in [".ci/nightly", "CONTRIBUTING.md"] {
        let page = fs::read_to_string(root().join(page)).expect("a readable file");
        for command in page.split("--test ").skip(1) {
            let mut words = command.split(|letter: char| !letter.is_alphanumeric() && !"_-".contains(letter));
            let (binary, suite) = (words.next().expect("a name"), words.next().unwrap_or_default());
            let mut files = Vec::new();
            let folder = ["tests/tests", "tests", "informer/tests"].map(|folder| root().join(folder).join(binary));
            let folder = folder.into_iter().find(|folder| folder.join("main.rs").is_file());
            sources(&folder.unwrap_or_else(|| panic!("there is no test binary {binary}")), &mut files);
            let is_there = files.iter().any(|file| file.file_stem().is_some_and(|name| name == suite));
            assert!(is_there || suite.is_empty() || suite == "--", "{binary} has no suite {suite}");
            commands += 1;
        }
    }
    assert!(commands > 12, "{commands}");
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    files(folder, "rs", found);
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|ending| ending == extension) {
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

/// Crates whose type names are compared.
const NAMED_CRATES: &[&str] = &[
    "informer",
    "informer/core",
    "informer/log",
    "informer/serving",
    "informer/testing",
    "cache-server",
    "cache-server/core",
    "cache-server/api",
    "cache-server/objects",
    "cache-server/access",
    "cache-server/caches",
    "cache-server/controllers",
    "cache-server/stores",
    "cache-server/upstream",
    "cache-server/workload",
    "cache-server/admission",
    "cache-server/wire",
    "cache-server/top",
];

/// Type names that more than one file defines, per thousand names. May only fall; `.ci/names` lists them.
const REPEATED_NAMES_PER_MILLE_MAX: usize = 12;

/// Words that name nothing by themselves, besides those in "-ed" and "-ing".
const NO_NOUNS: &[&str] = &[
    "Again", "Ahead", "Began", "Begins", "Begun", "Behind", "Broken", "Done", "Found", "Frozen", "Gone", "Held", "How",
    "Kept", "Known", "Last", "Lost", "Made", "Met", "Next", "Of", "Past", "Rest", "Said", "Seen", "Sent", "Shown",
    "Spent", "Taken", "Told", "Unknown", "Unread", "Untold", "What", "When", "Where", "Whether", "Which", "Who",
    "Whose", "Why", "Written", "Wrote",
];

/// Nouns in "-ed" and "-ing".
const NOUNS: &[&str] = &["Encoding", "Ending", "Listing", "Posting", "Ring", "Seed"];

/// Goal: a type's name names its thing without its module, and leads to one place. Method: the definitions in all code
/// but tests.
#[test]
fn type_names_are_used_once() {
    let types = type_names();
    assert!(types.len() > 500);
    let repeated: Vec<&str> =
        types.iter().filter(|(_, files)| files.len() > 1).map(|(name, _)| name.as_str()).collect();
    assert!(
        repeated.len() * 1000 <= REPEATED_NAMES_PER_MILLE_MAX * types.len(),
        "{} of {} type names are defined in more than one file: {repeated:?}",
        repeated.len(),
        types.len()
    );
    let bare: Vec<&str> = types.keys().map(String::as_str).filter(|name| is_bare(name)).collect();
    assert!(bare.is_empty(), "a type is named by a noun, and these are none: {bare:?}");
}

/// Names of other modules, for builds without them.
const ABSENT: [&str; 5] = [
    "cache-server/upstream/src/absent.rs",
    "cache-server/src/app/network/absent.rs",
    "cache-server/src/traces/absent.rs",
    "cache-server/src/webhooks/absent.rs",
    "cache-server/src/write/webhooks/absent.rs",
];

/// The files that define each type name, without tests and [`ABSENT`].
fn type_names() -> BTreeMap<String, BTreeSet<PathBuf>> {
    let mut found = BTreeMap::<String, BTreeSet<PathBuf>>::new();
    for name in NAMED_CRATES {
        let folder = root().join(name).join("src");
        let mut files = Vec::new();
        sources(&folder, &mut files);
        for file in files {
            let path = file.strip_prefix(&folder).expect("it lies there").to_str().expect("a plain name");
            if ABSENT.iter().any(|absent| file.ends_with(absent)) || path.split(['/', '.']).any(|part| part == "tests")
            {
                continue;
            }
            let source = fs::read_to_string(&file).expect("a readable file");
            let code = source.split("#[cfg(test)]\nmod tests {").next().expect("a first part");
            for name in code.lines().filter_map(defined_type) {
                found.entry(name).or_default().insert(file.clone());
            }
        }
    }
    found
}

/// The name of the type that a line defines. Indented aliases are associated types.
fn defined_type(line: &str) -> Option<String> {
    let text = line.trim_start();
    let is_indented = text.len() < line.len();
    let scoped = || text.strip_prefix("pub(")?.split_once(") ").map(|(_, rest)| rest);
    let text = text.strip_prefix("pub ").or_else(scoped).unwrap_or(text);
    let (keyword, rest) = text.split_once(' ')?;
    let is_type = matches!(keyword, "struct" | "enum" | "trait" | "union") || (keyword == "type" && !is_indented);
    is_type.then(|| first_name(rest))
}

/// Returns true for a name of one word that is a participle, a question word or a preposition.
fn is_bare(name: &str) -> bool {
    let is_one_word = name.chars().filter(|letter| letter.is_uppercase()).count() == 1;
    let is_participle = (name.ends_with("ed") || name.ends_with("ing")) && !NOUNS.contains(&name);
    is_one_word && (is_participle || NO_NOUNS.contains(&name))
}

/// Words without an actor. `CONTRIBUTING.md` lists replacements.
const OLD_WORDS: &[&str] = &["somebody", "nobody", "everybody", "whoever"];

/// Beginnings of sentences without a subject; questions may have them.
const HEADLESS: &[&str] = &["What ", "Who ", "Whoever "];

/// Goal: comments and pages use the field's words. Method: every sentence of every comment and page, without code.
#[test]
fn prose_uses_the_fields_words() {
    let (mut all, mut wrong) = (Vec::new(), Vec::new());
    sources(&root(), &mut all);
    files(&root(), "md", &mut all);
    for file in all.iter().filter(|file| !file.ends_with("CHANGELOG.md")) {
        let text = fs::read_to_string(file).expect("a readable file");
        let is_source = file.extension().is_some_and(|extension| extension == "rs");
        for sentence in paragraphs(&text, is_source).iter().flat_map(|paragraph| sentences(paragraph)) {
            if is_dialect(&sentence) {
                wrong.push(format!("{}: {sentence}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} sentences to rewrite:\n{}", wrong.len(), wrong.join("\n"));
}

fn is_dialect(sentence: &str) -> bool {
    let is_headless = HEADLESS.iter().any(|beginning| sentence.starts_with(beginning)) && !sentence.ends_with('?');
    let lower = sentence.to_lowercase();
    let mut words = lower.split(|letter: char| !letter.is_alphabetic());
    is_headless || words.any(|word| OLD_WORDS.contains(&word))
}

/// Paragraphs, list items and cells of a page, or of the comments of a source, without blocks of code.
fn paragraphs(text: &str, is_source: bool) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut is_code = false;
    for line in text.lines() {
        let (line, is_beside) = if is_source { comment(line) } else { (line.trim(), false) };
        if line.starts_with("```") {
            is_code = !is_code;
            continue;
        }
        let begins = is_beside || ["#", "- ", "|"].iter().any(|mark| line.starts_with(mark));
        if begins || is_code || line.is_empty() {
            found.push(String::new());
        }
        if is_code {
            continue;
        }
        let cells: Vec<&str> = if line.starts_with('|') { line.split('|').collect() } else { vec![line] };
        for (number, cell) in cells.into_iter().enumerate() {
            if number > 0 {
                found.push(String::new());
            }
            if let Some(paragraph) = found.last_mut() {
                paragraph.push_str(cell);
                paragraph.push(' ');
            }
        }
    }
    found
}

/// The comment of a line, empty if there is none, and whether code stands before it.
fn comment(line: &str) -> (&str, bool) {
    let line = line.trim();
    if let Some(text) = line.strip_prefix("//") {
        return (text.trim_start_matches(['/', '!']).trim(), false);
    }
    match line.split_once(" // ") {
        // An odd number of quotes before it: it is part of a string.
        Some((code, text)) if code.matches('"').count() % 2 == 0 => (text.trim(), true),
        Some(_) | None => ("", false),
    }
}

/// The sentences of a paragraph, each without what precedes its first letter, and with one word in place of code.
fn sentences(paragraph: &str) -> Vec<String> {
    let text = paragraph.split('`').step_by(2).collect::<Vec<_>>().join("code");
    let sentences = text.split_inclusive(['.', '?', '!']);
    sentences.map(|sentence| sentence.trim_matches([' ', '#', '-', '*', '"', '(']).to_owned()).collect()
}

#[test]
fn decisions_have_the_numbers_of_their_files() {
    let mut files: Vec<PathBuf> =
        fs::read_dir(root().join("docs/adr")).expect("decisions").map(|file| file.expect("an entry").path()).collect();
    files.sort();
    let mut last = 0;
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let text = fs::read_to_string(&file).expect("a readable decision");
        let number: u32 = name.split('-').next().and_then(|number| number.parse().ok()).unwrap_or_default();
        // Changes that are made side by side take their numbers in advance, so one may be left out.
        let is_next = last < number && name.starts_with(&format!("{number:04}-"));
        assert!(is_next && text.starts_with(&format!("# {number}. ")), "{name} follows decision {last}");
        last = number;
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
        .filter(|file| !file.ends_with("tests/tidy/main.rs"))
        .flat_map(|file| {
            let count = fs::read_to_string(file).expect("a readable file").matches(keyword).count();
            std::iter::repeat_n(file.display().to_string(), count)
        })
        .collect();
    assert!(holding.len() == 1 && holding[0].ends_with("cache-server/src/allocator.rs"), "{holding:?}");
}
