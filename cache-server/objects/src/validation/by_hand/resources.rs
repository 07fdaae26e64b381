//! Amounts of resources: of containers, claims, quotas, ranges of limits and nodes.
//!
//! Source: `validateResourceRequirements`, `ValidateLimitRange`, `ValidateResourceQuotaSpec` in
//! `pkg/apis/core/validation/validation.go`; `pkg/apis/core/helper`.

use std::collections::HashSet;

use informer_serving::status::{CauseExt as _, StatusCause};
use serde_json::Value;

use super::{FoundCauses, Place, RowArguments, ShownValue, ValueCheck, texts};
use crate::{
    amounts::is_native,
    quantity::{ONE, Quantity},
};

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "container_resources" => container_resources,
        "node_resources" => node_resources,
        "quota_amount" => quota_amount,
        "quota_scopes" => quota_scopes,
        "quota_selector" => quota_selector,
        "quota_scopes_update" => quota_scopes_update,
        "limits" => limits,
        _ => return None,
    })
}

/// Names of resources that are measured.
const MEASURED: [&str; 11] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
    "requests.storage",
];
/// Names of resources of which there are whole numbers.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_standard(name: &str) -> bool {
    MEASURED.contains(&name) || COUNTED.contains(&name)
}

fn is_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && texts::qualified(&format!("requests.{name}")).is_empty()
}

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_page(name)
}

/// Parses an amount. One that is none was refused before: it counts as zero.
pub(super) fn quantity(value: Option<&Value>) -> Quantity {
    let text = value.and_then(Value::as_str).unwrap_or_default();
    Quantity::parse(text).unwrap_or_else(|_| Quantity::zero())
}

/// `validateResourceName`.
fn resource_name(found: &mut FoundCauses, place: &Place<'_>, name: &str) -> bool {
    let refused = texts::qualified(name);
    if !refused.is_empty() {
        found.refuse_as(place, name, &refused);
        return false;
    }
    let is_known = is_standard(name) || is_page(name) || name.starts_with("requests.hugepages-");
    if !name.contains('/') && !is_known {
        found.invalid_as(place, ShownValue::Text(name), "must be a standard resource type or fully qualified");
        return false;
    }
    true
}

/// The capacity of a volume.
pub(super) fn capacity(found: &mut FoundCauses, place: &Place<'_>) {
    let quantity = quantity(place.value);
    if quantity.billionths < 0 {
        // Rounded up.
        let number = (quantity.billionths / ONE).to_string();
        found.invalid_as(place, ShownValue::Json(&number), "must be a valid resource quantity");
    }
    if quantity.billionths <= 0 {
        found.invalid_as(place, ShownValue::Text(&quantity.to_string()), "must be greater than zero");
    }
}

/// `validateContainerResourceName`.
pub(super) fn container_resource_name(found: &mut FoundCauses, place: &Place<'_>, name: &str) {
    resource_name(found, place, name);
    let why = if !name.contains('/') {
        let is_known = ["cpu", "memory", "ephemeral-storage"].contains(&name) || is_page(name);
        (!is_known).then_some("must be a standard resource for containers")
    } else {
        (!is_native(name) && !is_extended(name)).then_some("doesn't follow extended resource name standard")
    };
    if let Some(why) = why {
        found.invalid_as(place, ShownValue::Text(name), why);
    }
}

/// `ValidateResourceQuantityValue`.
pub(super) fn amount(found: &mut FoundCauses, place: &Place<'_>, name: &str) {
    let quantity = quantity(place.value);
    if quantity.billionths < 0 {
        found.invalid_as(place, ShownValue::Text(&quantity.to_string()), "must be greater than or equal to 0");
    }
    if (COUNTED.contains(&name) || is_extended(name)) && quantity.billionths % ONE != 0 {
        found.invalid_as(place, ShownValue::Text(&quantity.to_string()), "must be an integer");
    }
}

fn container_resources(found: &mut FoundCauses, resources: &Place<'_>, _: &RowArguments) {
    let (limits, requests) = (resources.member("limits"), resources.member("requests"));
    let (mut has_pages, mut has_others) = (false, false);
    for (name, limit) in limits.entries() {
        container_resource_name(found, &limit, name);
        amount(found, &limit, name);
        has_pages |= is_page(name);
        has_others |= ["cpu", "memory"].contains(&name);
    }
    for (name, request) in requests.entries() {
        container_resource_name(found, &request, name);
        amount(found, &request, name);
        let requested = quantity(request.value);
        if let Some(limit) = limits.get(name).map(|limit| quantity(Some(limit))) {
            let relation = if !may_overcommit(name) && requested.billionths != limit.billionths {
                Some("equal to")
            } else {
                (requested.billionths > limit.billionths).then_some("less than or equal to")
            };
            if let Some(relation) = relation {
                let why = format!("must be {relation} {name} limit of {limit}");
                found.invalid_as(&requests, ShownValue::Text(&requested.to_string()), &why);
            }
        } else if !may_overcommit(name) {
            found.required(&limits, "Limit must be set for non overcommitable resources");
        }
        has_pages |= is_page(name);
        has_others |= ["cpu", "memory"].contains(&name);
    }
    if has_pages && !has_others {
        found.forbidden(resources, "HugePages require cpu or memory");
    }
}

