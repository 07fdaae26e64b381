//! The pod template of a workload: a pod as it is after scheduling and start, shared by all replicas.

use serde_json::{Value, json};

use super::{
    container, managed_fields,
    random::{Random, time},
    template::Template,
    workload::OwnerReference,
};

/// State of all pods of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodHealth {
    Running,
    /// In a crash loop.
    Crashing,
    /// Terminated with success, like the pods of a job.
    Completed,
}

/// Inputs of a workload's pod template.
pub(super) struct PodTemplateInputs<'a> {
    pub(super) namespace: &'a str,
    /// Name of the app and of its first container.
    pub(super) app: &'a str,
    pub(super) labels: &'a Value,
    pub(super) owner: &'a OwnerReference,
    /// Prefix of pod names; `None` for stateful sets, whose pods are numbered.
    pub(super) generate_name: Option<String>,
    pub(super) health: PodHealth,
    pub(super) created: i64,
}

/// The annotation that an admission webhook puts on every pod.
const NOTE: (&str, &str) = ("policy.example.com/verdict", "admitted");

impl PodTemplateInputs<'_> {
    /// Draws the workload's containers and volumes, and renders everything but the holes. Follows the life of a pod:
    /// the controller creates it, admission adds to it, the kubelet and the scheduler report its status. Each manager
    /// owns the fields it wrote.
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

        // Assign, here and elsewhere, because `json!` deep-copies the values interpolated in it.
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
            "restartPolicy": if self.health == PodHealth::Completed { "OnFailure" } else { "Always" },
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

    /// The status that the kubelet reports.
    fn status(&self, containers: Vec<Value>) -> Value {
        let (phase, ready) = match self.health {
            PodHealth::Running => ("Running", "True"),
            PodHealth::Crashing => ("Running", "False"),
            PodHealth::Completed => ("Succeeded", "False"),
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
            PodHealth::Running => None,
            PodHealth::Crashing => Some("ContainersNotReady"),
            PodHealth::Completed => Some("PodCompleted"),
        };
        if let Some(reason) = reason.filter(|_| status == "False") {
            condition["reason"] = reason.into();
        }
        condition
    }
}

/// Hexadecimal digits of the configuration's checksum, which changes the template when the configuration changes.
const CHECKSUM_DIGITS: usize = 40;

/// The additions of admission to every pod: an annotation, tolerations, and the service account's token.
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

/// Appends to a list; replaces a value that is not a list by a new one.
pub(super) fn push(list: &mut Value, item: Value) {
    if let Value::Array(items) = list {
        items.push(item);
    } else {
        *list = Value::Array(vec![item]);
    }
}
