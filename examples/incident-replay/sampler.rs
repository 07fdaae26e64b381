//! Memory of the server over time, as the kernel counts it; and the kernel's part in the incident: a server that takes
//! too much is killed.

use std::{
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use measured::{Failure, memory};

/// Pause between two samples.
const EVERY: Duration = Duration::from_millis(50);
/// Most memory of a server and its etcd: half of what is available, at most this.
const BYTES_MAX: usize = 12 << 30;

/// A sample.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemorySample {
    pub(crate) at: Instant,
    /// Resident bytes; `None` while no server runs.
    pub(crate) bytes: Option<usize>,
}

/// Everything the thread found.
#[derive(Debug, Default)]
struct Found {
    samples: Mutex<Vec<MemorySample>>,
    /// The kernel's high water marks.
    peak: AtomicUsize,
    etcd_peak: AtomicUsize,
    /// Servers killed because of their memory.
    kills: AtomicUsize,
    /// Process id of the server; 0: none runs.
    server: AtomicU32,
    is_over: AtomicBool,
}

/// The sampling thread; ends on drop.
pub(crate) struct Sampler {
    found: Arc<Found>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts without a server.
    pub(crate) fn start(etcd: Option<u32>) -> Result<Self, Failure> {
        if let Some(etcd) = etcd {
            memory::reset_peak(etcd)?;
        }
        let bytes_max = BYTES_MAX.min(memory::available()? / 2);
        let found = Arc::new(Found::default());
        let all = Arc::clone(&found);
        let thread = thread::Builder::new().name("sampler".to_owned()).spawn(move || {
            while !all.is_over.load(Relaxed) {
                all.sample(etcd, bytes_max);
                thread::sleep(EVERY);
            }
        })?;
        Ok(Self { found, thread: Some(thread) })
    }

    /// Samples this process from now on; `None`: no server runs.
    pub(crate) fn follow(&self, server: Option<u32>) {
        self.found.server.store(server.unwrap_or(0), Relaxed);
    }

    /// All samples so far.
    pub(crate) fn samples(&self) -> Vec<MemorySample> {
        self.found.samples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets earlier samples and peaks, and returns the resident bytes of the server.
    pub(crate) fn begin(&self) -> Result<usize, Failure> {
        let server = self.found.server.load(Relaxed);
        memory::reset_peak(server)?;
        self.found.samples.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.found.peak.store(0, Relaxed);
        Ok(memory::usage(server)?.resident)
    }

    /// Peak of the server, in bytes, over all its processes.
    pub(crate) fn peak(&self) -> usize {
        self.found.peak.load(Relaxed)
    }

    /// Peak of etcd, in bytes; 0 without one.
    pub(crate) fn etcd_peak(&self) -> usize {
        self.found.etcd_peak.load(Relaxed)
    }

    /// Number of servers killed because of their memory.
    pub(crate) fn kills(&self) -> usize {
        self.found.kills.load(Relaxed)
    }
}

impl Found {
    fn sample(&self, etcd: Option<u32>, bytes_max: usize) {
        let server = self.server.load(Relaxed);
        let usage = if server == 0 { None } else { memory::usage(server).ok() };
        let etcd = etcd.and_then(|etcd| memory::usage(etcd).ok());
        if let Some(usage) = usage {
            self.peak.fetch_max(usage.peak, Relaxed);
        }
        if let Some(etcd) = etcd {
            self.etcd_peak.fetch_max(etcd.peak, Relaxed);
        }
        let bytes = usage.map(|usage| usage.resident);
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).push(MemorySample { at: Instant::now(), bytes });
        let together = bytes.unwrap_or_default() + etcd.map_or(0, |etcd| etcd.resident);
        if bytes.is_some() && together > bytes_max {
            let is_killed = Command::new("kill").args(["-9", &server.to_string()]).status();
            if is_killed.is_ok_and(|status| status.success()) {
                self.kills.fetch_add(1, Relaxed);
                self.server.store(0, Relaxed);
            }
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.found.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
