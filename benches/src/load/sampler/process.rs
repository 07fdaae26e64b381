//! Memory and CPU time of a process, read from `/proc`.

use std::{collections::BTreeMap, fs, io, time::Duration};

/// Fields of `/proc/PID/status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident bytes now.
    pub rss_bytes: u64,
    /// Maximum of resident bytes since the start or the last reset.
    pub high_water_bytes: u64,
    /// Number of threads.
    pub threads: u64,
}

impl Memory {
    /// Reads the memory of process `pid`.
    ///
    /// # Errors
    /// The process has ended, or the system is not Linux.
    pub fn of(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Self::read(&text).ok_or_else(|| io::Error::other(format!("process {pid} has no memory")))
    }

    fn read(text: &str) -> Option<Self> {
        let number = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let kib = |name| number(name).map(|kib| kib << 10);
        Some(Self { rss_bytes: kib("VmRSS:")?, high_water_bytes: kib("VmHWM:")?, threads: number("Threads:")? })
    }
}

/// Resets the high water mark to the current resident bytes.
pub(super) fn reset_high_water(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

/// CPU time of a process's threads in nanoseconds, from `schedstat`, which is finer than the ticks of `stat`.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    threads: BTreeMap<String, u64>,
    /// Time of threads that have ended, up to their last sample.
    gone: u64,
}

impl Cpu {
    /// Samples each thread.
    ///
    /// # Errors
    /// The process has ended.
    pub fn look(&mut self, pid: u32) -> io::Result<()> {
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = thread?;
            // A thread that ended meanwhile has no file any more.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let ran = text.split(' ').next().and_then(|ran| ran.parse().ok()).unwrap_or_default();
            threads.insert(thread.file_name().to_string_lossy().into_owned(), ran);
        }
        self.take(threads);
        Ok(())
    }

    fn take(&mut self, threads: BTreeMap<String, u64>) {
        for (thread, before) in std::mem::replace(&mut self.threads, threads) {
            // The ID is missing, or reused by a new thread.
            if self.threads.get(&thread).is_none_or(|now| *now < before) {
                self.gone += before;
            }
        }
    }

    /// The total CPU time. Monotonic.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.gone + self.threads.values().sum::<u64>())
    }
}

/// CPU time of this process.
///
/// # Errors
/// The system is not Linux.
pub fn own_cpu() -> io::Result<Duration> {
    let mut cpu = Cpu::default();
    cpu.look(std::process::id())?;
    Ok(cpu.total())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_read() {
        let text = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t3\n";
        let memory = Memory { rss_bytes: 1 << 20, high_water_bytes: 2 << 20, threads: 3 };
        assert_eq!(Memory::read(text), Some(memory));
        assert_eq!(Memory::read("Name:\tkthreadd\nThreads:\t1\n"), None);
    }

    #[test]
    fn what_threads_ran_counts_when_they_are_gone() {
        let threads = |pairs: &[(&str, u64)]| pairs.iter().map(|(name, ran)| ((*name).to_owned(), *ran)).collect();
        let mut cpu = Cpu::default();
        for (now, total) in [
            (threads(&[("1", 10), ("2", 20)]), 30),
            (threads(&[("1", 15)]), 35),
            // A new thread with the ID of an ended one.
            (threads(&[("1", 15), ("2", 5)]), 40),
            (threads(&[("1", 15), ("2", 1)]), 41),
        ] {
            cpu.take(now);
            assert_eq!(cpu.total(), Duration::from_nanos(total));
        }
    }
}
