//! Addresses and node ports that Services get, keep and lose.

use std::sync::Arc;

use api_rules::registry::Registry;

use super::*;

fn services() -> Arc<ResourceType> {
    Registry::builtin().find("", "v1", "services").expect("a built-in type")
}

fn object(value: Value) -> Object {
    value.as_object().expect("an object").clone()
}

/// Completes a new Service beside others.
fn created(spec: &Value, others: &[Value], dry_run: bool) -> Result<Value, String> {
    let mut service = object(json!({"metadata": {"name": "a"}, "spec": spec}));
    let held = held(others);
    let allocation = Allocation { range: &ServiceRange::DEFAULT, held: &held, random: |_| 0, dry_run };
    allocation.create(&services(), &mut service).map_err(|status| format!("{} {}", status.code, status.message))?;
    Ok(service["spec"].clone())
}

/// Completes the successor of a Service that has been created.
fn updated(stored: &Value, spec: &Value) -> Result<Value, String> {
    let stored = object(json!({"metadata": {"name": "a"}, "spec": stored}));
    let mut service = object(json!({"metadata": {"name": "a"}, "spec": spec}));
    let held = held(&[stored["spec"].clone()]);
    let allocation = Allocation { range: &ServiceRange::DEFAULT, held: &held, random: |_| 0, dry_run: false };
    let done = allocation.update(&services(), &stored, &mut service);
    done.map_err(|status| format!("{} {}", status.code, status.message))?;
    Ok(service["spec"].clone())
}

fn held(specs: &[Value]) -> Holdings {
    let mut held = Holdings::default();
    specs.iter().for_each(|spec| held.add(&object(json!({"spec": spec}))));
    held
}

fn single(address: &str) -> Value {
    json!({"clusterIP": address, "clusterIPs": [address], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"})
}

fn with(mut spec: Value, more: Value) -> Value {
    spec.as_object_mut().expect("an object").extend(object(more));
    spec
}

/// Goal: a new Service gets what kube-apiserver gives it. Method: a table of specs before and after, where the first free
/// address and port above the reserved ones are given.
#[test]
fn a_new_service_gets_what_it_leaves_out() {
    let http = json!([{"port": 80}]);
    for (sent, expected) in [
        (json!({}), single("10.0.0.17")),
        (json!({"clusterIP": "10.0.0.9"}), single("10.0.0.9")),
        (json!({"clusterIP": ""}), single("10.0.0.17")),
        (json!({"type": "ExternalName"}), json!({"type": "ExternalName"})),
        (json!({"clusterIP": "None", "selector": {"a": "b"}}), with(single("None"), json!({"selector": {"a": "b"}}))),
        (
            json!({"clusterIP": "None"}),
            json!({"clusterIP": "None", "clusterIPs": ["None"], "ipFamilies": ["IPv4", "IPv6"],
                "ipFamilyPolicy": "RequireDualStack"}),
        ),
        (
            json!({"ipFamilyPolicy": "PreferDualStack"}),
            with(single("10.0.0.17"), json!({"ipFamilyPolicy": "PreferDualStack"})),
        ),
        (
            json!({"type": "NodePort", "ports": http}),
            with(single("10.0.0.17"), json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_086}]})),
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53}, {"port": 80}]}),
            with(
                single("10.0.0.17"),
                json!({"type": "NodePort", "ports": [
                {"port": 53, "protocol": "UDP", "nodePort": 30_086}, {"port": 53, "nodePort": 30_086},
                {"port": 80, "nodePort": 30_087}]}),
            ),
        ),
        (
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": http}),
            with(
                single("10.0.0.17"),
                json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
                "ports": [{"port": 80, "nodePort": 30_086}], "healthCheckNodePort": 30_087}),
            ),
        ),
        (
            json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": http}),
            with(
                single("10.0.0.17"),
                json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": http}),
            ),
        ),
    ] {
        assert_eq!(created(&sent, &[], false), Ok(expected), "{sent}");
    }
}

