//! Ingresses, NetworkPolicies and endpoints.
//!
//! Source: `pkg/apis/{networking,discovery}/validation/validation.go`; `validateEndpointSubsets`.

use std::{collections::HashSet, net::IpAddr};

use serde_json::Value;

use super::{FoundCauses, Place, RowArguments, ShownValue, ValueCheck, checks, containers, services, texts};
use crate::structural;

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "ingress_class_annotation" => class_annotation,
        "ingress_rules_or_backend" => rules_or_backend,
        "ingress_host" => ingress_host,
        "ingress_path" => ingress_path,
        "ingress_backend" => ingress_backend,
        "tls_host" => |found, host, _| found.refuse(host, &texts::host(host.text())),
        "domain_path" => domain_path,
        "class_parameters" => class_parameters,
        "policy_types" => policy_types,
        "policy_port" => policy_port,
        "policy_peer" => policy_peer,
        "subsets" => subsets,
        "slice" => slice,
        _ => return None,
    })
}

fn class_annotation(found: &mut FoundCauses, ingress: &Place<'_>, _: &RowArguments) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let (metadata, spec) = (ingress.member("metadata"), ingress.member("spec"));
    let annotations = metadata.member("annotations");
    let class = spec.member("ingressClassName");
    if class.is_set() && annotations.has(CLASS) && annotations.str(CLASS) != class.text() {
        let annotations = ingress.renamed("annotations", annotations.value);
        found.invalid(&annotations.member(CLASS), "must match `ingressClassName` when both are specified");
    }
}

fn rules_or_backend(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let rules = spec.member("rules");
    if rules.is_empty() && !spec.has("defaultBackend") {
        let shown = ShownValue::OrNull(rules.value);
        found.invalid_as(spec, shown, "either `defaultBackend` or `rules` must be specified");
    }
}

fn ingress_host(found: &mut FoundCauses, rule: &Place<'_>, _: &RowArguments) {
    let host = rule.member("host");
    if host.is_empty() {
        return;
    }
    if structural::is_ip(host.text()) {
        found.invalid(&host, "must be a DNS name, not an IP address");
    }
    found.refuse(&host, &texts::host(host.text()));
}

