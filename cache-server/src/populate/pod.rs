//! One workload's pod, as a cluster shows it after scheduling and start: the template that its replicas share.

use serde_json::{Value, json};

use super::{
    managed_fields,
    random::{Random, time},
    template::{CONTAINERS_MAX, Template},
    workload::Owner,
};

/// How all pods of a workload fare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Running,
    /// Restarts again and again.
    Crashing,
    /// Ended well, as jobs do.
    Completed,
}

/// What the pod template of a workload is made from.
pub(super) struct Plan<'a> {
    pub(super) namespace: &'a str,
    /// The app's name, also the first container's.
    pub(super) app: &'a str,
    pub(super) labels: &'a Value,
    pub(super) owner: &'a Owner,
    /// What names of pods start with; `None` for stateful sets, which count.
    pub(super) generate_name: Option<String>,
    pub(super) health: Health,
    pub(super) created: i64,
}

const SIDECARS: &[&str] = &["envoy", "log-shipper", "metrics-exporter"];
const REGISTRIES: &[&str] = &["registry.example.com", "ghcr.io/example", "quay.io/example"];
const SETTINGS: &[(&str, &str)] = &[
    ("LOG_LEVEL", "info"),
    ("HTTP_PORT", "8080"),
    ("CACHE_TTL_SECONDS", "300"),
    ("OTEL_SERVICE_NAME", "{app}"),
    ("UPSTREAM_URL", "http://{app}-upstream.{namespace}.svc:8080"),
    ("MAX_CONNECTIONS", "64"),
    ("FEATURE_FLAGS", "async-writes,strict-mode"),
];

/// The annotation that a tool of the cluster puts on every pod.
const NOTE: &str = "policy.example.com/verdict";

/// One container: what was asked for, and what the kubelet reports.
struct Container {
    spec: Value,
    status: Value,
}