/// Goal: what cannot be given is refused in kube-apiserver's words. Method: a table of specs beside a Service.
#[test]
fn a_service_is_refused_what_it_cannot_get() {
    let other = json!({"clusterIP": "10.0.0.9", "ports": [{"port": 1, "nodePort": 30_001}]});
    let of = |causes: &str| Err(format!("422 Service \"a\" is invalid: {causes}"));
    for (sent, causes) in [
        (
            json!({"clusterIP": "10.0.0.9"}),
            "spec.clusterIPs: Invalid value: [\"10.0.0.9\"]: failed to allocate IP 10.0.0.9: provided IP is already allocated",
        ),
        (
            json!({"clusterIP": "10.0.1.9"}),
            "spec.clusterIPs: Invalid value: [\"10.0.1.9\"]: failed to allocate IP 10.0.1.9: the provided network does not \
             match the current range",
        ),
        (
            json!({"clusterIP": "10.0.0.255"}),
            "spec.clusterIPs: Invalid value: [\"10.0.0.255\"]: failed to allocate IP 10.0.0.255: the provided IP (10.0.0.255) \
             is not in the valid range. The range of valid IPs is 10.0.0.0/24",
        ),
        (
            json!({"clusterIP": "x"}),
            "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        ),
        (
            json!({"clusterIPs": ["10.0.0.8"]}),
            "spec.clusterIPs: Invalid value: [\"10.0.0.8\"]: must be empty when `clusterIP` is not specified",
        ),
        (
            json!({"clusterIP": "fd00::1"}),
            "spec.clusterIPs[0]: Invalid value: [\"fd00::1\"]: IPv6 is not configured on this cluster",
        ),
        (
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
        (
            json!({"ipFamilies": ["IPv6"]}),
            "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_001}]}),
            "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 8080}]}),
            "spec.ports[0].nodePort: Invalid value: 8080: provided port is not in the valid range. The range of valid ports is \
             30000-32767",
        ),
    ] {
        assert_eq!(created(&sent, std::slice::from_ref(&other), false), of(causes), "{sent}");
    }
}

#[test]
fn a_dry_run_takes_nothing() {
    let spec = created(&json!({"type": "NodePort", "ports": [{"port": 1}, {"port": 2}]}), &[], true).expect("is shown");
    assert_eq!((&spec["clusterIP"], &spec["ports"][1]), (&json!("10.0.0.0"), &json!({"port": 2, "nodePort": 32_770})));
    assert!(created(&json!({"clusterIP": "10.0.0.9"}), &[single("10.0.0.9")], true).is_ok(), "as in kube-apiserver");
}

/// Goal: every address and port is given once. Method: as many Services as the range has addresses, then one more; as many
/// node ports as there are, then one more.
#[test]
fn all_are_given_and_none_twice() {
    let mut all: Vec<Value> = Vec::new();
    for _ in 0..254 {
        all.push(created(&json!({}), &all, false).expect("an address is free"));
    }
    let addresses: BTreeSet<&str> = all.iter().filter_map(|spec| spec["clusterIP"].as_str()).collect();
    assert_eq!(addresses.len(), 254);
    let full = "failed to allocate a serviceIP for Service \"a\": range is full";
    assert!(created(&json!({}), &all, false).expect_err("all are taken").contains(full));
    let ports = |count: u16| (0..count).map(|port| json!({"port": port + 1})).collect::<Vec<_>>();
    let whole = created(&json!({"type": "NodePort", "ports": ports(2_768)}), &[], false).expect("enough are free");
    let given: BTreeSet<u64> =
        whole["ports"].as_array().unwrap().iter().filter_map(|port| port["nodePort"].as_u64()).collect();
    assert_eq!((given.len(), given.first(), given.last()), (2_768, Some(&30_000), Some(&32_767)));
    assert!(created(&json!({"type": "NodePort", "ports": ports(2_769)}), &[], false).is_err());
    let mut held = held(&all);
    all.iter().for_each(|spec| held.remove(&object(json!({"spec": spec}))));
    assert!(held.addresses.is_empty() && held.ports.is_empty());
}

/// Goal: a write that leaves out what was given changes nothing, and what a new type does not need goes. Method: a table of a
/// stored spec, a sent one, and the result.
#[test]
fn a_successor_keeps_what_it_needs() {
    let ported = with(
        single("10.0.0.20"),
        json!({"type": "NodePort", "externalTrafficPolicy": "Cluster",
        "ports": [{"name": "h", "port": 80, "nodePort": 30_100}]}),
    );
    let balanced = with(
        ported.clone(),
        json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": true,
        "externalTrafficPolicy": "Local", "healthCheckNodePort": 30_200}),
    );
    for (stored, sent, expected) in [
        (single("10.0.0.20"), json!({}), single("10.0.0.20")),
        (single("10.0.0.20"), json!({"clusterIP": "10.0.0.20"}), single("10.0.0.20")),
        (
            ported.clone(),
            json!({"type": "NodePort", "externalTrafficPolicy": "Cluster", "ports": [{"name": "h", "port": 81}]}),
            with(ported.clone(), json!({"ports": [{"name": "h", "port": 81, "nodePort": 30_100}]})),
        ),
        (
            ported.clone(),
            with(ported.clone(), json!({"type": "ClusterIP"})),
            with(single("10.0.0.20"), json!({"type": "ClusterIP", "ports": [{"name": "h", "port": 80}]})),
        ),
        (
            ported.clone(),
            with(ported.clone(), json!({"type": "ExternalName"})),
            json!({"type": "ExternalName", "ports": [{"name": "h", "port": 80}]}),
        ),
        (
            balanced.clone(),
            with(ported.clone(), json!({"externalTrafficPolicy": "Local"})),
            with(ported.clone(), json!({"externalTrafficPolicy": "Local"})),
        ),
        (
            ported.clone(),
            with(balanced.clone(), json!({"healthCheckNodePort": 0})),
            with(balanced.clone(), json!({"healthCheckNodePort": 30_086})),
        ),
        (
            json!({"type": "ExternalName"}),
            json!({"type": "ClusterIP"}),
            with(single("10.0.0.17"), json!({"type": "ClusterIP"})),
        ),
    ] {
        assert_eq!(updated(&stored, &sent), Ok(expected), "{stored} {sent}");
    }
    let moved = updated(&single("10.0.0.20"), &json!({"clusterIP": "10.0.0.21"}));
    let causes = "spec.clusterIPs[0]: Invalid value: [\"10.0.0.21\"]: may not change once set";
    assert_eq!(moved, Err(format!("422 Service \"a\" is invalid: {causes}")));
}
