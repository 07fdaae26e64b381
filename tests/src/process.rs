//! The server as a process: started on a free port, killed when dropped.
//!
//! INVARIANT: no process outlives its `Server`, and its output never blocks on a full pipe: both streams are read to
//! the end.

use std::{
    any::Any,
    collections::VecDeque,
    net::SocketAddr,
    process::{Command as Plain, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    process::{Child, Command},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::http::Client;

/// Timeout for the server to print its address. A debug build needs 1 s, and 10 s to generate 7,130 pods; the rest is
/// for busy machines.
pub const START_WAIT: Duration = Duration::from_secs(120);

/// Timeout for the server to end after a signal.
pub const STOP_WAIT: Duration = Duration::from_secs(30);

/// Timeout for a line of the log after the answer to its request.
const LOG_WAIT: Duration = Duration::from_secs(10);

/// Interval between two looks at the log.
const LOG_CHECKED_EVERY: Duration = Duration::from_millis(10);

/// Bytes kept of each output stream, for failure messages.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Bytes of the end of standard error that a failed test prints.
const LAST_BYTES: usize = 4 << 10;

/// Prefix of the line with the server's URL, printed once it is ready.
pub const READY: &str = "listening on ";

/// A running server.
pub struct Server {
    /// `None` if the server is not this harness's process.
    child: Option<Child>,
    /// Reads its standard error to the end.
    reading: Option<JoinHandle<()>>,
    address: SocketAddr,
    stderr: Output,
    client: Client,
    _report: FailureReport,
    /// Dropped with the server.
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

/// A server that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// The output of a process so far.
#[derive(Clone, Default)]
struct Output(Arc<Mutex<OutputText>>);

#[derive(Default)]
struct OutputText {
    /// The first [`OUTPUT_BYTES_MAX`].
    first: String,
    /// The last lines, of [`LAST_BYTES`] at most.
    last: VecDeque<String>,
    last_bytes: usize,
}

impl Output {
    fn text(&self) -> String {
        self.0.lock().unwrap().first.clone()
    }

    fn push(&self, line: &str) {
        let mut text = self.0.lock().unwrap();
        if text.first.len() + line.len() < OUTPUT_BYTES_MAX {
            text.first.push_str(line);
            text.first.push('\n');
        }
        text.last_bytes += line.len() + 1;
        text.last.push_back(line.to_owned());
        while text.last_bytes > LAST_BYTES
            && let Some(line) = text.last.pop_front()
        {
            text.last_bytes -= line.len() + 1;
        }
    }

    /// Reads `stream` to its end in the background.
    fn follow(&self, stream: impl AsyncRead + Unpin + Send + 'static) -> JoinHandle<()> {
        let output = self.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                output.push(&line);
            }
        })
    }
}

/// Prints the end of a server's standard error if a test panics while the server is alive.
struct FailureReport {
    stderr: Output,
    address: SocketAddr,
}

impl Drop for FailureReport {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // A panic in a panic would end the process without the report of the first.
        let Ok(text) = self.stderr.0.lock() else { return };
        let last = Vec::from_iter(text.last.iter().map(String::as_str)).join("\n");
        eprintln!("standard error of the server at {}, its end:\n{last}", self.address);
    }
}

impl Server {
    /// Starts `binary serve --listen 127.0.0.1:0` with more arguments, and waits until it listens.
    ///
    /// `binary` is the caller's `env!("CARGO_BIN_EXE_tests-cache-server")`, which only its own tests can name.
    pub async fn start(binary: &str, arguments: &[&str]) -> Self {
        Self::start_with(binary, &[], arguments).await
    }

    /// Like [`start`](Self::start), with more environment variables.
    pub async fn start_with(binary: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", binary, environment, arguments).await
    }

    /// Like [`start_with`](Self::start_with), on another address.
    pub async fn start_at(listen: &str, binary: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let listen = ["serve", "--listen", listen];
        let mut child = spawn(binary, environment, &[&listen, arguments].concat());
        let stderr = Output::default();
        let reading = Some(stderr.follow(child.stderr.take().unwrap()));
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
        // Keep reading stdout, so that the server never blocks on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let report = FailureReport { stderr: stderr.clone(), address };
        let client = Client::new(address);
        Self { child: Some(child), reading, address, stderr, client, _report: report, _kept: None }
    }

