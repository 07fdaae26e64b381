//! helm through a cache-server: a chart is installed, upgraded, rolled back and uninstalled, and helm waits for it.
//!
//! Nothing runs pods here, so the test makes them ready while helm waits.

use std::{
    env, fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tests::{
    http::{Client as Http, MERGE_PATCH},
    process::Server,
};
use tokio::time::{sleep, timeout};

use super::scene::until;
use crate::{SERVER, programs::Program};

/// Namespace of the release, and its service account.
pub(super) const NAMESPACE: &str = "shop";
/// Name of the chart and of the release.
const RELEASE: &str = "shop";
/// Timeout of a command. The larger one gives helm's own the chance to be reported.
const HELM_WAIT: &str = "--timeout=90s";
const COMMAND_WAIT: Duration = Duration::from_secs(150);
/// Pause between two passes over the pods.
const KUBELET_PAUSE: Duration = Duration::from_millis(200);

const CHART: &str = "{apiVersion: v2, name: shop, version: 1.0.0}\n";
const VALUES: &str = "{colour: blue, replicas: 2, hook: true}\n";
const TEMPLATE: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: {{ .Values.colour }}}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: {{ .Values.colour }}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {colour: {{ .Values.colour }}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: web}]
{{- if .Values.hook }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: migrate
  annotations: {helm.sh/hook: 'pre-install,pre-upgrade', helm.sh/hook-delete-policy: before-hook-creation}
spec:
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers: [{name: migrate, image: migrate}]
{{- end }}
";

/// helm with one server, and a chart.
pub(super) struct Helm {
    program: Program,
    kubeconfig: PathBuf,
    home: tempfile::TempDir,
}

impl Helm {
    /// `None` if helm is not here.
    pub(super) fn ready(kubeconfig: &Path) -> Option<Self> {
        let (program, home) = (Program::ready("helm")?, tempfile::tempdir().unwrap());
        let chart = home.path().join("chart");
        fs::create_dir_all(chart.join("templates")).unwrap();
        for (name, text) in [("Chart.yaml", CHART), ("values.yaml", VALUES), ("templates/all.yaml", TEMPLATE)] {
            fs::write(chart.join(name), text).unwrap();
        }
        Some(Self { program, kubeconfig: kubeconfig.to_owned(), home })
    }

    /// Runs a command, split at blanks, which must succeed. Returns its output.
    pub(super) async fn run(&self, line: &str) -> String {
        let mut command = self.program.process();
        command
            .args(line.split(' '))
            .args(["--namespace", NAMESPACE, "--kubeconfig", self.kubeconfig.to_str().unwrap()])
            .current_dir(self.home.path())
            .env("HOME", self.home.path());
        let begun = Instant::now();
        let output = timeout(COMMAND_WAIT, command.output()).await;
        let output = output.unwrap_or_else(|_| panic!("helm {line} does not end")).unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "helm {line}: {stdout}{stderr}");
        eprintln!("helm {line}: {:.1} s", begun.elapsed().as_secs_f64());
        stdout
    }

    /// Installs or upgrades the release, and waits for it.
    pub(super) async fn upgrade(&self, settings: &str) {
        self.run(&format!("upgrade --install {RELEASE} chart --wait {HELM_WAIT} --set {settings}")).await;
    }

    /// Returns the release to a revision, and waits for it.
    pub(super) async fn roll_back(&self, revision: u32) {
        self.run(&format!("rollback {RELEASE} {revision} --wait {HELM_WAIT}")).await;
    }

    /// Removes the release, and waits for the end of its objects.
    pub(super) async fn uninstall(&self) {
        self.run(&format!("uninstall {RELEASE} --wait {HELM_WAIT}")).await;
    }

    /// The revisions of the release, its manifest, and its objects.
    pub(super) async fn shows(&self) -> (String, String, Value) {
        let history = self.run(&format!("history {RELEASE}")).await;
        let manifest = self.run(&format!("get manifest {RELEASE}")).await;
        let status = self.run(&format!("status {RELEASE} --output json")).await;
        let mut objects = serde_json::from_str::<Value>(&status).unwrap()["info"]["resources"].take();
        // Lists of pods, each with the position at which it was read.
        for list in objects["v1/Pod(related)"].as_array_mut().into_iter().flatten() {
            list["metadata"].take();
        }
        (history, manifest, objects)
    }
}

