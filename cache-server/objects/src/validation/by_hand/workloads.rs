//! Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers.
//!
//! Source: `pkg/apis/apps/validation/validation.go`; `ValidateReplicationControllerSpec`.

use serde_json::Value;

use super::{FoundCauses, Place, RowArguments, ValueCheck};
use crate::validation::{
    checks::{self, SelectorMatch, percent_value, selects},
    equality::is_same,
    table::ValidationTable,
    texts,
};

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "replicas" => replicas,
        "controller_template" => controller_template,
        "workload_selector" => workload_selector,
        "deployment_strategy" => deployment_strategy,
        "progress_deadline" => progress_deadline,
        "pod_management" => pod_management,
        "stateful_set_strategy" => stateful_set_strategy,
        "claim_templates" => claim_templates,
        "ordinals" => ordinals,
        "service_name" => service_name,
        "stateful_set_selector" => stateful_set_selector,
        "stateful_set_update" => stateful_set_update,
        "daemon_set_selector" => daemon_set_selector,
        "daemon_set_strategy" => daemon_set_strategy,
        _ => return None,
    })
}

const NO_MATCH: &str = "`selector` does not match template `labels`";

/// A number that is required, and may be zero.
fn replicas(found: &mut FoundCauses, replicas: &Place<'_>, _: &RowArguments) {
    match replicas.int() {
        None => found.required(replicas, ""),
        Some(number) if number < 0 => found.invalid(replicas, "must be greater than or equal to 0"),
        Some(_) => {}
    }
}

fn controller_template(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let (selector, template) = (spec.member("selector"), spec.member("template"));
    if !template.is_set() {
        return found.required(&template, "");
    }
    let metadata = template.member("metadata");
    let labels = metadata.member("labels");
    let is_matched = selector.entries().all(|(key, value)| labels.str(key) == value.text());
    if !selector.is_empty() && !is_matched {
        mismatch(found, &labels);
    }
    template_of(found, spec, &TemplateDemand { restarts: true, deadline: Some("ReplicationController") });
}

/// Refuses labels that the selector does not select.
fn mismatch(found: &mut FoundCauses, labels: &Place<'_>) {
    let shown = labels.value.map_or_else(|| "null".to_owned(), |value| super::super::found::shown(Some(value)));
    found.invalid_as(labels, &shown, NO_MATCH);
}

/// Demands of a workload on the pods in its template.
struct TemplateDemand {
    /// True if they always restart.
    restarts: bool,
    /// The kind that has no deadline for its pods.
    deadline: Option<&'static str>,
}

fn template_of(found: &mut FoundCauses, spec: &Place<'_>, demand: &TemplateDemand) {
    let template = spec.member("template");
    ValidationTable::get().run_named("PodTemplateSpec", &template, found);
    let pod = template.member("spec");
    let (policy, deadline) = (pod.member("restartPolicy"), pod.member("activeDeadlineSeconds"));
    if demand.restarts && policy.text() != "Always" {
        found.unsupported(&policy, &["Always"]);
    }
    if let Some(kind) = demand.deadline.filter(|_| deadline.is_set()) {
        found.forbidden(&deadline, &format!("activeDeadlineSeconds in {kind} is not Supported"));
    }
}

/// `workload_selector KIND`: the selector and the template, of Deployments and ReplicaSets.
fn workload_selector(found: &mut FoundCauses, spec: &Place<'_>, arguments: &RowArguments) {
    let selector = spec.member("selector");
    required_selector(found, &selector, &arguments.text);
    let template = spec.member("template");
    let metadata = template.member("metadata");
    let labels = metadata.member("labels");
    match selects(&selector, labels.value.and_then(Value::as_object)) {
        SelectorMatch::Invalid => return found.invalid(&selector, "invalid label selector"),
        SelectorMatch::Some(false) => mismatch(found, &labels),
        SelectorMatch::All | SelectorMatch::Some(true) => {}
    }
    template_of(found, spec, &TemplateDemand { restarts: true, deadline: Some("ReplicaSet") });
}

