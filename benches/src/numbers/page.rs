//! Generates the page from the results, with hand-written notes beside missed targets.

use std::{fmt::Write as _, fs, path::Path};

use super::{
    Failure,
    case::amount,
    curves,
    machine::Machine,
    outcome::{Measured, Outcome, Report},
    picture,
};

/// File name of the raw numbers.
const NUMBERS: &str = "numbers.json";
/// File name of the hand-written notes. Each second-level section is about a case, and shown if that case missed a
/// target.
pub(crate) const NOTES: &str = "notes.md";
/// Section of the notes that is always shown.
const GENERAL: &str = "general";

/// Writes the raw numbers and the graphs into a folder.
pub(crate) fn write_raw(folder: &Path, report: &Report) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(NUMBERS), serde_json::to_string_pretty(report)? + "\n")?;
    for graph in &report.graphs {
        picture::draw(&folder.join(format!("{}.svg", graph.name)), graph)?;
        fs::write(folder.join(format!("{}.json", graph.name)), serde_json::to_string_pretty(graph)? + "\n")?;
    }
    Ok(())
}

/// Writes the page into a folder, with the notes found there.
pub(crate) fn write(folder: &Path, report: &Report) -> Result<(), Failure> {
    let notes = fs::read_to_string(folder.join(NOTES)).unwrap_or_default();
    fs::write(folder.join("README.md"), page(report, &notes))?;
    Ok(())
}

/// Reads the raw numbers and curves of an earlier run.
pub(crate) fn read(folder: Option<&Path>) -> Result<Report, Failure> {
    let folder = folder.ok_or_else(|| Failure::Page("there is no folder to read".to_owned()))?;
    let mut report: Report = serde_json::from_str(&fs::read_to_string(folder.join(NUMBERS))?)?;
    for name in curves::NAMES {
        // A run may have measured some curves only.
        if let Ok(text) = fs::read_to_string(folder.join(format!("{name}.json"))) {
            report.graphs.push(serde_json::from_str(&text)?);
        }
    }
    Ok(report)
}

fn page(report: &Report, notes: &str) -> String {
    let mut page = String::from(
        "<!-- Written by the command below; what people add stands in notes.md. -->\n\n# The server's numbers\n\n",
    );
    let _ = writeln!(page, "```sh\n{}\n```\n", report.command);
    page.push_str(&machine(&report.machine));
    if let Some(general) = section(notes, GENERAL) {
        let _ = writeln!(page, "{general}\n");
    }
    page.push_str(&table(report));
    page.push_str(&misses(report, notes));
    page.push_str(&curves(report));
    page.push_str(&commands(report));
    page
}

/// The sentences about the machine.
pub(crate) fn machine(machine: &Machine) -> String {
    let Machine { processor, cores, memory_bytes, kernel, system, load_before, stolen_percent, date } = machine;
    let gib = memory_bytes >> 30;
    format!(
        "Measured on {date}: {cores} cores of {processor}, {gib} GiB, {system}, Linux {kernel}. The load runs on the same cores as the server.\n\
         {load_before:.1} threads were running in the minute before, and {stolen_percent:.1} % of the time was taken by others below us.\n\n"
    )
}

/// The text of a second-level section.
pub(crate) fn section<'a>(notes: &'a str, name: &str) -> Option<&'a str> {
    notes.split("\n## ").skip(1).find_map(|section| {
        let (heading, text) = section.split_once('\n')?;
        (heading.trim() == name).then(|| text.trim())
    })
}

fn table(report: &Report) -> String {
    let has_stock = report.outcomes.iter().any(|outcome| outcome.is_stock);
    let mut text = String::from("| case | what | unit | limit seen | target | measured | ÷ limit |");
    text.push_str(if has_stock { " kube-apiserver |\n" } else { "\n" });
    text.push_str("| --- | --- | --- | ---: | ---: | ---: | ---: |");
    text.push_str(if has_stock { " ---: |\n" } else { "\n" });
    for outcome in report.outcomes.iter().filter(|outcome| !outcome.is_stock) {
        let stock = report.outcomes.iter().find(|other| other.is_stock && other.case == outcome.case);
        for (place, row) in outcome.rows.iter().enumerate() {
            let case = if place == 0 { &*outcome.case } else { "" };
            let _ = write!(text, "| {case} | {} |", cells(outcome, row).join(" | "));
            if has_stock {
                let _ = write!(text, " {} |", stock.map_or_else(|| "-".to_owned(), |stock| beside(stock, place)));
            }
            text.push('\n');
        }
    }
    text + "\n"
}

/// The cells of a row, for the page and the terminal.
pub(crate) fn cells(outcome: &Outcome, row: &Measured) -> [String; 6] {
    let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), amount);
    let measured = match row.value {
        Some(value) if outcome.is_stock || row.holds() => amount(value),
        Some(value) => format!("**{}** missed", amount(value)),
        None if outcome.is_stock => "-".to_owned(),
        None => "**failed**".to_owned(),
    };
    let unit = row.unit.label().to_owned();
    [row.what.clone(), unit, optional(row.seen), row.target.text(), measured, optional(row.ratio())]
}

