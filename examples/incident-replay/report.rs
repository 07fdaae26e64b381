//! The table as Markdown, ready to be pasted.

use measured::memory::mib;

use crate::{
    bystander::DutySummary,
    plan::Sizes,
    scene::{DutyComparison, Scene},
};

const HEADER: [&str; 13] = [
    "server",
    "act",
    "idle MiB",
    "peak MiB",
    "initial reads",
    "resumed",
    "received MiB",
    "refused",
    "list p50, p99 s",
    "lease p99 ms quiet, storm",
    "health p99 ms quiet, storm",
    "away s",
    "all in sync",
];

/// Lines between which a page has the table.
const TABLE_BEGIN: &str = "<!-- table: begin -->\n";
const TABLE_END: &str = "<!-- table: end -->\n";

/// The machine at the start of a run, so that a reader can judge the numbers.
pub(crate) struct Machine {
    cores: usize,
    /// Load average of the minute before.
    load: String,
}

impl Machine {
    pub(crate) fn now() -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { cores, load: load.split(' ').next().unwrap_or_default().to_owned() }
    }
}

/// The table with its heading.
pub(crate) fn text(machine: &Machine, sizes: &Sizes, scenes: &[Scene]) -> String {
    let (Sizes { pods, nodes, lists, .. }, Machine { cores, load }) = (sizes, machine);
    let mut lines = vec![format!(
        "{pods} pods on {nodes} nodes, {lists} copies of its node's pods in each agent; {cores} cores for servers and \
         agents together, load average {load} before the run\n"
    )];
    lines.push(line(&HEADER.map(str::to_owned)));
    lines.push(line(&std::array::from_fn::<_, 13, _>(|column| if column < 2 { "---" } else { "---:" }.to_owned())));
    lines.extend(scenes.iter().map(|scene| line(&cells(scene))));
    for scene in scenes {
        let name = format!("{}, {}", scene.side.name(), scene.act.name());
        if scene.etcd_peak > 0 {
            lines.push(format!("\n{name}: etcd besides, peak {:.0} MiB", mib(scene.etcd_peak)));
        }
        for (what, duty) in [("lease renewals", &scene.leases), ("health", &scene.health)] {
            if let Some(reason) = &duty.storm.reason {
                lines.push(format!("\n{name}: {what}, first of the failures: {reason}"));
            }
        }
        if scene.memory_kills > 0 {
            lines.push(format!("\n{name}: killed {} times because of its memory", scene.memory_kills));
        }
    }
    lines.join("\n")
}

/// Replaces the table of a page. `None` if the page has no place for it.
pub(crate) fn replace_table(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(TABLE_BEGIN)?;
    let (_, after) = rest.split_once(TABLE_END)?;
    Some(format!("{before}{TABLE_BEGIN}\n{table}\n\n{TABLE_END}{after}"))
}

fn cells(scene: &Scene) -> [String; 13] {
    #[expect(clippy::cast_possible_truncation, reason = "a 64-bit system")]
    let received = mib(scene.bytes as usize);
    [
        scene.side.name().to_owned(),
        scene.act.name().to_owned(),
        format!("{:.0}", mib(scene.idle)),
        format!("{:.0}", mib(scene.peak)),
        scene.initial.to_string(),
        scene.resumed.to_string(),
        format!("{received:.0}"),
        scene.refused.to_string(),
        format!("{}, {}", seconds(scene.lists.quantile(0.5)), seconds(scene.lists.quantile(0.99))),
        comparison(&scene.leases),
        comparison(&scene.health),
        format!("{:.1}", scene.away.as_secs_f64()),
        scene.synced_text(),
    ]
}

fn line<const N: usize>(cells: &[String; N]) -> String {
    format!("| {} |", cells.join(" | "))
}

fn seconds(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format!("{:.2}", ms / 1e3))
}

fn comparison(duty: &DutyComparison) -> String {
    format!("{}, {}", p99(&duty.quiet), p99(&duty.storm))
}

fn p99(duty: &DutySummary) -> String {
    let latency = duty.p99().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}"));
    if duty.failed == 0 { latency } else { format!("{latency} ({} failed)", duty.failed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_beside_the_latency() {
        let all = DutySummary { latencies: [3.0, 40.2].into_iter().collect(), failed: 0, reason: None };
        assert_eq!(p99(&all), "40");
        assert_eq!(p99(&DutySummary { failed: 2, ..all }), "10000 (2 failed)");
        assert_eq!(p99(&DutySummary::default()), "-");
    }

    #[test]
    fn a_page_gets_a_new_table_in_place_of_its_old_one() {
        let page = format!("before\n{TABLE_BEGIN}old\n{TABLE_END}after\n");
        let written = replace_table(&page, "new").unwrap();
        assert_eq!(written, format!("before\n{TABLE_BEGIN}\nnew\n\n{TABLE_END}after\n"));
        assert_eq!(replace_table(&written, "new"), Some(written));
        assert_eq!(replace_table("no table", "new"), None);
    }

    #[test]
    fn a_row_has_the_columns_of_the_header() {
        assert_eq!(line(&HEADER.map(str::to_owned)).matches('|').count(), HEADER.len() + 1);
    }
}
