//! kubectl: common commands, with both forms of discovery.
//!
//! Goal: each command behaves as with kube-apiserver. Method: the real binary with its own home directory, so that it
//! has no discovery cache, behind a proxy that can make it request the older discovery form. Every available kubectl is
//! tested: the installed one, if it is recent enough, and the one built from its module.

mod audited;
mod changing;
mod credentials;
mod reading;
mod waiting;

use std::{
    path::Path,
    process::{Command as Plain, Output, Stdio},
    time::Duration,
};

use tests::{http::Client, process::Server};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use super::{
    SERVER,
    faults::{Plan, Proxy},
    programs::Program,
};

/// Timeout of a command, which takes under a second; the rest is for busy machines.
const COMMAND_WAIT: Duration = Duration::from_secs(60);
/// Minimum minor version: older kubectls neither request validation from the server nor support streamed lists.
const MINOR_MIN: u32 = 30;

/// A server and a kubectl for it.
struct Scene {
    server: Server,
    proxy: Proxy,
    program: Program,
    home: tempfile::TempDir,
    name: String,
}

/// A scene for each kubectl and each form of discovery, each with its own server.
async fn scenes() -> Vec<Scene> {
    scenes_with(&[], &Plan::default()).await
}

async fn scenes_with(arguments: &[&str], plan: &Plan) -> Vec<Scene> {
    let mut scenes = Vec::new();
    for (name, program) in kubectls() {
        for legacy_discovery in [false, true] {
            let server = Server::start(SERVER, arguments).await;
            let proxy = Proxy::start(server.address(), Plan { legacy_discovery, ..plan.clone() }).await;
            let home = tempfile::tempdir().expect("a folder for kubectl");
            let name = format!("{name}, {} discovery", if legacy_discovery { "legacy" } else { "aggregated" });
            scenes.push(Scene { server, proxy, program: program.clone(), home, name });
        }
    }
    scenes
}

fn kubectls() -> Vec<(&'static str, Program)> {
    let installed = Program::found("kubectl").filter(|_| {
        let output = Plain::new("kubectl").args(["version", "--client"]).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let minor = text.split_once("v1.").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
        minor.is_some_and(|minor: u32| minor >= MINOR_MIN)
    });
    let installed = installed.map(|program| ("installed", program));
    let built = Program::ready("kubectl").map(|program| ("built", program));
    let mut all: Vec<_> = built.into_iter().chain(installed).collect();
    // Without an installed kubectl, the one on the PATH may be the built one.
    all.dedup_by_key(|(_, program)| program.clone());
    all
}

impl Scene {
    /// A client that bypasses the proxy.
    const fn client(&self) -> Client {
        self.server.client()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program.process();
        command
            .args(["--server", &format!("http://{}", self.proxy.address())])
            .args(arguments)
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG");
        command
    }

    async fn output(&self, mut command: Command) -> Output {
        let output = timeout(COMMAND_WAIT, command.output()).await;
        output.unwrap_or_else(|_| panic!("{}: {command:?} does not end", self.name)).expect("it runs")
    }

    /// Runs a command that must succeed, split at blanks. Returns its stdout.
    async fn run(&self, line: &str) -> String {
        self.run_words(&line.split(' ').collect::<Vec<_>>()).await
    }

    /// Like [`run`](Self::run), for words that contain blanks.
    async fn run_words(&self, words: &[&str]) -> String {
        let output = self.output(self.command(words)).await;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let asked = || self.proxy.take();
        assert!(output.status.success(), "{}: kubectl {words:?}: {stdout}{stderr}\n{:#?}", self.name, asked());
        stdout.into_owned()
    }

    /// Runs a command that must fail. Returns its stderr.
    async fn fail(&self, line: &str) -> String {
        let output = self.output(self.command(&line.split(' ').collect::<Vec<_>>())).await;
        assert!(!output.status.success(), "{}: {line}: {}", self.name, String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs a command that must succeed and print exactly `expected`.
    async fn prints(&self, line: &str, expected: &str) {
        assert_eq!(self.run(line).await, expected, "{}: kubectl {line}", self.name);
    }

    /// Starts a command that keeps running. Returns it with its output lines.
    fn start(&self, line: &str) -> (Child, Following) {
        let mut command = self.command(&line.split(' ').collect::<Vec<_>>());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
        (child, Following { lines, of: format!("{}: {line}", self.name) })
    }

    /// Writes a file with this text. Returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = Path::new(self.home.path()).join(name);
        std::fs::write(&path, text).expect("a file in a folder of its own");
        path.to_str().expect("is text").to_owned()
    }
}

/// The output of a running command.
struct Following {
    lines: Lines<BufReader<ChildStdout>>,
    of: String,
}

impl Following {
    async fn line(&mut self) -> String {
        let line = timeout(COMMAND_WAIT, self.lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("{}: a line is due", self.of)).expect("is text");
        line.unwrap_or_else(|| panic!("{} ended", self.of))
    }
}

/// The columns of a printed table, row by row.
fn table(printed: &str) -> Vec<Vec<&str>> {
    printed.lines().map(|row| row.split_whitespace().collect()).collect()
}

/// All but the end of the Deployment of [`team_manifest`].
const TEAM: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: team}
data: {colour: blue}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: team}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80}, {name: https, port: 443}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team}
";

/// A namespace, a ConfigMap, a Service and a Deployment.
fn team_manifest() -> String {
    [TEAM, DEPLOYMENT_SPEC].concat()
}

/// The rest of a Deployment, with two containers.
pub(crate) const DEPLOYMENT_SPEC: &str = "\
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: web:1, env: [{name: A, value: a}, {name: B, value: b}]}
      - {name: log, image: log:1}
";
