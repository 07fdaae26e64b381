//! The written part of `docs/scale.md`, and its raw numbers. The prose of the page is written by hand, around two marks.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::Value;

use super::{
    CORES, Failure, ScaleReport,
    loads::{LoadCurve, WIDE_WATCHERS},
    serial::{BATCH, WakeRound},
    usl::Capacity,
};
use crate::{
    marked,
    numbers::{amount, page},
};

const NUMBERS: &str = "scale.json";
const PAGE: &str = "../scale.md";
const GIB: f64 = 1_048_576.0;

/// Reads the raw numbers of an earlier run.
pub(super) fn read(folder: &Path) -> Result<ScaleReport, Failure> {
    Ok(serde_json::from_str(&fs::read_to_string(folder.join(NUMBERS))?)?)
}

/// Writes the raw numbers into a folder, and the written part of the page beside it.
pub(super) fn write(folder: &Path, report: &ScaleReport) -> Result<(), Failure> {
    fs::write(folder.join(NUMBERS), serde_json::to_string_pretty(report)? + "\n")?;
    let text = format!(
        "```sh\n{}\n```\n\n{}{}\n{}",
        report.command,
        page::machine(&report.machine),
        tables(report).trim_end(),
        memory(folder).unwrap_or_default()
    );
    marked::replace(&folder.join(PAGE), &text)
}

/// Prints the tables.
#[expect(clippy::print_stdout, reason = "the report is what the program is for")]
pub(super) fn print(report: &ScaleReport) {
    println!("{}", tables(report));
}

fn tables(report: &ScaleReport) -> String {
    [by_cores(report), sections(report), extrapolated(report)].join("\n")
}

/// The loads by cores.
fn by_cores(report: &ScaleReport) -> String {
    let mut text = String::from(
        "## Measured: CPU of the server for one operation, by cores\n\nIn µs, mean of the runs and their spread. σ is the growth for each further core, as a share of the cost with one.\n\n",
    );
    let cores: Vec<u32> =
        report.loads.first().map_or_else(Vec::new, |load| load.points.iter().map(|point| point.cores).collect());
    let heads: Vec<String> =
        cores.iter().map(|cores| format!("{cores} cores |").replace("1 cores", "1 core")).collect();
    let _ = writeln!(text, "| load | operation | {} σ |", heads.join(" "));
    let _ = writeln!(text, "| --- | --- | {}---: |", "---: | ".repeat(cores.len()));
    for load in &report.loads {
        let cells: Vec<String> = load
            .points
            .iter()
            .map(|point| {
                let least = point.micros.iter().copied().fold(f64::INFINITY, f64::min);
                let most = point.micros.iter().copied().fold(0.0, f64::max);
                format!("{} ({} – {})", amount(point.mean()), amount(least), amount(most))
            })
            .collect();
        let sigma = Capacity::of(load).map_or_else(|| "-".to_owned(), |capacity| format!("{:.3}", capacity.sigma));
        let _ = writeln!(text, "| `{}` | {} | {} | {sigma} |", load.name, load.what, cells.join(" | "));
    }
    text.push_str("\n| load | command |\n| --- | --- |\n");
    for load in &report.loads {
        let _ = writeln!(text, "| `{}` | `{}` |", load.name, load.command);
    }
    text
}

/// The sections that one thread executes at a time.
fn sections(report: &ScaleReport) -> String {
    let serial = &report.serial;
    let mut text = String::from(
        "## Measured: sections that one thread executes at a time\n\nUpper bounds, measured in process around the call that contains the section.\n\n| section | µs | so at most |\n| --- | ---: | --- |\n",
    );
    let mut row = |section: &str, micros: f64, so: String| {
        let _ = writeln!(text, "| {section} | {} | {so} |", amount(micros));
    };
    let rate = |micros: f64| amount((1e6 / micros).round());
    row("commit: one lock for all types", serial.commit, format!("{} writes/s", rate(serial.commit)));
    row("apply: the write lock of a type", serial.apply, format!("{} events/s of one type", rate(serial.apply)));
    for (threads, micros) in &serial.idle_step {
        let so = format!("{} steps/s of all {threads} threads", amount((f64::from(*threads) * 1e6 / micros).round()));
        row(&format!("step without an event: the read lock, {threads} threads at once"), *micros, so);
    }
    row(
        &format!("step that takes {BATCH} events, encoding included"),
        serial.batch_step,
        "shared by readers; a writer waits for one of them".to_owned(),
    );
    for WakeRound { threads, wake, all_millis, elsewhere } in &serial.rounds {
        let so = format!(
            "{} wake-ups/s of one type; the last of {} has read after {} ms; other threads ran {:.0} % of them",
            rate(*wake),
            amount(f64::from(WIDE_WATCHERS)),
            amount(*all_millis),
            elsewhere * 100.0
        );
        row(&format!("wake of one watcher by the waking task of its type, {threads} workers"), *wake, so);
    }
    row("accept of one connection by the accepting task", serial.accept, format!("{}/s", rate(serial.accept)));
    text
}

