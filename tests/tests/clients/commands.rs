//! kubectl against the server: a third-party client.
//!
//! Goal: common commands work. Method: the real binary with its own home directory, so that it has no discovery cache.
//! Without kubectl the test prints a line and passes, except under `CI`, where kubectl is required.

mod schemas;
mod tables;
mod tls;
mod types;
mod writes;

use std::{
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::json;
use tests::{http::MERGE_PATCH, objects::pod, process::Server};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

use super::SERVER;

/// Timeout of a command. Discovery without a cache in a debug build takes under a second; the rest is for busy
/// machines.
const COMMAND_WAIT: Duration = Duration::from_secs(60);

struct Kubectl {
    server: String,
    home: tempfile::TempDir,
}

impl Kubectl {
    /// Prepares a kubectl. `None` if it is not installed and `CI` does not require it.
    fn new(server: &Server) -> Option<Self> {
        let installed = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("kubectl").is_file()));
        if !installed {
            assert!(std::env::var_os("CI").is_none(), "kubectl is not installed, and CI needs it");
            eprintln!("kubectl is not installed: skipped");
            return None;
        }
        let home = tempfile::tempdir().expect("a folder for kubectl");
        Some(Self { server: format!("http://{}", server.address()), home })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(["--server", &self.server])
            .args(arguments)
            .env("HOME", self.home.path())
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn output(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output();
        timeout(COMMAND_WAIT, output).await.unwrap_or_else(|_| panic!("{arguments:?} does not end")).expect("it runs")
    }

    /// Runs a command that must succeed. Returns its stdout.
    async fn run(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments).await;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
        stdout.into_owned()
    }

    /// Runs a command that must fail. Returns its stderr.
    async fn fail(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments).await;
        assert!(!output.status.success(), "{arguments:?} succeeded: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = Path::new(self.home.path()).join(name);
        std::fs::write(&path, text).expect("a file in a folder of its own");
        path.to_str().expect("is text").to_owned()
    }
}

const MANIFEST: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: team
data:
  colour: blue
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: team
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i}]}
";

#[tokio::test]
async fn objects_are_created_read_changed_and_deleted() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let manifest = kubectl.file("team.yaml", MANIFEST);
    let created = kubectl.run(&["create", "-f", &manifest]).await;
    assert_eq!(created, "namespace/team created\nconfigmap/settings created\ndeployment.apps/web created\n");
    let again = kubectl.fail(&["create", "-f", &manifest]).await;
    assert!(again.contains("configmaps \"settings\" already exists"), "{again}");
    let read = kubectl.run(&["get", "-n", "team", "cm/settings", "-o", "jsonpath={.data.colour}"]).await;
    assert_eq!(read, "blue");
    assert_eq!(kubectl.run(&["get", "-n", "team", "deploy", "-o", "name"]).await, "deployment.apps/web\n");
    assert_eq!(kubectl.run(&["get", "-n", "team", "all", "-o", "name"]).await, "deployment.apps/web\n");
    kubectl.run(&["label", "-n", "team", "cm/settings", "tier=front"]).await;
    kubectl.run(&["patch", "-n", "team", "cm/settings", "--type=merge", "-p", r#"{"data":{"colour":"green"}}"#]).await;
    let labelled =
        kubectl.run(&["get", "-A", "cm", "-l", "tier=front", "-o", "jsonpath={.items[*].data.colour}"]).await;
    assert_eq!(labelled, "green");
    let deleted = kubectl.run(&["delete", "-n", "team", "cm/settings", "deploy/web"]).await;
    // Newer versions name the namespace.
    let deleted = deleted.replace(" from team namespace", "");
    assert_eq!(deleted, "configmap \"settings\" deleted\ndeployment.apps \"web\" deleted\n");
    let gone = kubectl.fail(&["get", "-n", "team", "cm/settings"]).await;
    assert!(gone.contains("configmaps \"settings\" not found"), "{gone}");
}

#[tokio::test]
async fn all_pods_of_all_namespaces_are_shown() {
    let server = Server::start(SERVER, &["--populate", "pods=700,nodes=8,namespaces=5,seed=1"]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let shown = kubectl.run(&["get", "pods", "-A"]).await;
    assert_eq!(shown.lines().count(), 701, "{}", shown.lines().take(3).collect::<Vec<_>>().join("\n"));
    assert!(shown.starts_with("NAMESPACE "), "{}", &shown[..shown.len().min(80)]);
    assert_eq!(kubectl.run(&["get", "nodes", "-o", "name"]).await.lines().count(), 8);
}

#[tokio::test]
async fn a_watch_shows_changes_as_they_happen() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let client = server.client();
    client.create(&pod("p")).await;
    let template = "go-template={{.type}} {{.object.metadata.name}}{{\"\\n\"}}";
    let mut child = kubectl
        .command(&["get", "pods", "--watch", "--output-watch-events", "-o", template])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("is piped")).lines();
    let mut line = async || {
        let line = timeout(COMMAND_WAIT, lines.next_line()).await.expect("a line is due").expect("is text");
        line.expect("the watch goes on")
    };
    assert_eq!(line().await, "ADDED p");
    let patch = serde_json::json!({"metadata": {"labels": {"a": "b"}}});
    client.patch(&pod("p").path(), MERGE_PATCH, &patch).await.with_code(200);
    assert_eq!(line().await, "MODIFIED p");
    client.remove(&pod("p")).await;
    assert_eq!(line().await, "MODIFIED p", "it is told to go");
    assert_eq!(line().await, "DELETED p");
    child.kill().await.expect("it was running");
}

