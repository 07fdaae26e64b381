//! A headless Chromium, driven over its debugging protocol.
//!
//! INVARIANT: all its files are in its own folder. It and they are gone when its handle is dropped.

use std::{
    fs,
    net::SocketAddr,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tests::{
    http::Client,
    websocket::{Frame, WebSocket},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
    time::{sleep, timeout},
};

const PROGRAM: &str = "chromium";

/// Timeout of the start and of a script.
const PATIENCE: Duration = Duration::from_secs(180);

/// Timeout of a condition in a page.
const SHOWN_WITHIN: Duration = Duration::from_secs(60);

/// Timeout of the end, and then of the removal of its folder.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Without these flags it contacts hosts of Google, or needs a sandbox that root cannot have.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// A running browser.
pub(crate) struct Chromium {
    process: Child,
    profile: tempfile::TempDir,
    /// Address of its debugging protocol.
    address: SocketAddr,
}

impl Chromium {
    /// Starts the browser. `None` if it is not installed and `CI` does not require it.
    pub(crate) async fn start() -> Option<Self> {
        let profile = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(PROGRAM);
        command.args(FLAGS).arg("--remote-debugging-port=0").arg("about:blank");
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.env("TMPDIR", profile.path());
        let spawned = command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn();
        let Ok(mut process) = spawned else {
            assert!(std::env::var_os("CI").is_none(), "CI needs {PROGRAM}");
            eprintln!("pages in a browser are skipped: {PROGRAM} is not installed");
            return None;
        };
        let mut lines = BufReader::new(process.stderr.take().expect("is piped")).lines();
        let address = async {
            let mut complaints = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some(address) = line.strip_prefix("DevTools listening on ws://") {
                    return address.split('/').next().and_then(|address| address.parse().ok());
                }
                complaints.push(line);
            }
            panic!("{PROGRAM} does not start: {complaints:#?}")
        };
        let address = timeout(PATIENCE, address).await.expect("it starts").expect("an address");
        // Keep reading stderr, so that the browser never blocks on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Some(Self { process, profile, address })
    }

    /// Opens the page at `url`, loaded whole.
    pub(crate) async fn open(&mut self, url: &str) -> Page {
        let request = Client::request(http::Method::PUT, "/json/new?about:blank", &[], bytes::Bytes::new());
        let page = Client::new(self.address).send(request).await.with_code(200).json();
        let debugger = page["webSocketDebuggerUrl"].as_str().expect("a page can be debugged");
        let path = debugger.splitn(4, '/').nth(3).expect("a path");
        let stream = TcpStream::connect(self.address).await.unwrap();
        let socket = WebSocket::over(stream, self.address, &format!("/{path}"), &[]).await;
        let mut page = Page { socket, calls: 0, complaints: Vec::new() };
        page.call("Log.enable", json!({})).await;
        page.call("Runtime.enable", json!({})).await;
        page.call("Page.navigate", json!({"url": url})).await;
        let loaded = format!("() => location.href == {} && document.readyState == 'complete'", json!(url));
        page.until(&loaded).await;
        page
    }

    /// Opens the page at `url` and calls `function` there with `argument`. Returns the resolved value.
    pub(crate) async fn run(&mut self, url: &str, function: &str, argument: &str) -> Value {
        self.open(url).await.evaluate(function, &json!(argument)).await
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.process.start_kill();
        wait(|| !matches!(self.process.try_wait(), Ok(None)));
        // Its other processes may write for another moment.
        wait(|| fs::remove_dir_all(self.profile.path()).is_ok() || !self.profile.path().exists());
    }
}

/// Blocks until a condition is true, at most for [`END_WITHIN`].
fn wait(mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() && begun.elapsed() < END_WITHIN {
        thread::sleep(Duration::from_millis(20));
    }
}

/// An open page.
pub(crate) struct Page {
    socket: WebSocket,
    calls: u64,
    /// Errors and warnings of the page's console, and exceptions, so far.
    complaints: Vec<String>,
}

impl Page {
    /// Calls a method of the debugging protocol, and returns its result.
    pub(crate) async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let call = json!({"id": self.calls, "method": method, "params": parameters}).to_string();
        self.socket.send(0x81, call.as_bytes()).await;
        let answer = async {
            loop {
                let mut message = self.message().await;
                if message["id"] == self.calls {
                    assert!(message.get("error").is_none(), "{method}: {message:#}");
                    break message["result"].take();
                }
            }
        };
        timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("{method} does not end"))
    }

    async fn message(&mut self) -> Value {
        loop {
            let Frame::Text(text) = self.socket.read().await.expect("the browser goes on") else { continue };
            let message: Value = serde_json::from_str(&text).expect("it speaks JSON");
            let entry = &message["params"]["entry"];
            if message["method"] == "Runtime.exceptionThrown"
                || entry["level"] == "error"
                || entry["level"] == "warning"
            {
                self.complaints.push(message["params"].to_string());
            }
            return message;
        }
    }

    /// Takes the complaints of the console so far.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints)
    }

    /// Calls a function with an argument in the page, and returns the resolved value.
    pub(crate) async fn evaluate(&mut self, function: &str, argument: &Value) -> Value {
        let expression = format!("({})({argument})", function.trim());
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut result = self.call("Runtime.evaluate", parameters).await;
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result:#}");
        result["result"]["value"].take()
    }

    /// Waits until a function in the page returns true.
    pub(crate) async fn until(&mut self, function: &str) {
        let waiting = async {
            while self.evaluate(function, &json!(null)).await != json!(true) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(SHOWN_WITHIN, waiting).await.is_err() {
            let text = self.evaluate("() => document.body.innerText", &json!(null)).await;
            panic!("{function} does not become true: {text}");
        }
    }
}
