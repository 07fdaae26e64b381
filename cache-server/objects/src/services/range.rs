//! Addresses from the range of the cluster.
//!
//! Source: `pkg/registry/core/service/ipallocator/{ipallocator,bitmap}.go` of kubernetes/kubernetes.

use std::net::IpAddr;

use super::Allocation;

/// Returns a free address from the upper part of the range, or from the lower one if that is full: clients that choose an
/// address take it from the lower one. `None` if all are taken.
pub(super) fn next(allocation: &Allocation<'_>) -> Option<IpAddr> {
    let range = allocation.range;
    if allocation.dry_run {
        return Some(range.at(0));
    }
    let held = |number: u64| allocation.held.addresses.contains_key(&range.at(number + 1));
    let count = range.count();
    next_free(count, reserved(count), allocation.random, held).map(|number| range.at(number + 1))
}

/// Checks an address that a client chose.
///
/// # Errors
/// kube-apiserver's text.
pub(super) fn check(allocation: &Allocation<'_>, text: &str) -> Result<(), String> {
    let range = allocation.range;
    let requested: IpAddr = text.parse().map_err(|_| format!("failed to parse service IP \"{text}\""))?;
    let number = range.number_of(requested).ok_or("the provided network does not match the current range")?;
    if !(1..=range.count()).contains(&number) {
        return Err(format!(
            "the provided IP ({requested}) is not in the valid range. The range of valid IPs is {range}"
        ));
    }
    if !allocation.dry_run && allocation.held.addresses.contains_key(&requested) {
        return Err("provided IP is already allocated".to_owned());
    }
    Ok(())
}

/// Fewest addresses that are given only when all others are taken; smaller ranges have none.
const RESERVED_MIN: u64 = 16;

/// Most of them.
const RESERVED_MAX: u64 = 256;

/// One of so many is among them.
const RESERVED_STEP: u64 = 16;

/// Returns how many of the addresses are reserved.
fn reserved(count: u64) -> u64 {
    let share = count.saturating_add(2) / RESERVED_STEP;
    if count.saturating_add(2) <= RESERVED_MIN { 0 } else { share.clamp(RESERVED_MIN, RESERVED_MAX).min(count) }
}

/// Returns a number below `count` that is not held: the first one from a random number on, at or above `reserved`, or else
/// below it. Cost: a look-up for each one that is held.
pub(super) fn next_free(count: u64, reserved: u64, random: fn(u64) -> u64, held: impl Fn(u64) -> bool) -> Option<u64> {
    let free = |from: u64, until: u64| {
        let size = until.checked_sub(from).filter(|size| *size > 0)?;
        let start = from + random(size);
        (start..until).chain(from..start).find(|number| !held(*number))
    };
    free(reserved, count).or_else(|| free(0, reserved))
}
