//! Writes the page and the raw numbers, and prints the tables.

use std::{fmt::Write as _, fs, path::Path};

use super::{
    Failure, StorageReport,
    start::StartRow,
    subject::MeasuredStorage,
    writes::{DATA_BYTES, WRITERS, WriteCosts, WriteRow},
};
use crate::numbers::{amount, page};

const NUMBERS: &str = "storage.json";
const PAGE: &str = "storage.md";
/// Section of the notes that is always shown.
const NOTES: &str = "storage";

/// Reads the raw numbers of an earlier run.
pub(super) fn read(folder: &Path) -> Result<StorageReport, Failure> {
    Ok(serde_json::from_str(&fs::read_to_string(folder.join(NUMBERS))?)?)
}

/// Writes both files into a folder.
pub(super) fn write(folder: &Path, report: &StorageReport) -> Result<(), Failure> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(NUMBERS), serde_json::to_string_pretty(report)? + "\n")?;
    fs::write(folder.join(PAGE), text(report, page::NOTES))?;
    Ok(())
}

/// Prints the tables.
#[expect(clippy::print_stdout, reason = "the report is what the program is for")]
pub(super) fn print(report: &StorageReport) {
    println!("{}", tables(report));
}

/// Reports on standard error that a measurement is over.
pub(super) fn print_write(row: Option<&WriteRow>) {
    let Some(WriteRow { server, creations, problem, .. }) = row else { return };
    let rate = creations.map_or(f64::NAN, |costs| costs.per_second);
    eprintln!("numbers: {server}: {} creations a second{}", amount(rate), failed(problem.as_deref()));
}

/// Reports on standard error that a measurement is over.
pub(super) fn print_start(row: Option<&StartRow>) {
    let Some(StartRow { server, costs, problem, .. }) = row else { return };
    let seconds = costs.map_or(f64::NAN, |costs| costs.seconds);
    eprintln!("numbers: {server}: ready after {} s{}", amount(seconds), failed(problem.as_deref()));
}

fn failed(problem: Option<&str>) -> String {
    problem.map_or_else(String::new, |problem| format!("; FAILED: {problem}"))
}

fn text(report: &StorageReport, notes: &str) -> String {
    let StorageReport { command, machine, versions, .. } = report;
    let mut text = String::from(
        "<!-- Written by the command below; what people add stands in benches/notes.md. -->\n\n# The storages: the numbers\n\n",
    );
    let _ = writeln!(text, "```sh\n{command}\n```\n");
    text.push_str(&page::machine(machine));
    if !versions.is_empty() {
        let _ = writeln!(text, "Versions: {}.\n", versions.join("; "));
    }
    if let Some(general) = page::section(notes, NOTES) {
        let _ = writeln!(text, "{general}\n");
    }
    text.push_str(&tables(report));
    text.push_str("\n## Servers\n\n| server | started as |\n| --- | --- |\n");
    for storage in MeasuredStorage::ALL {
        let _ = writeln!(text, "| {} | {} |", storage.name(), storage.text());
    }
    text
}

fn tables(report: &StorageReport) -> String {
    let StorageReport { disk, writes, starts, .. } = report;
    let mut text = format!(
        "## Writes\n\n{WRITERS} clients over TLS create ConfigMaps of {} bytes, and then replace their own, each one request \
         at a time. All data is on one disk ({}): one fdatasync for each batch of {WRITERS} such writes allows {} writes a \
         second. CPU is that of 1,000 writes, in seconds.\n\n",
        amount(f64::from(u32::try_from(DATA_BYTES).unwrap_or(u32::MAX))),
        disk.file_system,
        amount(disk.writes_per_second)
    );
    text.push_str("| server | writes | a second | p50 ms | p99 ms | CPU s, server | CPU s, etcd |\n");
    text.push_str("| --- | --- | ---: | ---: | ---: | ---: | ---: |\n");
    for row in writes {
        for (name, costs) in [("creations", row.creations), ("changes", row.changes)] {
            let missed = if name == "creations" && !row.holds(disk) { " missed" } else { "" };
            let _ = writeln!(text, "| {} | {name} | {}{missed} |", row.server, cells(costs).join(" | "));
        }
        if let Some(problem) = &row.problem {
            let _ = writeln!(text, "| {} | **failed**: {} | | | | | |", row.server, problem.replace('|', "\\|"));
        }
    }
    text.push_str("\n## Starts\n\nFrom exec until a client has read one of the pods (kube-apiserver: until it reports to be ready), and the peak of the memory over what it is once settled (at most 1.2).\n\n");
    text.push_str("| server | pods | target s | s | peak MiB | settled MiB | peak ÷ settled |\n");
    text.push_str("| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for row in starts {
        let _ = writeln!(text, "{}", start_cells(row));
    }
    text
}

