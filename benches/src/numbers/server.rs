//! The measured server and the bare server: this program's own binary as a child process.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    Failure,
    case::Setup,
    processes::{self, RunningProcess},
};
use crate::load::{
    client::{Access, Ask, Target, Trust},
    failure::{Failure as LoadFailure, Kind},
};

/// Interval of samples while a server settles.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A server has settled once its resident size has not fallen for this time; it returns free memory every second.
const STILL_FOR: Duration = Duration::from_millis(1_750);
const SETTLE_WAIT: Duration = Duration::from_secs(15);
/// The programs that this binary is.
const SERVE: &str = "serve";
const BARE: &str = "bare";
/// Characters of a token.
const TOKEN_CHARS: u32 = 64;
/// Interval of checks whether a server is ready.
const READY_EVERY: Duration = Duration::from_millis(10);

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
    /// The server for the load tool's client in this process.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        Target::new(&self.access()).map_err(Failure::Server)
    }

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
    _process: RunningProcess,
    endpoint: Endpoint,
    /// Time just before the process was started.
    pub(crate) begun: Instant,
    /// Folder of the TLS files and the tokens, deleted on drop.
    folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server and waits until it listens and has settled.
    pub(crate) fn start(setup: &Setup) -> Result<Self, Failure> {
        Self::start_program(SERVE, setup)
    }

    /// Starts the [bare server](crate::bare) and waits until it listens and has settled.
    pub(crate) fn start_bare(setup: &Setup) -> Result<Self, Failure> {
        Self::start_program(BARE, setup)
    }

    fn start_program(program: &str, setup: &Setup) -> Result<Self, Failure> {
        let server = Self::launch_program(program, setup)?;
        settle(server.endpoint.pid)?;
        Ok(server)
    }

    /// Starts a server and waits until it listens.
    pub(crate) fn launch(setup: &Setup) -> Result<Self, Failure> {
        Self::launch_program(SERVE, setup)
    }

    fn launch_program(program: &str, setup: &Setup) -> Result<Self, Failure> {
        let folder = processes::folder()?;
        let mut command = on_cores(std::env::current_exe()?, setup.cores);
        command.args([program, "--listen", "127.0.0.1:0"]).args(&setup.flags);
        if setup.pods > 0 {
            let Setup { pods, nodes, .. } = setup;
            command.arg("--populate").arg(format!("pods={pods},nodes={nodes},namespaces={},seed=1", nodes.div_ceil(2)));
        }
        let ca = if setup.tls {
            let TlsPair { certificate, key } = TlsPair::write(folder.path())?;
            command.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(&key);
            Some(certificate)
        } else {
            None
        };
        let token_file = identities(folder.path(), setup.identities)?;
        if token_file.is_some() {
            command.arg("--token-auth-file").arg(folder.path().join(USERS));
        }
        let begun = Instant::now();
        let mut process = RunningProcess::start(command.stdout(Stdio::piped()))?;
        let url = listening(&mut process)?;
        let endpoint = Endpoint { url, ca, token_file, pid: process.id() };
        Ok(Self { _process: process, endpoint, begun, folder })
    }

    /// File with the tokens of all identities, one a line.
    pub(crate) fn tokens(&self) -> PathBuf {
        self.folder.path().join(TOKENS)
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

/// Files of identities: users as the server reads them, and their tokens.
const USERS: &str = "users.csv";
const TOKENS: &str = "tokens";

/// Writes the files of so many nodes. Returns the file with the token of the first one; `None` without any.
fn identities(folder: &Path, count: u32) -> io::Result<Option<PathBuf>> {
    if count == 0 {
        return Ok(None);
    }
    let (mut users, mut tokens) = (String::new(), String::new());
    let mut random = fastrand::Rng::with_seed(1);
    let mut first = String::new();
    for number in 0..count {
        let token: String = (0..TOKEN_CHARS).map(|_| random.alphanumeric()).collect();
        let _ = writeln!(users, "{token},system:node:node-{number},{number},\"system:nodes\"");
        let _ = writeln!(tokens, "{token}");
        if number == 0 {
            first = token;
        }
    }
    let file = folder.join("token");
    fs::write(folder.join(USERS), users)?;
    fs::write(folder.join(TOKENS), tokens)?;
    fs::write(&file, first)?;
    Ok(Some(file))
}

/// A program that may use this number of cores. `taskset` becomes the program, so the process keeps its ID.
fn on_cores(program: PathBuf, cores: Option<u32>) -> Command {
    let Some(cores) = cores else { return Command::new(program) };
    let mut command = Command::new("taskset");
    command.arg("-c").arg(format!("0-{}", cores.saturating_sub(1))).arg(program);
    command
}

/// A certificate for this machine and its key, as PEM files.
pub(crate) struct TlsPair {
    /// Also the only authority to trust.
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl TlsPair {
    /// Makes the files in a folder.
    pub(crate) fn write(folder: &Path) -> Result<Self, Failure> {
        let pair = Self { certificate: folder.join("tls.crt"), key: folder.join("tls.key") };
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        fs::write(&pair.certificate, made.cert.pem())?;
        fs::write(&pair.key, made.signing_key.serialize_pem())?;
        Ok(pair)
    }
}

/// Waits for the line with the server's address.
fn listening(process: &mut RunningProcess) -> Result<String, Failure> {
    let stdout = process.stdout().ok_or_else(|| io::Error::other("a pipe was asked for"))?;
    for line in BufReader::new(stdout).lines() {
        if let Some(url) = line?.strip_prefix("listening on ") {
            return Ok(url.to_owned());
        }
    }
    Err(Failure::Server("it ended before it listened".to_owned()))
}

/// Waits until `/readyz` answers 200.
pub(crate) fn ready(endpoint: &Endpoint, wait: Duration) -> Result<(), Failure> {
    let (begun, target) = (Instant::now(), endpoint.target()?);
    let runtime = runtime()?;
    while begun.elapsed() < wait {
        let asked: Result<(), LoadFailure> = runtime.block_on(async {
            let mut connection = target.connect().await?;
            while begun.elapsed() < wait {
                match connection.send_well(&Ask::get("/readyz")).await {
                    Err(failure) if matches!(failure.kind, Kind::Status(_)) => tokio::time::sleep(READY_EVERY).await,
                    answer => return answer.map(drop),
                }
            }
            Err(LoadFailure::new(Kind::Timeout, "not ready"))
        });
        if asked.is_ok() {
            return Ok(());
        }
        thread::sleep(READY_EVERY);
    }
    Err(Failure::Server(format!("{} is not ready after {wait:?}", endpoint.url)))
}

/// A runtime of one thread, for requests of this program.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
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
