//! Workloads, which create pods: deployments with their replica sets, stateful sets, daemon sets, jobs.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    GeneratedObject, cluster,
    pod::{PodHealth, PodTemplateInputs},
    random::{Random, time},
    template::{Fill, Template},
};

const SERVICES: &[&str] = &[
    "checkout",
    "ledger",
    "search",
    "profile",
    "inventory",
    "pricing",
    "session",
    "invoice",
    "image",
    "notify",
    "report",
    "token",
    "quota",
    "audit",
    "feed",
    "rating",
];
const ROLES: &[&str] = &["api", "worker", "gateway", "cache", "indexer", "consumer", "scheduler", "frontend"];

/// Kind of a workload's controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControllerKind {
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
}

/// The object that a pod's owner reference points to.
pub(super) struct OwnerReference {
    api_version: &'static str,
    kind: &'static str,
    name: String,
    uid: String,
}

impl OwnerReference {
    pub(super) fn reference(&self) -> Value {
        json!({
            "apiVersion": self.api_version, "blockOwnerDeletion": true, "controller": true,
            "kind": self.kind, "name": self.name, "uid": self.uid,
        })
    }
}

/// A workload with pods left to generate.
pub(super) struct Workload {
    kind: ControllerKind,
    namespace: String,
    /// Name of its service account.
    account: String,
    template: Template,
    /// Number of containers in each pod.
    containers: usize,
    /// Prefix of pod names, without the last hyphen.
    stem: String,
    created: i64,
    replicas: u32,
    made: u32,
    /// Suffixes in use: pod names of one owner are unique.
    suffixes: BTreeSet<String>,
}

impl Workload {
    /// Draws workload `number`, with at most `pods` replicas, in one of `namespaces`. Returns it and its own objects.
    pub(super) fn plan(
        number: u32,
        pods: u32,
        nodes: u32,
        namespaces: u32,
        random: &mut Random,
    ) -> (Self, Vec<GeneratedObject>) {
        let kind = match random.between(0, 99) {
            0..=2 if nodes <= pods => ControllerKind::DaemonSet,
            0..=74 => ControllerKind::Deployment,
            75..=89 => ControllerKind::StatefulSet,
            _ => ControllerKind::Job,
        };
        let replicas = match kind {
            ControllerKind::DaemonSet => nodes,
            ControllerKind::Deployment => [1, 2, 2, 3, 3, 5, 8, 12, 30, 60][random.between(0, 9) as usize],
            ControllerKind::StatefulSet => [1, 3, 3, 5, 9][random.between(0, 4) as usize],
            ControllerKind::Job => random.between(1, 4),
        };
        let replicas = replicas.min(pods);
        let service = random.pick(SERVICES);
        let app = format!("{service}-{}", random.pick(ROLES));
        let name = format!("{app}-{number}");
        let namespace = cluster::namespace_name(random.between(0, namespaces - 1));
        let labels = json!({
            "app": app,
            "release": name,
            "version": format!("{}.{}.{}", random.between(1, 4), random.between(0, 30), random.between(0, 9)),
        });
        let draft = WorkloadDraft { kind, name, app, namespace, labels, replicas, created: random.moment() };
        draft.finish(random)
    }

    /// Namespace and name of the service account of its pods.
    pub(super) fn account_key(&self) -> (String, String) {
        (self.namespace.clone(), self.account.clone())
    }

    /// The service account of its pods. API servers accept no pod whose service account does not exist.
    pub(super) fn account(&self, random: &mut Random) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                "creationTimestamp": time(self.created), "name": self.account, "namespace": self.namespace,
                "uid": random.uid(),
            },
        })
    }

    /// The next pod, placed on `node`; `None` once all replicas are generated.
    pub(super) fn next_pod(&mut self, node: u32, random: &mut Random) -> Option<GeneratedObject> {
        if self.made == self.replicas {
            return None;
        }
        let name = match self.kind {
            ControllerKind::StatefulSet => format!("{}-{}", self.stem, self.made),
            ControllerKind::Deployment | ControllerKind::DaemonSet | ControllerKind::Job => {
                let suffix = self.free_suffix(random);
                format!("{}-{suffix}", self.stem)
            }
        };
        self.made += 1;
        let created = self.created + i64::from(random.between(0, 3_000));
        let scheduled = created + i64::from(random.between(0, 1));
        let started = scheduled + i64::from(random.between(1, 30));
        let ready = started + i64::from(random.between(1, 60));
        let mut octet = |low| random.between(low, 254);
        let pod_ip = format!("10.{}.{}.{}", octet(128), octet(0), octet(1));
        let fill = Fill {
            name,
            uid: random.uid(),
            node: cluster::node_name(node),
            host_ip: cluster::node_ip(node),
            pod_ip,
            token: random.suffix(5),
            created: time(created),
            scheduled: time(scheduled),
            started: time(started),
            ready: time(ready),
            containers: std::array::from_fn(
                |index| if index < self.containers { random.hex(64) } else { String::new() },
            ),
        };
        Some(GeneratedObject { group: "", version: "v1", plural: "pods", json: self.template.render(&fill) })
    }

    fn free_suffix(&mut self, random: &mut Random) -> String {
        loop {
            let suffix = random.suffix(5);
            if self.suffixes.insert(suffix.clone()) {
                return suffix;
            }
        }
    }
}

/// A workload with its names and numbers drawn, before its objects are made.
struct WorkloadDraft {
    kind: ControllerKind,
    name: String,
    app: String,
    namespace: String,
    labels: Value,
    replicas: u32,
    created: i64,
}

