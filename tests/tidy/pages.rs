//! Checks the pages: short lines and cells, links that lead somewhere, log lines with a meaning, and the README's commands.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{cargo::root, files, sources};

/// Columns of a page's line. Rows of tables, blocks of code, and words that cannot be broken may be longer.
const PAGE_COLUMNS_MAX: usize = 120;

/// Words in a cell of a table.
const CELL_WORDS_MAX: usize = 30;

/// Pages whose long lines a program of `benches` writes.
const WRITTEN_PAGES: &[&str] = &["docs/benchmarks/README.md", "docs/benchmarks/upstream.md"];

/// Goal: pages are read in an editor, and rows at a glance. Method: the lines and cells of every page.
#[test]
fn pages_have_short_lines_and_cells() {
    let mut wrong = Vec::new();
    for page in pages().iter().filter(|page| !WRITTEN_PAGES.iter().any(|written| page.ends_with(written))) {
        let text = fs::read_to_string(page).expect("a readable file");
        let mut is_code = false;
        for (number, line) in (1..).zip(text.lines()) {
            is_code ^= line.trim_start().starts_with("```");
            if !is_code && is_long(line) {
                wrong.push(format!("{}:{number}: {line}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} lines are too long:\n{}", wrong.len(), wrong.join("\n"));
}

fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    files(&root(), "md", &mut pages);
    assert!(pages.len() > 60, "{} pages were found", pages.len());
    pages
}

/// Returns true for a row with a long cell, and for another line that could be broken within the columns.
fn is_long(line: &str) -> bool {
    if line.starts_with('|') {
        return line.split('|').any(|cell| CELL_WORDS_MAX < cell.split_whitespace().count());
    }
    let may_be_broken = !line.starts_with("![") && line.trim_start_matches(['#', '-', ' ']).contains(' ');
    may_be_broken && PAGE_COLUMNS_MAX < line.chars().count()
}

/// Goal: a reader gets where a link points to. Method: the file of each relative link of a page exists.
#[test]
fn links_lead_to_files() {
    let mut wrong = Vec::new();
    // The notes become a part of pages in another folder, and these links to pages are followed there.
    let is_included =
        |page: &Path| page.ends_with("benches/notes.md") || page.starts_with(root().join("informer/docs"));
    for page in pages().iter().filter(|page| !is_included(page)) {
        let text = fs::read_to_string(page).expect("a readable file");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next()) {
            let is_relative = !link.is_empty() && !link.contains(':');
            if is_relative && !page.with_file_name(link).exists() {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Goal: an operator finds each line of the log. Method: the messages of both programs, beside the names of the page.
#[test]
fn log_lines_have_a_meaning() {
    let page = fs::read_to_string(root().join("docs/logs.md")).expect("the page");
    let mut all = Vec::new();
    for folder in ["informer", "cache-server"] {
        sources(&root().join(folder), &mut all);
    }
    let is_test =
        |path: &Path| path.components().any(|part| ["tests", "tests.rs"].iter().any(|name| part.as_os_str() == *name));
    let mut missing = BTreeSet::new();
    let mut count = 0;
    for file in all.iter().filter(|file| !is_test(file)) {
        let source = fs::read_to_string(file).expect("a readable file");
        let code = source.split("#[cfg(test)]\nmod tests {").next().expect("a first part");
        for level in ["tracing::error!(", "tracing::warn!(", "tracing::info!(", "tracing::debug!("] {
            let events = code.split(level).skip(1);
            for message in events.filter_map(message) {
                count += 1;
                if !page.contains(&format!("`{message}`")) {
                    missing.insert(message.to_owned());
                }
            }
        }
    }
    assert!(count > 100, "{count} events were found");
    assert!(missing.is_empty(), "docs/logs.md lacks: {missing:#?}");
}

/// The message of an event: the last text of its arguments, if nothing is put into it.
fn message(rest: &str) -> Option<&str> {
    let arguments = rest.split(");").next()?;
    let message = arguments.trim_end().trim_end_matches(',').strip_suffix('"')?.rsplit('"').next()?;
    (!message.contains(['{', '\n'])).then_some(message)
}

/// The gate runs the README's second command. The nightly run reads both from the README's first block of shell.
#[test]
fn the_readmes_commands_are_run() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let readme = read("README.md");
    let block = readme.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a block of shell");
    let commands: Vec<&str> = block.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).collect();
    assert_eq!(commands, ["cargo run --release -p examples --example memory-compare", "cargo test --workspace"]);
    assert!(read(".ci/run").lines().any(|line| line.starts_with(commands[1])), "the gate runs {}", commands[1]);
    let program =
        readme.split("```rust,ignore\n").nth(1).and_then(|rest| rest.split("\n```").next()).expect("a program");
    let compiled = read("tests/src/lib.rs");
    for line in program.lines() {
        assert!(compiled.contains(&format!("/// {line}\n")), "tests/src/lib.rs compiles: {line}");
    }
    let nightly = read(".ci/nightly");
    for part in ["README.md |", "part_fresh()", "part_fresh_busy()"] {
        assert!(nightly.contains(part), "the nightly run has {part}");
    }
}
