//! Memory and CPU time of this process, from procfs.

use std::{fs, io};

/// Resident bytes now, and their maximum since the last reset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) resident: usize,
    pub(crate) peak: usize,
}

/// Memory usage of this process.
pub(crate) fn usage() -> io::Result<Usage> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = |name: &str| {
        let kib =
            status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.trim().parse().ok());
        kib.map(|kib: usize| kib * 1024).ok_or_else(|| io::Error::other(format!("procfs has no line {name}")))
    };
    Ok(Usage { resident: line("VmRSS:")?, peak: line("VmHWM:")? })
}

/// Resets the peak to the current resident size.
pub(crate) fn reset_peak() -> io::Result<()> {
    fs::write("/proc/self/clear_refs", "5")
}

/// User and system time of this process in seconds; the kernel's resolution is 10 ms.
pub(crate) fn cpu_seconds() -> io::Result<f64> {
    cpu_seconds_of("self")
}

/// User and system time of the process with this id in seconds.
pub(crate) fn cpu_seconds_of(process: &str) -> io::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |field: usize| behind_name.split_whitespace().nth(field).and_then(|text| text.parse::<f64>().ok());
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Ok((user + system) / 100.0),
        _ => Err(io::Error::other("procfs has no times")),
    }
}

/// Number of open connections to the server at `url`, of all processes on this machine: the measured one is its only
/// client then.
pub(crate) fn connections(url: &str) -> io::Result<usize> {
    let port: u16 = url.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_default();
    let (remote, open) = (format!(":{port:04X}"), "01");
    let table = fs::read_to_string("/proc/self/net/tcp")?;
    let is_counted = |line: &&str| {
        let mut fields = line.split_whitespace().skip(2);
        fields.next().is_some_and(|address| address.ends_with(&remote)) && fields.next() == Some(open)
    };
    Ok(table.lines().filter(is_counted).count())
}
