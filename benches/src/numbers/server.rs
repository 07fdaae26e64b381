//! The measured server: this program's own binary as a child process.

use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{Failure, case::Setup};
use crate::load::client::{Access, Trust};

/// Interval of samples while a server settles.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A server has settled once its resident size has not fallen for this time; it returns free memory every second.
const STILL_FOR: Duration = Duration::from_millis(1_750);
const SETTLE_WAIT: Duration = Duration::from_secs(15);

/// Address of a server and the settings to connect to it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// `http://…` or `https://…`, without a trailing slash.
    pub(crate) url: String,
    /// CA certificate. Without one, any certificate is accepted.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) pid: u32,
}

impl Endpoint {
    /// Settings for the load tool's client in this process.
    pub(crate) fn access(&self) -> Access {
        let trust = match &self.ca {
            Some(file) => Some(Trust::Authority(file.clone())),
            None => self.url.starts_with("https://").then_some(Trust::Anybody),
        };
        let token = self.token_file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        let token = token.map(|token| token.trim().to_owned());
        Access { server: self.url.clone(), trust, token, ..Access::default() }
    }

    /// Flags for the load tool in a child process.
    pub(crate) fn flags(&self) -> Vec<String> {
        let mut flags = vec!["--server".to_owned(), self.url.clone(), "--pid".to_owned(), self.pid.to_string()];
        for (flag, file) in [("--ca", &self.ca), ("--token-file", &self.token_file)] {
            if let Some(file) = file {
                flags.extend([flag.to_owned(), file.display().to_string()]);
            }
        }
        if self.ca.is_none() && self.url.starts_with("https://") {
            flags.push("--insecure".to_owned());
        }
        flags
    }
}

/// A running server, killed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    endpoint: Endpoint,
    /// Folder of the TLS files, deleted on drop.
    _folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server and waits until it listens and has settled.
    pub(crate) fn start(setup: &Setup) -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(&setup.flags);
        if setup.pods > 0 {
            let Setup { pods, nodes, .. } = setup;
            command.arg("--populate").arg(format!("pods={pods},nodes={nodes},namespaces={},seed=1", nodes.div_ceil(2)));
        }
        let ca = if setup.tls {
            let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
            let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
            fs::write(&certificate, made.cert.pem())?;
            fs::write(&key, made.signing_key.serialize_pem())?;
            command.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(&key);
            Some(certificate)
        } else {
            None
        };
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let url = listening(&mut child)?;
        let endpoint = Endpoint { url, ca, token_file: None, pid: child.id() };
        let server = Self { child, endpoint, _folder: folder };
        settle(server.endpoint.pid)?;
        Ok(server)
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // No state to save, so it can be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the line with the server's address.
fn listening(child: &mut Child) -> Result<String, Failure> {
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("a pipe was asked for"))?;
    for line in BufReader::new(stdout).lines() {
        if let Some(url) = line?.strip_prefix("listening on ") {
            return Ok(url.to_owned());
        }
    }
    let _ = child.wait();
    Err(Failure::Server("it ended before it listened".to_owned()))
}

/// Resident bytes of a process.
pub(crate) fn resident(pid: u32) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.map(|kib: u64| kib * 1024).ok_or_else(|| Failure::Server("it has no size".to_owned()))
}

/// Waits until a process has returned the memory it needed temporarily, and returns its resident bytes.
pub(crate) fn settle(pid: u32) -> Result<u64, Failure> {
    let start = Instant::now();
    let (mut least, mut since) = (resident(pid)?, start);
    while since.elapsed() < STILL_FOR && start.elapsed() < SETTLE_WAIT {
        thread::sleep(LOOK_EVERY);
        let now = resident(pid)?;
        if now < least {
            (least, since) = (now, Instant::now());
        }
    }
    resident(pid)
}
