//! The server as a process: started on a free port, stopped when dropped.
//!
//! INVARIANT: no process outlives its `Server`, and its output never fills a pipe: both streams are read to the end.

use std::{
    net::SocketAddr,
    process::{Command as Plain, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::http::Client;

/// How long the server may take to say where it listens. A debug build needs a second, and ten to generate 7,130 pods;
/// the rest is for busy machines.
pub const START_WAIT: Duration = Duration::from_secs(120);

/// How long the server may take to end once told to.
pub const STOP_WAIT: Duration = Duration::from_secs(30);

/// Bytes kept of each output stream, for the story of a failure.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// What the server prints when it is ready, before its URL.
pub const READY: &str = "listening on ";

/// A running server.
pub struct Server {
    child: Child,
    address: SocketAddr,
    stderr: Output,
}

/// A server that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

/// The output of a process, as far as it came.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<String>>);

impl Output {
    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    fn push(&self, line: &str) {
        let mut text = self.0.lock().unwrap();
        if text.len() + line.len() < OUTPUT_BYTES_MAX {
            text.push_str(line);
            text.push('\n');
        }
    }

    /// Reads `stream` to its end in the background.
    fn follow(&self, stream: impl AsyncRead + Unpin + Send + 'static) -> tokio::task::JoinHandle<()> {
        let output = self.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                output.push(&line);
            }
        })
    }
}

impl Server {
    /// Starts `binary serve --listen 127.0.0.1:0` with more arguments, and waits until it listens.
    ///
    /// `binary` is the caller's `env!("CARGO_BIN_EXE_tests-cache-server")`, which only its own tests can name.
    pub async fn start(binary: &str, arguments: &[&str]) -> Self {
        Self::start_with(binary, &[], arguments).await
    }

    /// As [`start`](Self::start), with these environment variables on top of the test's own.
    pub async fn start_with(binary: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let listen = ["serve", "--listen", "127.0.0.1:0"];
        let mut child = spawn(binary, environment, &[&listen, arguments].concat());
        let stderr = Output::default();
        stderr.follow(child.stderr.take().unwrap());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = timeout(START_WAIT, async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some((_, address)) = line.strip_prefix(READY).and_then(|url| url.split_once("://")) {
                    return Some(address.trim_end_matches('/').parse().unwrap());
                }
            }
            None
        });
        let Ok(Some(address)) = address.await else {
            panic!("the server does not listen with {arguments:?}: {}", stderr.text());
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { child, address, stderr }
    }

    /// Runs `binary` with exactly these arguments until it ends by itself.
    pub async fn run(binary: &str, arguments: &[&str]) -> Ended {
        Self::run_with(binary, &[], arguments).await
    }

    /// As [`run`](Self::run), with these environment variables on top of the test's own.
    pub async fn run_with(binary: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Ended {
        let child = spawn(binary, environment, arguments);
        finish(child, Output::default(), arguments).await
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes that it holds and nobody else, as the kernel counts them: without the pages of the program itself. Linux only.
    pub fn private_bytes(&self) -> u64 {
        self.status_bytes("RssAnon:")
    }

    /// Forgets the largest size so far, see [`Self::peak_bytes`]; the size now. Linux only.
    pub fn forget_peak(&self) -> u64 {
        let id = self.child.id().expect("runs until it is waited for");
        std::fs::write(format!("/proc/{id}/clear_refs"), "5").unwrap();
        self.peak_bytes()
    }

    /// The most bytes that it has had in memory, with the pages of the program itself. Linux only.
    pub fn peak_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, line: &str) -> u64 {
        let id = self.child.id().expect("runs until it is waited for");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let found = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
        found.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
    }

    /// A client of it.
    pub const fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Sends SIGTERM, as an operator's `kill` does.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal by its name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().expect("runs until it is waited for");
        let sent = Plain::new("sh").args(["-c", &format!("kill -{name} {id}")]).status().unwrap();
        assert!(sent.success(), "no signal for {id}");
    }

    /// Waits until it has ended.
    pub async fn ended(self) -> Ended {
        finish(self.child, self.stderr, &[]).await
    }
}

fn spawn(binary: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Child {
    Command::new(binary)
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{binary} does not start: {error}"))
}

async fn finish(mut child: Child, stderr: Output, arguments: &[&str]) -> Ended {
    let stdout = Output::default();
    let mut readers = Vec::new();
    readers.extend(child.stdout.take().map(|stream| stdout.follow(stream)));
    readers.extend(child.stderr.take().map(|stream| stderr.follow(stream)));
    let Ok(status) = timeout(STOP_WAIT, child.wait()).await else {
        panic!("the server with {arguments:?} does not end: {}", stderr.text());
    };
    for reader in readers {
        reader.await.unwrap();
    }
    let code = status.as_ref().ok().and_then(ExitStatus::code);
    Ended { code, stdout: stdout.text(), stderr: stderr.text() }
}
