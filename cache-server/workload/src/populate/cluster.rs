//! Namespaces and nodes, in and on which pods live.

use serde_json::{Value, json};

use super::{
    managed_fields,
    random::{Random, time},
};

const TEAMS: &[&str] =
    &["payments", "search", "checkout", "identity", "catalog", "shipping", "ads", "billing", "media", "risk"];
const STAGES: &[&str] = &["prod", "staging", "dev", "canary"];
const ZONES: &[&str] = &["europe-west1-b", "europe-west1-c", "europe-west1-d"];
const MACHINES: &[&str] = &["n2-standard-16", "n2-standard-32", "c3-standard-22"];

/// The name of the namespace with this index; names are unique.
pub(super) fn namespace_name(index: u32) -> String {
    match index {
        0 => "default".into(),
        1 => "kube-system".into(),
        _ => {
            let index = index as usize - 2;
            let (team, round) = (TEAMS[index % TEAMS.len()], index / TEAMS.len());
            match STAGES.get(round) {
                Some(stage) => format!("{team}-{stage}"),
                None => format!("{team}-{round}"),
            }
        }
    }
}

/// The name of the node with this index.
pub(super) fn node_name(index: u32) -> String {
    format!("node-{index}")
}

/// The address of the node with this index.
pub(super) fn node_ip(index: u32) -> String {
    format!("10.{}.{}.{}", index / 62_500 % 128, index / 250 % 250, index % 250 + 1)
}

pub(super) fn namespace(index: u32, random: &mut Random) -> Value {
    let name = namespace_name(index);
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "creationTimestamp": time(random.moment()),
            "labels": {"kubernetes.io/metadata.name": name},
            "name": name,
            "uid": random.uid(),
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    })
}

pub(super) fn node(index: u32, random: &mut Random) -> Value {
    let name = node_name(index);
    let machine = random.pick(MACHINES);
    let created = random.moment();
    let cidr = format!("10.{}.{}.0/24", 128 + index / 256 % 128, index % 256);
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": {"node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": machine,
                "topology.kubernetes.io/region": "europe-west1",
                "topology.kubernetes.io/zone": random.pick(ZONES),
            },
        },
        "spec": {"podCIDR": cidr, "podCIDRs": [cidr], "providerID": format!("gce://example/europe-west1/{name}")},
        "status": status(index, random),
    });
    let made = [("metadata", &node["metadata"]), ("spec", &node["spec"])];
    let reported = [("status", &node["status"])];
    let managed = vec![
        managed_fields::entry("cloud-controller-manager", None, &time(created), &made),
        managed_fields::entry("kubelet", Some("status"), &time(created + 40), &reported),
    ];
    node["metadata"]["creationTimestamp"] = time(created).into();
    node["metadata"]["managedFields"] = managed.into();
    node["metadata"]["name"] = name.into();
    node["metadata"]["uid"] = random.uid().into();
    node
}

fn status(index: u32, random: &mut Random) -> Value {
    let resources = json!({
        "cpu": "16", "ephemeral-storage": "101430960Ki", "hugepages-2Mi": "0", "memory": "65839412Ki", "pods": "110",
    });
    let beat = time(random.moment());
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "lastHeartbeatTime": beat, "lastTransitionTime": beat,
            "message": format!("kubelet reports {reason}"), "reason": reason, "status": status, "type": kind,
        })
    };
    json!({
        "addresses": [{"address": node_ip(index), "type": "InternalIP"}, {"address": node_name(index), "type": "Hostname"}],
        "allocatable": resources,
        "capacity": resources,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10_250}},
        "images": (0..8).map(|_| json!({
            "names": [format!("registry.example.com/platform/image@sha256:{}", random.hex(64))],
            "sizeBytes": random.between(10_000_000, 900_000_000),
        })).collect::<Vec<_>>(),
        "nodeInfo": {
            "architecture": "amd64", "bootID": random.uid(), "containerRuntimeVersion": "containerd://2.1.4",
            "kernelVersion": "6.12.0-cloud-amd64", "kubeProxyVersion": "", "kubeletVersion": "v1.36.0",
            "machineID": random.hex(32), "operatingSystem": "linux", "osImage": "Example Linux 12", "systemUUID": random.uid(),
        },
    })
}
