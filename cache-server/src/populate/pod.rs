//! One workload's pod, as a cluster shows it after scheduling and start: the template that its replicas share.

use serde_json::{Value, json};

use super::{
    container, managed_fields,
    random::{Random, time},
    template::Template,
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

/// The annotation that a tool of the cluster puts on every pod.
const NOTE: (&str, &str) = ("policy.example.com/verdict", "admitted");

impl Plan<'_> {
    /// Draws the workload's containers and volumes, and renders everything but the holes. Goes the way of a pod: its
    /// controller makes it, admission adds to it, the kubelet and the scheduler report on it. Each owns what it wrote.
    pub(super) fn template(&self, random: &mut Random) -> Template {
        let configured = random.chance(50);
        let containers = (0..container::count(random)).map(|index| container::draw(self, index, configured, random));
        let (containers, reports): (Vec<Value>, Vec<Value>) = containers.unzip();
        let mut metadata = self.metadata(random);
        let mut spec = self.spec(containers, configured, random);
        let mut status = self.status(reports);
        let managed = vec![
            managed_fields::entry(
                "kube-controller-manager",
                None,
                "{{created}}",
                &[("metadata", &metadata), ("spec", &spec)],
            ),
            managed_fields::entry(
                "policy-agent",
                None,
                "{{scheduled}}",
                &[("metadata", &json!({"annotations": {NOTE.0: NOTE.1}}))],
            ),
            managed_fields::entry("kubelet", Some("status"), "{{ready}}", &[("status", &status)]),
        ];
        admit(&mut metadata, &mut spec);
        push(&mut status["conditions"], self.condition("PodScheduled", "True", "{{scheduled}}"));
        metadata["creationTimestamp"] = "{{created}}".into();
        metadata["managedFields"] = managed.into();
        metadata["name"] = "{{name}}".into();
        metadata["namespace"] = self.namespace.into();
        metadata["uid"] = "{{uid}}".into();
        spec["nodeName"] = "{{node}}".into();

        // By assignment, here and elsewhere: values inside `json!` are copied in depth.
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod"});
        pod["metadata"] = metadata;
        pod["spec"] = spec;
        pod["status"] = status;
        Template::new(&pod)
    }

    fn metadata(&self, random: &mut Random) -> Value {
        let mut metadata = json!({"labels": self.labels, "ownerReferences": [self.owner.reference()]});
        let annotations = &mut metadata["annotations"];
        annotations["checksum/config"] = random.hex(CHECKSUM_DIGITS).into();
        if random.chance(20) {
            annotations["kubectl.kubernetes.io/restartedAt"] = time(self.created).into();
        }
        if random.chance(20) {
            annotations["prometheus.io/port"] = "9090".into();
            annotations["prometheus.io/scrape"] = "true".into();
        }
        if let Some(generate_name) = &self.generate_name {
            metadata["generateName"] = generate_name.as_str().into();
        }
        metadata
    }

    fn spec(&self, containers: Vec<Value>, configured: bool, random: &mut Random) -> Value {
        let mut spec = json!({
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": if self.health == Health::Completed { "OnFailure" } else { "Always" },
            "schedulerName": "default-scheduler",
            "securityContext": {"fsGroup": 1000 + random.between(0, 4000)},
            "serviceAccountName": self.app,
            "terminationGracePeriodSeconds": 30,
            "volumes": [],
        });
        spec["containers"] = containers.into();
        if configured {
            let config = format!("{}-{}", self.app, random.suffix(10));
            push(&mut spec["volumes"], json!({"configMap": {"name": config}, "name": "config"}));
        }
        if random.chance(10) {
            spec["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
        }
        spec
    }

    /// What the kubelet reports.
    fn status(&self, containers: Vec<Value>) -> Value {
        let (phase, ready) = match self.health {
            Health::Running => ("Running", "True"),
            Health::Crashing => ("Running", "False"),
            Health::Completed => ("Succeeded", "False"),
        };
        let mut status = json!({
            "hostIP": "{{host-ip}}",
            "phase": phase,
            "podIP": "{{pod-ip}}",
            "podIPs": [{"ip": "{{pod-ip}}"}],
            "qosClass": "Burstable",
            "startTime": "{{scheduled}}",
        });
        status["conditions"] = Value::Array(vec![
            self.condition("Initialized", "True", "{{scheduled}}"),
            self.condition("Ready", ready, "{{ready}}"),
            self.condition("ContainersReady", ready, "{{ready}}"),
        ]);
        status["containerStatuses"] = containers.into();
        status
    }

    fn condition(&self, kind: &str, status: &str, time: &str) -> Value {
        let mut condition = json!({"lastTransitionTime": time, "status": status, "type": kind});
        let reason = match self.health {
            Health::Running => None,
            Health::Crashing => Some("ContainersNotReady"),
            Health::Completed => Some("PodCompleted"),
        };
        if let Some(reason) = reason.filter(|_| status == "False") {
            condition["reason"] = reason.into();
        }
        condition
    }
}

/// Digits of the checksum by which a new configuration makes new pods.
const CHECKSUM_DIGITS: usize = 40;

/// What admission adds to every pod: a tool's annotation, tolerations, and the service account's token.
fn admit(metadata: &mut Value, spec: &mut Value) {
    metadata["annotations"][NOTE.0] = NOTE.1.into();
    let tolerated =
        |key: &str| json!({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300});
    spec["tolerations"] =
        Value::Array(vec![tolerated("node.kubernetes.io/not-ready"), tolerated("node.kubernetes.io/unreachable")]);
    let token = json!([{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]);
    push(
        &mut spec["volumes"],
        json!({"name": "kube-api-access-{{token}}", "projected": {"defaultMode": 420, "sources": token}}),
    );
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        let mount = json!({
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            "name": "kube-api-access-{{token}}",
            "readOnly": true,
        });
        push(&mut container["volumeMounts"], mount);
    }
}

/// Adds to a list, which is made when there is none.
pub(super) fn push(list: &mut Value, item: Value) {
    if let Value::Array(items) = list {
        items.push(item);
    } else {
        *list = Value::Array(vec![item]);
    }
}
