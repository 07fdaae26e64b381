//! Writes the page and the raw numbers, and prints the table.

use std::{fmt::Write as _, fs, path::Path};

use super::{CaseResult, Failure, UpstreamReport};
use crate::numbers::page;

const NUMBERS: &str = "upstream.json";
const PAGE: &str = "upstream.md";
/// Section of the notes that is always shown. The notes on a case's misses are in a section `upstream-CASE`.
const NOTES: &str = "upstream";

/// Reads the raw numbers of an earlier run.
pub(super) fn read(folder: &Path) -> Result<UpstreamReport, Failure> {
    Ok(serde_json::from_str(&fs::read_to_string(folder.join(NUMBERS))?)?)
}

/// Writes both files into a folder.
pub(super) fn write(folder: &Path, report: &UpstreamReport) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(NUMBERS), serde_json::to_string_pretty(report)? + "\n")?;
    fs::write(folder.join(PAGE), text(report, page::NOTES))?;
    Ok(())
}

/// Prints the rows of a case.
#[expect(clippy::print_stdout, reason = "the report is what the program is for")]
pub(super) fn print(result: &CaseResult) {
    let CaseResult { name, seconds, problem, rows, .. } = result;
    println!("{name} took {seconds:.0} s");
    for row in rows {
        let [what, unit, target, with_us, alone] = row.cells();
        println!("{name}: {what}: {with_us} {unit} (target: {target}; kube-apiserver alone: {alone})");
    }
    if let Some(problem) = problem {
        println!("{name}: FAILED: {problem}");
    }
}

fn text(report: &UpstreamReport, notes: &str) -> String {
    let UpstreamReport { command, machine, versions, cases } = report;
    let mut text = String::from(
        "<!-- Written by the command below; what people add stands in benches/notes.md. -->\n\n# In front of a cluster: the numbers\n\n",
    );
    let _ = writeln!(text, "```sh\n{command}\n```\n");
    text.push_str(&page::machine(machine));
    let _ = writeln!(text, "Versions: {}.\n", versions.join("; "));
    text.push_str(&others(report));
    if let Some(general) = page::section(notes, NOTES) {
        let _ = writeln!(text, "{general}\n");
    }
    text.push_str("| case | what | unit | target | with us | kube-apiserver alone |\n");
    text.push_str("| --- | --- | --- | ---: | ---: | ---: |\n");
    for CaseResult { name, rows, .. } in cases {
        for (place, row) in rows.iter().enumerate() {
            let case = if place == 0 { name } else { "" };
            let _ = writeln!(text, "| {case} | {} |", row.cells().join(" | "));
        }
        if rows.is_empty() {
            let _ = writeln!(text, "| {name} | | | | **failed** | |");
        }
    }
    text.push_str(&misses(cases, notes));
    let _ = writeln!(
        text,
        "\n`--row CASE` measures one again. [upstream.json](upstream.json) has each case's method and date."
    );
    text
}

/// The cases of other days and versions than most.
fn others(report: &UpstreamReport) -> String {
    let is_other = |case: &&CaseResult| {
        case.date != report.machine.date || !case.versions.is_empty() && case.versions != report.versions
    };
    let names = report.cases.iter().filter(is_other).map(|case| {
        let about: Vec<&str> = std::iter::once(&*case.date).chain(case.versions.iter().map(String::as_str)).collect();
        format!("- {}: {}\n", case.name, about.join("; "))
    });
    let names: String = names.collect();
    if names.is_empty() { names } else { format!("Measured in other runs of the program:\n\n{names}\n") }
}

/// The cases that missed a target, with their notes.
fn misses(cases: &[CaseResult], notes: &str) -> String {
    let mut text = String::from("\n## Misses\n");
    let missed: Vec<&CaseResult> = cases.iter().filter(|case| !case.holds()).collect();
    if missed.is_empty() {
        text.push_str("\nNone in this run.\n");
    }
    for CaseResult { name, rows, problem, .. } in missed {
        let lines: Vec<String> = rows.iter().filter_map(|row| row.miss()).chain(problem.clone()).collect();
        let _ = writeln!(text, "\n**{name}**. {}.", lines.join("; "));
        let note = page::section(notes, &format!("{NOTES}-{name}")).unwrap_or("Not explained yet.");
        let _ = writeln!(text, "{note}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{case::Unit, machine, upstream::row::SideRow};

    fn report(name: &str, value: f64) -> UpstreamReport {
        let row = SideRow::new("time", Unit::Seconds, value, 30.0).at_most(15.0);
        let case = CaseResult {
            name: name.to_owned(),
            method: "it starts".to_owned(),
            date: "2026-11-22".to_owned(),
            versions: vec!["Kubernetes v1.36.0".to_owned()],
            seconds: 3.0,
            problem: None,
            rows: vec![row],
        };
        UpstreamReport {
            command: "numbers --upstream".to_owned(),
            machine: machine::describe(),
            versions: vec!["Kubernetes v1.36.0".to_owned()],
            cases: vec![case],
        }
    }

    const TEXT: &str = "# Notes\n\n## upstream\n\nRead it so.\n\n## upstream-start\n\nToo many pods.\n";

    #[test]
    fn a_miss_is_shown_with_its_note() {
        let page = text(&report("start", 20.0), TEXT);
        assert!(page.contains("Read it so."), "{page}");
        assert!(page.contains("| start | time | s | ≤ 15 | **20** missed | 30 |"), "{page}");
        assert!(page.contains("**start**. time: 20 s, target ≤ 15.\nToo many pods."), "{page}");
        assert!(text(&report("start", 10.0), TEXT).contains("None in this run."));
    }

    #[test]
    fn cases_of_other_versions_are_named() {
        let mut report = report("start", 10.0);
        report.machine.date = "2026-11-22".to_owned();
        assert!(!text(&report, TEXT).contains("other runs"));
        report.cases[0].versions = vec!["Kubernetes v1.37.0".to_owned()];
        assert!(text(&report, TEXT).contains("- start: 2026-11-22; Kubernetes v1.37.0"));
    }

    #[test]
    fn a_repeated_case_replaces_its_earlier_result() {
        let folder = tempfile::tempdir().unwrap();
        let mut earlier = report("start", 20.0);
        earlier.cases.extend(report("reads", 9.0).cases);
        write(folder.path(), &earlier).unwrap();
        let mut again = report("start", 10.0);
        again.keep(read(folder.path()).unwrap());
        let names: Vec<&str> = again.cases.iter().map(|case| &*case.name).collect();
        assert_eq!(names, ["start", "reads"]);
        assert!(again.holds());
    }
}