impl Plan<'_> {
    /// Draws the workload's containers and volumes, and renders everything but the holes.
    pub(super) fn template(&self, random: &mut Random) -> Template {
        let sidecars = match random.between(0, 15) {
            0..=9 => 0,
            10..=14 => 1,
            _ => 2,
        };
        let configured = random.chance(50);
        let containers: Vec<Container> =
            (0..=sidecars).take(CONTAINERS_MAX).map(|index| self.container(index, configured, random)).collect();
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self.metadata(random),
            "spec": self.spec(&containers, configured, random),
            "status": self.status(&containers),
        });
        let managed = managed_fields(&pod);
        pod["metadata"]["creationTimestamp"] = "{{created}}".into();
        pod["metadata"]["name"] = "{{name}}".into();
        pod["metadata"]["namespace"] = self.namespace.into();
        pod["metadata"]["uid"] = "{{uid}}".into();
        pod["metadata"]["managedFields"] = managed;
        pod["spec"]["nodeName"] = "{{node}}".into();
        Template::new(&pod)
    }

    /// What the controller writes; the server's own members are added after managedFields is made.
    fn metadata(&self, random: &mut Random) -> Value {
        let mut metadata = json!({
            "annotations": {NOTE: "admitted"},
            "labels": self.labels,
            "ownerReferences": [self.owner.reference()],
        });
        if let Some(generate_name) = &self.generate_name {
            metadata["generateName"] = generate_name.as_str().into();
        }
        if random.chance(50) {
            metadata["annotations"]["checksum/config"] = random.hex(64).into();
        }
        if random.chance(20) {
            metadata["annotations"]["kubectl.kubernetes.io/restartedAt"] = time(self.created).into();
        }
        if random.chance(20) {
            metadata["annotations"]["prometheus.io/port"] = "9090".into();
            metadata["annotations"]["prometheus.io/scrape"] = "true".into();
        }
        metadata
    }

    fn container(&self, index: usize, configured: bool, random: &mut Random) -> Container {
        let name = if index == 0 { self.app.to_owned() } else { format!("{}-{index}", random.pick(SIDECARS)) };
        let repository = format!("{}/{name}", random.pick(REGISTRIES));
        let image =
            format!("{repository}:v{}.{}.{}", random.between(1, 4), random.between(0, 30), random.between(0, 9));
        let port = 8000 + random.between(0, 999);
        let mut spec = json!({
            "env": self.env(index, random),
            "image": image,
            "name": name,
            "resources": {"requests": {
                "cpu": format!("{}m", 50 * random.between(1, 20)), "memory": format!("{}Mi", 64 << random.between(1, 5)),
            }},
            "volumeMounts": [{
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "name": "kube-api-access-{{token}}",
                "readOnly": true,
            }],
        });
        if index == 0 && self.health != Health::Completed {
            spec["ports"] = json!([{"containerPort": port, "protocol": "TCP"}]);
            if random.chance(70) {
                spec["readinessProbe"] = probe("/ready", port);
            }
            if random.chance(20) {
                spec["livenessProbe"] = probe("/live", port);
            }
        }
        if index == 0 && configured {
            let mounts = spec["volumeMounts"].as_array_mut().expect("made above");
            mounts.push(json!({"mountPath": "/etc/config", "name": "config"}));
        }
        let status = json!({
            "containerID": format!("containerd://{{{{container-{index}}}}}"),
            "image": image,
            "imageID": format!("{repository}@sha256:{}", random.hex(64)),
            "name": name,
            "ready": self.health == Health::Running,
            "restartCount": if self.health == Health::Crashing { random.between(5, 900) } else { 0 },
            "started": self.health == Health::Running,
            "state": self.state(),
        });
        Container { spec, status }
    }

    fn state(&self) -> Value {
        match self.health {
            Health::Running => json!({"running": {"startedAt": "{{started}}"}}),
            Health::Crashing => json!({"waiting": {
                "message": "back-off 5m0s restarting failed container",
                "reason": "CrashLoopBackOff",
            }}),
            Health::Completed => json!({"terminated": {
                "exitCode": 0, "finishedAt": "{{ready}}", "reason": "Completed", "startedAt": "{{started}}",
            }}),
        }
    }

    fn env(&self, index: usize, random: &mut Random) -> Value {
        let field = |path: &str| json!({"fieldRef": {"apiVersion": "v1", "fieldPath": path}});
        let mut env = Vec::new();
        if index == 0 && random.chance(30) {
            env.push(json!({"name": "POD_NAME", "valueFrom": field("metadata.name")}));
        }
        let first = random.between(0, 6) as usize;
        for (name, value) in SETTINGS.iter().cycle().skip(first).take(if random.chance(40) { 2 } else { 1 }) {
            let value = value.replace("{app}", self.app).replace("{namespace}", self.namespace);
            env.push(json!({"name": name, "value": value}));
        }
        if index == 0 && random.chance(20) {
            let secret = json!({"key": "password", "name": format!("{}-db", self.app)});
            env.push(json!({"name": "DATABASE_PASSWORD", "valueFrom": {"secretKeyRef": secret}}));
        }
        Value::Array(env)
    }

    fn spec(&self, containers: &[Container], configured: bool, random: &mut Random) -> Value {
        let not_ready =
            |key: &str| json!({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300});
        let mut spec = json!({
            "containers": containers.iter().map(|container| container.spec.clone()).collect::<Vec<_>>(),
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": if self.health == Health::Completed { "OnFailure" } else { "Always" },
            "schedulerName": "default-scheduler",
            "securityContext": {"fsGroup": 1000 + random.between(0, 4000)},
            "serviceAccountName": self.app,
            "terminationGracePeriodSeconds": 30,
            "tolerations": [not_ready("node.kubernetes.io/not-ready"), not_ready("node.kubernetes.io/unreachable")],
            "volumes": [{"name": "kube-api-access-{{token}}", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            ]}}],
        });
        if configured {
            let volumes = spec["volumes"].as_array_mut().expect("made above");
            let config = format!("{}-{}", self.app, random.suffix(10));
            volumes.push(json!({"configMap": {"name": config}, "name": "config"}));
        }
        if random.chance(10) {
            spec["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
        }
        spec
    }

    fn status(&self, containers: &[Container]) -> Value {
        let (phase, ready) = match self.health {
            Health::Running => ("Running", "True"),
            Health::Crashing => ("Running", "False"),
            Health::Completed => ("Succeeded", "False"),
        };
        let reason = match self.health {
            Health::Running => None,
            Health::Crashing => Some("ContainersNotReady"),
            Health::Completed => Some("PodCompleted"),
        };
        let condition = |kind: &str, status: &str, time: &str| {
            let mut condition = json!({
                "lastTransitionTime": time, "status": status, "type": kind,
            });
            if let Some(reason) = reason.filter(|_| status == "False") {
                condition["reason"] = reason.into();
            }
            condition
        };
        json!({
            "conditions": [
                condition("Initialized", "True", "{{scheduled}}"),
                condition("Ready", ready, "{{ready}}"),
                condition("ContainersReady", ready, "{{ready}}"),
                condition("PodScheduled", "True", "{{scheduled}}"),
            ],
            "containerStatuses": containers.iter().map(|container| container.status.clone()).collect::<Vec<_>>(),
            "hostIP": "{{host-ip}}",
            "phase": phase,
            "podIP": "{{pod-ip}}",
            "podIPs": [{"ip": "{{pod-ip}}"}],
            "qosClass": "Burstable",
            "startTime": "{{scheduled}}",
        })
    }
}

/// Three managers, as in most clusters: the controller made it, a tool annotated it, the kubelet reports on it.
/// What admission added (tolerations, the token's volume) and what the scheduler reported has other owners.
fn managed_fields(pod: &Value) -> Value {
    let mut made = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
    made["spec"]["volumes"].as_array_mut().expect("made in spec").remove(0);
    made["spec"].as_object_mut().expect("made above").remove("tolerations");
    for container in made["spec"]["containers"].as_array_mut().expect("made in spec") {
        container["volumeMounts"].as_array_mut().expect("made in container").remove(0);
    }
    let mut reported = json!({"status": pod["status"]});
    reported["status"]["conditions"].as_array_mut().expect("made in status").pop();
    let noted = json!({"metadata": {"annotations": {NOTE: ""}}});
    made["metadata"]["annotations"].as_object_mut().expect("made in metadata").remove(NOTE);
    json!([
        managed_fields::entry("kube-controller-manager", None, "{{created}}", &made),
        managed_fields::entry("policy-agent", None, "{{scheduled}}", &noted),
        managed_fields::entry("kubelet", Some("status"), "{{ready}}", &reported),
    ])
}

fn probe(path: &str, port: u32) -> Value {
    json!({
        "failureThreshold": 3,
        "httpGet": {"path": path, "port": port},
        "periodSeconds": 10,
    })
}
