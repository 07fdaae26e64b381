//! Ports of all nodes that lead to a Service, and those of the checks of its load balancer.
//!
//! Source: `pkg/registry/core/service/portallocator` of kubernetes/kubernetes, and the functions of `storage/alloc.go` about
//! node ports.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use informer_serving::status::{Status, StatusExt as _};
use serde_json::{Value, json};

use super::{Allocation, AllocationResult, Object, ServiceView, ServiceWrite, range::next_free};

/// The ports of a cluster's nodes that Services get.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// Number of the first ones that are given only when all others are taken.
const RESERVED: u64 = 86;

/// The port after which a dry run counts.
const DRY_PORT: u64 = 32_768;

/// The ports that one write allocates.
struct PortAllocation<'a> {
    allocation: &'a Allocation<'a>,
    taken: BTreeSet<u64>,
}

impl PortAllocation<'_> {
    /// Takes a port that the client chose.
    ///
    /// # Errors
    /// kube-apiserver's text.
    fn take(&mut self, port: u64) -> Result<(), String> {
        let known = u16::try_from(port).ok();
        let is_inside = known.is_some_and(|port| NODE_PORTS.contains(&port));
        if !is_inside && !self.allocation.dry_run {
            let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
            return Err(format!("provided port is not in the valid range. The range of valid ports is {first}-{last}"));
        }
        if known.is_some_and(|port| self.allocation.held.ports.contains_key(&port)) || !self.taken.insert(port) {
            return Err("provided port is already allocated".to_owned());
        }
        Ok(())
    }

    /// Takes a free port; `None` if there is none.
    fn next(&mut self) -> Option<u64> {
        let port = if self.allocation.dry_run {
            self.taken.last().copied().unwrap_or(DRY_PORT) + 1
        } else {
            let first = *NODE_PORTS.start();
            let at = |number: u64| u16::try_from(number).map_or(u16::MAX, |number| first.saturating_add(number));
            let held = |number: u64| {
                self.allocation.held.ports.contains_key(&at(number)) || self.taken.contains(&at(number).into())
            };
            let count = u64::from(NODE_PORTS.end() - first) + 1;
            at(next_free(count, RESERVED, self.allocation.random, held)?).into()
        };
        self.taken.insert(port);
        Some(port)
    }

    /// Takes a free port, or fails.
    fn any(&mut self) -> Result<u64, Status> {
        self.next().ok_or_else(|| Status::internal("failed to allocate a nodePort: range is full"))
    }

    /// Allocates the port of the checks.
    fn health_check(&mut self, service: &mut ServiceWrite<'_>) -> AllocationResult {
        let requested = service.view().get("healthCheckNodePort").and_then(Value::as_u64).unwrap_or_default();
        if requested != 0 {
            return self.take(requested).map_err(|why| {
                Status::internal(&format!("failed to allocate requested HealthCheck NodePort {requested}: {why}"))
            });
        }
        let port = self.next();
        let port = port.ok_or_else(|| Status::internal("failed to allocate a HealthCheck NodePort : range is full"))?;
        service.put("healthCheckNodePort", json!(port));
        Ok(())
    }
}

/// Allocates the ports of a new Service.
pub(super) fn create(allocation: &Allocation<'_>, service: &mut ServiceWrite<'_>) -> AllocationResult {
    let mut operation = PortAllocation { allocation, taken: BTreeSet::new() };
    if is_on_nodes(&service.view()) {
        let gives = gives_ports(&service.view());
        let mut ports = take_ports(service);
        let done = create_each(&mut operation, service, &mut ports, gives);
        put_ports(service, ports);
        done?;
    }
    if service.view().needs_health_check() { operation.health_check(service) } else { Ok(()) }
}

/// `initNodePorts`: ports of equal numbers get one node port.
fn create_each(
    operation: &mut PortAllocation<'_>,
    service: &ServiceWrite<'_>,
    ports: &mut [Value],
    gives: bool,
) -> AllocationResult {
    let mut requested = BTreeMap::<u64, u64>::new();
    for port in ports.iter().filter(|port| number(port, "nodePort") != 0) {
        requested.entry(number(port, "port")).or_insert_with(|| number(port, "nodePort"));
    }
    let mut given = BTreeMap::<u64, u64>::new();
    for (at, port) in ports.iter_mut().enumerate() {
        let (own, node_port) = (number(port, "port"), number(port, "nodePort"));
        if (node_port == 0 && !gives) || !port.is_object() {
            continue;
        }
        let mut take = |port| operation.take(port).map_err(|why| refused(service, at, port, &why));
        let port_given = match (given.get(&own).copied(), requested.get(&own).copied()) {
            (Some(port_given), _) if node_port != 0 && node_port != port_given => {
                take(node_port)?;
                continue;
            }
            (Some(port_given), _) => port_given,
            (None, Some(first)) => {
                take(first)?;
                first
            }
            (None, None) => operation.any()?,
        };
        given.insert(own, port_given);
        port["nodePort"] = json!(port_given);
    }
    Ok(())
}

