//! ResourceQuotas: whether a write fits into the quotas of its namespace, and what these have used then.
//!
//! Not implemented, on purpose: devices of ResourceClaims, and resources that need a quota, which are settings of
//! kube-apiserver. Pods are not resized here, so their statuses do not count.
//!
//! INVARIANT: a quota is charged for all that it counts, or the write is refused.
//!
//! Source: apiserver `pkg/admission/plugin/resourcequota/controller.go` and `pkg/quota/v1`, `pkg/quota/v1/evaluator/core`
//! of kubernetes/kubernetes 1.36.

mod scopes;
mod usage;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use api_rules::{
    object::{
        Object, at,
        metadata::{self, Part},
        put,
    },
    registry::ResourceType,
};
use informer_serving::status::{Status, StatusExt as _};
use serde_json::Value;

use self::usage::UsageKind;
use crate::amounts::{self, Amounts};

/// Identifier of the type.
pub const QUOTAS: &str = "resourcequotas";

/// A write that quotas may count.
#[derive(Clone, Copy)]
pub struct QuotaWrite<'a> {
    /// Type of the object.
    pub ty: &'a ResourceType,
    /// The part that is written.
    pub part: Part,
    /// The complete object.
    pub object: &'a Object,
    /// The stored one; `None` for a create.
    pub old: Option<&'a Object>,
}

impl QuotaWrite<'_> {
    /// True if the write may use more of a quota. Cost: constant.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.ty.namespaced && UsageKind::of(self.ty).is_some_and(|kind| kind.counts(self))
    }

    /// Returns each of the namespace's quotas as the write leaves it; `None` for one that it does not change.
    ///
    /// # Errors
    /// 403 if the object lacks what a quota counts, if a quota has not been measured yet, and if it is exceeded.
    pub fn charge(&self, quotas: &[Object]) -> Result<Vec<Option<Object>>, Status> {
        let Some(kind) = UsageKind::of(self.ty) else { return Ok(Vec::new()) };
        let mut are_matched = Vec::new();
        for quota in quotas {
            let is_matched = kind.is_matched(self.ty, quota, self.object);
            if is_matched {
                self.check_measured(kind, quota)?;
            }
            are_matched.push(is_matched);
        }
        if !are_matched.contains(&true) {
            return Ok(vec![None; are_matched.len()]);
        }
        let (usage, before) = (kind.usage(self.ty, self.object), self.old.map(|old| kind.usage(self.ty, old)));
        let charge = |(quota, is_matched): (&Object, bool)| {
            if !is_matched {
                return Ok(None);
            }
            let old = self.old.filter(|old| kind.is_matched(self.ty, quota, old));
            self.charged(quota, &usage, before.as_ref().filter(|_| old.is_some()))
        };
        quotas.iter().zip(are_matched).map(charge).collect()
    }

    /// Returns a quota once it is charged for what the object uses more than before; `None` if that is nothing.
    fn charged(&self, quota: &Object, usage: &Amounts, before: Option<&Amounts>) -> Result<Option<Object>, Status> {
        let (hard, used) = (amounts::read(at(quota, "status.hard")), amounts::read(at(quota, "status.used")));
        let more = usage.iter().filter(|(name, _)| hard.contains_key(*name)).map(|(name, amount)| {
            let before = before.and_then(|before| before.get(name));
            (name.clone(), before.map_or(*amount, |before| amount.less(*before)))
        });
        let requested: Amounts = more.filter(|(_, amount)| amount.billionths != 0).collect();
        if requested.is_empty() {
            return Ok(None);
        }
        let total = |name: &str| used.get(name).copied().unwrap_or_default().plus(requested[name]);
        let is_above = |name: &str| hard[name].billionths < total(name).billionths;
        let exceeded: Vec<&String> = requested.keys().filter(|name| is_above(name)).collect();
        if !exceeded.is_empty() && self.part != Part::Status {
            let shown = |amounts: &Amounts| {
                let shown = exceeded.iter().filter_map(|name| Some(format!("{name}={}", amounts.get(*name)?)));
                shown.collect::<Vec<_>>().join(",")
            };
            let (requested, used, hard) = (shown(&requested), shown(&used), shown(&hard));
            let name = metadata::text(quota, "name");
            let why = format!("exceeded quota: {name}, requested: {requested}, used: {used}, limited: {hard}");
            return Err(self.refuse(&why));
        }
        let mut charged = at(quota, "status.used").and_then(Value::as_object).cloned().unwrap_or_default();
        charged.extend(requested.keys().map(|name| (name.clone(), total(name).to_string().into())));
        let mut next = quota.clone();
        put(&mut next, "status.used", charged.into());
        Ok(Some(next))
    }

    /// Refuses an object without the amounts that a quota counts, and a quota whose use is unknown.
    fn check_measured(&self, kind: UsageKind, quota: &Object) -> Result<(), Status> {
        let name = metadata::text(quota, "name");
        let counted: BTreeSet<&str> = hard(quota).filter(|name| kind.is_known(self.ty, name)).collect();
        let missing = kind.missing(&counted, self.object);
        if !missing.is_empty() {
            return Err(self.refuse(&format!("failed quota: {name}: must specify {}", missing.join("; "))));
        }
        let used = at(quota, "status.used").and_then(Value::as_object);
        if counted.iter().all(|name| used.is_some_and(|used| used.contains_key(*name))) {
            return Ok(());
        }
        let counted = counted.into_iter().collect::<Vec<_>>().join(",");
        Err(self.refuse(&format!("status unknown for quota: {name}, resources: {counted}")))
    }

    fn refuse(&self, why: &str) -> Status {
        forbidden(self.ty, self.object, why)
    }
}

/// Names of the resources that a quota limits, as its controller saw them.
fn hard(quota: &Object) -> impl Iterator<Item = &str> {
    at(quota, "status.hard").and_then(Value::as_object).into_iter().flatten().map(|(name, _)| &**name)
}

/// Returns the 403 of an admission plugin, which names an object as well as it can.
pub(crate) fn forbidden(ty: &ResourceType, object: &Object, why: &str) -> Status {
    let names = ["name", "generateName"].map(|member| metadata::text(object, member));
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
    Status::forbidden(&ty.group, &ty.plural, name, why)
}
