//! Processes of a run: started with a log file, killed on drop.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use measured::Failure;

/// Ports of servers, below those that the system gives to outgoing connections: thousands of agents connect while a
/// server is away.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const PORT_TRIES: usize = 100;
/// Bytes of a log that an error quotes.
const LOG_BYTES_MAX: usize = 600;

/// A running process.
pub(crate) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts a process whose output goes to `log`.
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> Result<Self, Failure> {
        let output = File::options().create(true).append(true).open(&log)?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).spawn()?;
        Ok(Self { child, log })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// True once the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// The end of its log.
    pub(crate) fn log_end(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(LOG_BYTES_MAX)..]).trim().to_owned()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SIGKILL, like a crash: nothing is drained or saved.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16, Failure> {
    let bound = (0..PORT_TRIES).find_map(|_| TcpListener::bind(("127.0.0.1", fastrand::u16(PORTS))).ok());
    Ok(bound.ok_or("no port is free")?.local_addr()?.port())
}

/// Folder of a run's files, removed on drop.
pub(crate) fn folder() -> Result<tempfile::TempDir, Failure> {
    Ok(tempfile::Builder::new().prefix("incident-replay-").tempdir()?)
}

/// A path as an argument.
pub(crate) fn path(path: &Path) -> String {
    path.display().to_string()
}