/// Paths of causes have the name as a member.
fn node_resources(found: &mut FoundCauses, amounts: &Place<'_>, _: &RowArguments) {
    for (name, value) in amounts.entries() {
        amount(found, &amounts.renamed(name, value.value), name);
    }
}

fn quota_amount(found: &mut FoundCauses, value: &Place<'_>, _: &RowArguments) {
    let Some(name) = value.last_key() else { return };
    resource_name(found, value, name);
    let is_known = name.contains('/')
        || (is_standard(name) && name != "storage")
        || is_page(name)
        || name.starts_with("requests.hugepages-");
    if !is_known {
        found.invalid_as(value, ShownValue::Text(name), "must be a standard resource for quota");
    }
    amount(found, value, name);
}

/// True if a scope may be used with a resource.
fn fits(scope: &str, resource: &str) -> bool {
    let is_computed =
        ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"].contains(&resource);
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            resource == "pods" || is_computed
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&resource),
        _ => true,
    }
}

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];

/// For each of [`SCOPES`], how many resources of a quota it may not be used with.
fn misfits(spec: &Place<'_>) -> [usize; SCOPES.len()] {
    let mut counts = [0; SCOPES.len()];
    let hard = spec.get("hard").and_then(Value::as_object).into_iter().flatten();
    for (name, _) in hard.filter(|(name, _)| is_standard(name) && *name != "storage" || is_page(name)) {
        for (count, scope) in counts.iter_mut().zip(SCOPES) {
            *count += usize::from(!fits(scope, name));
        }
    }
    counts
}

fn conflicting(scopes: &HashSet<&str>) -> usize {
    let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    pairs.iter().filter(|pair| pair.iter().all(|scope| scopes.contains(scope))).count()
}

fn quota_scopes(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let (scopes, misfits) = (spec.member("scopes"), misfits(spec));
    for scope in scopes.items() {
        match SCOPES.iter().position(|known| *known == scope.text()) {
            None => found.invalid(&scopes, "unsupported scope"),
            Some(at) => misfit(found, misfits[at], &scopes, scopes.value),
        }
    }
    for _ in 0..conflicting(&scopes.items().map(|scope| scope.text()).collect()) {
        found.invalid(&scopes, "conflicting scopes");
    }
}

/// Refuses a scope once for each resource that it does not fit.
fn misfit(found: &mut FoundCauses, times: usize, place: &Place<'_>, shown: Option<&Value>) {
    found.add_times(times, place, |field| {
        let shown = ShownValue::Found(shown).to_string();
        StatusCause::invalid(field, &shown, "unsupported scope applied to resource")
    });
}

const EXISTS: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
    ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";

