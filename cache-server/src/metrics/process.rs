//! Metrics of the process, under the names of Prometheus's client libraries, read from the kernel at each scrape.
//!
//! Source: <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>; proc(5).

use std::{
    fs,
    sync::{LazyLock, atomic::AtomicU64},
};

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::{Registry, Unit},
};
use rlimit::Resource;
use tokio::task::spawn_blocking;

/// Ticks of a second in `/proc`: the kernel reports this many to every program, whatever its own clock is.
const TICKS_PER_SECOND: f64 = 100.0;

/// Times in `/proc/self/stat`, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProcessTimes {
    /// Processor time in the program and in the kernel for it.
    cpu: f64,
    /// Seconds between the boot of the machine and the start of the process.
    started: f64,
}

impl ProcessTimes {
    /// Parses the fields behind the name, which is in parentheses and may contain any character.
    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(") ")?;
        // Field 3 of proc(5) is the first one here.
        let ticks = |number: usize| fields.split(' ').nth(number - 3)?.parse::<u64>().ok();
        let seconds = |ticks: u64| ticks as f64 / TICKS_PER_SECOND;
        Some(Self { cpu: seconds(ticks(14)? + ticks(15)?), started: seconds(ticks(22)?) })
    }
}

/// Start of the machine, in Unix time. Read once: the file is long where there are many processors.
static BOOT: LazyLock<Option<f64>> = LazyLock::new(|| {
    let stat = read("/proc/stat")?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.parse().ok())
});

/// Registers the metrics as they are now, and the number of open files. Those that the kernel does not show are absent.
pub(super) fn register(registry: &mut Registry, open_files: Option<u64>) {
    let times = read("/proc/self/stat").and_then(|stat| ProcessTimes::parse(&stat));
    if let Some(times) = times {
        let cpu = Counter::<f64, AtomicU64>::default();
        cpu.inc_by(times.cpu);
        registry.register_with_unit(
            "process_cpu",
            "Processor time, of the kernel for this process too",
            Unit::Seconds,
            cpu,
        );
    }
    if let Some((times, boot)) = times.zip(*BOOT) {
        let started = Gauge::<f64, AtomicU64>::default();
        started.set(boot + times.started);
        registry.register_with_unit("process_start_time", "Start, in Unix time", Unit::Seconds, started);
    }
    let numbers = [
        ("process_open_fds", "Open files, sockets included", open_files),
        ("process_max_fds", "Files that may be open", Resource::NOFILE.get_soft().ok()),
    ];
    for (name, about, number) in numbers {
        if let Some(number) = number {
            registry.register(name, about, gauge(number));
        }
    }
    if let Some(bytes) = resident_bytes() {
        registry.register_with_unit("process_resident_memory", "Resident memory", Unit::Bytes, gauge(bytes));
    }
}

fn gauge(number: u64) -> Gauge<u64, AtomicU64> {
    let gauge = Gauge::default();
    gauge.set(number);
    gauge
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// Directory with an entry for each open file of this process.
const OPEN_FILES: &str = "/proc/self/fd";

/// Returns the number of open files; `None` without `/proc`. Cost: one system call since Linux 6.2, which reports the number
/// as the size of the directory. Older kernels report zero: a blocking thread counts the entries.
pub(crate) async fn open_files() -> Option<u64> {
    match fs::metadata(OPEN_FILES).ok()?.len() {
        0 => spawn_blocking(listed_files).await.ok()?,
        number => Some(number),
    }
}

/// Counts the entries of the directory. Cost: linear, milliseconds for a thousand.
fn listed_files() -> Option<u64> {
    // The directory's own descriptor is one of them.
    Some(fs::read_dir(OPEN_FILES).ok()?.count().saturating_sub(1) as u64)
}

/// Returns the resident memory of this process as the kernel counts it; `None` without `/proc`.
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = read("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: kernels before 6.2, which report no number, count the open files too. Method: files that stay open, counted
    /// before and after by their entries; other tests open and close fewer.
    #[test]
    fn open_files_are_counted_by_their_entries() {
        const OPENED: u64 = 400;
        let before = listed_files().expect("/proc");
        let opened: Vec<_> = (0..OPENED).map(|_| fs::File::open("/proc/self/stat").expect("it exists")).collect();
        let counted = listed_files().expect("/proc").saturating_sub(before);
        assert!(counted.abs_diff(OPENED) < OPENED / 2, "{counted} of {}", opened.len());
    }

    #[test]
    fn the_name_of_a_process_does_not_move_its_times() {
        let fields = "S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 12345 6 7";
        for name in ["cache-server", "a b) (c", ") "] {
            let times = ProcessTimes::parse(&format!("7 ({name}) {fields}"));
            assert_eq!(times, Some(ProcessTimes { cpu: 3.0, started: 123.45 }), "{name}");
        }
        for broken in ["", "7 (a) S 1", "7 (a"] {
            assert_eq!(ProcessTimes::parse(broken), None, "{broken}");
        }
    }
}
