//! Generates the page from the results, with hand-written notes beside missed targets.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use super::{
    Failure,
    case::{Target, amount},
    curves, density,
    machine::Machine,
    outcome::{Measured, Outcome, Report, TargetVerdict},
    picture,
};

/// File name of the raw numbers.
const NUMBERS: &str = "numbers.json";
/// Hand-written notes. The page has the section [`GENERAL`], and those of cases that missed a target.
pub(crate) const NOTES: &str = include_str!("../../notes.md");
/// Runs of at least this many seconds tell how much CPU other programs took.
const SECONDS_TOLD: f64 = 1.0;
/// The end of the page.
const HOW: &str = "## How\n\n\
    `--row CASE` runs a case again. [numbers.json](numbers.json) has each case's load, its runs, and the rows without a\n\
    target that kube-apiserver was not measured for. Each picture has its points in a JSON file of its name.\n";
/// Begin of the line with a noted floor.
const FLOOR: &str = "Floor of ";
/// Section of the notes that is always shown.
const GENERAL: &str = "general";

/// Writes the raw numbers into a folder. An interruption leaves the file of before.
pub(crate) fn save(folder: &Path, report: &Report) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    let new = folder.join(format!("{NUMBERS}.new"));
    fs::write(&new, serde_json::to_string_pretty(report)? + "\n")?;
    Ok(fs::rename(new, folder.join(NUMBERS))?)
}

/// Writes the raw numbers and the graphs into a folder.
pub(crate) fn write_raw(folder: &Path, report: &Report) -> Result<(), Failure> {
    save(folder, report)?;
    for graph in &report.graphs {
        picture::draw(&folder.join(format!("{}.svg", graph.name)), graph)?;
        fs::write(folder.join(format!("{}.json", graph.name)), serde_json::to_string_pretty(graph)? + "\n")?;
    }
    Ok(())
}

/// Writes the page into a folder.
pub(crate) fn write(folder: &Path, report: &Report) -> Result<(), Failure> {
    Ok(fs::write(folder.join("README.md"), page(report, NOTES))?)
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
        "<!-- Written by the command below; what people add stands in benches/notes.md. -->\n\n# The server's numbers\n\n",
    );
    let _ = writeln!(page, "```sh\n{}\n```\n", report.command);
    page.push_str(&machine(&report.machine));
    page.push_str(&method(report));
    if let Some(general) = section(notes, GENERAL) {
        let _ = writeln!(page, "{general}\n");
    }
    page.push_str(&tables(report, notes));
    page.push_str(&misses(report, notes));
    page.push_str(&curves(report));
    page.push_str(HOW);
    page
}

/// The sentences about the machine.
pub(crate) fn machine(machine: &Machine) -> String {
    let Machine { processor, cores, memory_bytes, kernel, system, load_before, busy_before, stolen_percent, date } =
        machine;
    let gib = memory_bytes >> 30;
    let busy = busy_before.map_or_else(String::new, |busy| format!(", {busy:.2} cores busy"));
    format!(
        "Measured on {date}: {cores} cores of {processor}, {gib} GiB, {system}, Linux {kernel}; the load runs on the same cores.\n\
         Load average before the start: {load_before:.2}{busy}. CPU steal: {stolen_percent:.1} %.\n\n"
    )
}

/// The sentences about runs and verdicts.
fn method(report: &Report) -> String {
    let own = || report.outcomes.iter().filter(|outcome| !outcome.is_stock);
    let runs = own().map(|outcome| outcome.runs.len()).max().unwrap_or_default();
    // The kernel counts in ticks of 10 ms, which say little about a shorter run.
    let runs_told = own().flat_map(|outcome| &outcome.runs).filter(|run| SECONDS_TOLD <= run.seconds);
    let others = runs_told.map(|run| run.others_percent).fold(0.0, f64::max);
    let mut text = String::new();
    if 1 < runs {
        let _ = writeln!(
            text,
            "Each case ran {runs} times, with all other cases between its runs; \"measured\" is the mean. A target is met if every\n\
             run met it, and has no verdict if only some did. Other programs took at most {others:.1} % of the CPU.\n"
        );
    }
    let mut starts = BTreeMap::<u64, usize>::new();
    own().for_each(|outcome| *starts.entry(outcome.started).or_default() += 1);
    let usual = starts.into_iter().max_by_key(|(_, cases)| *cases).map(|(started, _)| started);
    let older: Vec<String> = own()
        .filter(|outcome| Some(outcome.started) != usual)
        .map(|outcome| {
            format!("{} ({})", outcome.case, if outcome.date.is_empty() { "earlier" } else { &outcome.date })
        })
        .collect();
    if !older.is_empty() {
        let _ = writeln!(text, "Measured in other runs of the program: {}.\n", older.join(", "));
    }
    text
}

