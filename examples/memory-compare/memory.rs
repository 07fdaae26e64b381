//! Memory as counted by the kernel, from procfs.

use std::{fs, io};

/// Resident bytes now, and their maximum since the last reset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) resident: usize,
    pub(crate) peak: usize,
}

/// Memory usage of process `pid`.
pub(crate) fn usage(pid: u32) -> io::Result<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(Usage { resident: kib_line(&status, "VmRSS:")?, peak: kib_line(&status, "VmHWM:")? })
}

/// Resets the peak of process `pid` to its current resident size.
pub(crate) fn reset_peak(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

/// The kernel's estimate of the memory available without swapping, in bytes.
pub(crate) fn available() -> io::Result<usize> {
    kib_line(&fs::read_to_string("/proc/meminfo")?, "MemAvailable:")
}

fn kib_line(text: &str, name: &str) -> io::Result<usize> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok())
        .map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::other(format!("procfs has no line {name}")))
}
