//! The README's program with several components and a controller: one watch, whichever server it has.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

use std::{path::Path, process::Stdio, time::Duration};

use tests::{
    genuine::{ADMIN, Genuine, GenuineSettings},
    objects::pod,
    process::Server,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

const SERVER: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const PROGRAM: &str = env!("CARGO_BIN_EXE_tests-shared-components");
const README: &str = include_str!("../../../informer/README.md");
const SOURCE: &str = include_str!("../../../examples/shared-components/main.rs");

/// Timeout of every step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(60);
const PODS: usize = 50;

/// A running program, and its output.
struct Program {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(kubeconfig: &Path) -> Self {
        let mut command = Command::new(PROGRAM);
        command.env("KUBECONFIG", kubeconfig).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Reads its output until so many objects are reconciled. Returns the number of pods that its first component has.
    async fn reconciled(&mut self, count: usize) -> String {
        let (mut left, mut capacity) = (count, String::new());
        while left > 0 {
            let line = timeout(PATIENCE, self.lines.next_line()).await.unwrap().unwrap().expect("the program runs");
            left -= usize::from(line.starts_with("reconciled "));
            if let Some(counted) = line.strip_prefix("capacity: ") {
                capacity = counted.to_owned();
            }
        }
        capacity
    }

    /// Interrupts it, as a terminal does.
    async fn end(mut self) {
        let id = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status().await.unwrap();
        assert!(sent.success());
        assert!(timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap().success());
    }
}

#[test]
fn the_readme_has_the_program() {
    // The README leaves out the attribute for this repository's lints.
    let (attributes, rest): (Vec<_>, Vec<_>) = SOURCE.split_inclusive("\n\n").partition(|part| part.starts_with("#!["));
    assert_eq!(attributes.len(), 1);
    assert!(
        README.contains(rest.concat().trim_end()),
        "informer/README.md has another program than examples/shared-components"
    );
}

/// Goal: components that ask for the same pods cost the server one watch. Method: the README's program; the server counts
/// its watches.
#[tokio::test]
async fn components_have_one_watch_on_a_cache_server() {
    let pods = format!("pods={PODS},nodes=5");
    let server = Server::start(SERVER, &["--populate", &pods]).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(
        &kubeconfig,
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"http://{}\"}}}}]\nusers: [{{name: u, user: {{}}}}]\n",
            server.address()
        ),
    )
    .unwrap();
    let mut program = Program::start(&kubeconfig);
    assert!(program.reconciled(PODS).await.starts_with("50 pods"));
    let metrics = server.client().get("/metrics").await.with_code(200);
    let open = r#"apiserver_longrunning_requests{verb="WATCH",resource="pods"} "#;
    let open: Vec<_> = metrics.text().lines().filter_map(|line| line.strip_prefix(open)).collect();
    assert_eq!(open, ["1"]);
    program.end().await;
}

/// Goal: as on a cache-server. Method: a stock kube-apiserver, whose audit log has each request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_have_one_watch_on_a_stock_kube_apiserver() {
    let settings = GenuineSettings { records_reads: true, ..GenuineSettings::default() };
    let Some(genuine) = Genuine::start_with("shared components", settings).await else { return };
    let admin = genuine.client(ADMIN);
    for name in ["a", "b", "c"] {
        admin.create(&pod(name).node("node-1")).await;
    }
    let mut program = Program::start(&genuine.kubeconfig(ADMIN));
    assert_eq!(program.reconciled(3).await, "3 pods, 3 of them on node-1");
    let reads = genuine.reads();
    let reads: Vec<_> = reads.iter().filter(|read| read.user == ADMIN && read.is_of("/api/v1/pods")).collect();
    assert_eq!(reads.len(), 1, "{reads:#?}");
    program.end().await;
}