/// The text of a second-level section.
pub(crate) fn section<'a>(notes: &'a str, name: &str) -> Option<&'a str> {
    notes.split("\n## ").skip(1).find_map(|section| {
        let (heading, text) = section.split_once('\n')?;
        (heading.trim() == name).then(|| text.trim())
    })
}

/// True for a case whose clients connect like those of client-go.
fn is_like_client_go(outcome: &Outcome) -> bool {
    outcome.case.starts_with(density::NAME) || outcome.case.ends_with("-h2-tls")
}

/// The table of connections like client-go's, and that of others.
fn tables(report: &Report, notes: &str) -> String {
    let (first, second) = (table(report, notes, true), table(report, notes, false));
    if first.is_empty() || second.is_empty() {
        return first + &second;
    }
    format!("## TLS and HTTP/2, like client-go\n\n{first}## HTTP/1.1, and HTTP/2 in the clear\n\n{second}")
}

/// The rows that have a target, or a number of kube-apiserver beside them. Empty if no case belongs into this table.
fn table(report: &Report, notes: &str, is_first: bool) -> String {
    let has_stock = report.outcomes.iter().any(|outcome| outcome.is_stock);
    let own = || report.outcomes.iter().filter(|outcome| !outcome.is_stock && is_like_client_go(outcome) == is_first);
    if own().next().is_none() {
        return String::new();
    }
    let has_floors =
        own().any(|outcome| (0..outcome.rows.len()).any(|place| floor(report, notes, outcome, place).is_some()));
    let mut text = String::from("| case | what | unit | target | measured |");
    let mut rule = String::from("| --- | --- | --- | ---: | ---: |");
    for (is_there, name) in [(has_floors, "floor"), (has_stock, "kube-apiserver")] {
        if is_there {
            let _ = write!(text, " {name} |");
            rule.push_str(" ---: |");
        }
    }
    let _ = write!(text, "\n{rule}\n");
    for outcome in own() {
        let stock = report.outcomes.iter().find(|other| other.is_stock && other.case == outcome.case);
        let mut case = &*outcome.case;
        for (place, row) in outcome.rows.iter().enumerate() {
            let is_compared = stock.and_then(|stock| stock.rows.get(place)?.value).is_some();
            if row.target == Target::None && !is_compared {
                continue;
            }
            let stock = stock.map_or_else(String::new, |stock| beside(stock, place));
            let _ = write!(text, "| {case} | {} |", cells(outcome, row).join(" | "));
            case = "";
            if has_floors {
                let _ = write!(text, " {} |", floor(report, notes, outcome, place).unwrap_or_default());
            }
            if has_stock {
                let _ = write!(text, " {stock} |");
            }
            text.push('\n');
        }
    }
    text + "\n"
}

/// The floor of a row: measured with the bare server, or noted.
fn floor(report: &Report, notes: &str, outcome: &Outcome, place: usize) -> Option<String> {
    let measured = report.floor(&outcome.case, place).map(amount);
    measured.or_else(|| noted_floor(notes, &outcome.case, outcome.rows.get(place)?).map(str::to_owned))
}

/// The floor of a row that the bare server does not measure: in the notes of the case, a line
/// `Floor of ROW: VALUE; how it was measured`.
fn noted_floor<'a>(notes: &'a str, case: &str, row: &Measured) -> Option<&'a str> {
    let what = row.what.trim_start_matches("… ");
    section(notes, case)?.lines().find_map(|line| {
        let (of, value) = line.strip_prefix(FLOOR)?.split_once(": ")?;
        (of == what).then(|| value.split(';').next().unwrap_or(value).trim())
    })
}

