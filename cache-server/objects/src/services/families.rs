//! Families of addresses of a Service.
//!
//! Source: `initIPFamilyFields` in `pkg/registry/core/service/storage/alloc.go`, and
//! `ValidateServiceClusterIPsRelatedFields` in `pkg/apis/core/validation/validation.go` of kubernetes/kubernetes.

use std::{collections::BTreeSet, net::IpAddr};

use informer_serving::{
    go::quote,
    status::{CauseExt as _, StatusCause},
};
use serde_json::{Value, json};

use super::{AllocationResult, NONE, ServiceRange, ServiceView, ServiceWrite};

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];

const SINGLE: &str = "SingleStack";

const REQUIRED: &str = "RequireDualStack";

const PREFERRED: &str = "PreferDualStack";

const POLICY: &str = "spec.ipFamilyPolicy";

/// Addresses of a Service: one for each family.
const ADDRESSES_MAX: usize = 2;

/// Sets policy and families where the Service leaves them out, and checks that they agree with its addresses and with the
/// cluster.
///
/// # Errors
/// 422.
pub(super) fn complete(
    service: &mut ServiceWrite<'_>,
    old: Option<&ServiceView<'_>>,
    range: &ServiceRange,
) -> AllocationResult {
    if service.view().is_external() || old.is_some_and(|old| stays_preferred(&service.view(), old)) {
        return Ok(());
    }
    let is_special = service.view().text("clusterIP") == NONE && !service.view().has_selector();
    if service.view().text("ipFamilyPolicy").is_empty() {
        let before = old.map(|old| old.text("ipFamilyPolicy")).filter(|policy| !policy.is_empty());
        let policy = before.unwrap_or(if is_special { REQUIRED } else { SINGLE });
        service.put("ipFamilyPolicy", json!(policy));
    }
    let mut causes = contradictions(&service.view());
    if causes.is_empty() {
        causes = fit_policy(service, old, range);
    }
    if !causes.is_empty() {
        return Err(service.refused(causes));
    }
    let policy = service.view().text("ipFamilyPolicy");
    let named = service.view().strings("ipFamilies");
    let mut families: Vec<String> = named.iter().map(ToString::to_string).collect();
    if !is_special {
        if policy == REQUIRED {
            let why = "this cluster is not configured for dual-stack services";
            causes.push(StatusCause::invalid(POLICY, &quote(policy), why));
        }
        for (at, family) in named.iter().enumerate().filter(|(_, family)| **family != range.family()) {
            let field = format!("spec.ipFamilies[{at}]");
            causes.push(StatusCause::invalid(&field, &quote(family), "not configured on this cluster"));
        }
    }
    if !causes.is_empty() {
        return Err(service.refused(causes));
    }
    if families.is_empty() {
        families.push(range.family().to_owned());
    }
    if let ([only], true) = (&*families, is_special && policy != SINGLE) {
        let other = if only == FAMILIES[0] { FAMILIES[1] } else { FAMILIES[0] };
        families.push(other.to_owned());
    }
    service.put("ipFamilies", json!(families));
    Ok(())
}

/// True for a Service that prefers two families, before and after, with the same addresses.
fn stays_preferred(new: &ServiceView<'_>, old: &ServiceView<'_>) -> bool {
    let before = old.text("ipFamilyPolicy");
    new.text("ipFamilyPolicy") == PREFERRED
        && (before.is_empty() || before == PREFERRED)
        && old.type_name() == new.type_name()
        && old.strings("clusterIPs") == new.strings("clusterIPs")
        && old.strings("ipFamilies") == new.strings("ipFamilies")
}

/// Makes the families agree with the policy and the addresses.
fn fit_policy(service: &mut ServiceWrite<'_>, old: Option<&ServiceView<'_>>, range: &ServiceRange) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let is_single = service.view().text("ipFamilyPolicy") == SINGLE;
    if let Some(old) = old {
        let (before, after) = (old.strings("ipFamilies"), service.view().strings("ipFamilies"));
        if is_single && before == after && after.len() > 1 {
            service.put("ipFamilies", json!(before[..1]));
        } else if !is_single && !after.is_empty() && after.len() < before.len() {
            causes.push(policy_cause(service, "must be 'SingleStack' to release the secondary IP family"));
        }
    }
    let addresses: Vec<String> = service.view().strings("clusterIPs").iter().map(ToString::to_string).collect();
    let mut families: Vec<String> = service.view().strings("ipFamilies").iter().map(ToString::to_string).collect();
    let both =
        |what: &str| format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
    if is_single && addresses.len() == ADDRESSES_MAX {
        causes.push(policy_cause(service, &both("cluster IPs")));
    }
    if is_single && families.len() == ADDRESSES_MAX {
        causes.push(policy_cause(service, &both("IP families")));
    }
    for (at, address) in addresses.iter().enumerate().skip(families.len()).take_while(|(_, address)| *address != NONE) {
        let family = family(address);
        if family == range.family() {
            families.push(family.to_owned());
        } else {
            let why = format!("{family} is not configured on this cluster");
            causes.push(StatusCause::invalid(&format!("spec.clusterIPs[{at}]"), &json!(addresses).to_string(), &why));
        }
    }
    if !families.is_empty() {
        service.put("ipFamilies", json!(families));
    }
    causes
}