/// The extrapolation.
fn extrapolated(report: &ScaleReport) -> String {
    let mut text = format!(
        "## Extrapolated: one server with {CORES} cores\n\nOperations a second with all cores busy: n ÷ (c · (1 + σ · (n − 1))), with c and σ of the first table, and at most 1 ÷ s, with s of the second. The share of the clients and of the network is not in it.\n\n"
    );
    text += "| load | 1 core | by σ | s, µs | 1 ÷ s | so | saturates at |\n";
    text += "| --- | ---: | ---: | ---: | ---: | ---: | --- |\n";
    for load in &report.loads {
        if let Some(capacity) = Capacity::of(load) {
            text += &capacity_row(report, load, capacity);
        }
    }
    text
}

fn capacity_row(report: &ScaleReport, load: &LoadCurve, capacity: Capacity) -> String {
    let whole = |value: f64| amount(value.round());
    let (one, by_sigma) = (whole(capacity.per_second(1)), whole(capacity.per_second(CORES)));
    let Some(serial) = section_of(report, &load.name) else {
        return format!("| `{}` | {one} | {by_sigma} | - | - | {by_sigma} | no section |\n", load.name);
    };
    let at = capacity
        .saturated_at(serial)
        .map_or_else(|| "contention comes first".to_owned(), |cores| format!("{} cores", amount(cores)));
    format!(
        "| `{}` | {one} | {by_sigma} | {} | {} | {} | {at} |\n",
        load.name,
        amount(serial),
        whole(1e6 / serial),
        whole(capacity.bounded(CORES, serial))
    )
}

/// The section that each operation of a load passes through, in microseconds.
fn section_of(report: &ScaleReport, load: &str) -> Option<f64> {
    let serial = &report.serial;
    match load {
        "writes" => Some(serial.commit.max(serial.apply)),
        "wide" => serial.rounds.last().map(|round| round.wake),
        "connects" => Some(serial.accept),
        _ => None,
    }
}

/// Memory of objects and watchers, from the published numbers; `None` if they lack it.
fn memory(folder: &Path) -> Option<String> {
    let json =
        |name: &str| -> Option<Value> { serde_json::from_str(&fs::read_to_string(folder.join(name)).ok()?).ok() };
    let (numbers, objects) = (json("numbers.json")?, json("memory-by-objects.json")?);
    let pod = objects["series"][0]["line"]["slope"].as_f64()? * 1024.0;
    let held = |case: &str| {
        let outcomes = numbers["outcomes"].as_array()?;
        let outcome = outcomes.iter().find(|outcome| outcome["case"] == case && outcome["is_stock"] == false)?;
        Some(outcome["found"]["serverProcess.rssHeldPerClientBytes"].as_f64()? / 1024.0)
    };
    let mut text = String::from(
        "\n## Memory\n\nResident memory, measured in [benchmarks](benchmarks/README.md); how many fit into a GiB is arithmetic.\n\n| | KiB | in a GiB |\n| --- | ---: | ---: |\n",
    );
    let lines = [
        ("a pod of 5.3 KB", pod),
        ("an idle watch over HTTP/1.1", held("idle-10000-h1")?),
        ("an idle watch over TLS", held("idle-10000-h1-tls")?),
    ];
    for (name, kib) in lines {
        let _ = writeln!(text, "| {name} | {} | {} |", amount(kib), amount((GIB / kib).round()));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{
        machine,
        scale::{loads::LoadPoint, serial::SerialCosts},
    };

    fn report() -> ScaleReport {
        let load = |name: &str, costs: [f64; 2]| LoadCurve {
            name: name.to_owned(),
            what: "an operation".to_owned(),
            command: "load".to_owned(),
            points: [1, 2]
                .into_iter()
                .zip(costs)
                .map(|(cores, cost)| LoadPoint { cores, micros: vec![cost] })
                .collect(),
        };
        let round = WakeRound { threads: 2, wake: 0.2, all_millis: 12.0, elsewhere: 0.4 };
        ScaleReport {
            command: "numbers --scale".to_owned(),
            machine: machine::describe(),
            serial: SerialCosts {
                commit: 5.0,
                apply: 2.0,
                idle_step: vec![(1, 0.05), (2, 0.15)],
                batch_step: 9.0,
                rounds: vec![round],
                accept: 10.0,
            },
            loads: vec![load("writes", [50.0, 50.0]), load("bytes", [400.0, 440.0])],
        }
    }

    #[test]
    fn what_is_measured_and_what_is_extrapolated_stand_apart() {
        let text = tables(&report());
        assert!(text.contains("| `writes` | 20,000 | 320,000 | 5 | 200,000 | 200,000 | 10 cores |"), "{text}");
        assert!(text.contains("| `bytes` | 2,500 | 16,000 | - | - | 16,000 | no section |"), "{text}");
        assert!(text.contains("| commit: one lock for all types | 5 | 200,000 writes/s |"), "{text}");
        let (measured, extrapolated) = text.split_once("## Extrapolated").unwrap();
        assert!(measured.contains("## Measured") && !extrapolated.contains("## Measured"));
    }

    #[test]
    fn a_page_is_written_between_its_marks() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("benchmarks");
        fs::create_dir(&folder).unwrap();
        let page = root.path().join("scale.md");
        fs::write(&page, format!("Before.\n{}old\n{}After.\n", marked::BEGIN, marked::END)).unwrap();
        write(&folder, &report()).unwrap();
        write(&folder, &read(&folder).unwrap()).unwrap();
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.starts_with("Before.\n") && text.ends_with("After.\n") && !text.contains("old"), "{text}");
        assert_eq!(text.matches("## Extrapolated").count(), 1);
    }
}
