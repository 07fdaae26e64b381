//! The server as a process, and the CPU time of its threads.

use std::{
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
        let mut server = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
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

    /// What its threads ran until now, as the scheduler counts it: the first number of `schedstat`, nanoseconds.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            nanos += text.split(' ').next().and_then(|ran| ran.parse::<u64>().ok()).unwrap_or_default();
        }
        Ok(Duration::from_nanos(nanos))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has nothing to keep.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