/// The cells of a row, for the page and the terminal.
pub(crate) fn cells(outcome: &Outcome, row: &Measured) -> [String; 4] {
    let measured = if outcome.is_stock { row.value.map_or_else(String::new, amount) } else { row.cell() };
    [row.what.clone(), row.unit.label().to_owned(), row.target.text(), measured]
}

fn beside(stock: &Outcome, place: usize) -> String {
    match (stock.rows.get(place).and_then(|row| row.value), &stock.problem) {
        (Some(value), _) => amount(value),
        (None, Some(_)) => "failed".to_owned(),
        (None, None) => String::new(),
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
        let rows = outcome.rows.iter().enumerate().filter(|(_, row)| row.verdict() != TargetVerdict::Met);
        let rows: Vec<String> =
            rows.map(|(place, row)| miss(row, place, floor(report, notes, outcome, place).as_deref())).collect();
        let _ = writeln!(text, "**{}**. {}.", outcome.case, rows.join("; "));
        if let Some(problem) = &outcome.problem {
            let _ = writeln!(text, "It failed: {problem}.");
        }
        let note = section(notes, &outcome.case).unwrap_or("Not explained yet.");
        // The floor's value stands in the sentence above.
        let note: Vec<&str> = note.lines().filter(|line| !line.starts_with(FLOOR)).collect();
        let _ = writeln!(text, "{}\n", note.join("\n").trim_end());
    }
    for outcome in report.outcomes.iter().filter(|outcome| outcome.is_stock) {
        if let Some(problem) = &outcome.problem {
            let _ = writeln!(text, "kube-apiserver failed in **{}**: {problem}.\n", outcome.case);
        }
    }
    text
}

/// A missed or hidden target: the row unless it is the case's first one, value, target and floor.
fn miss(row: &Measured, place: usize, floor: Option<&str>) -> String {
    let what = if place == 0 { String::new() } else { format!("{}: ", row.what.trim_start_matches("… ")) };
    let value = match row.spread() {
        Some((least, most)) if row.verdict() == TargetVerdict::Hidden => {
            format!("{} to {}", amount(least), amount(most))
        }
        Some(_) | None => row.value.map_or_else(|| "nothing".to_owned(), amount),
    };
    let floor = floor.map_or_else(String::new, |floor| format!(", floor {floor}"));
    format!("{what}{}, target {}{floor}", format!("{value} {}", row.unit.label()).trim_end(), row.target.text())
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
        text.push('\n');
    }
    text
}

