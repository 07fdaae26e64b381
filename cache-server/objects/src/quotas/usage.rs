//! Usage of quotas by one object.

use std::collections::{BTreeMap, BTreeSet};

use api_rules::{
    object::{Object, at, metadata::Part},
    registry::ResourceType,
};
use serde_json::{Map, Value};

use super::{
    QuotaWrite, hard,
    scopes::{self, is_terminating},
};
use crate::{
    amounts::{self, Amounts, is_native},
    quantity::Quantity,
    strategies,
};

/// Measure of the objects of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageKind {
    Pods,
    Services,
    Claims,
    /// Counts the objects.
    Others,
}

const POD_RESOURCES: [&str; 11] = [
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
const SERVICE_RESOURCES: [&str; 4] = ["count/services", "services", "services.nodeports", "services.loadbalancers"];
const CLAIMS: &str = "persistentvolumeclaims";
const CLAIMS_COUNT: &str = "count/persistentvolumeclaims";
const STORAGE: &str = "requests.storage";
/// Stands between the name of a class and a resource of claims.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
const OF_DEVICES: &str = "deviceclass.resource.kubernetes.io/";
/// Types of the core that had quotas before all types had them.
const ALIASES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
/// Resources of which each container has to state its part, in the order of texts.
const REQUIRED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

impl UsageKind {
    /// Returns the measure of a type; `None` for types that no quota counts.
    pub(super) fn of(ty: &ResourceType) -> Option<Self> {
        Some(match (&*ty.group, &*ty.plural) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", CLAIMS) => Self::Claims,
            ("" | "events.k8s.io", "events") | ("", "bindings") => return None,
            _ if ty.is_review() => return None,
            _ => Self::Others,
        })
    }

    /// True if the write may use more than before.
    pub(super) fn counts(self, write: &QuotaWrite<'_>) -> bool {
        match (self, write.part, write.old) {
            (_, Part::Main, None) | (Self::Services | Self::Claims, Part::Main, _) => true,
            // A claim may get more than it requested.
            (Self::Claims, Part::Status, _) => true,
            // Other quotas count the pod then.
            (Self::Pods, Part::Main, Some(old)) => is_terminating(old) != is_terminating(write.object),
            _ => false,
        }
    }

    /// True if a quota counts objects of the type by this name.
    pub(super) fn is_known(self, ty: &ResourceType, name: &str) -> bool {
        match self {
            Self::Pods => {
                let requested = name.strip_prefix("requests.");
                POD_RESOURCES.contains(&name)
                    || requested.unwrap_or(name).starts_with("hugepages-")
                    || requested.is_some_and(|requested| !is_native(name) || requested.starts_with(OF_DEVICES))
            }
            Self::Services => SERVICE_RESOURCES.contains(&name),
            Self::Claims => {
                let of_class = name.split_once(OF_CLASS).map(|(_, resource)| resource);
                name == CLAIMS_COUNT || [CLAIMS, STORAGE].contains(&of_class.unwrap_or(name))
            }
            Self::Others => names(ty).any(|known| known == name),
        }
    }

    /// True if a quota counts the object.
    pub(super) fn is_matched(self, ty: &ResourceType, quota: &Object, object: &Object) -> bool {
        hard(quota).any(|name| self.is_known(ty, name)) && scopes::are_met(self, quota, object)
    }

    /// Returns all that an object uses.
    pub(super) fn usage(self, ty: &ResourceType, object: &Object) -> Amounts {
        match self {
            Self::Pods => of_pod(object),
            Self::Services => of_service(object),
            Self::Claims => of_claim(object),
            Self::Others => names(ty).map(|name| (name, Quantity::of(1))).collect(),
        }
    }

    /// Returns for each counted resource, in order, which containers lack it.
    pub(super) fn missing(self, counted: &BTreeSet<&str>, object: &Object) -> Vec<String> {
        let none = Map::new();
        let spec = object.get("spec").and_then(Value::as_object).unwrap_or(&none);
        if self != Self::Pods || spec.get("resources").is_some_and(strategies::is_set) {
            return Vec::new();
        }
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let containers = ["containers", "initContainers"].iter().filter_map(|member| spec.get(*member)?.as_array());
        for container in containers.flatten() {
            for name in REQUIRED.into_iter().filter(|name| counted.contains(name)) {
                let (list, resource) = name.split_once('.').unwrap_or(("requests", name));
                if container["resources"][list].get(resource).is_none() {
                    missing.entry(name).or_default().insert(container["name"].as_str().unwrap_or_default());
                }
            }
        }
        let line = |(name, containers): (&str, BTreeSet<&str>)| {
            format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
        };
        missing.into_iter().map(line).collect()
    }
}

