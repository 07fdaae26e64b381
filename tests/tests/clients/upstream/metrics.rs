//! kube-state-metrics through the cache-server, over TLS and HTTP/2: its metrics name the objects of its copy.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::Stdio,
};

use serde_json::Value;
use tests::http::Client as Http;
use tokio::process::Child;

use super::scene::{RESOURCES, Scene, until};
use crate::programs::Program;

/// For each type, the metric with one sample an object, and the labels that name the object: its namespace, if it has
/// one, its name, and its uid, if the metric has it.
const METRICS: [(&str, &str, &[&str]); 4] = [
    ("configmaps", "kube_configmap_metadata_resource_version", &["namespace", "configmap"]),
    ("pods", "kube_pod_info", &["namespace", "pod", "uid"]),
    ("nodes", "kube_node_created", &["node"]),
    ("deployments.apps", "kube_deployment_created", &["namespace", "deployment"]),
];

/// The objects of each type: their names, and the other labels of the metric.
type NamedObjects = BTreeMap<&'static str, BTreeSet<String>>;

pub(super) struct KubeStateMetrics {
    client: Http,
    _child: Child,
}

impl KubeStateMetrics {
    /// Starts it, and waits until it answers. `None` if it is not here.
    pub(super) async fn start(scene: &Scene) -> Option<Self> {
        let resources = RESOURCES.map(|(name, _)| name.trim_end_matches(".apps")).join(",");
        Self::start_with(&scene.kubeconfig(), &resources).await
    }

    /// Like [`start`](Self::start), with a kubeconfig and types, separated by commas.
    pub(super) async fn start_with(kubeconfig: &Path, resources: &str) -> Option<Self> {
        let program = Program::ready("kube-state-metrics")?;
        let [metrics, telemetry] = free_ports();
        let mut command = program.process();
        command
            .args(["--host=127.0.0.1", "--telemetry-host=127.0.0.1"])
            .args([format!("--port={}", metrics.port()), format!("--telemetry-port={}", telemetry.port())])
            .args([format!("--resources={resources}"), format!("--kubeconfig={}", kubeconfig.display())])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let _child = command.spawn().expect("it was made ready");
        let client = Http::new(metrics);
        until("kube-state-metrics answers", async || client.try_get("/metrics").await.is_ok()).await;
        Some(Self { client, _child })
    }

    /// Waits until its metrics name exactly the objects of the API server.
    pub(super) async fn equals(&self, direct: &Http) {
        let expected = objects(direct).await;
        let mut last = NamedObjects::new();
        for (resource, _, _) in METRICS {
            until(&format!("the metrics of {resource} are those of the API server"), async || {
                last = self.objects().await;
                last[resource] == expected[resource]
            })
            .await;
        }
        assert_eq!(last, expected);
    }

    /// The names of the pods that the metrics name, sorted.
    pub(super) async fn pods(&self) -> Vec<String> {
        let pods = self.objects().await.remove("pods").unwrap_or_default();
        let mut names: Vec<_> = pods.iter().filter_map(|pod| pod.split('/').nth(1)).map(str::to_owned).collect();
        names.sort_unstable();
        names
    }

    /// The objects that the metrics name.
    async fn objects(&self) -> NamedObjects {
        let answer = self.client.get("/metrics").await.with_code(200);
        let of = |(resource, metric, labels): (&'static str, &str, &[&str])| {
            let samples = answer.text().lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
            (resource, samples.map(|sample| described(sample, metric, labels)).collect())
        };
        METRICS.map(of).into()
    }
}

/// `namespace/name/version` of a sample without the metric's name, or its other labels.
fn described(sample: &str, metric: &str, labels: &[&str]) -> String {
    let (pairs, value) = sample.rsplit_once("} ").unwrap_or((sample, ""));
    let pairs: BTreeMap<&str, &str> = pairs.split("\",").filter_map(|pair| pair.split_once("=\"")).collect();
    let mut words: Vec<String> = labels
        .iter()
        .map(|label| pairs.get(label).map_or("", |value| value.trim_end_matches('"')).to_owned())
        .collect();
    if metric.ends_with("resource_version") {
        // A float, perhaps with an exponent.
        words.push(value.parse::<f64>().unwrap_or_default().to_string());
    }
    words.join("/")
}

/// The objects of the API server, as the metrics name them.
async fn objects(direct: &Http) -> NamedObjects {
    let mut all = NamedObjects::new();
    for ((resource, metric, labels), (_, path)) in METRICS.into_iter().zip(RESOURCES) {
        let list = direct.get(path).await.with_code(200).json();
        let named = list["items"].as_array().unwrap().iter().map(|object| {
            let metadata = &object["metadata"];
            let text = |member: &str| metadata[member].as_str().unwrap_or_default().to_owned();
            let of_label = |label: &&str| match *label {
                "namespace" | "uid" => text(label),
                _ => text("name"),
            };
            let mut words: Vec<String> = labels.iter().map(of_label).collect();
            if metric.ends_with("resource_version") {
                words.push(version(metadata));
            }
            words.join("/")
        });
        all.insert(resource, named.collect());
    }
    all
}

fn version(metadata: &Value) -> String {
    metadata["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// Addresses that were free a moment ago: the program does not print a port that it chose itself.
fn free_ports() -> [SocketAddr; 2] {
    [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap()).map(|listener| listener.local_addr().unwrap())
}
