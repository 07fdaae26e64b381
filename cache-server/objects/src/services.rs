//! Addresses and node ports of Services, as kube-apiserver allocates them from the Services that there are.
//!
//! The cluster has one range of addresses, of one family. INVARIANT: nothing is remembered but what Services hold: an
//! address that no Service has is free, also after a restart.
//!
//! Source: `pkg/registry/core/service/{strategy,storage/alloc,storage/storage}.go` of kubernetes/kubernetes 1.36.

mod families;
mod ports;
mod range;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use api_rules::{
    object::{Object, metadata},
    registry::ResourceType,
    service_range::ServiceRange,
};
use informer_serving::status::{CauseExt as _, Status, StatusCause, StatusExt as _};
use serde_json::{Value, json};

/// Addresses and node ports of all Services, with the number of Services that have it.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    addresses: BTreeMap<IpAddr, usize>,
    ports: BTreeMap<u16, usize>,
}

impl Holdings {
    /// Adds what a stored Service holds.
    pub fn add(&mut self, service: &Object) {
        let service = ServiceView::of(service);
        service.addresses().into_iter().for_each(|address| *self.addresses.entry(address).or_default() += 1);
        service.ports().into_iter().for_each(|port| *self.ports.entry(port).or_default() += 1);
    }

    /// Removes what a Service held that was [added](Self::add).
    pub fn remove(&mut self, service: &Object) {
        fn less<K: Ord>(held: &mut BTreeMap<K, usize>, key: K) {
            match held.get_mut(&key) {
                Some(1) | None => drop(held.remove(&key)),
                Some(count) => *count -= 1,
            }
        }
        let service = ServiceView::of(service);
        service.addresses().into_iter().for_each(|address| less(&mut self.addresses, address));
        service.ports().into_iter().for_each(|port| less(&mut self.ports, port));
    }
}

/// Allocates for one write. Nothing may be stored between the look at the holdings and its Service.
#[derive(Clone, Copy)]
pub struct Allocation<'a> {
    /// The addresses of the cluster.
    pub range: &'a ServiceRange,
    /// Those of the stored Services.
    pub held: &'a Holdings,
    /// Returns a number below its argument, which is above zero.
    pub random: fn(u64) -> u64,
    /// True if nothing is to be stored: a dry run shows an address and ports that no Service gets.
    pub dry_run: bool,
}

/// Result of a step.
type AllocationResult = Result<(), Status>;

impl Allocation<'_> {
    /// Completes a new Service.
    ///
    /// # Errors
    /// 422 for values that contradict each other or are taken, 500 if nothing is free.
    pub fn create(&self, ty: &ResourceType, service: &mut Object) -> AllocationResult {
        let Some(mut service) = ServiceWrite::of(ty, service) else { return Ok(()) };
        if service.view().strings("clusterIPs").is_empty() && !service.view().text("clusterIP").is_empty() {
            service.put("clusterIPs", json!([service.view().text("clusterIP")]));
        }
        families::complete(&mut service, None, self.range)?;
        self.address(&mut service)?;
        ports::create(self, &mut service)
    }

    /// Completes the successor of a stored Service: what it leaves out stays, and what its type does not need goes.
    ///
    /// # Errors
    /// As [`Self::create`]; 422 for another address.
    pub fn update(&self, ty: &ResourceType, stored: &Object, service: &mut Object) -> AllocationResult {
        let old = ServiceView::of(stored);
        let Some(mut service) = ServiceWrite::of(ty, service) else { return Ok(()) };
        keep(&mut service, &old);
        families::complete(&mut service, Some(&old), self.range)?;
        if old.is_external() {
            self.address(&mut service)?;
        }
        ports::update(self, &mut service, &old)?;
        drop_unneeded(&mut service, &old);
        fixed_address(&service, &old)
    }

    /// Allocates the address, if the Service needs one.
    fn address(&self, service: &mut ServiceWrite<'_>) -> AllocationResult {
        let view = service.view();
        let requested = view.strings("clusterIPs");
        if view.is_external() || view.is_headless() {
            return Ok(());
        }
        let address = match requested.first().filter(|text| !text.is_empty()) {
            None => {
                let full = || format!("failed to allocate a serviceIP for Service \"{}\": range is full", service.name);
                range::next(self).ok_or_else(|| Status::internal(&full()))?.to_string()
            }
            Some(text) => {
                if let Err(why) = range::check(self, text) {
                    let why = format!("failed to allocate IP {text}: {why}");
                    return Err(service.invalid("spec.clusterIPs", &json!(requested), &why));
                }
                (*text).to_owned()
            }
        };
        service.put("clusterIP", json!(address));
        service.put("clusterIPs", json!([address]));
        Ok(())
    }
}

/// The spec of a Service.
#[derive(Clone, Copy)]
struct ServiceView<'a>(Option<&'a Object>);

impl<'a> ServiceView<'a> {
    fn of(service: &'a Object) -> Self {
        Self(service.get("spec").and_then(Value::as_object))
    }

