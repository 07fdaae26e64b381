//! Memory, open files and disk of one server over time.

use std::{
    fmt, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use tests::process::Server;

const MIB: f64 = (1 << 20) as f64;
/// Unit of the blocks that the kernel counts for a file, in bytes.
const BLOCK: u64 = 512;

/// The samples of one server.
pub(crate) struct Gauge {
    pub(crate) name: &'static str,
    id: u32,
    folder: PathBuf,
    samples: Vec<Sample>,
}

/// Resources of a server at one time.
#[derive(Clone, Copy)]
struct Sample {
    hours: f64,
    /// Private memory in bytes.
    memory: f64,
    /// Open file descriptors.
    files: f64,
    /// Bytes of its folder on the disk.
    disk: f64,
}

/// A line through samples.
#[derive(Clone, Copy)]
pub(crate) struct Slope {
    mean: f64,
    /// Growth an hour, and its standard error.
    pub(crate) hourly: f64,
    error: f64,
}

/// The slopes of all samples.
pub(crate) struct Slopes {
    pub(crate) memory: Slope,
    pub(crate) files: Slope,
    pub(crate) disk: Slope,
}

impl Gauge {
    pub(crate) fn new(name: &'static str, server: &Server, folder: PathBuf) -> Self {
        Self { name, id: server.id(), folder, samples: Vec::new() }
    }

    pub(crate) fn sample(&mut self, at: Duration) {
        let memory = private_bytes(self.id) as f64;
        let (files, disk) = (open_files(self.id) as f64, disk_bytes(&self.folder) as f64);
        self.samples.push(Sample { hours: at.as_secs_f64() / 3_600.0, memory, files, disk });
    }

    /// The slopes of the samples after `warm`.
    pub(crate) fn slopes(&self, warm: Duration) -> Slopes {
        let samples: Vec<_> =
            self.samples.iter().filter(|sample| sample.hours * 3_600.0 >= warm.as_secs_f64()).collect();
        let line = |value: fn(&Sample) -> f64| {
            Slope::new(&samples.iter().map(|sample| (sample.hours, value(sample))).collect::<Vec<_>>())
        };
        Slopes {
            memory: line(|sample| sample.memory),
            files: line(|sample| sample.files),
            disk: line(|sample| sample.disk),
        }
    }
}

impl Slope {
    /// The line of least squares through points.
    fn new(points: &[(f64, f64)]) -> Self {
        let count = points.len() as f64;
        let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
        let (center, mean) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|(at, _)| (at - center).powi(2)).sum();
        let hourly = points.iter().map(|(at, value)| (at - center) * (value - mean)).sum::<f64>() / spread;
        let rest: f64 = points.iter().map(|(at, value)| (value - mean - hourly * (at - center)).powi(2)).sum();
        Self { mean, hourly, error: (rest / (count - 2.0) / spread).sqrt() }
    }
}

/// Private memory of a process in bytes.
fn private_bytes(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("the server runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Open file descriptors of a process.
pub(crate) fn open_files(id: u32) -> usize {
    fs::read_dir(format!("/proc/{id}/fd")).expect("the server runs").count()
}

/// Bytes that a folder of files occupies. A file that ends meanwhile does not count.
pub(crate) fn disk_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| {
        let metadata = entry.metadata().ok()?;
        Some(if metadata.is_dir() { disk_bytes(&entry.path()) } else { metadata.blocks() * BLOCK })
    });
    sizes.sum()
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(last) = self.samples.last() else { return f.write_str("-") };
        write!(f, "{:.1} MiB, {} files, {:.1} MiB of disk", last.memory / MIB, last.files, last.disk / MIB)
    }
}

impl fmt::Display for Slopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Slope { mean, hourly, error }) in [("memory", self.memory), ("disk", self.disk)] {
            write!(f, "{name} {:.1} MiB {:+.2} ± {:.2} MiB an hour, ", mean / MIB, hourly / MIB, error / MIB)?;
        }
        let Slope { mean, hourly, error } = self.files;
        write!(f, "files {mean:.0} {hourly:+.1} ± {error:.1} an hour")
    }
}
