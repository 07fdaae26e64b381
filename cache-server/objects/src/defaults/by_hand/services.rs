//! Services and network policies.
//!
//! Source: `SetDefaults_Service` in `pkg/apis/core/v1/defaults.go`, `SetDefaults_NetworkPolicy` in
//! `pkg/apis/networking/v1/defaults.go`.

use serde_json::{Value, json};

use super::super::{DefaultsWalk, Object, WalkResult, is_unset, is_zero, items_mut, text};

/// Default time for which a client is sent to the same pod.
const AFFINITY_SECONDS: u32 = 10_800;

/// Completes what the status says about the addresses of a load balancer.
pub(super) fn service(walk: &mut DefaultsWalk<'_>, service: &mut Object) -> WalkResult {
    let is_balanced = service.get("spec").and_then(|spec| spec.get("type")?.as_str()) == Some("LoadBalancer");
    let status = service.get_mut("status").filter(|_| is_balanced);
    let Some(balancer) = status.and_then(|status| status.get_mut("loadBalancer")?.as_object_mut()) else {
        return Ok(());
    };
    items_mut(balancer, "ingress")
        .filter(|address| !text(address, "ip").is_empty())
        .try_for_each(|address| walk.default(address, "ipMode", "VIP"))
}

/// Completes the spec, whose type and affinity are set before.
pub(super) fn spec(walk: &mut DefaultsWalk<'_>, spec: &mut Object) -> WalkResult {
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let config = spec.get("sessionAffinityConfig").and_then(|config| config.get("clientIP"));
            if config.and_then(|config| config.get("timeoutSeconds")).is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
                walk.put(spec, "sessionAffinityConfig", config)?;
            }
        }
        _ => {}
    }
    let ty = text(spec, "type");
    let is_balanced = ty == "LoadBalancer";
    let is_on_nodes = is_balanced || ty == "NodePort";
    let is_inside = ty == "ClusterIP";
    let is_reached = is_on_nodes || (is_inside && !spec.get("externalIPs").is_none_or(is_zero));
    if is_reached && text(spec, "externalTrafficPolicy").is_empty() {
        walk.put(spec, "externalTrafficPolicy", "Cluster")?;
    }
    if is_on_nodes || is_inside {
        walk.default(spec, "internalTrafficPolicy", "Cluster")?;
    }
    if is_balanced { walk.default(spec, "allocateLoadBalancerNodePorts", true) } else { Ok(()) }
}

/// Without a port at its pods, a port is the same there.
pub(super) fn port(walk: &mut DefaultsWalk<'_>, port: &mut Object) -> WalkResult {
    if !port.get("targetPort").is_none_or(is_zero) {
        return Ok(());
    }
    let number = port.get("port").cloned().unwrap_or_else(|| 0.into());
    walk.put(port, "targetPort", number)
}

/// `SetDefaults_NetworkPolicy`.
pub(super) fn network_policy(walk: &mut DefaultsWalk<'_>, spec: &mut Object) -> WalkResult {
    if !spec.get("policyTypes").is_none_or(is_zero) {
        return Ok(());
    }
    let has_egress = !is_unset(spec, "egress") && !spec.get("egress").is_none_or(is_zero);
    let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    walk.put(spec, "policyTypes", types)
}