impl WorkloadDraft {
    fn finish(mut self, random: &mut Random) -> (Workload, Vec<GeneratedObject>) {
        let uid = random.uid();
        let selector = json!({"matchLabels": {"app": self.app, "release": self.name}});
        let (kind, plural) = match self.kind {
            ControllerKind::Deployment => ("Deployment", "deployments"),
            ControllerKind::StatefulSet => ("StatefulSet", "statefulsets"),
            ControllerKind::DaemonSet => ("DaemonSet", "daemonsets"),
            ControllerKind::Job => ("Job", "jobs"),
        };
        let (group, api_version) =
            if self.kind == ControllerKind::Job { ("batch", "batch/v1") } else { ("apps", "apps/v1") };
        let mut owner = OwnerReference { api_version, kind, name: self.name.clone(), uid };
        let mut controller = self.controller(&owner, &selector);
        controller["status"] = self.status();
        let mut objects = vec![object(group, plural, &controller)];

        if self.kind == ControllerKind::Deployment {
            let hash = random.suffix(10);
            self.labels["pod-template-hash"] = hash.as_str().into();
            let deployment = owner;
            owner = OwnerReference {
                api_version,
                kind: "ReplicaSet",
                name: format!("{}-{hash}", self.name),
                uid: random.uid(),
            };
            let mut set = self.controller(&owner, &selector);
            set["metadata"]["ownerReferences"] = json!([deployment.reference()]);
            set["spec"]["selector"]["matchLabels"]["pod-template-hash"] = hash.into();
            set["status"] = json!({
                "availableReplicas": self.replicas, "fullyLabeledReplicas": self.replicas, "observedGeneration": 1,
                "readyReplicas": self.replicas, "replicas": self.replicas,
            });
            objects.push(object("apps", "replicasets", &set));
        }
        let stem = owner.name.clone();
        let plan = PodTemplateInputs {
            namespace: &self.namespace,
            app: &self.app,
            labels: &self.labels,
            owner: &owner,
            generate_name: (self.kind != ControllerKind::StatefulSet).then(|| format!("{stem}-")),
            health: match self.kind {
                ControllerKind::Job => PodHealth::Completed,
                ControllerKind::Deployment if random.chance(3) => PodHealth::Crashing,
                ControllerKind::Deployment | ControllerKind::StatefulSet | ControllerKind::DaemonSet => {
                    PodHealth::Running
                }
            },
            created: self.created,
        };
        let template = plan.template(random);
        let (kind, created, replicas) = (self.kind, self.created, self.replicas);
        let containers = template.containers();
        let (namespace, account, suffixes) = (self.namespace, self.app, BTreeSet::new());
        let workload =
            Workload { kind, namespace, account, template, containers, stem, created, replicas, made: 0, suffixes };
        (workload, objects)
    }

    /// The controller's object, with a minimal pod template.
    fn controller(&self, own: &OwnerReference, selector: &Value) -> Value {
        let mut spec = json!({
            "selector": selector,
            "template": {
                "metadata": {"labels": self.labels},
                "spec": {"containers": [{
                    "image": format!("registry.example.com/platform/{}", self.app), "name": self.app,
                }], "serviceAccountName": self.app},
            },
        });
        match self.kind {
            ControllerKind::Deployment => {
                spec["replicas"] = self.replicas.into();
                if own.kind == "Deployment" {
                    let rolling = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
                    spec["strategy"] = json!({"rollingUpdate": rolling, "type": "RollingUpdate"});
                }
            }
            ControllerKind::StatefulSet => {
                spec["replicas"] = self.replicas.into();
                spec["serviceName"] = self.name.as_str().into();
            }
            ControllerKind::DaemonSet => spec["updateStrategy"] = json!({"type": "RollingUpdate"}),
            ControllerKind::Job => {
                spec["completions"] = self.replicas.into();
                spec["parallelism"] = self.replicas.into();
                // API servers reject a selector that they did not generate from the job's uid.
                spec["manualSelector"] = true.into();
                spec["template"]["spec"]["restartPolicy"] = "OnFailure".into();
            }
        }
        let mut controller = json!({
            "apiVersion": own.api_version,
            "kind": own.kind,
            "metadata": {
                "creationTimestamp": time(self.created), "generation": 1, "labels": self.labels,
                "name": own.name, "namespace": self.namespace, "uid": own.uid,
            },
        });
        controller["spec"] = spec;
        controller
    }

    fn status(&self) -> Value {
        let replicas = self.replicas;
        match self.kind {
            ControllerKind::Deployment => json!({
                "availableReplicas": replicas, "observedGeneration": 1, "readyReplicas": replicas, "replicas": replicas,
                "updatedReplicas": replicas,
            }),
            ControllerKind::StatefulSet => json!({
                "availableReplicas": replicas, "currentReplicas": replicas, "observedGeneration": 1,
                "readyReplicas": replicas, "replicas": replicas, "updatedReplicas": replicas,
            }),
            ControllerKind::DaemonSet => json!({
                "currentNumberScheduled": replicas, "desiredNumberScheduled": replicas, "numberAvailable": replicas,
                "numberMisscheduled": 0, "numberReady": replicas, "observedGeneration": 1,
                "updatedNumberScheduled": replicas,
            }),
            ControllerKind::Job => json!({"succeeded": replicas, "startTime": time(self.created)}),
        }
    }
}

fn object(group: &'static str, plural: &'static str, value: &Value) -> GeneratedObject {
    GeneratedObject { group, version: "v1", plural, json: value.to_string().into_bytes() }
}
