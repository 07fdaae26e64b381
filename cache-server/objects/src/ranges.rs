//! LimitRanges: amounts that containers of a namespace get by default, and those that pods and claims may have.
//!
//! INVARIANT: the work is linear in the bytes of the object and the ranges: an amount that an object lacks is filled in, at
//! most [`RANGE_DEFAULTS_MAX`] times, or refused, at most [`CAUSES_MAX`] times.
//!
//! Source: `plugin/pkg/admission/limitranger/admission.go` of kubernetes/kubernetes 1.36.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use api_rules::{
    object::{
        Object, at,
        metadata::{self, Part, metadata_mut},
    },
    registry::ResourceType,
};
use informer_serving::{
    limits::CAUSES_MAX,
    status::{Status, StatusExt as _},
};
use serde_json::{Map, Value};

use crate::{
    amounts::{self, Amounts},
    limits::RANGE_DEFAULTS_MAX,
    quantity::{ONE, Quantity},
    quotas::forbidden,
    strategies::inner,
};

/// Identifier of the type.
pub const RANGES: &str = "limitranges";

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
const CONTAINERS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];

/// Gives the containers of a new pod the default amounts of the ranges of its namespace, and notes that in an annotation.
///
/// # Errors
/// 413 for more than [`RANGE_DEFAULTS_MAX`] amounts.
pub fn complete(ranges: &[Object], pod: &mut Object) -> Result<(), Status> {
    let mut left = RANGE_DEFAULTS_MAX;
    for range in ranges {
        let defaults = [("requests", "request", "defaultRequest"), ("limits", "limit", "default")]
            .map(|(list, word, member)| (list, word, defaults(range, member)));
        let mut notes = Vec::new();
        for (member, word) in CONTAINERS {
            let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(member)?.as_array_mut());
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                for (list, amount, defaults) in &defaults {
                    let added = add_missing(container, list, defaults, &mut left)
                        .ok_or_else(|| Status::request_entity_too_large("too many default amounts of resources"))?;
                    if !added.is_empty() {
                        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
                        notes.push(format!("{} {amount} for {word} {name}", added.join(", ")));
                    }
                }
            }
        }
        if !notes.is_empty() {
            let note = format!("LimitRanger plugin set: {}", notes.join("; "));
            inner(metadata_mut(pod), "annotations").map(|found| found.insert(ANNOTATION.to_owned(), note.into()));
        }
    }
    Ok(())
}

/// Items of a range.
fn items(range: &Object) -> impl Iterator<Item = &Value> {
    at(range, "spec.limits").and_then(Value::as_array).into_iter().flatten()
}

fn defaults(range: &Object, member: &str) -> Amounts {
    let items = items(range).filter(|item| item["type"] == "Container");
    items.flat_map(|item| amounts::read(item.get(member))).collect()
}

/// Adds the amounts that a container lacks, and returns their names; `None` beyond the limit.
fn add_missing<'a>(
    container: &mut Object,
    list: &str,
    defaults: &'a Amounts,
    left: &mut usize,
) -> Option<Vec<&'a str>> {
    let has = |found: Option<&Value>, name: &str| found.is_some_and(|found| found.get(name).is_some());
    let found = container.get("resources").and_then(|resources| resources.get(list));
    let missing = defaults.iter().filter(|(name, _)| !has(found, name));
    let missing: Vec<_> = missing.take(left.saturating_add(1)).collect();
    *left = left.checked_sub(missing.len())?;
    if !missing.is_empty() {
        let found = inner(container, "resources").and_then(|resources| inner(resources, list));
        // A value of another type is refused later.
        let Some(found) = found else { return Some(Vec::new()) };
        found.extend(missing.iter().map(|(name, amount)| ((*name).clone(), amount.to_string().into())));
    }
    Some(missing.into_iter().map(|(name, _)| &**name).collect())
}

/// True if ranges may refuse the write. Containers of pods do not change.
#[must_use]
pub fn concern(ty: &ResourceType, part: Part, old: Option<&Object>) -> bool {
    part == Part::Main
        && match ty.id() {
            "pods" => old.is_none(),
            "persistentvolumeclaims" => !old.is_some_and(metadata::is_terminating),
            _ => false,
        }
}

/// Checks a pod or claim by the ranges of its namespace.
///
/// # Errors
/// 403 for amounts that a range does not allow.
pub fn check(ty: &ResourceType, ranges: &[Object], object: &Object) -> Result<(), Status> {
    let none = Map::new();
    let spec = object.get("spec").and_then(Value::as_object).unwrap_or(&none);
    for range in ranges {
        let bounds: Vec<_> = items(range).map(AmountBounds::read).collect();
        let misfits = bounds.iter().flat_map(|bounds| bounds.misfits(ty, spec));
        let mut seen = HashSet::new();
        let misfits: Vec<_> = misfits.take(CAUSES_MAX).filter(|text| seen.insert(text.clone())).collect();
        match &*misfits {
            [] => {}
            [only] => return Err(forbidden(ty, object, only)),
            several => return Err(forbidden(ty, object, &format!("[{}]", several.join(", ")))),
        }
    }
    Ok(())
}

