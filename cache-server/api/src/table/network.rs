//! Columns of networking types: services, endpoints, ingresses, policies and addresses.

use std::collections::BTreeSet;

use super::{
    TypeColumns,
    column::{AGE, NAME, SELECTOR, text},
    created,
    json::CellJson,
    labels, name,
    row::RowWriter,
};

pub(crate) const KINDS: &[TypeColumns] = &[
    TypeColumns {
        id: "services",
        columns: &[
            NAME,
            text("Type", "Type of the service."),
            text("Cluster-IP", "Address of the service in the cluster."),
            text("External-IP", "Addresses of the service outside the cluster."),
            text("Port(s)", "Ports of the service."),
            AGE,
            SELECTOR,
        ],
        print: service,
    },
    TypeColumns {
        id: "endpoints",
        columns: &[NAME, text("Endpoints", "Ready addresses."), AGE],
        print: |object, row| {
            row.text(name(object)).text(&endpoints(object.get("subsets").items())).age(created(object));
        },
    },
    TypeColumns {
        id: "endpointslices.discovery.k8s.io",
        columns: &[
            NAME,
            text("AddressType", "Type of the addresses."),
            text("Ports", "Ports of each address."),
            text("Endpoints", "Addresses of the endpoints."),
            AGE,
        ],
        print: |object, row| {
            let ports = object.get("ports").items().iter().map(|port| match port.get("port").as_integer() {
                Some(number) => number.to_string(),
                None => given(port.get("name"), "*").to_owned(),
            });
            let endpoints = object.get("endpoints").items().iter();
            let addresses =
                endpoints.flat_map(|endpoint| endpoint.get("addresses").items()).map(|it| it.text().to_owned());
            row.text(name(object)).text(object.get("addressType").text());
            row.text(&some_of(ports)).text(&some_of(addresses)).age(created(object));
        },
    },
    TypeColumns {
        id: "ingresses.networking.k8s.io",
        columns: &[
            NAME,
            text("Class", "Class of the ingress."),
            text("Hosts", "Host names of the rules."),
            text("Address", "Addresses of the load balancer."),
            text("Ports", "Open ports."),
            AGE,
        ],
        print: |object, row| {
            let spec = object.get("spec");
            row.text(name(object)).text(given(spec.get("ingressClassName"), "<none>"));
            row.text(&hosts(spec.get("rules").items())).text(&balancer(object.get("status")));
            row.text(if spec.get("tls").items().is_empty() { "80" } else { "80, 443" }).age(created(object));
        },
    },
    TypeColumns {
        id: "ingressclasses.networking.k8s.io",
        columns: &[
            NAME,
            text("Controller", "Controller of the ingresses of this class."),
            text("Parameters", "Reference to the parameters of the controller."),
            AGE,
        ],
        print: |object, row| {
            row.text(name(object)).text(object.at("spec.controller").text());
            let parameters = object.at("spec.parameters");
            let (kind, group) = (parameters.get("kind").text(), parameters.get("apiGroup"));
            let target = parameters.get("name").text();
            match (parameters.is_null(), group.as_text()) {
                (true, _) => row.text("<none>"),
                (false, Some(group)) => row.write(format_args!("{kind}.{group}/{target}")),
                (false, None) => row.write(format_args!("{kind}/{target}")),
            };
            row.age(created(object));
        },
    },
    TypeColumns {
        id: "networkpolicies.networking.k8s.io",
        columns: &[NAME, text("Pod-Selector", "Labels of the selected pods."), AGE],
        print: |object, row| {
            row.text(name(object)).text(&labels::selector(object.at("spec.podSelector"))).age(created(object));
        },
    },
    TypeColumns {
        id: "ipaddresses.networking.k8s.io",
        columns: &[NAME, text("ParentRef", "Owner of the address."), AGE],
        print: ip_address,
    },
    TypeColumns {
        id: "servicecidrs.networking.k8s.io",
        columns: &[NAME, text("CIDRs", "Ranges of the addresses of services."), AGE],
        print: |object, row| {
            row.text(name(object)).text(&joined(object.at("spec.cidrs"))).age(created(object));
        },
    },
];

/// Items of a list that are shown; further ones are counted.
const SHOWN_MAX: usize = 3;

fn service(object: &CellJson<'_>, row: &mut RowWriter) {
    let spec = object.get("spec");
    // Default set by kube-apiserver.
    let kind = if spec.is_null() { "" } else { spec.get("type").text_or("ClusterIP") };
    let address = spec.get("clusterIPs").items().first().map_or("", CellJson::text);
    let address = if address.is_empty() { spec.get("clusterIP").text_or("<none>") } else { address };
    row.text(name(object)).text(kind).text(address).text(&external(object, kind));
    let ports = spec.get("ports").items().iter().map(port).collect::<Vec<_>>().join(",");
    row.text(if ports.is_empty() { "<none>" } else { &ports });
    row.age(created(object)).text(&labels::map(spec.get("selector")));
}

