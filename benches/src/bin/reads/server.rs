//! A server process and the CPU time of its threads.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::Size;

/// A server process of this program's own binary, killed on drop.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    /// CPU time of each thread at the last look, in nanoseconds.
    threads: BTreeMap<String, u64>,
    /// CPU time of threads that have ended, in nanoseconds.
    gone: u64,
}

impl Server {
    /// Starts a server with synthetic objects.
    pub(crate) fn start(size: Size) -> io::Result<Self> {
        let Size { pods, nodes, namespaces } = size;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--populate"])
            .arg(format!("pods={pods},nodes={nodes},namespaces={namespaces},seed=1"))
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("a pipe was asked for"))?;
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self { child, address, threads: BTreeMap::new(), gone: 0 };
        for line in BufReader::new(stdout).lines() {
            if let Some(address) = line?.strip_prefix("listening on http://") {
                server.address = address.parse().map_err(io::Error::other)?;
                return Ok(server);
            }
        }
        Err(io::Error::other("the server ended before it listened"))
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// CPU time of its threads so far: the first field of `schedstat`, in nanoseconds. Monotonic: the time of an ended
    /// thread still counts, up to the last look at it.
    pub(crate) fn cpu(&mut self) -> io::Result<Duration> {
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let thread = thread?;
            // A thread that ended meanwhile has no file any more.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let ran = text.split(' ').next().and_then(|ran| ran.parse().ok()).unwrap_or_default();
            threads.insert(thread.file_name().to_string_lossy().into_owned(), ran);
        }
        for (thread, before) in std::mem::replace(&mut self.threads, threads) {
            // The ID is missing, or reused by a new thread.
            if self.threads.get(&thread).is_none_or(|now| *now < before) {
                self.gone += before;
            }
        }
        Ok(Duration::from_nanos(self.gone + self.threads.values().sum::<u64>()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // No state to save, so it can be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