#[tokio::test]
async fn discovery_and_version_are_understood() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let resources = kubectl.run(&["api-resources", "--no-headers"]).await;
    let words = |name: &str| {
        let row = resources.lines().find(|row| row.split_whitespace().next() == Some(name));
        row.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    assert_eq!(words("pods").as_deref(), Some("pods po v1 true Pod"));
    assert_eq!(words("deployments").as_deref(), Some("deployments deploy apps/v1 true Deployment"));
    assert_eq!(words("nodes").as_deref(), Some("nodes no v1 false Node"));
    assert_eq!(words("leases").as_deref(), Some("leases coordination.k8s.io/v1 true Lease"));
    let version = kubectl.run(&["version"]).await;
    let told = version.lines().find(|line| line.starts_with("Server Version")).unwrap_or_default();
    assert!(told.contains("v1.36.0"), "{version}");
    assert_eq!(kubectl.run(&["get", "--raw", "/readyz"]).await, "ok");
}

/// Goal: the informer inside kubectl works. Method: `wait` lists, watches with bookmarks and ends at the change.
#[tokio::test]
async fn a_condition_is_waited_for() {
    let server = Server::start(SERVER, &[]).await;
    let Some(kubectl) = Kubectl::new(&server) else { return };
    let client = server.client();
    client.create(&pod("p")).await;
    let ready = |status: &str| {
        let body = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        let path = format!("{}/status", pod("p").path());
        let client = &client;
        async move { client.patch(&path, MERGE_PATCH, &body).await.with_code(200) }
    };
    // Older versions do not have the feature gate and list both times.
    for streaming in ["false", "true"] {
        ready("False").await;
        let mut command = kubectl.command(&["wait", "--for=condition=Ready", "pod/p", "--timeout=30s"]);
        let waiting = command.env("KUBE_FEATURE_WatchListClient", streaming).output();
        let change = async {
            // The change may come before the list or after the watch began, and must be seen in either case.
            tokio::task::yield_now().await;
            ready("True").await
        };
        let (output, _) = tokio::join!(waiting, change);
        let output = output.expect("it runs");
        assert!(output.status.success(), "{streaming}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
