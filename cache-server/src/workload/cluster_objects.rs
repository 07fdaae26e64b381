//! The objects that a new cluster has before its first client, but those of roles and flow control.
//!
//! Source: `pkg/controlplane/controller` (`systemnamespaces`, `kubernetesservice`, `defaultservicecidr`) and `pkg/registry/scheduling`.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::manifests;
use crate::{app::App, clock, config::Config, stored::ExistingObjects};

/// Namespaces that kube-apiserver creates. `default` is last: clients wait for it.
const NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "default"];

/// Port of the server, if the system chooses one.
const PORT: u16 = 6443;

/// Stores the objects. One that cannot be stored is left out, with a line in the log.
pub(crate) async fn into_storage(app: &App) {
    let advertised = app.config.advertise_address.map(|address| endpoints(address, port(&app.config)));
    // Stored before may be those of another address.
    let advertised = advertised.into_iter().flatten().map(|object| (object, ExistingObjects::Overwrite));
    let others = objects(&app.config).map(|object| (object, ExistingObjects::Keep));
    for (object, existing) in advertised.chain(others) {
        if let Err(error) = manifests::create(app, &object, existing).await {
            tracing::warn!(error, kind = %object["kind"], "object of the cluster not stored");
        }
    }
}

fn port(config: &Config) -> u16 {
    if config.listen.port() == 0 { PORT } else { config.listen.port() }
}

/// Returns the two objects that lead from the Service `kubernetes` to this server. Their label spares them controllers,
/// which would make a third one.
fn endpoints(address: IpAddr, port: u16) -> [Value; 2] {
    let metadata = json!({"name": "kubernetes", "namespace": "default",
        "labels": {"endpointslice.kubernetes.io/skip-mirror": "true", "kubernetes.io/service-name": "kubernetes"}});
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    [
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata,
            "subsets": [{"addresses": [{"ip": address}], "ports": ports}]}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
            "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}], "ports": ports}),
    ]
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
    let range = config.service_range;
    let address = range.at(1);
    let service = json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": address, "clusterIPs": [address], "type": "ClusterIP", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster", "ipFamilies": [range.family()], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port(config)}]},
        "status": {"loadBalancer": {}}});
    let addresses = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [range.to_string()]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "", "lastTransitionTime": clock::now(),
            "message": "Kubernetes default Service CIDR is ready"}]}});
    classes.into_iter().chain([service, addresses]).chain(NAMESPACES.map(namespace))
}
