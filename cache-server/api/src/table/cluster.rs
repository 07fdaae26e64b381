//! Columns of nodes, namespaces, events, configuration and other cluster objects.

use std::collections::{BTreeSet, HashMap};

use super::{
    TypeColumns,
    column::{AGE, NAME, boolean, integer, text},
    created,
    json::CellJson,
    name,
    row::RowWriter,
    workloads::count,
};

pub(crate) const KINDS: &[TypeColumns] = &[
    TypeColumns {
        id: "nodes",
        columns: &[
            NAME,
            text("Status", "Readiness of the node, and whether pods are scheduled to it."),
            text("Roles", "Roles of the node, from its labels."),
            AGE,
            text("Version", "Version of the kubelet."),
            text("Internal-IP", "Internal address of the node.").wide(),
            text("External-IP", "External address of the node.").wide(),
            text("OS-Image", "Operating system of the node.").wide(),
            text("Kernel-Version", "Kernel version of the node.").wide(),
            text("Container-Runtime", "Container runtime of the node.").wide(),
        ],
        print: node,
    },
    TypeColumns {
        id: "namespaces",
        columns: &[NAME, text("Status", "Phase of the namespace."), AGE],
        print: |object, row| {
            row.text(name(object)).text(object.at("status.phase").text()).age(created(object));
        },
    },
    TypeColumns {
        id: "events",
        columns: &[
            text("Last Seen", "Time since the last occurrence."),
            text("Type", "Type of the event: Normal or Warning."),
            text("Reason", "Reason of the event, in one word."),
            text("Object", "Object of the event."),
            text("Subobject", "Field path within the object.").wide(),
            text("Source", "Component and host that reported the event.").wide(),
            text("Message", "Description of the event."),
            text("First Seen", "Time since the first occurrence.").wide(),
            text("Count", "Number of occurrences.").wide(),
            NAME.wide(),
        ],
        print: event,
    },
    TypeColumns {
        id: "configmaps",
        columns: &[NAME, text("Data", "Number of values."), AGE],
        print: |object, row| {
            let values = count(object.get("data")) + count(object.get("binaryData"));
            row.text(name(object)).integer(values).age(created(object));
        },
    },
    TypeColumns {
        id: "secrets",
        columns: &[NAME, text("Type", "Type of the secret."), text("Data", "Number of values."), AGE],
        print: |object, row| {
            // Default set by kube-apiserver. Bookmarks have objects without fields.
            let absent = if object.members().is_empty() { "" } else { "Opaque" };
            row.text(name(object)).text(object.get("type").text_or(absent));
            row.integer(count(object.get("data"))).age(created(object));
        },
    },
    TypeColumns {
        id: "serviceaccounts",
        columns: &[NAME, AGE],
        print: |object, row| {
            row.text(name(object)).age(created(object));
        },
    },
    TypeColumns {
        id: "resourcequotas",
        columns: &[
            NAME,
            text("Request", "Used and allowed amounts of all resources but limits."),
            text("Limit", "Used and allowed amounts of limits."),
            AGE,
        ],
        print: quota,
    },
    TypeColumns {
        id: "leases.coordination.k8s.io",
        columns: &[NAME, text("Holder", "Holder of the lease."), AGE],
        print: |object, row| {
            row.text(name(object)).text(object.at("spec.holderIdentity").text()).age(created(object));
        },
    },
    TypeColumns {
        id: "priorityclasses.scheduling.k8s.io",
        columns: &[
            NAME,
            integer("Value", "Priority; pods with higher values are scheduled first."),
            boolean("Global-Default", "True if it is the default of pods without a priority class."),
            AGE,
            text("PreemptionPolicy", "Policy for the preemption of pods with lower priority."),
        ],
        print: |object, row| {
            row.text(name(object)).integer(object.get("value").integer());
            row.boolean(object.get("globalDefault").is_true()).age(created(object));
            // Default set by kube-apiserver.
            let absent = if object.members().is_empty() { "" } else { "PreemptLowerPriority" };
            row.text(object.get("preemptionPolicy").text_or(absent));
        },
    },
    TypeColumns {
        id: "runtimeclasses.node.k8s.io",
        columns: &[NAME, text("Handler", "Handler of the container runtime."), AGE],
        print: |object, row| {
            row.text(name(object)).text(object.get("handler").text()).age(created(object));
        },
    },
];

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE: &str = "kubernetes.io/role";

