//! The controllers and the scheduler of Kubernetes, kube-state-metrics, Argo CD's cluster cache, helm and kubectl through
//! one cache-server, in front of the kube-apiserver of their release.
//!
//! Goal: programs that were written for kube-apiserver do their work through this server, whichever part restarts, and
//! cost the API server one watch a type. Method: Deployments are created, scaled and deleted at random, custom types come
//! and go, and helm deploys a chart, while each part restarts in turn. In the end each Deployment has its pods, the
//! scheduler has placed all of them, nothing of deleted Deployments is left, kube-state-metrics names exactly these pods,
//! and the cluster cache has the objects of one that follows the API server itself. The audit log has the cost.
//!
//! Skipped with one line unless `benches/kube-apiserver/prepare --release 1.37 --controllers` was run and
//! `GENUINE_FOLDER` names its folder. `PROGRAMS_SECONDS` is the duration of the writes.

use std::{
    collections::BTreeMap,
    env,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use fastrand::Rng;
use serde_json::{Value, json};
use tests::{
    genuine::{ADMIN, CACHE, Genuine, GenuineSettings, Identity, RecordedRead, cluster_role_binding, programs},
    http::Client as Http,
    objects::node,
    relay::Relay,
};
use tokio::{
    process::{Child, Command},
    time::sleep,
};

use super::{
    gitops::{CUSTOM_OBJECTS, GitopsCache, by_kind, create_custom, delete_custom},
    helm::{Helm, Release},
    metrics::KubeStateMetrics,
    scene::{Front, until_within},
};
use crate::programs::Program;

const SECONDS: u64 = 60;
/// Timeout until all programs have done their work.
const SETTLED_WAIT: Duration = Duration::from_secs(180);
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/pods";
const NAMESPACED_PODS: &str = "/api/v1/namespaces/default/pods";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
/// Collections that the programs do not read from the API server itself. Namespaced paths and helm's account are not
/// compared.
const CACHED: [&str; 5] =
    [PODS, "/api/v1/configmaps", "/api/v1/events", "/apis/apps/v1/deployments", "/apis/example.com/v1/widgets"];
/// Custom types: one is deleted during the churn, and the other is defined.
const OLD_KIND: &str = "Relic";
const NEW_KIND: &str = "Widget";
const NODES: usize = 3;
const DEPLOYMENTS_MAX: usize = 6;
const REPLICAS_MAX: u64 = 8;
/// Pause between two writes: the programs see most states, not only the last one.
const BETWEEN_WRITES: Duration = Duration::from_millis(500);
const CONTROLLERS: &str = "kube-controller-manager";
const SCHEDULER: &str = "kube-scheduler";
const METRICS: &str = "kube-state-metrics";
const KUBECTL: &str = "kubectl";
const ARGO_CD: &str = "argocd";
const HELM: &str = "helm";
/// A user of Argo CD who may read a part of the types.
const TENANT: &str = "tenant";

/// The servers, and the programs that run through the cache-server. The programs know the address of `below`.
struct Cluster {
    genuine: Genuine,
    front: Front,
    below: Relay,
    folder: PathBuf,
    running: BTreeMap<&'static str, Child>,
    /// Replicas by name.
    deployments: BTreeMap<String, u64>,
}

impl Cluster {
    /// Starts everything. `None`, with one line, if the programs were not built.
    async fn start(test: &str) -> Option<Self> {
        let folder = programs(test)?;
        if [CONTROLLERS, SCHEDULER].iter().any(|name| !folder.join(name).is_file()) {
            assert!(env::var_os("PROGRAMS_SECONDS").is_none(), "{test}: no {CONTROLLERS} in {}", folder.display());
            eprintln!("{test}: skipped, no {CONTROLLERS} in {}", folder.display());
            return None;
        }
        let mut identities =
            [CONTROLLERS, SCHEDULER, METRICS, KUBECTL].map(|name| Identity::new(name, &["system:masters"])).to_vec();
        identities.extend([ARGO_CD, TENANT].map(|name| Identity::new(name, &[])));
        let genuine = Genuine::start_with(
            test,
            GenuineSettings {
                identities,
                // No kubelet makes nodes ready, and no account is created before the controllers start.
                without_plugins: "ServiceAccount,TaintNodesByCondition",
                records_reads: true,
                ..GenuineSettings::default()
            },
        )
        .await?;
        for (user, role) in [(ARGO_CD, "cache-reader"), (TENANT, "view")] {
            genuine.client(ADMIN).create_manifest(&cluster_role_binding(user, role, "User", user)).await;
        }
        let front = Front::start(genuine.kubeconfig(CACHE), &[]).await;
        let below = Relay::start(front.address()).await;
        let (running, deployments) = (BTreeMap::new(), BTreeMap::new());
        let mut cluster = Self { genuine, front, below, folder, running, deployments };
        for index in 0..NODES {
            cluster.add_node(&format!("n{index}")).await;
        }
        cluster.run(CONTROLLERS);
        cluster.run(SCHEDULER);
        Some(cluster)
    }

    async fn add_node(&self, name: &str) {
        let (admin, object) = (self.genuine.client(ADMIN), node(name));
        admin.create(&object).await;
        let room = json!({"cpu": "64", "memory": "64Gi", "pods": "500"});
        let ready = json!({"type": "Ready", "status": "True", "reason": "Test", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({"status": {"capacity": room, "allocatable": room, "conditions": [ready]}});
        let path = format!("{}/status", object.path());
        admin.patch(&path, "application/merge-patch+json", &status).await.with_code(200);
    }

    /// Starts a program of the folder, or starts it again after it was killed.
    fn run(&mut self, name: &'static str) {
        // The old process ends with its handle.
        self.running.remove(name);
        let kubeconfig = self.front.kubeconfig(name, self.below.address());
        let mut command = Command::new(self.folder.join(name));
        command.arg(format!("--kubeconfig={}", kubeconfig.display())).args(["--leader-elect=false", "--secure-port=0"]);
        if name == CONTROLLERS {
            // Without kubelets every node would be lost after 40 s.
            command.arg("--controllers=*,-node-lifecycle-controller");
        }
        let log = std::fs::File::create(kubeconfig.with_extension("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        self.running.insert(name, command.spawn().expect("it was built"));
    }

    /// The administrator, through the cache-server.
    fn client(&self) -> Http {
        self.front.client(KUBECTL)
    }

    /// Creates, scales or deletes a Deployment.
    async fn write(&mut self, random: &mut Rng) {
        let (name, replicas) = (format!("d{}", random.usize(..DEPLOYMENTS_MAX)), random.u64(..=REPLICAS_MAX));
        let (client, path) = (self.client(), format!("{DEPLOYMENTS}/{name}"));
        let exists = self.deployments.insert(name.clone(), replicas).is_some();
        if !exists {
            client.post(DEPLOYMENTS, &deployment(&name, replicas)).await.with_code(201);
        } else if random.u8(..4) == 0 {
            client.delete(&path).await.with_code(200);
            self.deployments.remove(&name);
        } else {
            let scale = json!({"spec": {"replicas": replicas}});
            client.patch(&format!("{path}/scale"), "application/merge-patch+json", &scale).await.with_code(200);
        }
    }

    /// helm, with the rights of an account in one namespace. `None` if helm is not here.
    async fn release(&self) -> Option<Release> {
        let direct = self.genuine.client(ADMIN);
        let token = Release::account(direct).await;
        let kubeconfig = self.front.kubeconfig_with(HELM, &token, self.below.address());
        Some(Release::new(Helm::ready(&kubeconfig)?, direct))
    }

    /// Restarts the cache-server, as behind a Service: clients lose their connections, and reach the new one.
    async fn restart_front(&mut self) {
        self.front.restart().await;
        self.below.lead_to(self.front.address());
        self.below.cut();
    }

    /// Writes for `seconds` beside the steps of helm, and restarts each part in turn.
    async fn churn(&mut self, random: &mut Rng, seconds: u64, release: Option<&Release>) {
        for part in 1..=5 {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(seconds) / 5 {
                self.write(random).await;
                sleep(BETWEEN_WRITES).await;
            }
            match part {
                1 => self.run(SCHEDULER),
                2 => self.genuine.restart().await,
                3 if let Some(release) = release => release.upgrade_across("green", 4, self.restart_front()).await,
                3 => self.restart_front().await,
                4 => self.run(CONTROLLERS),
                _ => {}
            }
            if let Some(release) = release {
                eprintln!("helm, after restart {part}");
                release.step(part).await;
            }
            match part {
                2 => create_custom(self.client(), NEW_KIND).await,
                4 => delete_custom(self.client(), OLD_KIND).await,
                _ => {}
            }
        }
    }

    /// Differences from what the programs have to bring about; empty once they have.
    async fn missing(&self) -> Vec<String> {
        let direct = self.genuine.client(ADMIN);
        let mut missing = Vec::new();
        let pods = direct.get(NAMESPACED_PODS).await.with_code(200).json();
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for pod in pods["items"].as_array().unwrap() {
            let name = pod["metadata"]["labels"]["app"].as_str().unwrap_or_default().to_owned();
            if pod["spec"]["nodeName"].is_null() {
                missing.push(format!("a pod of {name} has no node"));
            }
            *counts.entry(name).or_default() += 1;
        }
        let expected: BTreeMap<_, _> = self.deployments.clone().into_iter().filter(|(_, count)| *count > 0).collect();
        if counts != expected {
            missing.push(format!("pods by Deployment: {counts:?}, not {expected:?}"));
        }
        let sets = direct.get(REPLICA_SETS).await.with_code(200).json();
        let sets = sets["items"].as_array().unwrap().len();
        if sets != self.deployments.len() {
            missing.push(format!("{sets} ReplicaSets of {} Deployments", self.deployments.len()));
        }
        for (name, replicas) in &self.deployments {
            let found = direct.get(&format!("{DEPLOYMENTS}/{name}")).await.with_code(200).json();
            let shown = found["status"]["replicas"].as_u64().unwrap_or_default();
            if shown != *replicas || found["status"]["observedGeneration"] != found["metadata"]["generation"] {
                missing.push(format!("the status of {name} is {}", found["status"]));
            }
        }
        missing
    }

    /// Waits until the programs have done their work.
    async fn settle(&self, when: &str) {
        let mut missing = Vec::new();
        let settled = async || {
            missing = self.missing().await;
            missing.is_empty()
        };
        let begun = Instant::now();
        if until_within(SETTLED_WAIT, settled).await {
            eprintln!("{when}: settled after {:.1} s", begun.elapsed().as_secs_f64());
            return;
        }
        let logs = [CONTROLLERS, SCHEDULER].map(|name| {
            let path = self.front.kubeconfig(name, self.below.address()).with_extension("log");
            let log = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<_> = log.lines().rev().take(20).collect();
            format!("{name}:\n{}", lines.join("\n"))
        });
        panic!("{when}: {missing:#?}\n{}", logs.join("\n"));
    }

    /// Prints what each identity cost the API server.
    fn print_costs(&self) {
        let mut costs: BTreeMap<String, [usize; 3]> = BTreeMap::new();
        for read in self.genuine.reads() {
            let [lists, watches, _] = costs.entry(read.user).or_default();
            *if read.verb == "list" { lists } else { watches } += 1;
        }
        for (user, count) in self.genuine.reviews() {
            costs.entry(user).or_default()[2] = count;
        }
        eprintln!("requests that reached kube-apiserver, by identity:");
        for (user, [lists, watches, reviews]) in costs {
            eprintln!("{user:>50}: {lists:5} lists, {watches:5} watches, {reviews:5} reviews");
        }
    }

    /// Asserts that no program but helm read a cached type of all namespaces from the API server.
    fn assert_few_reads(&self) {
        let programs = [CONTROLLERS, SCHEDULER, METRICS, KUBECTL, ARGO_CD];
        let is_past =
            |read: &RecordedRead| programs.contains(&&*read.user) && CACHED.iter().any(|path| read.is_of(path));
        let past: Vec<_> = self.genuine.reads().into_iter().filter(is_past).collect();
        assert!(past.is_empty(), "reads past the cache: {past:#?}");
    }
}

fn deployment(name: &str, replicas: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                // No kubelet confirms the end of a pod.
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]},
            },
        },
    })
}