    fn get(&self, member: &str) -> Option<&'a Value> {
        self.0?.get(member).filter(|value| !value.is_null())
    }

    fn text(&self, member: &str) -> &'a str {
        self.get(member).and_then(Value::as_str).unwrap_or_default()
    }

    fn strings(&self, member: &str) -> Vec<&'a str> {
        self.get(member).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }

    fn type_name(&self) -> &'a str {
        match self.text("type") {
            "" => "ClusterIP",
            named => named,
        }
    }

    fn is_external(&self) -> bool {
        self.type_name() == "ExternalName"
    }

    fn is_balanced(&self) -> bool {
        self.type_name() == "LoadBalancer"
    }

    fn is_headless(&self) -> bool {
        self.text("clusterIP") == NONE || self.strings("clusterIPs").first() == Some(&NONE)
    }

    fn has_selector(&self) -> bool {
        self.get("selector").and_then(Value::as_object).is_some_and(|selector| !selector.is_empty())
    }

    fn needs_health_check(&self) -> bool {
        self.is_balanced() && self.text("externalTrafficPolicy") == "Local"
    }

    /// Returns the addresses that the Service holds.
    fn addresses(&self) -> BTreeSet<IpAddr> {
        if self.is_external() {
            return BTreeSet::new();
        }
        let texts = self.strings("clusterIPs").into_iter().chain([self.text("clusterIP")]);
        texts.filter_map(|text| text.parse().ok()).collect()
    }

    /// Returns the ports of all nodes that the Service holds.
    fn ports(&self) -> BTreeSet<u16> {
        let own = self.get("ports").and_then(Value::as_array).into_iter().flatten();
        let own = own.filter_map(|port| port.get("nodePort")).chain(self.get("healthCheckNodePort"));
        own.filter_map(Value::as_u64).filter_map(|port| u16::try_from(port).ok()).filter(|port| *port != 0).collect()
    }
}

/// The spec of a Service that is written, and its type and name for errors.
struct ServiceWrite<'a> {
    ty: &'a ResourceType,
    name: String,
    spec: &'a mut Object,
}

impl<'a> ServiceWrite<'a> {
    /// Returns `None` for an object whose spec is none.
    fn of(ty: &'a ResourceType, service: &'a mut Object) -> Option<Self> {
        let name = metadata::text(service, "name").to_owned();
        if service.get("spec").is_none_or(Value::is_null) {
            service.insert("spec".to_owned(), json!({}));
        }
        let spec = service.get_mut("spec")?.as_object_mut()?;
        Some(Self { ty, name, spec })
    }

    const fn view(&self) -> ServiceView<'_> {
        ServiceView(Some(self.spec))
    }

    fn put(&mut self, member: &str, value: Value) {
        self.spec.insert(member.to_owned(), value);
    }

    fn remove(&mut self, member: &str) {
        self.spec.remove(member);
    }

    /// Builds the 422 for one value.
    fn invalid(&self, field: &str, value: &Value, why: &str) -> Status {
        self.refused(vec![StatusCause::invalid(field, &value.to_string(), why)])
    }

    fn refused(&self, causes: Vec<StatusCause>) -> Status {
        Status::invalid(&self.ty.group, &self.ty.kind, &self.name, causes)
    }
}

/// Gives the successor the address that it leaves out, and makes both members of it agree: `patchAllocatedValues` and
/// `normalizeClusterIPs`.
fn keep(service: &mut ServiceWrite<'_>, old: &ServiceView<'_>) {
    let (old_address, old_addresses) = (old.text("clusterIP"), old.strings("clusterIPs"));
    if !old.is_external() && !service.view().is_external() {
        if service.view().text("clusterIP").is_empty() && !old_address.is_empty() {
            service.put("clusterIP", json!(old_address));
        }
        if service.view().strings("clusterIPs").is_empty() && !old_addresses.is_empty() {
            service.put("clusterIPs", json!(old_addresses));
        }
        ports::keep(service, old);
    }
    let view = service.view();
    let (address, is_same) = (view.text("clusterIP").to_owned(), view.strings("clusterIPs") == old_addresses);
    if address == old_address || !is_same {
        return;
    }
    if address.is_empty() {
        service.remove("clusterIPs");
    } else {
        service.put("clusterIPs", json!([address]));
    }
}

/// Removes what the stored Service needed, its successor does not need, and the write did not change:
/// `dropTypeDependentFields`.
fn drop_unneeded(service: &mut ServiceWrite<'_>, old: &ServiceView<'_>) {
    let is_same = |service: &ServiceWrite<'_>, member: &str| service.view().get(member) == old.get(member);
    let mut gone: Vec<&str> = Vec::new();
    if !old.is_external() && service.view().is_external() {
        if is_same(service, "clusterIP") && is_same(service, "clusterIPs") {
            gone.extend(["clusterIP", "clusterIPs"]);
        }
        gone.extend(["ipFamilies", "ipFamilyPolicy"].into_iter().filter(|member| is_same(service, member)));
    }
    ports::drop_unneeded(service, old);
    if old.needs_health_check() && !service.view().needs_health_check() {
        gone.push("healthCheckNodePort");
    }
    if old.is_balanced() && !service.view().is_balanced() {
        gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"]);
    }
    if is_reached(old) && !is_reached(&service.view()) {
        gone.push("externalTrafficPolicy");
    }
    for member in gone {
        if is_same(service, member) {
            service.remove(member);
        }
    }
}

/// True if the Service is reached from outside of the cluster.
fn is_reached(service: &ServiceView<'_>) -> bool {
    let has_addresses = || !service.strings("externalIPs").is_empty();
    match service.type_name() {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => has_addresses(),
        _ => false,
    }
}

/// Refuses another address: `validateUpgradeDowngradeClusterIPs`.
fn fixed_address(service: &ServiceWrite<'_>, old: &ServiceView<'_>) -> AllocationResult {
    let new = service.view();
    if old.is_external() || new.is_external() || (old.is_headless() && new.is_headless()) {
        return Ok(());
    }
    let (before, after) = (old.strings("clusterIPs"), new.strings("clusterIPs"));
    match before.first().zip(after.first()).filter(|(before, after)| before != after) {
        Some(_) => Err(service.invalid("spec.clusterIPs[0]", &json!(after), "may not change once set")),
        None => Ok(()),
    }
}

/// The address of a Service that has none.
const NONE: &str = "None";