/// Cells of the columns from the rate on.
fn cells(costs: Option<WriteCosts>) -> [String; 5] {
    let Some(WriteCosts { per_second, p50_millis, p99_millis, cpu_server, cpu_etcd }) = costs else {
        return ["-"; 5].map(str::to_owned);
    };
    let etcd = cpu_etcd.map_or_else(|| "-".to_owned(), amount);
    [amount(per_second), amount(p50_millis), amount(p99_millis), amount(cpu_server), etcd]
}

fn start_cells(row: &StartRow) -> String {
    let target = row.target.map_or_else(|| "-".to_owned(), |target| format!("≤ {}", amount(target)));
    let Some(costs) = row.costs else {
        let problem = row.problem.as_deref().unwrap_or_default().replace('|', "\\|");
        return format!("| {} | | {target} | **failed**: {problem} | | | |", row.server);
    };
    let mib = |bytes: u64| amount(f64::from(u32::try_from(bytes >> 20).unwrap_or(u32::MAX)));
    let missed = if row.holds() { "" } else { " missed" };
    format!(
        "| {} | {} | {target} | {}{missed} | {} | {} | {} |",
        row.server,
        amount(f64::from(costs.pods)),
        amount(costs.seconds),
        mib(costs.peak_bytes),
        mib(costs.settled_bytes),
        amount(costs.ratio())
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{
        machine,
        storage::{disk::DiskSpeed, start::StartCosts},
    };

    fn report() -> StorageReport {
        let costs =
            WriteCosts { per_second: 900.0, p50_millis: 2.0, p99_millis: 9.0, cpu_server: 0.2, cpu_etcd: Some(0.3) };
        let start = StartCosts { pods: 100_000, seconds: 2.0, peak_bytes: 600 << 20, settled_bytes: 400 << 20 };
        StorageReport {
            command: "numbers --storage".to_owned(),
            machine: machine::describe(),
            versions: Vec::new(),
            disk: DiskSpeed { file_system: "ext2/ext3".to_owned(), writes_per_second: 1_000.0 },
            writes: vec![
                WriteRow::of("data-dir".to_owned(), Ok([costs, costs])),
                WriteRow::of("etcd".to_owned(), Err("gone".to_owned())),
            ],
            starts: vec![StartRow::of("data-dir".to_owned(), Some(3.0), Ok(start))],
        }
    }

    #[test]
    fn a_disk_that_allows_little_lowers_the_target_of_durable_writes() {
        let mut report = report();
        assert!(report.writes[0].holds(&report.disk), "90 % of what the disk allows");
        report.disk.writes_per_second = 10_000.0;
        assert!(!report.writes[0].holds(&report.disk) && !report.holds());
        assert!(tables(&report).contains("| data-dir | creations | 900 | 2 | 9 | 0.20 | 0.30 missed |"));
    }

    #[test]
    fn a_page_shows_failures_and_missed_targets() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &report()).unwrap();
        let page = text(&read(folder.path()).unwrap(), "# Notes\n\n## storage\n\nRead it so.\n");
        assert!(page.contains("Read it so."), "{page}");
        assert!(page.contains("| etcd | **failed**: gone |"), "{page}");
        assert!(page.contains("| data-dir | 100,000 | ≤ 3 | 2 missed | 600 | 400 | 1.50 |"), "{page}");
    }
}