/// Names by which a quota counts the objects of a type.
fn names(ty: &ResourceType) -> impl Iterator<Item = String> {
    let alias = ALIASES.iter().find(|alias| ty.group.is_empty() && ty.plural == **alias);
    let point = if ty.group.is_empty() { "" } else { "." };
    [format!("count/{}{point}{}", ty.plural, ty.group)].into_iter().chain(alias.map(ToString::to_string))
}

fn text<'a>(object: &'a Object, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

fn of_pod(pod: &Object) -> Amounts {
    let mut usage = Amounts::from([("count/pods".to_owned(), Quantity::of(1))]);
    let Some(spec) = pod.get("spec").and_then(Value::as_object) else { return usage };
    if ["Failed", "Succeeded"].contains(&text(pod, "status.phase")) {
        return usage;
    }
    usage.insert("pods".to_owned(), Quantity::of(1));
    let [mut requests, mut limits] = ["requests", "limits"].map(|list| amounts::of_pod(spec, list));
    for (name, overhead) in amounts::read(spec.get("overhead")) {
        if let Some(limit) = limits.get_mut(&name).filter(|limit| limit.billionths != 0) {
            *limit = limit.plus(overhead);
        }
        let request = requests.entry(name).or_default();
        *request = request.plus(overhead);
    }
    let is_measured = |name: &str| ["cpu", "memory", "ephemeral-storage"].contains(&name);
    for (name, amount) in requests {
        let is_whole = is_measured(&name) || name.starts_with("hugepages-");
        if is_whole || !is_native(&name) || name.starts_with(OF_DEVICES) {
            usage.insert(format!("requests.{name}"), amount);
        }
        if is_whole {
            usage.insert(name, amount);
        }
    }
    let limits = limits.into_iter().filter(|(name, _)| is_measured(name));
    usage.extend(limits.map(|(name, amount)| (format!("limits.{name}"), amount)));
    usage
}

fn of_service(service: &Object) -> Amounts {
    let ports = || at(service, "spec.ports").and_then(Value::as_array).into_iter().flatten();
    let has_port = |port: &&Value| port["nodePort"].as_i64().is_some_and(|port| port != 0);
    let allocates = at(service, "spec.allocateLoadBalancerNodePorts") != Some(&Value::Bool(false));
    let (node_ports, balancers) = match text(service, "spec.type") {
        "NodePort" => (ports().count(), 0),
        "LoadBalancer" if allocates => (ports().count(), 1),
        "LoadBalancer" => (ports().filter(has_port).count(), 1),
        _ => (0, 0),
    };
    let counts = [1, 1, node_ports, balancers].map(Quantity::of);
    SERVICE_RESOURCES.into_iter().map(str::to_owned).zip(counts).collect()
}

fn of_claim(claim: &Object) -> Amounts {
    let one = Quantity::of(1);
    let mut usage = Amounts::from([(CLAIMS.to_owned(), one), (CLAIMS_COUNT.to_owned(), one)]);
    let storage = |path: &str| amounts::quantity(at(claim, path)?).map(Quantity::whole);
    if let Some(requested) = storage("spec.resources.requests.storage") {
        let allocated = storage("status.allocatedResources.storage").unwrap_or_default();
        usage.insert(STORAGE.to_owned(), requested.or_greater(allocated));
    }
    let annotations = at(claim, "metadata.annotations");
    let class =
        annotations.and_then(|annotations| annotations.get("volume.beta.kubernetes.io/storage-class")?.as_str());
    let class = class.unwrap_or_else(|| text(claim, "spec.storageClassName"));
    if !class.is_empty() {
        let of_class = |name| Some((format!("{class}{OF_CLASS}{name}"), *usage.get(name)?));
        let of_class: Vec<_> = [CLAIMS, STORAGE].into_iter().filter_map(of_class).collect();
        usage.extend(of_class);
    }
    usage
}
