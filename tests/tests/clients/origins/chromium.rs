//! A headless Chromium, driven over its debugging protocol.
//!
//! INVARIANT: it has its own profile folder, and ends when its handle is dropped.

use std::{net::SocketAddr, process::Stdio, time::Duration};

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
    _process: Child,
    _profile: tempfile::TempDir,
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
        Some(Self { _process: process, _profile: profile, address })
    }

    /// Opens the page at `url` and calls `function` there with `argument`. Returns the resolved value.
    pub(crate) async fn run(&mut self, url: &str, function: &str, argument: &str) -> Value {
        let request = Client::request(http::Method::PUT, &format!("/json/new?{url}"), &[], bytes::Bytes::new());
        let page = Client::new(self.address).send(request).await.with_code(200).json();
        let debugger = page["webSocketDebuggerUrl"].as_str().expect("a page can be debugged");
        let path = debugger.splitn(4, '/').nth(3).expect("a path");
        let stream = TcpStream::connect(self.address).await.unwrap();
        let mut socket = WebSocket::over(stream, self.address, &format!("/{path}"), &[]).await;
        let loaded = async {
            let state = format!("location.href == {} && document.readyState == 'complete'", json!(url));
            while evaluate(&mut socket, &state).await != json!(true) {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, loaded).await.unwrap_or_else(|_| panic!("{url} does not load"));
        let call = format!("({})({})", function.trim(), json!(argument));
        let result = timeout(PATIENCE, evaluate(&mut socket, &call)).await;
        result.unwrap_or_else(|_| panic!("the script on {url} does not end"))
    }
}

/// Evaluates an expression and awaits its value.
async fn evaluate(socket: &mut WebSocket, expression: &str) -> Value {
    let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
    let call = json!({"id": 1, "method": "Runtime.evaluate", "params": parameters}).to_string();
    socket.send(0x81, call.as_bytes()).await;
    loop {
        let Frame::Text(text) = socket.read().await.expect("the browser goes on") else { continue };
        let mut message: Value = serde_json::from_str(&text).expect("it speaks JSON");
        if message["id"] == 1 {
            let result = message["result"].take();
            assert!(result.get("exceptionDetails").is_none(), "{expression}: {result:#}");
            return result["result"]["value"].clone();
        }
    }
}