/// Formats small slopes with an exponent.
fn small(value: f64) -> String {
    if value.abs() < 0.01 { format!("{value:.2e}") } else { amount(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{
        case::{Fields, Unit},
        machine,
        outcome::OutcomeRun,
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
                value: Some(value),
                runs: vec![value],
            }],
            started: 1,
            date: "2026-01-01".to_owned(),
            seconds: 1.0,
            problem: None,
            found: Fields::new(),
            runs: vec![OutcomeRun { seconds: 1.0, others_percent: 0.5, failed: false }],
        }
    }

    /// An outcome of two runs.
    fn twice(case: &str, runs: [f64; 2]) -> Outcome {
        let mut outcome = outcome(case, f64::midpoint(runs[0], runs[1]), false);
        outcome.rows[0].runs = runs.to_vec();
        outcome.runs.push(outcome.runs[0].clone());
        outcome
    }

    fn report(outcomes: Vec<Outcome>) -> Report {
        let machine = machine::describe();
        Report { command: "numbers".to_owned(), machine, started: 1, outcomes, floors: Vec::new(), graphs: Vec::new() }
    }

    const TEXT: &str = "# Notes\n\n## general\n\nAll is well.\n\n## list\n\nA copy too many.\n";

    #[test]
    fn a_miss_is_shown_with_what_people_wrote_about_it() {
        let page = page(&report(vec![outcome("list", 20.0, false)]), TEXT);
        assert!(page.contains("All is well."));
        assert!(page.contains("| list | memory | MiB | ≤ 16 | **20** missed |"), "{page}");
        assert!(page.contains("**list**. 20 MiB, target ≤ 16.\nA copy too many."), "{page}");
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
        assert!(page.contains("| 10 | 9,000 |"), "{page}");
    }

    #[test]
    fn clients_like_client_go_have_the_first_table() {
        let cases = ["idle-10000-h1", "density-million", "sync-h2-tls"].map(|case| outcome(case, 10.0, false)).to_vec();
        let page = page(&report(cases), TEXT);
        let (_, tables) = page.split_once("## TLS and HTTP/2").unwrap();
        let (first, second) = tables.split_once("\n## ").unwrap();
        assert!(first.contains("| density-million |") && first.contains("| sync-h2-tls |"), "{page}");
        assert!(second.contains("| idle-10000-h1 |") && !second.contains("density"), "{page}");
    }

    /// Goal: the table has the rows that a reader decides by. Method: one row without a target, alone and beside a stock
    /// server.
    #[test]
    fn a_row_without_a_target_is_shown_beside_a_stock_server_only() {
        let mut own = outcome("list", 10.0, false);
        own.rows[0].target = Target::None;
        assert!(!page(&report(vec![own.clone()]), TEXT).contains("| list |"));
        let page = page(&report(vec![own, outcome("list", 9_000.0, true)]), TEXT);
        assert!(page.contains("| list | memory | MiB |  | 10 | 9,000 |"), "{page}");
    }

    #[test]
    fn a_page_is_written_again_from_its_raw_numbers() {
        let folder = tempfile::tempdir().unwrap();
        write_raw(folder.path(), &report(vec![outcome("list", 20.0, false)])).unwrap();
        write(folder.path(), &read(Some(folder.path())).unwrap()).unwrap();
        let page = fs::read_to_string(folder.path().join("README.md")).unwrap();
        assert!(page.contains("**list**. 20 MiB, target") && page.contains(section(NOTES, GENERAL).unwrap()), "{page}");
        assert!(read(None).is_err());
    }

    #[test]
    fn a_verdict_that_the_spread_hides_is_told_as_such() {
        let page = page(&report(vec![twice("list", [15.0, 19.0])]), TEXT);
        assert!(page.contains("| **17** no verdict: 1 of 2 runs met it |"), "{page}");
        assert!(page.contains("**list**. 15 to 19 MiB, target ≤ 16."), "{page}");
        assert!(page.contains("Each case ran 2 times"), "{page}");
    }

    #[test]
    fn a_measured_floor_stands_beside_its_row() {
        let notes = format!("{TEXT}Floor of memory: 12; a bare loop of the same calls.\n");
        let page = page(&report(vec![outcome("list", 20.0, false)]), &notes);
        assert!(page.contains("| measured | floor |") && page.contains("| **20** missed | 12 |"), "{page}");
        assert!(page.contains("20 MiB, target ≤ 16, floor 12.\nA copy too many.\n\n"), "{page}");
    }

    /// Goal: a row stands beside its floor of the same run. Method: the bare server ran the case over HTTP/1.1.
    #[test]
    fn the_bare_servers_floor_stands_beside_both_versions_of_http() {
        let cases = ["list-h1", "list-h2"].map(|case| outcome(case, 20.0, false)).to_vec();
        let report = Report { floors: vec![outcome("list-h1", 13.0, false)], ..report(cases) };
        let page = page(&report, TEXT);
        assert_eq!(page.matches("| **20** missed | 13 |").count(), 2, "{page}");
    }

    #[test]
    fn numbers_of_other_runs_are_named() {
        let mut earlier = outcome("list", 10.0, false);
        earlier.started = 0;
        let others = ["a", "b"].map(|case| outcome(case, 10.0, false));
        let page = page(&report([vec![earlier], others.to_vec()].concat()), TEXT);
        assert!(page.contains("Measured in other runs of the program: list (2026-01-01)."), "{page}");
    }
}