fn quota_selector(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let selector = spec.member("scopeSelector");
    let (list, misfits) = (selector.member("matchExpressions"), misfits(spec));
    for expression in list.items() {
        let scope = expression.str("scopeName");
        match SCOPES.iter().position(|known| *known == scope) {
            None => found.invalid_as(&list.member("scopeName"), ShownValue::Text(scope), "unsupported scope"),
            Some(at) => misfit(found, misfits[at], &list, selector.value),
        }
        let (operator, values) = (expression.str("operator"), list.renamed("values", expression.get("values")));
        let place = list.renamed("operator", expression.get("operator"));
        let is_plain = SCOPES.contains(&scope) && !["PriorityClass", "VolumeAttributesClass"].contains(&scope);
        if is_plain && operator != "Exists" {
            found.invalid(&place, EXISTS);
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => found
                .required(&values, "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"),
            "In" | "NotIn" => {}
            "Exists" | "DoesNotExist" if !values.is_empty() => found
                .invalid(&values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"),
            "Exists" | "DoesNotExist" => {}
            _ => found.invalid(&place, "not a valid selector operator"),
        }
    }
    for _ in 0..conflicting(&list.items().map(|expression| expression.str("scopeName")).collect()) {
        found.invalid_as(&list, ShownValue::Found(spec.get("scopes")), "conflicting scopes");
    }
}

fn quota_scopes_update(found: &mut FoundCauses, scopes: &Place<'_>, _: &RowArguments) {
    let texts = |value: Option<&Value>| -> HashSet<String> {
        value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if texts(scopes.value) != texts(scopes.stored) {
        found.invalid_as(scopes, ShownValue::OrNull(scopes.value), "field is immutable");
    }
}

fn limits(found: &mut FoundCauses, limits: &Place<'_>, _: &RowArguments) {
    let mut types = HashSet::new();
    for limit in limits.items() {
        let ty = limit.member("type");
        let refused = texts::qualified(ty.text());
        let is_known = ["Pod", "Container", "PersistentVolumeClaim"].contains(&ty.text()) || ty.text().contains('/');
        if refused.is_empty() && !is_known {
            found.invalid(&ty, "must be a standard limit type or fully qualified");
        }
        found.refuse(&ty, &refused);
        if !types.insert(limit.str("type")) {
            found.duplicate(&ty);
        }
        limit_names(found, &limit, ty.text());
        limit_values(found, &limit, ty.text());
    }
}

fn limit_names(found: &mut FoundCauses, limit: &Place<'_>, ty: &str) {
    for member in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let amounts = limit.member(member);
        if ty == "Pod" && member.starts_with("default") {
            if !amounts.is_empty() {
                found.forbidden(&amounts, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        if member == "maxLimitRequestRatio" && ty == "PersistentVolumeClaim" {
            let has = |member: &str| limit.member(member).has("storage");
            if !has("min") && !has("max") {
                let why = "either minimum or maximum storage value is required, but neither was provided";
                found.required(&limit.member("limits"), why);
            }
        }
        for (name, amount) in amounts.entries() {
            if ["Pod", "Container"].contains(&ty) {
                container_resource_name(found, &amount, name);
            } else {
                resource_name(found, &amount, name);
            }
        }
    }
}

/// The order of the amounts of each resource.
fn limit_values(found: &mut FoundCauses, limit: &Place<'_>, ty: &str) {
    const ORDER: [(&str, &str, &str, &str, &str); 6] = [
        ("min", "max", "min", "min value", "max value"),
        ("min", "defaultRequest", "defaultRequest", "min value", "default request value"),
        ("defaultRequest", "max", "defaultRequest", "default request value", "max value"),
        ("defaultRequest", "default", "defaultRequest", "default request value", "default limit value"),
        ("min", "default", "default", "min value", "default value"),
        ("default", "max", "default", "default value", "max value"),
    ];
    let members = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
    let amounts = members.map(|member| limit.get(member).and_then(Value::as_object));
    let mut names: Vec<&String> = amounts.iter().flatten().flat_map(|amounts| amounts.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let value = |member: &str| {
            let is_ignored = ty == "Pod" && member.starts_with("default");
            let value = limit.get(member)?.get(name).filter(|_| !is_ignored)?;
            Some(quantity(Some(value)))
        };
        for (less, more, place, less_text, more_text) in ORDER {
            let (Some(less_value), Some(more_value)) = (value(less), value(more)) else { continue };
            if less_value.billionths > more_value.billionths {
                let shown = match (less, more) {
                    ("min", "max" | "default") | ("defaultRequest", _) => less_value,
                    _ => more_value,
                };
                let why = format!("{less_text} {less_value} is greater than {more_text} {more_value}");
                let place_of = limit.member(place);
                found.invalid_as(&place_of.key(name), ShownValue::Text(&shown.to_string()), &why);
            }
        }
        if let Some(ratio) = value("maxLimitRequestRatio") {
            ratio_of(found, limit, name, ratio, value("min").zip(value("max")));
        }
    }
}

fn ratio_of(
    found: &mut FoundCauses,
    limit: &Place<'_>,
    name: &str,
    ratio: Quantity,
    bounds: Option<(Quantity, Quantity)>,
) {
    let ratios = limit.member("maxLimitRequestRatio");
    let place = ratios.key(name);
    if ratio.billionths < ONE {
        found.invalid_as(&place, ShownValue::Text(&ratio.to_string()), &format!("ratio {ratio} is less than 1"));
    }
    if let Some((least, most)) = bounds {
        #[expect(clippy::cast_precision_loss, reason = "as in the original")]
        let (ratio_value, bound) =
            (ratio.billionths as f64 / ONE as f64, most.billionths as f64 / least.billionths as f64);
        if ratio_value > bound {
            let why = format!("ratio {ratio} is greater than max/min = {bound:.6}");
            found.invalid_as(&place, ShownValue::Text(&ratio.to_string()), &why);
        }
    }
}
