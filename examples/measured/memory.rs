//! Memory as counted by the kernel, from procfs.

use std::{fs, io};

/// Resident bytes now, and their maximum since the last reset.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// Resident bytes.
    pub resident: usize,
    /// Maximum of resident bytes since the last reset.
    pub peak: usize,
}

/// Memory usage of process `pid`.
///
/// # Errors
/// The process does not exist, or has ended.
pub fn usage(pid: u32) -> io::Result<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(Usage { resident: kib_line(&status, "VmRSS:")?, peak: kib_line(&status, "VmHWM:")? })
}

/// Resets the peak of process `pid` to its current resident size.
///
/// # Errors
/// The process does not exist.
pub fn reset_peak(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

/// The kernel's estimate of the memory available without swapping, in bytes.
///
/// # Errors
/// There is no procfs.
pub fn available() -> io::Result<usize> {
    kib_line(&fs::read_to_string("/proc/meminfo")?, "MemAvailable:")
}

/// Converts bytes to MiB.
#[must_use]
pub fn mib(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn kib_line(text: &str, name: &str) -> io::Result<usize> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::other(format!("procfs has no line {name}")))
}