/// Runs kubectl through the cache-server, and returns the names that it prints.
async fn kubectl_names(cluster: &Cluster, what: &str) -> Option<Vec<String>> {
    let program = Program::ready(KUBECTL)?;
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = cluster.front.kubeconfig(KUBECTL, cluster.below.address());
    let mut command = program.process();
    command.args(["get", what, "--all-namespaces", "--output=name", "--kubeconfig"]).arg(kubeconfig);
    let output = command.env("HOME", home.path()).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    Some(names.lines().map(|line| line.rsplit('/').next().unwrap_or_default().to_owned()).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_a_cluster_do_their_work_through_the_cache() {
    let Some(mut cluster) = Cluster::start("programs of a cluster").await else { return };
    let seconds = env::var("PROGRAMS_SECONDS").map_or(SECONDS, |text| text.parse().expect("a number of seconds"));
    let mut random = Rng::with_seed(6);
    cluster.write(&mut random).await;
    cluster.settle("start").await;
    create_custom(cluster.client(), OLD_KIND).await;
    let kubeconfig = |cluster: &Cluster, user| cluster.front.kubeconfig(user, cluster.below.address());
    let metrics = KubeStateMetrics::start_with(&kubeconfig(&cluster, METRICS), "pods").await;
    let copy = GitopsCache::start(&kubeconfig(&cluster, ARGO_CD)).await;
    let release = cluster.release().await;
    cluster.churn(&mut random, seconds, release.as_ref()).await;
    cluster.settle("churn with restarts").await;
    compare_names(&cluster, metrics).await;
    if let Some(copy) = copy {
        compare_copies(&cluster, copy, ADMIN).await;
        let copy = GitopsCache::start(&kubeconfig(&cluster, TENANT)).await.expect("gitops-engine is here");
        compare_copies(&cluster, copy, TENANT).await;
    }
    if let Some(release) = release {
        let direct = Helm::ready(&cluster.genuine.kubeconfig(ADMIN)).expect("helm is here");
        assert_eq!(release.helm.shows().await, direct.shows().await);
        release.uninstall().await;
    }
    cluster.print_costs();
    cluster.assert_few_reads();
}

/// Asserts that kube-state-metrics and kubectl name the pods of the API server.
async fn compare_names(cluster: &Cluster, metrics: Option<KubeStateMetrics>) {
    let pods = cluster.genuine.client(ADMIN).get(PODS).await.with_code(200).json();
    let names =
        pods["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    if let Some(metrics) = metrics {
        let mut last = Vec::new();
        let equal = async || {
            last = metrics.pods().await;
            last == names
        };
        assert!(until_within(SETTLED_WAIT, equal).await, "kube-state-metrics shows {last:?}, not {names:?}");
    }
    if let Some(mut shown) = kubectl_names(cluster, "pods").await {
        shown.sort_unstable();
        assert_eq!(shown, names);
    }
}

/// Asserts that a cluster cache holds what another one, of a user with the same rights, reads from the API server itself.
async fn compare_copies(cluster: &Cluster, mut copy: GitopsCache, user: &str) {
    let mut direct = GitopsCache::start(&cluster.genuine.kubeconfig(user)).await.expect("gitops-engine is here");
    let mut differences = Vec::new();
    let equal = async || {
        differences = copy.differences(&mut direct).await;
        differences.is_empty()
    };
    assert!(until_within(SETTLED_WAIT, equal).await, "gitops-engine beside that of {user}: {differences:#?}");
    let objects = copy.objects().await;
    let of = |kind: &str| objects.keys().filter(|key| key.split('/').nth(1) == Some(kind)).count();
    assert_eq!((of(OLD_KIND), of(NEW_KIND)), (0, if user == TENANT { 0 } else { CUSTOM_OBJECTS }));
    eprintln!("gitops-engine, as {user}, holds {} objects: {}", objects.len(), by_kind(&objects));
}
