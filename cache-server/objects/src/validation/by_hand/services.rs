//! Services. Their addresses are checked where they are allocated.
//!
//! Source: `validateService`, `ValidateServiceUpdate` in `pkg/apis/core/validation/validation.go`.

use std::{collections::HashSet, net::IpAddr};

use informer_serving::{
    go::quote,
    status::{CauseExt as _, StatusCause},
};
use serde_json::Value;

use super::{FoundCauses, Place, RowArguments, ShownValue, ValueCheck, checks, containers, texts};

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "service_type_rules" => type_rules,
        "service_ports" => ports,
        "session_affinity" => session_affinity,
        "external_ip" => |found, ip, _| endpoint_ip(found, ip, ip),
        "service_node_ports" => node_ports,
        "load_balancer" => load_balancer,
        "traffic" => traffic,
        "service_update" => service_update,
        _ => return None,
    })
}

/// Returns the first cluster IP.
fn cluster_ip<'a>(spec: &Place<'a>) -> &'a str {
    let listed = spec.get("clusterIPs").and_then(|ips| ips.get(0)).and_then(Value::as_str);
    listed.unwrap_or_else(|| spec.str("clusterIP"))
}

fn type_rules(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let (ty, is_headless) = (spec.str("type"), cluster_ip(spec) == "None");
    let ports = spec.member("ports");
    if ports.is_empty() && !is_headless && ty != "ExternalName" {
        found.required(&ports, "");
    }
    if is_headless && ["LoadBalancer", "NodePort"].contains(&ty) {
        let ips = spec.member("clusterIPs");
        let why = format!("may not be set to 'None' for {ty} services");
        found.invalid_as(&ips.item(0), ShownValue::Text("None"), &why);
    }
    if ty != "ExternalName" {
        return;
    }
    for member in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].map(|member| spec.member(member)) {
        if !member.is_empty() {
            found.forbidden(&member, "may not be set for ExternalName services");
        }
    }
    let name = spec.member("externalName");
    let text = name.text().strip_suffix('.').unwrap_or_else(|| name.text());
    if text.is_empty() {
        found.required(&name, "");
    } else {
        found.refuse_as(&name, text, &texts::subdomain(text));
    }
}

fn ports(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let ports = spec.member("ports");
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.member("name");
        if name.is_empty() {
            if ports.len() > 1 {
                found.required(&name, "");
            }
        } else {
            found.refuse(&name, &texts::label(name.text()));
            if !names.insert(port.str("name")) {
                found.duplicate(&name);
            }
        }
        checks::port(found, &port.member("port"));
        containers::protocol(found, &port);
        checks::port_number_or_name(found, &port.member("targetPort"));
        let protocol = port.member("appProtocol");
        if protocol.is_set() {
            found.refuse(&protocol, &texts::qualified(protocol.text()));
        }
    }
}

fn session_affinity(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let config = spec.member("sessionAffinityConfig");
    let client = config.member("clientIP");
    let timeout = client.member("timeoutSeconds");
    match spec.str("sessionAffinity") {
        "ClientIP" => {
            if let Some(absent) = [config, client, timeout].iter().find(|place| !place.is_set()) {
                found.required(absent, "when session affinity type is ClientIP");
            } else if timeout.int().is_some_and(|seconds| !(1..=86_400).contains(&seconds)) {
                found.invalid(&timeout, "must be greater than 0 and less than 86400");
            }
        }
        "None" if config.is_set() => found.forbidden(&config, "must not be set when session affinity is None"),
        _ => {}
    }
}

/// Checks an address that traffic goes to. Causes about the address name `place`.
pub(super) fn endpoint_ip(found: &mut FoundCauses, place: &Place<'_>, ip: &Place<'_>) {
    let text = ip.text();
    let refused = texts::ip(text);
    if refused.is_empty() {
        addressed(found, place, text);
    } else {
        found.refuse(place, &refused);
    }
}