fn beside(stock: &Outcome, place: usize) -> String {
    match (stock.rows.get(place).and_then(|row| row.value), &stock.problem) {
        (Some(value), _) => amount(value),
        (None, Some(_)) => "failed".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

/// The cases that missed a target, with their notes.
fn misses(report: &Report, notes: &str) -> String {
    let missed: Vec<&Outcome> = report.outcomes.iter().filter(|outcome| !outcome.holds()).collect();
    let mut text = String::from("## Misses\n\n");
    if missed.is_empty() {
        text.push_str("None in this run.\n\n");
    }
    for outcome in missed {
        let rows = outcome.rows.iter().filter(|row| !row.holds());
        let rows: Vec<String> = rows
            .map(|row| {
                let value = row.value.map_or_else(|| "nothing".to_owned(), amount);
                format!("{}: {value} where {} {} is asked", row.what, row.target.text(), row.unit.label())
            })
            .collect();
        let _ = writeln!(text, "**{}**. {}.", outcome.case, rows.join("; "));
        if let Some(problem) = &outcome.problem {
            let _ = writeln!(text, "It failed: {problem}.");
        }
        let _ = writeln!(text, "{}\n", section(notes, &outcome.case).unwrap_or("Not explained yet."));
    }
    for outcome in report.outcomes.iter().filter(|outcome| outcome.is_stock) {
        if let Some(problem) = &outcome.problem {
            let _ = writeln!(text, "kube-apiserver failed in **{}**: {problem}.\n", outcome.case);
        }
    }
    text
}

fn curves(report: &Report) -> String {
    if report.graphs.is_empty() {
        return String::new();
    }
    let mut text =
        String::from("## Growth\n\nr² is the share of the points' variance that the straight line explains.\n\n");
    for graph in &report.graphs {
        let _ = writeln!(text, "![{}]({}.svg)\n", graph.title, graph.name);
        for series in &graph.series {
            if let Some(line) = series.line {
                let _ = writeln!(
                    text,
                    "- {}: {} + {} for each ({}; {}), r² {:.4}",
                    series.label,
                    amount(line.intercept),
                    small(line.slope),
                    graph.y,
                    graph.x,
                    line.r2
                );
            }
        }
        let _ = writeln!(text, "- raw: [{0}.json]({0}.json)\n", graph.name);
    }
    text
}

/// Formats small slopes with an exponent.
fn small(value: f64) -> String {
    if value.abs() < 0.01 { format!("{value:.2e}") } else { amount(value) }
}

fn commands(report: &Report) -> String {
    let mut text = String::from(
        "## How\n\nEach case has a server of its own. `--row CASE` runs one again. All that was found stands in [numbers.json](numbers.json).\n\n| case | what is done |\n| --- | --- |\n",
    );
    for outcome in report.outcomes.iter().filter(|outcome| !outcome.is_stock) {
        let _ = writeln!(text, "| {} | {} |", outcome.case, outcome.command.replace('|', "\\|"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{
        case::{Fields, Target, Unit},
        machine,
    };

    fn outcome(case: &str, value: f64, is_stock: bool) -> Outcome {
        Outcome {
            case: case.to_owned(),
            is_stock,
            command: "load list".to_owned(),
            rows: vec![Measured {
                what: "memory".to_owned(),
                unit: Unit::Mib,
                target: if is_stock { Target::None } else { Target::AtMost(16.0) },
                seen: Some(8.0),
                value: Some(value),
            }],
            seconds: 1.0,
            problem: None,
            found: Fields::new(),
        }
    }

    fn report(outcomes: Vec<Outcome>) -> Report {
        Report { command: "numbers".to_owned(), machine: machine::describe(), outcomes, graphs: Vec::new() }
    }

    const TEXT: &str = "# Notes\n\n## general\n\nAll is well.\n\n## list\n\nA copy too many.\n";

    #[test]
    fn a_miss_is_shown_with_what_people_wrote_about_it() {
        let page = page(&report(vec![outcome("list", 20.0, false)]), TEXT);
        assert!(page.contains("All is well."));
        assert!(page.contains("| list | memory | MiB | 8 | ≤ 16 | **20** missed | 2.50 |"), "{page}");
        assert!(page.contains("**list**. memory: 20 where ≤ 16 MiB is asked.\nA copy too many."), "{page}");
    }

    #[test]
    fn what_is_met_needs_no_words() {
        let page = page(&report(vec![outcome("list", 10.0, false)]), TEXT);
        assert!(page.contains("None in this run.") && !page.contains("A copy too many."));
    }

    #[test]
    fn a_stock_server_stands_beside_ours_and_is_held_to_nothing() {
        let both = report(vec![outcome("list", 10.0, false), outcome("list", 9_000.0, true)]);
        assert!(both.holds());
        let page = page(&both, TEXT);
        assert!(page.contains("| 10 | 1.25 | 9,000 |"), "{page}");
    }

    #[test]
    fn a_page_is_written_again_from_its_raw_numbers() {
        let folder = tempfile::tempdir().unwrap();
        write_raw(folder.path(), &report(vec![outcome("list", 20.0, false)])).unwrap();
        fs::write(folder.path().join(NOTES), TEXT).unwrap();
        write(folder.path(), &read(Some(folder.path())).unwrap()).unwrap();
        let page = fs::read_to_string(folder.path().join("README.md")).unwrap();
        assert!(page.contains("A copy too many."), "{page}");
        assert!(read(None).is_err());
    }

    #[test]
    fn a_target_may_be_told_by_another_row() {
        let mut report = report(vec![outcome("small", 10.0, false), outcome("large", 19.0, false)]);
        report.relate("small", "large", 8.0);
        assert!(!report.holds());
        assert_eq!(report.outcomes[1].rows[0].target, Target::AtMost(18.0));
    }
}