fn policy_cause(service: &ServiceWrite<'_>, why: &str) -> StatusCause {
    StatusCause::invalid(POLICY, &quote(service.view().text("ipFamilyPolicy")), why)
}

/// Returns what contradicts itself, whatever the cluster is.
fn contradictions(service: &ServiceView<'_>) -> Vec<StatusCause> {
    const FIELD: &str = "spec.clusterIPs";
    let (address, addresses) = (service.text("clusterIP"), service.strings("clusterIPs"));
    let all = json!(addresses).to_string();
    let mut causes = Vec::new();
    match (address, addresses.first()) {
        ("", Some(_)) => {
            causes.push(StatusCause::invalid(FIELD, &all, "must be empty when `clusterIP` is not specified"));
        }
        ("", None) => {}
        (_, None) => causes.push(StatusCause::required(FIELD, "")),
        (address, Some(first)) if *first != address => {
            causes.push(StatusCause::invalid(FIELD, &all, "first value must match `clusterIP`"));
        }
        _ => {}
    }
    causes.extend(unknown_families(service));
    let policy = service.text("ipFamilyPolicy");
    if ![PREFERRED, REQUIRED, SINGLE].contains(&policy) {
        causes.push(StatusCause::not_supported(POLICY, policy, &[PREFERRED, REQUIRED, SINGLE]));
    }
    let is_well_formed = causes.len();
    for (at, address) in addresses.iter().enumerate() {
        if at == 0 && *address == NONE {
            if addresses.len() > 1 {
                causes.push(StatusCause::invalid(FIELD, &all, "'None' must be the first and only value"));
            }
        } else if address.parse::<IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            causes.push(StatusCause::invalid(&format!("{FIELD}[{at}]"), &quote(address), why));
        }
    }
    let are_unreadable = causes.len() > is_well_formed;
    if addresses.len() > ADDRESSES_MAX {
        causes.push(StatusCause::invalid(FIELD, &all, "may only hold up to 2 values"));
    }
    if are_unreadable {
        return causes;
    }
    let has_both = FAMILIES.iter().all(|known| addresses.iter().any(|address| family(address) == *known));
    if addresses.len() > 1 && !has_both {
        causes.push(StatusCause::invalid(FIELD, &all, "may specify no more than one IP for each IP family"));
    }
    causes.extend(mismatches(service, &addresses));
    causes
}

/// Returns families that there are not, or that are named twice.
fn unknown_families(service: &ServiceView<'_>) -> Vec<StatusCause> {
    let (mut causes, mut seen) = (Vec::new(), BTreeSet::new());
    for (at, family) in service.strings("ipFamilies").into_iter().enumerate() {
        let field = format!("spec.ipFamilies[{at}]");
        if !FAMILIES.contains(&family) {
            causes.push(StatusCause::not_supported(&field, family, &FAMILIES));
        }
        if !seen.insert(family) {
            causes.push(StatusCause::duplicate(&field, &quote(family)));
        }
    }
    causes
}

/// Returns addresses of another family than the Service names.
fn mismatches(service: &ServiceView<'_>, addresses: &[&str]) -> Vec<StatusCause> {
    if service.is_headless() {
        return Vec::new();
    }
    let families = service.strings("ipFamilies");
    let pairs = addresses.iter().zip(&families).enumerate();
    let wrong = pairs.filter(|(_, (address, named))| FAMILIES.contains(named) && family(address) != **named);
    let cause = |(at, (address, named)): (usize, (&&str, &&str))| {
        let why = format!("expected an {named} value as indicated by `ipFamilies[{at}]`");
        StatusCause::invalid(&format!("spec.clusterIPs[{at}]"), &Value::from(*address).to_string(), &why)
    };
    wrong.map(cause).collect()
}

/// Returns the family of an address.
fn family(address: &str) -> &'static str {
    if address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()) { "IPv6" } else { "IPv4" }
}