/// Refuses addresses that no traffic goes to.
pub(super) fn addressed(found: &mut FoundCauses, place: &Place<'_>, text: &str) {
    let Ok(ip) = text.parse::<IpAddr>() else { return };
    let ip = ip.to_canonical();
    let (is_link_local, is_link_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    if ip.is_unspecified() {
        found.invalid_as(place, ShownValue::Text(text), &format!("may not be unspecified ({text})"));
    }
    for (is_refused, why) in [
        (ip.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        (is_link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (is_link_local_multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ] {
        if is_refused {
            found.invalid_as(place, ShownValue::Text(text), why);
        }
    }
}

/// True if an update keeps a member that only another type has: kube-apiserver then drops it.
fn is_left_over(spec: &Place<'_>, member: &str) -> bool {
    let of_type = |name: &str| spec.get(name) != spec.stored_member(name);
    spec.is_update()
        && (of_type("type") || of_type("externalTrafficPolicy"))
        && spec.get(member) == spec.stored_member(member)
}

fn node_ports(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let ports = spec.member("ports");
    if spec.str("type") == "ClusterIP" {
        // Ports that a Service of another type had are dropped.
        let is_other = spec.is_update() && spec.get("type") != spec.stored_member("type");
        let stored = ports.stored.and_then(Value::as_array).into_iter().flatten();
        let before: HashSet<i64> = stored.filter_map(|port| port.get("nodePort")?.as_i64()).collect();
        for port in ports.items() {
            let node = port.member("nodePort");
            let is_retained = is_other && node.int().is_some_and(|number| before.contains(&number));
            if !node.is_empty() && !is_retained {
                found.forbidden(&node, "may not be used when `type` is 'ClusterIP'");
            }
        }
    }
    let mut seen = HashSet::new();
    for port in ports.items() {
        let node = port.member("nodePort");
        if !node.is_empty() && !seen.insert((port.str("protocol"), node.int())) {
            found.duplicate(&node);
        }
    }
    let mut seen = HashSet::new();
    for port in ports.items() {
        let (protocol, number) = (port.str("protocol"), port.num("port").unwrap_or_default());
        if !seen.insert((protocol, number)) {
            // kube-apiserver shows a port with Go's names of members, and only these have values.
            found.add(&port, |field| {
                let shown = format!(
                    "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{number},\
                        \"TargetPort\":0,\"NodePort\":0}}",
                    quote(protocol)
                );
                StatusCause::duplicate(field, &shown)
            });
        }
    }
}

fn load_balancer(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let is_balancer = spec.str("type") == "LoadBalancer";
    let ranges = spec.renamed("LoadBalancerSourceRanges", spec.get("loadBalancerSourceRanges"));
    if !ranges.is_empty() && !is_balancer {
        found.forbidden(&ranges, ONLY);
    }
    for range in ranges.items() {
        let text = range.text().trim();
        found.refuse_as(&range, text, &texts::cidr(text));
    }
    let allocates = spec.member("allocateLoadBalancerNodePorts");
    if allocates.is_set() && !is_balancer && !is_left_over(spec, "allocateLoadBalancerNodePorts") {
        found.forbidden(&allocates, ONLY);
    }
    let class = spec.member("loadBalancerClass");
    if class.is_set() && is_balancer {
        found.refuse(&class, &texts::qualified(class.text()));
    } else if class.is_set() && !is_left_over(spec, "loadBalancerClass") {
        found.forbidden(&class, ONLY);
    }
}

fn traffic(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let ty = spec.str("type");
    let (external, internal, health, distribution) = (
        spec.member("externalTrafficPolicy"),
        spec.member("internalTrafficPolicy"),
        spec.member("healthCheckNodePort"),
        spec.member("trafficDistribution"),
    );
    let is_reachable =
        ["LoadBalancer", "NodePort"].contains(&ty) || (ty == "ClusterIP" && !spec.member("externalIPs").is_empty());
    let known = ["Cluster", "Local"];
    match (is_reachable, external.is_empty()) {
        (false, false) if is_left_over(spec, "externalTrafficPolicy") => {}
        (false, false) => found.invalid(&external, "may only be set for externally-accessible services"),
        (true, true) => found.required(&external, ""),
        (true, false) if !known.contains(&external.text()) => found.unsupported(&external, &known),
        (true | false, _) => {}
    }
    let is_checked = ty == "LoadBalancer" && external.text() == "Local";
    if !health.is_empty() && !is_checked {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        if !is_left_over(spec, "healthCheckNodePort") {
            found.invalid(&health, why);
        }
    } else if !health.is_empty() {
        checks::port(found, &health);
    }
    if !internal.is_set() && ["ClusterIP", "LoadBalancer", "NodePort"].contains(&ty) {
        found.required(&internal, "");
    } else if internal.is_set() && !known.contains(&internal.text()) {
        found.unsupported(&internal, &known);
    }
    let known = ["PreferClose", "PreferSameZone", "PreferSameNode"];
    if distribution.is_set() && !known.contains(&distribution.text()) {
        found.unsupported(&distribution, &known);
    }
}

/// Checks that members which are fixed stay.
fn service_update(found: &mut FoundCauses, service: &Place<'_>, _: &RowArguments) {
    let spec = service.member("spec");
    let Some(stored) = spec.stored.and_then(Value::as_object) else { return };
    let stored = Place::root(stored, None);
    let is_balancer = [&spec, &stored].iter().all(|spec| spec.str("type") == "LoadBalancer");
    let class = spec.member("loadBalancerClass");
    if is_balancer && class.value != stored.get("loadBalancerClass") {
        found.invalid_as(&class, ShownValue::OrNull(class.value), "may not change once set");
    }
    let is_local = [&spec, &stored].iter().all(|spec| spec.str("externalTrafficPolicy") == "Local");
    let health = spec.member("healthCheckNodePort");
    let is_other =
        health.is_set() && stored.has("healthCheckNodePort") && health.value != stored.get("healthCheckNodePort");
    if is_balancer && is_local && is_other {
        found.forbidden(&health, "field is immutable");
    }
}