/// The bounds of one item of a range.
struct AmountBounds<'a> {
    /// Whose amounts these are.
    kind: &'a str,
    least: Amounts,
    most: Amounts,
    ratios: Amounts,
}

/// Amounts that an object has.
#[derive(Default)]
struct GivenAmounts {
    requests: Amounts,
    limits: Amounts,
}

impl GivenAmounts {
    fn of_container(container: &Value) -> Self {
        let list = |member: &str| amounts::read(container.get("resources").and_then(|found| found.get(member)));
        Self { requests: list("requests"), limits: list("limits") }
    }
}

impl<'a> AmountBounds<'a> {
    fn read(item: &'a Value) -> Self {
        let [least, most, ratios] =
            ["min", "max", "maxLimitRequestRatio"].map(|member| amounts::read(item.get(member)));
        Self { kind: item["type"].as_str().unwrap_or_default(), least, most, ratios }
    }

    /// Returns why the spec of an object does not fit.
    fn misfits<'b>(&'b self, ty: &ResourceType, spec: &'b Object) -> Box<dyn Iterator<Item = String> + 'b> {
        match (ty.id(), self.kind) {
            ("pods", "Container") => {
                let containers = CONTAINERS.iter().filter_map(|(member, _)| spec.get(*member)?.as_array()).flatten();
                Box::new(containers.flat_map(|container| self.of(GivenAmounts::of_container(container))))
            }
            ("pods", "Pod") => {
                let [requests, limits] = ["requests", "limits"].map(|list| amounts::of_pod(spec, list));
                Box::new(self.of(GivenAmounts { requests, limits }))
            }
            ("persistentvolumeclaims", "PersistentVolumeClaim") => {
                let requests = amounts::read(spec.get("resources").and_then(|resources| resources.get("requests")));
                Box::new(self.of_claim(&requests).into_iter())
            }
            _ => Box::new(std::iter::empty()),
        }
    }

    fn of(&self, given: GivenAmounts) -> impl Iterator<Item = String> {
        let GivenAmounts { requests, limits } = &given;
        let least = self.least.iter().filter_map(|(name, bound)| self.below(name, *bound, requests, limits));
        let most = self.most.iter().filter_map(|(name, bound)| self.above(name, *bound, requests, limits));
        let ratios = self.ratios.iter().filter_map(|(name, bound)| self.apart(name, *bound, requests, limits));
        least.chain(most).chain(ratios).take(CAUSES_MAX).collect::<Vec<_>>().into_iter()
    }

    /// Only the request of a claim counts.
    fn of_claim(&self, requests: &Amounts) -> Vec<String> {
        let none = Amounts::new();
        let least = self.least.iter().filter_map(|(name, bound)| self.below(name, *bound, requests, &none));
        let most = self.most.iter().filter_map(|(name, bound)| match requests.get(name) {
            None => Some(format!("maximum {}.  No request is specified", self.usage(name, *bound))),
            Some(request) => self.exceeds(name, *bound, "request", *request),
        });
        least.chain(most).take(CAUSES_MAX).collect()
    }

    fn usage(&self, name: &str, bound: Quantity) -> String {
        format!("{name} usage per {} is {bound}", self.kind)
    }

    fn exceeds(&self, name: &str, bound: Quantity, word: &str, amount: Quantity) -> Option<String> {
        let is_more = bound.billionths < amount.billionths;
        is_more.then(|| format!("maximum {}, but {word} is {amount}", self.usage(name, bound)))
    }

    fn below(&self, name: &str, bound: Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
        let Some(request) = requests.get(name) else {
            return Some(format!("minimum {}.  No request is specified", self.usage(name, bound)));
        };
        let given = [("request", Some(request)), ("limit", limits.get(name))];
        given.into_iter().find_map(|(word, amount)| {
            let amount = amount.filter(|amount| amount.billionths < bound.billionths)?;
            Some(format!("minimum {}, but {word} is {amount}", self.usage(name, bound)))
        })
    }

    fn above(&self, name: &str, bound: Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
        let Some(limit) = limits.get(name) else {
            return Some(format!("maximum {}.  No limit is specified", self.usage(name, bound)));
        };
        let of_request = || self.exceeds(name, bound, "request", *requests.get(name)?);
        self.exceeds(name, bound, "limit", *limit).or_else(of_request)
    }

    fn apart(&self, name: &str, bound: Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
        let rule = format!("{name} max limit to request ratio per {} is {bound}", self.kind);
        let given = |amounts: &Amounts| amounts.get(name).map(|amount| amount.billionths).filter(|amount| *amount != 0);
        let Some(request) = given(requests) else {
            return Some(format!("{rule}, but no request is specified or request is 0"));
        };
        let Some(limit) = given(limits) else {
            return Some(format!("{rule}, but no limit is specified or limit is 0"));
        };
        let is_more = request.saturating_mul(bound.billionths) < limit.saturating_mul(ONE);
        #[expect(clippy::cast_precision_loss, reason = "as in the original")]
        is_more.then(|| format!("{rule}, but provided ratio is {:.6}", limit as f64 / request as f64))
    }
}
