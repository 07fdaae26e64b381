//! Checks `docs/features.md` and `docs/security.md`: the tests and commands that they name exist.

use std::{collections::BTreeSet, fs};

use super::{cargo::root, first_name, sources};

/// Goal: each feature is proven by a test that runs. Method: see [`assert_tests_exist`].
#[test]
fn features_have_tests_that_exist() {
    assert_tests_exist("docs/features.md", "| feature |", 40);
}

/// Goal: each line of the threat model is held by a test. Method: see [`assert_tests_exist`].
#[test]
fn threats_have_tests_that_exist() {
    assert_tests_exist("docs/security.md", "| who |", 15);
}

/// Looks for the names in code style of each row's last cell among the test functions of all sources, the files of
/// `.ci` and the parts of `.ci/nightly`. The page has at least so many rows, besides those that begin with `head`.
fn assert_tests_exist(page: &str, head: &str, rows_min: usize) {
    let page = fs::read_to_string(root().join(page)).expect("the page");
    let nightly = fs::read_to_string(root().join(".ci/nightly")).expect("the nightly run");
    let tests = test_names();
    let is_there = |name: &str| match name.split_once(' ') {
        Some((".ci/nightly", part)) => nightly.contains(&format!("\npart_{part}() {{")),
        Some(_) => false,
        None if name.starts_with(".ci/") => root().join(name).is_file(),
        None => tests.contains(name),
    };
    let rows = page.lines().filter(|line| line.starts_with("| ")).filter(|line| !line.starts_with("| --- "));
    let rows: Vec<&str> = rows.filter(|line| !line.starts_with(head)).collect();
    assert!(rows.len() >= rows_min, "{} rows were read", rows.len());
    let mut wrong = Vec::new();
    for row in rows {
        let cell = row.trim_end_matches('|').rsplit(" | ").next().expect("a last cell");
        // Between backticks are the names; beside them commas.
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            wrong.push(format!("no test is named in: {row}"));
        }
        wrong.extend(names.iter().filter(|name| !is_there(name)).map(|name| format!("{name} does not exist")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The functions that follow `#[test]` or `#[tokio::test…]` in all sources. Ignored tests are left out.
fn test_names() -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let source = fs::read_to_string(&file).expect("a readable file");
        let mut is_test = false;
        for line in source.lines().map(str::trim_start) {
            if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                is_test = true;
            } else if line.starts_with("#[ignore") {
                is_test = false;
            } else if let Some(name) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")) {
                if is_test {
                    names.insert(first_name(name));
                }
                is_test = false;
            }
        }
    }
    assert!(names.len() > 1_000, "{} tests were found", names.len());
    names
}