/// A release in a cluster with controllers and a scheduler.
pub(super) struct Release {
    pub(super) helm: Helm,
    /// The administrator at the API server.
    direct: Http,
}

impl Release {
    /// Creates the namespace, and an account that may write in it. Returns the account's token.
    pub(super) async fn account(direct: Http) -> String {
        let name = "deployer";
        let metadata = |name: &str| json!({"name": name, "namespace": NAMESPACE});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name)});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata(name),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        });
        for manifest in [namespace, account, binding] {
            direct.create_manifest(&manifest).await;
        }
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let answer = direct.post(&path, &request).await.with_code(201).json();
        answer["status"]["token"].as_str().expect("a token").to_owned()
    }

    pub(super) const fn new(helm: Helm, direct: Http) -> Self {
        Self { helm, direct }
    }

    /// Installs or upgrades, while the pods become ready, and compares the objects with the settings.
    pub(super) async fn upgrade(&self, colour: &str, replicas: usize) {
        let settings = format!("colour={colour},replicas={replicas}");
        self.while_pods_run(self.helm.upgrade(&settings)).await;
        self.has(colour, replicas).await;
    }

    /// Like [`upgrade`](Self::upgrade), while the server in front restarts, before any pod is ready.
    pub(super) async fn upgrade_across(&self, colour: &str, replicas: usize, restart: impl Future<Output = ()>) {
        let settings = format!("colour={colour},replicas={replicas},hook=false");
        let interrupted = async {
            until("the new pods exist", async || self.colours().await.iter().any(|found| found == colour)).await;
            restart.await;
            self.run_pods().await
        };
        tokio::select! {
            () = self.helm.upgrade(&settings) => {}
            never = interrupted => match never {},
        }
        self.has(colour, replicas).await;
    }

    /// Returns to a revision, while the pods become ready, and compares the objects with that one's settings.
    pub(super) async fn roll_back(&self, revision: u32, colour: &str, replicas: usize) {
        self.while_pods_run(self.helm.roll_back(revision)).await;
        self.has(colour, replicas).await;
    }

    /// A step after each of five restarts.
    pub(super) async fn step(&self, restart: u64) {
        match restart {
            1 => self.upgrade("blue", 2).await,
            2 => self.upgrade("red", 3).await,
            3 => self.roll_back(1, "blue", 2).await,
            4 => self.uninstall().await,
            _ => self.upgrade("yellow", 1).await,
        }
    }

    /// Removes the release, and asserts that nothing is left.
    pub(super) async fn uninstall(&self) {
        self.while_pods_run(self.helm.uninstall()).await;
        for path in ["/api/v1/namespaces/shop/services", "/apis/apps/v1/namespaces/shop/deployments"] {
            let list = self.direct.get(path).await.with_code(200).json();
            assert_eq!(list["items"], json!([]), "{path}");
        }
    }

    /// Asserts that the API server has the objects of a revision, and as many ready pods as it requests.
    async fn has(&self, colour: &str, replicas: usize) {
        let settings = self.direct.get("/api/v1/namespaces/shop/configmaps/settings").await.with_code(200).json();
        assert_eq!(settings["data"]["colour"], *colour);
        let web = self.direct.get("/apis/apps/v1/namespaces/shop/deployments/web").await.with_code(200).json();
        assert_eq!(web["status"]["updatedReplicas"], replicas, "{web}");
        assert_eq!(web["status"]["availableReplicas"], replicas, "{web}");
    }

    /// The colours of the pods.
    async fn colours(&self) -> Vec<String> {
        let colour = |pod: &Value| pod["metadata"]["annotations"]["colour"].as_str().unwrap_or_default().to_owned();
        self.pods().await.iter().map(colour).collect()
    }

    async fn pods(&self) -> Vec<Value> {
        let list = self.direct.get("/api/v1/namespaces/shop/pods").await.with_code(200).json();
        list["items"].as_array().unwrap().clone()
    }

    async fn while_pods_run(&self, work: impl Future<Output = ()>) {
        tokio::select! {
            () = work => {}
            never = self.run_pods() => match never {},
        }
    }

    /// Makes scheduled pods ready, and ends those of Jobs, as kubelets do.
    async fn run_pods(&self) -> std::convert::Infallible {
        loop {
            for pod in self.pods().await {
                if pod["spec"]["nodeName"].is_string() && pod["status"]["phase"] == "Pending" {
                    self.run_pod(&pod).await;
                }
            }
            sleep(KUBELET_PAUSE).await;
        }
    }

    async fn run_pod(&self, pod: &Value) {
        let is_of_job = pod["spec"]["restartPolicy"] == "Never";
        let phase = if is_of_job { "Succeeded" } else { "Running" };
        let ready = json!({"type": "Ready", "status": if is_of_job { "False" } else { "True" },
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"phase": phase, "conditions": [ready]}});
        let name = pod["metadata"]["name"].as_str().unwrap();
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/status");
        let answer = self.direct.patch(&path, "application/strategic-merge-patch+json", &status).await;
        assert!([200, 404].contains(&answer.code.as_u16()), "{}", answer.text());
    }
}