fn node(object: &CellJson<'_>, row: &mut RowWriter) {
    let (spec, status) = (object.get("spec"), object.get("status"));
    let mut conditions = status.get("conditions").items().iter();
    let ready = match conditions.rfind(|condition| condition.get("type").text() == "Ready") {
        Some(condition) if condition.get("status").text() == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let closed = if spec.get("unschedulable").is_true() { ",SchedulingDisabled" } else { "" };
    row.text(name(object)).write(format_args!("{ready}{closed}"));
    let labels = object.at("metadata.labels").members().iter();
    let roles = labels.filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
        Some(role) => Some(role),
        None => (key == ROLE).then(|| value.text()),
    });
    let roles: BTreeSet<&str> = roles.filter(|role| !role.is_empty()).collect();
    let roles = roles.into_iter().collect::<Vec<_>>().join(",");
    row.text(if roles.is_empty() { "<none>" } else { &roles }).age(created(object));
    let info = status.get("nodeInfo");
    row.text(info.get("kubeletVersion").text());
    for kind in ["InternalIP", "ExternalIP"] {
        let mut addresses = status.get("addresses").items().iter();
        let address = addresses.find(|address| address.get("type").text() == kind);
        row.text(address.map_or("<none>", |address| address.get("address").text()));
    }
    for field in ["osImage", "kernelVersion", "containerRuntimeVersion"] {
        row.text(info.get(field).text_or("<unknown>"));
    }
}

fn event(object: &CellJson<'_>, row: &mut RowWriter) {
    let first = object.get("firstTimestamp").time().or_else(|| object.get("eventTime").time());
    let series = object.get("series");
    let (last, count) = if series.is_null() {
        // Newer clients do not set the count of an event that happened once.
        (object.get("lastTimestamp").time().or(first), object.get("count").integer().max(1))
    } else {
        (series.get("lastObservedTime").time(), series.get("count").integer())
    };
    row.age(last).text(object.get("type").text()).text(object.get("reason").text());
    let target = object.get("involvedObject");
    let kind = target.get("kind").text().to_lowercase();
    match target.get("name").text() {
        "" => row.text(&kind),
        name => row.write(format_args!("{kind}/{name}")),
    };
    row.text(target.get("fieldPath").text());
    let source = object.get("source");
    let component = source.get("component").text_or(object.get("reportingComponent").text());
    match source.get("host").text_or(object.get("reportingInstance").text()) {
        "" => row.text(component),
        host => row.write(format_args!("{component}, {host}")),
    };
    row.text(object.get("message").text().trim()).age(first).integer(count).text(name(object));
}

fn quota(object: &CellJson<'_>, row: &mut RowWriter) {
    let (hard, used) = (object.at("status.hard"), object.at("status.used"));
    let used: HashMap<&str, &CellJson<'_>> = used.members().iter().rev().map(|(key, value)| (&**key, value)).collect();
    let mut resources: Vec<_> = hard.members().iter().collect();
    resources.sort_by(|(left, _), (right, _)| left.cmp(right));
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, most) in resources {
        let amount = |value: &CellJson<'_>| value.plain_or("0").into_owned();
        let text = format!(
            "{resource}: {}/{}",
            used.get(&**resource).map_or_else(|| "0".to_owned(), |used| amount(used)),
            amount(most)
        );
        if resource.starts_with("limits.") { limits.push(text) } else { requests.push(text) }
    }
    row.text(name(object)).text(&requests.join(", ")).text(&limits.join(", ")).age(created(object));
}
