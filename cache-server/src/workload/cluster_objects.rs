//! The objects that a new cluster has before its first client, but those of roles and flow control.
//!
//! Source: `pkg/controlplane/controller` (`systemnamespaces`, `kubernetesservice`) and `pkg/registry/scheduling`.

use serde_json::{Value, json};

use super::manifests;
use crate::{app::App, config::Config, stored::ExistingObjects};

/// Namespaces that kube-apiserver creates. `default` is last: clients wait for it.
const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// Port of the server, if the system chooses one.
const PORT: u16 = 6443;

/// Stores the objects. One that cannot be stored is left out, with a line in the log.
pub(crate) async fn into_storage(app: &App) {
    for object in objects(&app.config) {
        if let Err(error) = manifests::create(app, &object, ExistingObjects::Keep).await {
            tracing::warn!(error, kind = %object["kind"], "object of the cluster not stored");
        }
    }
}

fn objects(config: &Config) -> impl Iterator<Item = Value> {
    let class = |name: &str, value: i64, description: &str| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
            "preemptionPolicy": "PreemptLowerPriority", "description": description})
    };
    let classes = [
        class("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved."),
        class("system-cluster-critical", 2_000_000_000, "Used for system critical pods that must run in the cluster."),
    ];
    let namespace = |name| {
        json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
    };
    let (range, port) = (config.service_range, if config.listen.port() == 0 { PORT } else { config.listen.port() });
    let address = range.at(1);
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": address, "clusterIPs": [address], "type": "ClusterIP", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster", "ipFamilies": [range.family()], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]},
        "status": {"loadBalancer": {}}});
    classes.into_iter().chain([service]).chain(NAMESPACES.map(namespace))
}
