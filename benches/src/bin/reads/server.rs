//! The server as a process, and the CPU time of its threads.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::Size;

/// A server of this program's own binary. Ends with it.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    /// What each thread had run when it was looked at last, in nanoseconds.
    threads: BTreeMap<String, u64>,
    /// What threads had run that are gone.
    gone: u64,
}

impl Server {
    /// Starts one, filled with synthetic objects.
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

    /// What its threads ran until now, as the scheduler counts it: the first number of `schedstat`, nanoseconds. Never
    /// goes back: what a thread ran that is gone still counts, up to when it was looked at last.
    pub(crate) fn cpu(&mut self) -> io::Result<Duration> {
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let thread = thread?;
            // One that ended in between has nothing to read.
            let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let ran = text.split(' ').next().and_then(|ran| ran.parse().ok()).unwrap_or_default();
            threads.insert(thread.file_name().to_string_lossy().into_owned(), ran);
        }
        for (thread, before) in std::mem::replace(&mut self.threads, threads) {
            // Another one may have its number by now.
            if self.threads.get(&thread).is_none_or(|now| *now < before) {
                self.gone += before;
            }
        }
        Ok(Duration::from_nanos(self.gone + self.threads.values().sum::<u64>()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to keep.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
