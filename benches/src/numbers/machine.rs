//! The machine that the numbers were measured on.

use std::fs;

use serde::{Deserialize, Serialize};

/// Description of the machine. Values that cannot be read are empty.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) system: String,
    /// Load average of the last minute before the run: background noise.
    pub(crate) load_before: f64,
    /// Percentage of CPU time that the hypervisor stole during the run; see [`ticks`].
    pub(crate) stolen_percent: f64,
    /// Cores that were busy just before the run; `None` in results of older versions of this program.
    #[serde(default)]
    pub(crate) busy_before: Option<f64>,
    /// UTC date of the run.
    pub(crate) date: String,
}

/// Reads the description from `/proc` and `/etc`.
pub(crate) fn describe() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str, separator: char| {
        let line = text.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(separator)).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let kib = value(&read("/proc/meminfo"), "MemTotal", ':');
    Machine {
        processor: value(&read("/proc/cpuinfo"), "model name", ':'),
        cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        memory_bytes: kib.trim_end_matches(" kB").parse().unwrap_or(0_u64) * 1024,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        system: value(&read("/etc/os-release"), "PRETTY_NAME", '=').trim_matches('"').to_owned(),
        load_before: load_average(),
        stolen_percent: 0.0,
        busy_before: None,
        date: date(),
    }
}

/// The current UTC date.
pub(crate) fn date() -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// Converts days since 1970 to year, month and day of the Gregorian calendar: its period is 400 years or 146,097 days,
/// and years are counted from March, so that leap days come last.
const fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + later, month, day)
}

/// The load average of the last minute.
pub(crate) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// CPU ticks since boot: of all programs, of this one with the children that it waited for, and the total of all
/// processors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTicks {
    busy: u64,
    own: u64,
    total: u64,
}

impl CpuTicks {
    /// Reads `/proc/stat` and `/proc/self/stat`.
    pub(crate) fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let all = numbers(stat.lines().next().unwrap_or_default(), 1);
        let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // Behind the name, which may contain spaces: utime, stime, cutime and cstime are fields 14 to 17 of all.
        let own = own.rsplit_once(')').map_or_else(Vec::new, |(_, rest)| numbers(rest, 12));
        // User, nice and system; interrupts are handled for everyone.
        Self { busy: all.iter().take(3).sum(), own: own.iter().take(4).sum(), total: all.iter().take(8).sum() }
    }

    /// Cores that all programs kept busy since `before`.
    pub(crate) fn cores_since(self, before: Self) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        share(self.busy.saturating_sub(before.busy), self.total.saturating_sub(before.total)) * count(cores as u64)
    }

    /// Percentage of all CPU time that other programs took since `before`.
    pub(crate) fn others_since(self, before: Self) -> f64 {
        let own = self.own.saturating_sub(before.own);
        let others = self.busy.saturating_sub(before.busy).saturating_sub(own);
        share(others, self.total.saturating_sub(before.total)) * 100.0
    }
}

/// The numbers of a line after its first `skipped` words.
fn numbers(line: &str, skipped: usize) -> Vec<u64> {
    line.split_whitespace().skip(skipped).map_while(|text| text.parse().ok()).collect()
}

/// `part` divided by `of`.
pub(crate) fn share(part: u64, of: u64) -> f64 {
    count(part) / count(of.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^52")]
const fn count(ticks: u64) -> f64 {
    ticks as f64
}

/// CPU ticks of all processors since boot: stolen by the hypervisor, and total.
pub(crate) fn ticks() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = first.split_whitespace().skip(1).filter_map(|text| text.parse().ok()).collect();
    (ticks.get(7).copied().unwrap_or_default(), ticks.iter().take(8).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!([0, 59, 19_782, 20_513].map(civil), [(1970, 1, 1), (1970, 3, 1), (2024, 2, 29), (2026, 3, 1)]);
    }

    /// Goal: time of child processes does not count as time of other programs. Method: a shell that counts, and whose
    /// end the test awaits.
    #[test]
    fn work_of_children_is_our_own() {
        let before = CpuTicks::now();
        let count = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", count]).status().unwrap().success());
        let after = CpuTicks::now();
        assert!(before.own < after.own && before.total < after.total);
        let (all, others) = (share(after.busy - before.busy, after.total - before.total), after.others_since(before));
        assert!(others < all * 100.0, "{others} of {all}");
    }

    #[test]
    fn a_machine_describes_itself() {
        let machine = describe();
        assert!(machine.cores > 0 && machine.date.starts_with("20"), "{machine:?}");
    }
}