/// Makes Deployments complete, as their controller does.
async fn run_deployments(direct: Http) -> std::convert::Infallible {
    let collection = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    loop {
        let list = direct.get(&collection).await.with_code(200).json();
        for found in list["items"].as_array().unwrap() {
            let (name, generation) = (found["metadata"]["name"].as_str().unwrap(), &found["metadata"]["generation"]);
            if found["status"]["observedGeneration"] == *generation {
                continue;
            }
            let replicas = &found["spec"]["replicas"];
            let available = json!({"type": "Available", "status": "True", "reason": "Test", "message": "",
                "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let status = json!({"status": {"observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": replicas, "availableReplicas": replicas, "conditions": [available]}});
            let answer = direct.patch(&format!("{collection}/{name}/status"), MERGE_PATCH, &status).await;
            assert!([200, 404].contains(&answer.code.as_u16()), "{}", answer.text());
        }
        sleep(KUBELET_PAUSE).await;
    }
}

#[tokio::test]
async fn a_chart_is_deployed_to_a_server_without_a_cluster() {
    if env::var_os("PROGRAMS_SECONDS").is_none() {
        eprintln!("helm without a cluster: skipped, PROGRAMS_SECONDS is not set");
        return;
    }
    let server = Server::start(SERVER, &[]).await;
    let (client, folder) = (server.client(), tempfile::tempdir().unwrap());
    let kubeconfig = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "front",
        "clusters": [{"name": "front", "cluster": {"server": format!("http://{}", server.address())}}],
        "contexts": [{"name": "front", "context": {"cluster": "front"}}],
    });
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let Some(helm) = Helm::ready(&kubeconfig) else { return };
    client.create_manifest(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})).await;
    let path = |collection: &str| format!("/api/v1/namespaces/{NAMESPACE}/{collection}");
    let colour =
        async || client.get(&path("configmaps/settings")).await.with_code(200).json()["data"]["colour"].clone();
    let work = async {
        helm.upgrade("colour=blue,hook=false").await;
        assert_eq!(colour().await, "blue");
        helm.upgrade("colour=red,hook=false,replicas=3").await;
        assert_eq!(colour().await, "red");
        helm.roll_back(1).await;
        assert_eq!(colour().await, "blue");
        let (history, ..) = helm.shows().await;
        assert_eq!(history.lines().count(), 4, "{history}");
        helm.uninstall().await;
    };
    tokio::select! {
        () = work => {}
        never = run_deployments(client) => match never {},
    }
    for collection in ["configmaps", "services", "secrets"] {
        let list = client.get(&path(collection)).await.with_code(200).json();
        assert_eq!(list["items"], json!([]), "{collection}");
    }
}