/// Allocates the ports of the successor of a Service.
pub(super) fn update(
    allocation: &Allocation<'_>,
    service: &mut ServiceWrite<'_>,
    old: &ServiceView<'_>,
) -> AllocationResult {
    let mut operation = PortAllocation { allocation, taken: BTreeSet::new() };
    if is_on_nodes(&service.view()) {
        let gives = gives_ports(&service.view());
        let mut ports = take_ports(service);
        let done = update_each(&mut operation, service, &mut ports, old, gives);
        put_ports(service, ports);
        done?;
    }
    let begins = !old.needs_health_check() && service.view().needs_health_check();
    if begins { operation.health_check(service) } else { Ok(()) }
}

/// `updateNodePorts`.
fn update_each(
    operation: &mut PortAllocation<'_>,
    service: &ServiceWrite<'_>,
    ports: &mut [Value],
    old: &ServiceView<'_>,
    gives: bool,
) -> AllocationResult {
    let before = node_ports(old);
    let mut seen = BTreeSet::new();
    for (at, port) in ports.iter_mut().enumerate() {
        let mut node_port = number(port, "nodePort");
        if node_port == 0 {
            if !gives || !port.is_object() {
                continue;
            }
            node_port = operation.any()?;
            port["nodePort"] = json!(node_port);
        } else if !before.contains(&node_port) && !operation.taken.contains(&node_port) {
            operation.take(node_port).map_err(|why| refused(service, at, node_port, &why))?;
        }
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or("TCP");
        if !seen.insert((protocol.to_owned(), node_port)) {
            return Err(Status::internal(&format!("duplicate nodePort: {{{protocol} {node_port}}}")));
        }
    }
    Ok(())
}

/// Gives the successor the ports that it leaves out, by the names of its ports: `patchAllocatedValues`.
pub(super) fn keep(service: &mut ServiceWrite<'_>, old: &ServiceView<'_>) {
    if gives_ports(old) && gives_ports(&service.view()) {
        let used: BTreeSet<u64> = node_ports(&service.view()).intersection(&node_ports(old)).copied().collect();
        let names: BTreeMap<&str, u64> = list(old).map(|port| (name(port), number(port, "nodePort"))).collect();
        let mut ports = take_ports(service);
        for port in ports.iter_mut().filter(|port| number(port, "nodePort") == 0) {
            let known = names.get(name(port)).filter(|known| **known != 0 && !used.contains(known));
            if let (Some(known), true) = (known, port.is_object()) {
                port["nodePort"] = json!(known);
            }
        }
        put_ports(service, ports);
    }
    if let Some(checks) = old.get("healthCheckNodePort")
        && old.needs_health_check()
        && service.view().needs_health_check()
        && service.view().get("healthCheckNodePort").is_none_or(|port| port == 0)
    {
        service.put("healthCheckNodePort", checks.clone());
    }
}

/// Removes the ports of the stored Service whose successor needs none, if the write adds no other.
pub(super) fn drop_unneeded(service: &mut ServiceWrite<'_>, old: &ServiceView<'_>) {
    if !is_on_nodes(old) || is_on_nodes(&service.view()) {
        return;
    }
    if node_ports(&service.view()).is_subset(&node_ports(old)) {
        let mut ports = take_ports(service);
        ports.iter_mut().filter_map(Value::as_object_mut).for_each(|port| drop(port.remove("nodePort")));
        put_ports(service, ports);
    }
}

fn is_on_nodes(service: &ServiceView<'_>) -> bool {
    matches!(service.type_name(), "NodePort" | "LoadBalancer")
}

/// True if ports that name no node port get one.
fn gives_ports(service: &ServiceView<'_>) -> bool {
    let declines = || service.get("allocateLoadBalancerNodePorts") == Some(&Value::Bool(false));
    is_on_nodes(service) && !(service.is_balanced() && declines())
}

fn list<'a>(service: &ServiceView<'a>) -> impl Iterator<Item = &'a Value> {
    service.get("ports").and_then(Value::as_array).into_iter().flatten()
}

fn node_ports(service: &ServiceView<'_>) -> BTreeSet<u64> {
    list(service).map(|port| number(port, "nodePort")).filter(|port| *port != 0).collect()
}

/// Takes the ports out of the spec, so that both can be used; [`put_ports`] brings them back.
fn take_ports(service: &mut ServiceWrite<'_>) -> Vec<Value> {
    match service.spec.get_mut("ports") {
        Some(Value::Array(ports)) => std::mem::take(ports),
        _ => Vec::new(),
    }
}

fn put_ports(service: &mut ServiceWrite<'_>, ports: Vec<Value>) {
    if let Some(Value::Array(place)) = service.spec.get_mut("ports") {
        *place = ports;
    }
}

fn number(port: &Value, member: &str) -> u64 {
    port.as_object().map_or(0, |port: &Object| port.get(member).and_then(Value::as_u64).unwrap_or_default())
}

fn name(port: &Value) -> &str {
    port.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn refused(service: &ServiceWrite<'_>, at: usize, port: u64, why: &str) -> Status {
    service.invalid(&format!("spec.ports[{at}].nodePort"), &json!(port), why)
}
