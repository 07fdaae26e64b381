//! Memory and CPU time of a process.

use std::{collections::BTreeMap, fs, io, time::Duration};

/// What `/proc/PID/status` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident bytes now.
    pub rss_bytes: u64,
    /// Most resident bytes ever, or since it was reset.
    pub high_water_bytes: u64,
    /// Threads.
    pub threads: u64,
}

impl Memory {
    /// Of process `pid`.
    ///
    /// # Errors
    /// It is gone, or no Linux is below.
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

/// Sets the high water mark to what is resident now.
pub(super) fn reset_high_water(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

/// What the threads of a process ran, in nanoseconds of `schedstat`: finer than the ticks of `stat`.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    threads: BTreeMap<String, u64>,
    /// Of threads that are gone, up to when they were looked at last.
    gone: u64,
}

impl Cpu {
    /// Looks at each thread.
    ///
    /// # Errors
    /// The process is gone.
    pub fn look(&mut self, pid: u32) -> io::Result<()> {
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = thread?;
            // One that ended in between has nothing to read.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let ran = text.split(' ').next().and_then(|ran| ran.parse().ok()).unwrap_or_default();
            threads.insert(thread.file_name().to_string_lossy().into_owned(), ran);
        }
        self.take(threads);
        Ok(())
    }

    fn take(&mut self, threads: BTreeMap<String, u64>) {
        for (thread, before) in std::mem::replace(&mut self.threads, threads) {
            // Another one may have its number by now.
            if self.threads.get(&thread).is_none_or(|now| *now < before) {
                self.gone += before;
            }
        }
    }

    /// All of it. Never goes back.
    #[must_use]
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.gone + self.threads.values().sum::<u64>())
    }
}

/// CPU time of this process.
///
/// # Errors
/// No Linux is below.
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
            // A new thread of an old number.
            (threads(&[("1", 15), ("2", 5)]), 40),
            (threads(&[("1", 15), ("2", 1)]), 41),
        ] {
            cpu.take(now);
            assert_eq!(cpu.total(), Duration::from_nanos(total));
        }
    }
}