fn port(port: &CellJson<'_>) -> String {
    let (number, protocol) = (port.get("port").integer(), port.get("protocol").text_or("TCP"));
    match port.get("nodePort").integer() {
        node @ 1.. => format!("{number}:{node}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external(service: &CellJson<'_>, kind: &str) -> String {
    let external = joined(service.at("spec.externalIPs"));
    match kind {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external,
        "LoadBalancer" => match (balancer(service.get("status")), external) {
            (balancer, external) if balancer.is_empty() && external.is_empty() => "<pending>".to_owned(),
            (balancer, external) if balancer.is_empty() => external,
            (balancer, external) if external.is_empty() => balancer,
            (balancer, external) => format!("{balancer},{external}"),
        },
        "ExternalName" => service.at("spec.externalName").text().to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// Returns the distinct addresses of a load balancer, sorted.
fn balancer(status: &CellJson<'_>) -> String {
    let ingress = status.at("loadBalancer.ingress").items().iter();
    let places = ingress.map(|place| place.get("ip").text_or(place.get("hostname").text()));
    let places: BTreeSet<&str> = places.filter(|place| !place.is_empty()).collect();
    places.into_iter().collect::<Vec<_>>().join(",")
}

fn endpoints(subsets: &[CellJson<'_>]) -> String {
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let texts = subsets.iter().flat_map(|subset| {
        let (addresses, ports) = (subset.get("addresses").items(), subset.get("ports").items());
        let plain = addresses.iter().filter(|_| ports.is_empty()).map(|address| address.get("ip").text().to_owned());
        let with_port = ports.iter().flat_map(move |port| {
            let number = port.get("port").integer();
            addresses.iter().map(move |address| {
                let ip = address.get("ip").text();
                if ip.contains(':') { format!("[{ip}]:{number}") } else { format!("{ip}:{number}") }
            })
        });
        plain.chain(with_port)
    });
    let (text, count) = first_of(texts);
    if count > SHOWN_MAX { format!("{text} + {} more...", count - SHOWN_MAX) } else { text }
}

fn hosts(rules: &[CellJson<'_>]) -> String {
    let (mut shown, mut more) = (Vec::new(), false);
    for host in rules.iter().map(|rule| rule.get("host").text()) {
        more |= shown.len() == SHOWN_MAX;
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match (shown.join(","), more) {
        (text, _) if text.is_empty() => "*".to_owned(),
        // Kubernetes counts rules here instead of hosts.
        (text, true) => format!("{text} + {} more...", rules.len() - SHOWN_MAX),
        (text, false) => text,
    }
}

fn ip_address(object: &CellJson<'_>, row: &mut RowWriter) {
    row.text(name(object));
    let parent = object.at("spec.parentRef");
    if parent.is_null() {
        row.text("<none>");
    } else {
        let (group, namespace) = (parent.get("group").text(), parent.get("namespace").text());
        let mut text = parent.get("resource").text().to_lowercase();
        if !group.is_empty() {
            text = format!("{text}.{}", group.to_lowercase());
        }
        if !namespace.is_empty() {
            text = format!("{text}/{namespace}");
        }
        row.write(format_args!("{text}/{}", parent.get("name").text()));
    }
    row.age(created(object));
}

/// Joins the first items and counts the others; `<unset>` if there are none.
fn some_of(items: impl Iterator<Item = String>) -> String {
    let (text, count) = first_of(items);
    if count > SHOWN_MAX {
        format!("{text} + {} more...", count - SHOWN_MAX)
    } else if text.is_empty() {
        "<unset>".to_owned()
    } else {
        text
    }
}

/// Joins the first items, and returns the number of all.
fn first_of(items: impl Iterator<Item = String>) -> (String, usize) {
    let (mut shown, mut count) = (Vec::new(), 0);
    for item in items {
        count += 1;
        if shown.len() < SHOWN_MAX {
            shown.push(item);
        }
    }
    (shown.join(","), count)
}

/// Joins a list of strings.
pub(crate) fn joined(list: &CellJson<'_>) -> String {
    list.items().iter().map(CellJson::text).collect::<Vec<_>>().join(",")
}

/// Returns a string, which may be empty, or `absent` if it is missing.
pub(crate) fn given<'s>(value: &'s CellJson<'_>, absent: &'s str) -> &'s str {
    value.as_text().unwrap_or(absent)
}