fn ingress_path(found: &mut FoundCauses, rule: &Place<'_>, _: &RowArguments) {
    let (path, ty) = (rule.member("path"), rule.member("pathType"));
    let text = path.text();
    match ty.text() {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                found.invalid(&path, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|part| text.contains(**part)) {
                found.invalid(&path, &format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].iter().filter(|end| text.ends_with(**end)) {
                found.invalid(&path, &format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                found.invalid(&path, "must be an absolute path");
            }
        }
        _ if !ty.is_set() => found.required(&ty, "pathType must be specified"),
        _ => found.unsupported(&ty, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
}

fn ingress_backend(found: &mut FoundCauses, backend: &Place<'_>, _: &RowArguments) {
    let (resource, service) = (backend.member("resource"), backend.member("service"));
    // A path without a type has no further causes.
    if backend.outer().is_some_and(|path| path.has("backend") && !path.has("pathType") && !path.has("rules")) {
        return;
    }
    match (resource.is_set(), service.is_set()) {
        (true, true) => {
            found.invalid_as(backend, ShownValue::Text(""), "cannot set both resource and service backends")
        }
        (true, false) => reference(found, &resource),
        (false, true) => {
            let (name, port) = (service.member("name"), service.member("port"));
            if name.is_empty() {
                found.required(&name, "");
            } else {
                found.refuse(&name, &texts::label(name.text()));
            }
            let (port_name, number) = (port.member("name"), port.member("number"));
            match (port_name.is_empty(), number.is_empty()) {
                (false, false) => {
                    found.invalid_as(backend, ShownValue::Text(""), "cannot set both port name & port number")
                }
                (false, true) => found.refuse(&port_name, &texts::port_name(port_name.text())),
                (true, false) => checks::port(found, &number),
                (true, true) => found.required(backend, "port name or number is required"),
            }
        }
        (false, false) => found.invalid_as(backend, ShownValue::Text(""), "resource or service backend is required"),
    }
}

/// A reference to an object of any type.
fn reference(found: &mut FoundCauses, reference: &Place<'_>) {
    let group = reference.member("apiGroup");
    if group.is_set() {
        found.refuse(&group, &texts::subdomain(group.text()));
    }
    for member in ["kind", "name"].map(|member| reference.member(member)) {
        if member.is_empty() {
            found.required(&member, "");
        } else {
            found.refuse(&member, &texts::path_segment(member.text()));
        }
    }
}

fn domain_path(found: &mut FoundCauses, controller: &Place<'_>, _: &RowArguments) {
    let text = controller.text();
    if text.len() > 250 {
        found.too_long(controller, 250);
    }
    if text.is_empty() {
        return found.required(controller, "");
    }
    match text.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty()) {
        None => found.invalid(controller, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
        Some((domain, path)) => {
            found.refuse_as(controller, domain, &texts::subdomain(domain));
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !path.bytes().all(is_allowed) {
                let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                found.invalid_as(controller, ShownValue::Text(path), why);
            }
        }
    }
}

fn class_parameters(found: &mut FoundCauses, parameters: &Place<'_>, _: &RowArguments) {
    if !parameters.is_set() {
        return;
    }
    reference(found, parameters);
    let (scope, namespace) = (parameters.member("scope"), parameters.member("namespace"));
    match scope.text() {
        "Cluster" if namespace.is_set() => found.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'"),
        "Cluster" => {}
        "Namespace" if namespace.is_set() => found.refuse(&namespace, &texts::label(namespace.text())),
        "Namespace" => found.required(&namespace, "`parameters.scope` is set to 'Namespace'"),
        _ if !scope.is_set() => found.required(&scope, ""),
        _ => found.unsupported(&scope, &["Cluster", "Namespace"]),
    }
}

fn policy_types(found: &mut FoundCauses, types: &Place<'_>, _: &RowArguments) {
    let known = ["Ingress", "Egress"];
    if types.len() > known.len() {
        return found.invalid(types, "may not specify more than two policyTypes");
    }
    for ty in types.items().filter(|ty| !known.contains(&ty.text())) {
        found.unsupported(&ty, &known);
    }
}

fn policy_port(found: &mut FoundCauses, rule: &Place<'_>, _: &RowArguments) {
    let (protocol, port, end) = (rule.member("protocol"), rule.member("port"), rule.member("endPort"));
    let known = ["TCP", "UDP", "SCTP"];
    if protocol.is_set() && !known.contains(&protocol.text()) {
        found.unsupported(&protocol, &known);
    }
    match port.value {
        Some(Value::String(name)) => {
            if end.is_set() {
                found.invalid(&end, "may not be specified when `port` is non-numeric");
            }
            found.refuse(&port, &texts::port_name(name));
        }
        Some(_) => {
            checks::port(found, &port);
            let number = port.int().unwrap_or_default();
            if end.int().is_some_and(|end| end < number) {
                let why = "must be greater than or equal to `port`";
                found.invalid_as(&end, ShownValue::Number(number), why);
            }
            if end.is_set() {
                checks::port(found, &end);
            }
        }
        None if end.is_set() => found.invalid(&end, "may not be specified when `port` is not specified"),
        None => {}
    }
}

fn policy_peer(found: &mut FoundCauses, peer: &Place<'_>, _: &RowArguments) {
    let [pods, namespaces, block] = ["podSelector", "namespaceSelector", "ipBlock"].map(|member| peer.member(member));
    checks::selector(found, &pods);
    checks::selector(found, &namespaces);
    if block.is_set() {
        ip_block(found, &block);
    }
    match (block.is_set(), pods.is_set() || namespaces.is_set()) {
        (false, false) => found.required(peer, "must specify a peer"),
        (true, true) => found.forbidden(peer, "may not specify both ipBlock and another peer"),
        (true, false) | (false, true) => {}
    }
}

fn ip_block(found: &mut FoundCauses, block: &Place<'_>) {
    let cidr = block.member("cidr");
    if cidr.is_empty() {
        return found.required(&cidr, "");
    }
    let refused = texts::cidr(cidr.text());
    if !refused.is_empty() {
        return found.refuse(&cidr, &refused);
    }
    for except in block.member("except").items() {
        let refused = texts::cidr(except.text());
        if !refused.is_empty() {
            found.refuse(&except, &refused);
        } else if !is_strict_subset(except.text(), cidr.text()) {
            found.invalid(&except, "must be a strict subset of `cidr`");
        }
    }
}

/// True if a network is inside another one, and smaller. True too for forms that are not parsed here.
fn is_strict_subset(inner: &str, outer: &str) -> bool {
    let parse = |text: &str| -> Option<(IpAddr, u32)> {
        let (ip, length) = text.split_once('/')?;
        Some((ip.parse().ok()?, length.parse().ok()?))
    };
    let (Some((inner, inner_length)), Some((outer, outer_length))) = (parse(inner), parse(outer)) else { return true };
    let is_inside = match (inner, outer) {
        (IpAddr::V4(inner), IpAddr::V4(outer)) => {
            let differs = inner.to_bits() ^ outer.to_bits();
            differs.checked_shr(32_u32.saturating_sub(outer_length)).unwrap_or_default() == 0
        }
        (IpAddr::V6(inner), IpAddr::V6(outer)) => {
            let differs = inner.to_bits() ^ outer.to_bits();
            differs.checked_shr(128_u32.saturating_sub(outer_length)).unwrap_or_default() == 0
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    };
    is_inside && outer_length < inner_length
}

fn subsets(found: &mut FoundCauses, endpoints: &Place<'_>, _: &RowArguments) {
    let subsets = endpoints.member("subsets");
    if subsets.stored.is_some() && !subsets.is_changed() {
        return;
    }
    for subset in subsets.items() {
        let lists = ["addresses", "notReadyAddresses"].map(|list| subset.member(list));
        if lists.iter().all(Place::is_empty) {
            found.required(&subset, "must specify `addresses` or `notReadyAddresses`");
        }
        for address in lists.iter().flat_map(Place::items) {
            endpoint_address(found, &address);
        }
        let ports = subset.member("ports");
        for port in ports.items() {
            endpoint_port(found, &port, ports.len() > 1);
        }
    }
}

fn endpoint_address(found: &mut FoundCauses, address: &Place<'_>) {
    let (ip, host, node) = (address.member("ip"), address.member("hostname"), address.member("nodeName"));
    let refused = texts::ip(ip.text());
    found.refuse(&ip, &refused);
    if !host.is_empty() {
        found.refuse(&host, &texts::label(host.text()));
    }
    if node.is_set() {
        found.refuse(&node, &texts::subdomain(node.text()));
    }
    if refused.is_empty() {
        services::addressed(found, &ip, ip.text());
    } else {
        found.invalid(&ip, "must be a valid IP address");
    }
}

fn endpoint_port(found: &mut FoundCauses, port: &Place<'_>, needs_name: bool) {
    let name = port.member("name");
    if name.is_empty() {
        if needs_name {
            found.required(&name, "");
        }
    } else {
        found.refuse(&name, &texts::label(name.text()));
    }
    checks::port(found, &port.member("port"));
    containers::protocol(found, port);
    app_protocol(found, port);
}

fn app_protocol(found: &mut FoundCauses, port: &Place<'_>) {
    let protocol = port.member("appProtocol");
    if protocol.is_set() {
        found.refuse(&protocol, &texts::qualified(protocol.text()));
    }
}

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;

fn slice(found: &mut FoundCauses, slice: &Place<'_>, _: &RowArguments) {
    let (endpoints, ports) = (slice.member("endpoints"), slice.member("ports"));
    // Older versions stored addresses that are refused now.
    let is_retained = endpoints.stored.is_some() && !endpoints.is_changed();
    if !is_retained && endpoints.len() > ENDPOINTS_MAX {
        found.too_many(&endpoints, ENDPOINTS_MAX);
    } else if !is_retained {
        let ty = slice.str("addressType");
        endpoints.items().for_each(|endpoint| slice_endpoint(found, &endpoint, ty));
    }
    if ports.len() > PORTS_MAX {
        return found.too_many(&ports, PORTS_MAX);
    }
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.member("name");
        if !name.is_empty() {
            found.refuse(&name, &texts::label(name.text()));
        }
        if !names.insert(port.str("name")) {
            found.duplicate(&name);
        }
        let protocol = port.member("protocol");
        if protocol.is_set() && !containers::PROTOCOLS.contains(&protocol.text()) {
            found.unsupported(&protocol, &containers::PROTOCOLS);
        }
        app_protocol(found, &port);
    }
}

fn slice_endpoint(found: &mut FoundCauses, endpoint: &Place<'_>, ty: &str) {
    let addresses = endpoint.member("addresses");
    if addresses.is_empty() {
        found.required(&addresses, "must contain at least 1 address");
    } else if addresses.len() > ADDRESSES_MAX {
        found.too_many(&addresses, ADDRESSES_MAX);
    }
    for address in addresses.items() {
        slice_address(found, &addresses, &address, ty);
    }
    let (node, host) = (endpoint.member("nodeName"), endpoint.member("hostname"));
    if node.is_set() {
        found.refuse(&node, &texts::subdomain(node.text()));
    }
    checks::labels(found, &endpoint.member("deprecatedTopology"));
    if host.is_set() {
        found.refuse(&host, &texts::label(host.text()));
    }
    let hints = endpoint.member("hints");
    let mut zones = HashSet::new();
    let for_zones = hints.member("forZones");
    for zone in for_zones.items() {
        let name = zone.member("name");
        if !zones.insert(zone.str("name")) {
            found.duplicate(&name);
        }
        found.refuse(&name, &texts::label_value(name.text()));
    }
}

fn slice_address(found: &mut FoundCauses, addresses: &Place<'_>, address: &Place<'_>, ty: &str) {
    let text = address.text();
    let why = match ty {
        "IPv4" | "IPv6" if !structural::is_ip(text) => return found.refuse(address, &texts::ip(text)),
        "IPv4" => text.contains(':').then_some("must be an IPv4 address"),
        "IPv6" => (!text.contains(':')).then_some("must be an IPv6 address"),
        "FQDN" => return domain(found, address),
        _ => return,
    };
    if let Some(why) = why {
        found.invalid_as(addresses, ShownValue::Text(text), why);
    }
    services::addressed(found, address, text);
}

/// A full name of a domain.
fn domain(found: &mut FoundCauses, address: &Place<'_>) {
    let text = address.text().strip_suffix('.').unwrap_or_else(|| address.text());
    if text.is_empty() {
        return found.required(address, "");
    }
    let refused = texts::subdomain(text);
    if !refused.is_empty() {
        found.invalid_as(address, ShownValue::Text(text), &refused.join(","));
    } else if !text.contains('.') {
        found.invalid_as(
            address,
            ShownValue::Text(text),
            "should be a domain with at least two segments separated by dots",
        );
    }
}