fn required_selector(found: &mut FoundCauses, selector: &Place<'_>, kind: &str) {
    if !selector.is_set() {
        return found.required(selector, "");
    }
    checks::selector(found, selector);
    if is_selecting_all(selector) {
        found.invalid(selector, &format!("empty selector is invalid for {kind}"));
    }
}

fn is_selecting_all(selector: &Place<'_>) -> bool {
    selector.member("matchLabels").is_empty() && selector.member("matchExpressions").is_empty()
}

fn deployment_strategy(found: &mut FoundCauses, strategy: &Place<'_>, _: &RowArguments) {
    let rolling = strategy.member("rollingUpdate");
    match strategy.str("type") {
        "Recreate" if rolling.is_set() => {
            found.forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let [unavailable, surge] = ["maxUnavailable", "maxSurge"].map(|member| rolling.member(member));
            amount(found, &unavailable);
            amount(found, &surge);
            if [&unavailable, &surge].iter().all(|amount| percent_value(amount).unwrap_or_default() == 0) {
                found.invalid(&unavailable, "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(found, &unavailable);
        }
        _ => found.unsupported(strategy, &["Recreate", "RollingUpdate"]),
    }
}

/// Checks a number or a percentage, of any size.
fn amount(found: &mut FoundCauses, place: &Place<'_>) {
    if let Some(Value::String(text)) = place.value {
        found.refuse(place, &texts::percent(text));
    } else if place.int().is_some_and(|number| number < 0) {
        found.invalid(place, "must be greater than or equal to 0");
    }
}

fn at_most_all(found: &mut FoundCauses, place: &Place<'_>) {
    let is_percent = place.value.is_some_and(Value::is_string);
    if is_percent && percent_value(place).is_some_and(|percent| percent > 100) {
        found.invalid(place, "must not be greater than 100%");
    }
}

fn progress_deadline(found: &mut FoundCauses, deadline: &Place<'_>, _: &RowArguments) {
    let Some(seconds) = deadline.int() else { return };
    if seconds < 0 {
        found.invalid(deadline, "must be greater than or equal to 0");
    }
    let ready = deadline.outer().and_then(|spec| spec.num("minReadySeconds")).unwrap_or_default();
    if seconds <= ready {
        found.invalid(deadline, "must be greater than minReadySeconds");
    }
}

fn pod_management(found: &mut FoundCauses, policy: &Place<'_>, _: &RowArguments) {
    if policy.is_empty() {
        found.required(policy, "");
    } else if !["OrderedReady", "Parallel"].contains(&policy.text()) {
        found.invalid(policy, "must be 'OrderedReady' or 'Parallel'");
    }
}

fn stateful_set_strategy(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let strategy = spec.member("updateStrategy");
    let rolling = strategy.member("rollingUpdate");
    match strategy.str("type") {
        "" => found.required(&strategy, ""),
        "OnDelete" if rolling.is_set() => {
            found.invalid(&rolling, "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            let (partition, unavailable) = (rolling.member("partition"), rolling.member("maxUnavailable"));
            if partition.int().is_some_and(|number| number < 0) {
                found.invalid(&partition, "must be greater than or equal to 0");
            }
            if unavailable.is_set() {
                amount(found, &unavailable);
                if percent_value(&unavailable).unwrap_or_default() == 0 {
                    found.invalid(&unavailable, "cannot be 0");
                }
                at_most_all(found, &unavailable);
            }
        }
        _ => found.invalid(&strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

fn claim_templates(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    // They cannot change, so those that are stored are not checked again.
    if spec.is_update() {
        return;
    }
    for claim in spec.member("volumeClaimTemplates").items() {
        ValidationTable::get().run_named("ClaimSpec", &claim.member("spec"), found);
    }
}

fn ordinals(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let start = spec.get("ordinals").and_then(|ordinals| ordinals.get("start"));
    if start.and_then(Value::as_i64).is_some_and(|start| start < 0) {
        found.invalid(&spec.renamed("ordinals.start", start), "must be greater than or equal to 0");
    }
}

fn service_name(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let name = spec.member("serviceName");
    if !spec.is_update() && !name.is_empty() {
        found.refuse(&name, &texts::label(name.text()));
    }
}

fn stateful_set_selector(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let selector = spec.member("selector");
    required_selector(found, &selector, "statefulset");
    let template = spec.member("template");
    let metadata = template.member("metadata");
    let labels = metadata.member("labels");
    match selects(&selector, labels.value.and_then(Value::as_object)) {
        SelectorMatch::Invalid => found.invalid(&selector, ""),
        SelectorMatch::All => claimed_template(found, spec),
        SelectorMatch::Some(is_matched) => {
            if !is_matched {
                mismatch(found, &labels);
            }
            claimed_template(found, spec);
        }
    }
    template_demands(found, &template);
}

/// Checks the template, whose containers also mount the claims. Its labels and annotations are checked twice.
fn claimed_template(found: &mut FoundCauses, spec: &Place<'_>) {
    let claims: Vec<String> = spec
        .member("volumeClaimTemplates")
        .items()
        .map(|claim| claim.member("metadata").str("name").to_owned())
        .collect();
    found.claims = claims;
    let template = spec.member("template");
    ValidationTable::get().run_named("PodTemplateSpec", &template, found);
    found.claims = Vec::new();
    let metadata = template.member("metadata");
    checks::labels(found, &template.renamed("labels", metadata.get("labels")));
    checks::annotations(found, &template.renamed("annotations", metadata.get("annotations")));
}

fn template_demands(found: &mut FoundCauses, template: &Place<'_>) {
    let pod = template.member("spec");
    let (policy, deadline) = (pod.member("restartPolicy"), pod.member("activeDeadlineSeconds"));
    if policy.text() != "Always" {
        found.unsupported(&policy, &["Always"]);
    }
    if deadline.is_set() {
        found.forbidden(&deadline, "activeDeadlineSeconds in StatefulSet is not Supported");
    }
}

fn stateful_set_update(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    const MAY: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    const WHY: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
        'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
    if is_changed_but(spec, &MAY) {
        found.forbidden(spec, WHY);
    }
}

/// True if another member differs from the stored one than these.
pub(super) fn is_changed_but(place: &Place<'_>, may: &[&str]) -> bool {
    let both = [place.value, place.stored].into_iter().flatten().filter_map(Value::as_object);
    let mut names = both.flat_map(|members| members.keys()).filter(|name| !may.contains(&name.as_str()));
    names.any(|name| !is_same(place.get(name), place.stored_member(name)))
}

fn daemon_set_selector(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let selector = spec.member("selector");
    checks::selector(found, &selector);
    let template = spec.member("template");
    let metadata = template.member("metadata");
    let labels = metadata.member("labels");
    let is_matched = !matches!(selects(&selector, labels.value.and_then(Value::as_object)), SelectorMatch::Some(false));
    if !is_matched {
        mismatch(found, &labels);
    }
    if selector.is_set() && is_selecting_all(&selector) {
        found.invalid(&selector, "empty selector is invalid for daemonset");
    }
    template_of(found, spec, &TemplateDemand { restarts: true, deadline: Some("DaemonSet") });
}

fn daemon_set_strategy(found: &mut FoundCauses, strategy: &Place<'_>, _: &RowArguments) {
    let rolling = strategy.member("rollingUpdate");
    match strategy.str("type") {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => found.required(&rolling, ""),
        "RollingUpdate" => {
            let [unavailable, surge] = ["maxUnavailable", "maxSurge"].map(|member| rolling.member(member));
            amount(found, &unavailable);
            amount(found, &surge);
            at_most_all(found, &unavailable);
            at_most_all(found, &surge);
            match [&unavailable, &surge].map(|amount| percent_value(amount).unwrap_or_default() != 0) {
                [true, true] => found.invalid(&surge, "may not be set when maxUnavailable is non-zero"),
                [false, false] => found.required(&unavailable, "cannot be 0 when maxSurge is 0"),
                [true, false] | [false, true] => {}
            }
        }
        _ => found.unsupported(strategy, &["RollingUpdate", "OnDelete"]),
    }
}