    /// A server at `address` that is not a child of this harness. It lives as long as `kept`.
    pub fn foreign(address: SocketAddr, kept: impl Any + Send + Sync) -> Self {
        let (client, stderr) = (Client::new(address), Output::default());
        let report = FailureReport { stderr: stderr.clone(), address };
        Self { child: None, reading: None, address, stderr, client, _report: report, _kept: Some(Box::new(kept)) }
    }

    /// Keeps `kept` until the server is dropped.
    #[must_use]
    pub fn keeping(self, kept: impl Any + Send + Sync) -> Self {
        Self { _kept: Some(Box::new(kept)), ..self }
    }

    /// Lets its clients send a bearer token.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        Self { client: self.client.with_token(token), ..self }
    }

    /// Runs `binary` with exactly these arguments until it ends by itself.
    pub async fn run(binary: &str, arguments: &[&str]) -> Ended {
        Self::run_with(binary, &[], arguments).await
    }

    /// Like [`run`](Self::run), with more environment variables.
    pub async fn run_with(binary: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Ended {
        let child = spawn(binary, environment, arguments);
        finish(child, Output::default(), None, arguments).await
    }

    /// Address it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Private anonymous memory in bytes, as the kernel counts it (`RssAnon`): without the program's own pages. Linux
    /// only.
    pub fn private_bytes(&self) -> u64 {
        self.status_bytes("RssAnon:")
    }

    /// Resets the peak of [`Self::peak_bytes`] and returns the current size. Linux only.
    pub fn forget_peak(&self) -> u64 {
        let id = self.id();
        std::fs::write(format!("/proc/{id}/clear_refs"), "5").unwrap();
        self.peak_bytes()
    }

    /// Peak resident memory in bytes (`VmHWM`), with the program's own pages. Linux only.
    pub fn peak_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    /// CPU time of the process so far, in steps of 10 ms. Linux only.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        // The name of the program, in parentheses, may have spaces; behind it the state is the third field.
        let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        Duration::from_millis(10 * ticks)
    }

    /// Id of the process.
    pub fn id(&self) -> u32 {
        let child = self.child.as_ref().expect("a case about the process has one");
        child.id().expect("runs until it is waited for")
    }

    fn status_bytes(&self, line: &str) -> u64 {
        let id = self.id();
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let found = status.lines().find_map(|text| text.strip_prefix(line)).unwrap();
        found.trim().strip_suffix("kB").unwrap().trim().parse::<u64>().unwrap() << 10
    }

    /// A client of it.
    pub const fn client(&self) -> Client {
        self.client
    }

    /// Its standard error as far as it has been read. The line of a request may follow its answer: see
    /// [`logged`](Self::logged).
    pub fn log(&self) -> String {
        self.stderr.text()
    }

    /// Waits until its standard error contains `text`, and returns all of it.
    pub async fn logged(&self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            let log = self.log();
            if log.contains(text) {
                return log;
            }
            assert!(begun.elapsed() < LOG_WAIT, "{text:?} is not logged: {log}");
            sleep(LOG_CHECKED_EVERY).await;
        }
    }

    /// Sends SIGTERM, as an operator's `kill` does.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal by its name, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let id = self.id();
        let sent = Plain::new("sh").args(["-c", &format!("kill -{name} {id}")]).status().unwrap();
        assert!(sent.success(), "no signal for {id}");
    }

    /// Waits until the process has ended.
    pub async fn ended(self) -> Ended {
        finish(self.child.expect("a case about the process has one"), self.stderr, self.reading, &[]).await
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

/// Waits until a process has ended. `reading` reads its standard error already.
async fn finish(mut child: Child, stderr: Output, reading: Option<JoinHandle<()>>, arguments: &[&str]) -> Ended {
    let stdout = Output::default();
    let mut readers = Vec::from_iter(reading);
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
