//! Samples the cost of a server process from the kernel: resident memory, CPU time of its threads, memory of its
//! sockets.
//!
//! Source: proc(5) for `status`, `schedstat` and `clear_refs`; ss(8) for `skmem`, in which `w` is the memory of
//! unacknowledged data.

mod process;
mod sockets;

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde::Serialize;

pub use self::process::{Cpu, Memory, own_cpu};
pub use self::sockets::Sockets;

/// Pause between samples of memory.
const MEMORY_PAUSE: Duration = Duration::from_millis(20);

/// Pause between samples of threads; the time of an ended thread counts up to its last sample.
const THREADS_PAUSE: Duration = Duration::from_millis(100);

/// Minimum pause between samples of sockets. `ss` is slow with 10,000 sockets, so the pause is also at least ten times
/// its run time.
const SOCKETS_PAUSE: Duration = Duration::from_millis(200);

/// One sample.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// Resident bytes.
    pub rss_bytes: u64,
    /// Number of threads.
    pub threads: u64,
    /// CPU time since the process started, in seconds, without threads that ended before the sampler began.
    pub cpu_seconds: f64,
    /// Sockets; `None` without `ss`.
    pub sockets: Option<Sockets>,
}

/// Maxima since the last [`Sampler::reset`].
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Peaks {
    /// Resident bytes: the kernel's high water mark if it rose in this period, or the largest sample.
    pub rss_bytes: u64,
    /// Unsent bytes of the sockets.
    pub socket_bytes: Option<u64>,
    /// Resident and unsent bytes, sampled together.
    pub rss_and_socket_bytes: Option<u64>,
    /// Number of threads.
    pub threads: u64,
}

#[derive(Debug, Default)]
struct Readings {
    cpu: Cpu,
    peaks: Peaks,
    /// High water mark at the last reset.
    high_water_before: u64,
}

#[derive(Debug)]
struct Shared {
    pid: u32,
    port: u16,
    stop: AtomicBool,
    seen: Mutex<Readings>,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Readings> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Samples a process from threads of its own until dropped. Cost: about 0.1 % of a core, and the runs of `ss`.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    sockets: bool,
}

impl Sampler {
    /// Starts to sample process `pid` and its sockets, found by local TCP port `port`.
    ///
    /// # Errors
    /// The process does not exist, or its files cannot be read.
    pub fn start(pid: u32, port: u16) -> io::Result<Self> {
        Self::start_with(pid, port, sockets::look(port).is_ok())
    }

    /// Like [`start`](Self::start), without sockets.
    ///
    /// # Errors
    /// The process does not exist, or its files cannot be read.
    pub fn without_sockets(pid: u32) -> io::Result<Self> {
        Self::start_with(pid, 0, false)
    }

    fn start_with(pid: u32, port: u16, sockets: bool) -> io::Result<Self> {
        let mut seen = Readings::default();
        Memory::of(pid)?;
        seen.cpu.look(pid)?;
        let shared = Arc::new(Shared { pid, port, stop: AtomicBool::new(false), seen: Mutex::new(seen) });
        let mut threads = Vec::new();
        let of = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let memory = Arc::clone(&shared);
        threads.push(of("sample-memory").spawn(move || watch_memory(&memory))?);
        if sockets {
            let all = Arc::clone(&shared);
            threads.push(of("sample-sockets").spawn(move || watch_sockets(&all))?);
        }
        let sampler = Self { shared, threads, sockets };
        sampler.reset();
        Ok(sampler)
    }

    /// True if `ss` works.
    #[must_use]
    pub const fn sees_sockets(&self) -> bool {
        self.sockets
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.shared.pid
    }

    /// Takes a sample.
    ///
    /// # Errors
    /// The process has ended.
    pub fn sample(&self) -> io::Result<Sample> {
        let Shared { pid, port, .. } = *self.shared;
        let Memory { rss_bytes, threads, .. } = Memory::of(pid)?;
        let cpu_seconds = self.cpu()?.as_secs_f64();
        let sockets = if self.sockets { sockets::look(port).ok() } else { None };
        Ok(Sample { rss_bytes, threads, cpu_seconds, sockets })
    }

    /// CPU time since the process started, without threads that ended before the sampler began. Monotonic.
    ///
    /// # Errors
    /// The process has ended.
    pub fn cpu(&self) -> io::Result<Duration> {
        let mut seen = self.shared.seen();
        seen.cpu.look(self.shared.pid)?;
        Ok(seen.cpu.total())
    }

    /// Resets the peaks, including the kernel's high water mark.
    pub fn reset(&self) {
        // Allowed only for processes of the same user. For others the mark is used only if it rises.
        let _ = process::reset_high_water(self.shared.pid);
        let high_water_before = Memory::of(self.shared.pid).map(|memory| memory.high_water_bytes).unwrap_or_default();
        let mut seen = self.shared.seen();
        seen.peaks = Peaks::default();
        seen.high_water_before = high_water_before;
    }

    /// Maxima since the last [`reset`](Self::reset).
    #[must_use]
    pub fn peaks(&self) -> Peaks {
        let memory = Memory::of(self.shared.pid).unwrap_or_default();
        let seen = self.shared.seen();
        let mut peaks = seen.peaks;
        peaks.rss_bytes = peaks.rss_bytes.max(memory.rss_bytes);
        if memory.high_water_bytes > seen.high_water_before {
            peaks.rss_bytes = peaks.rss_bytes.max(memory.high_water_bytes);
        }
        peaks
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A panic is a bug here and was already printed.
            let _ = thread.join();
        }
    }
}

fn watch_memory(shared: &Shared) {
    let mut looked = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        // The process has ended; the next `sample` returns the error.
        let Ok(memory) = Memory::of(shared.pid) else { return };
        let mut seen = shared.seen();
        let peaks = &mut seen.peaks;
        peaks.rss_bytes = peaks.rss_bytes.max(memory.rss_bytes);
        peaks.threads = peaks.threads.max(memory.threads);
        if looked.elapsed() >= THREADS_PAUSE {
            looked = Instant::now();
            let _ = seen.cpu.look(shared.pid);
        }
        drop(seen);
        std::thread::park_timeout(MEMORY_PAUSE);
    }
}

fn watch_sockets(shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let Ok(Memory { rss_bytes, .. }) = Memory::of(shared.pid) else { return };
        // `ss` worked at start, so a failure now, such as for lack of memory, is temporary.
        if let Ok(Sockets { unsent_bytes, .. }) = sockets::look(shared.port) {
            let peaks = &mut shared.seen().peaks;
            peaks.socket_bytes = peaks.socket_bytes.max(Some(unsent_bytes));
            peaks.rss_and_socket_bytes = peaks.rss_and_socket_bytes.max(Some(rss_bytes + unsent_bytes));
        }
        std::thread::park_timeout(SOCKETS_PAUSE.max(10 * begun.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_given_back_is_still_the_peak() {
        let sampler = Sampler::start(std::process::id(), 1).unwrap();
        let before = sampler.sample().unwrap();
        drop(std::hint::black_box(vec![1_u8; 64 << 20]));
        let peak = sampler.peaks().rss_bytes;
        assert!(peak >= before.rss_bytes + (60 << 20), "{peak} after {before:?}");
        assert!(sampler.cpu().unwrap() >= Duration::from_secs_f64(before.cpu_seconds));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(Sampler::start(u32::MAX, 1).is_err());
    }
}
