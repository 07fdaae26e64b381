//! Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers.
//!
//! Source: `pkg/apis/apps/validation/validation.go`; `ValidateReplicationControllerSpec`.

use api_rules::object::Object;
use serde_json::Value;

use super::{FoundCauses, Place, RowArguments, ShownValue, ValidationTable, ValueCheck, checks, texts};
use crate::validation::{
    checks::{SelectorMatch, amount, at_least_0, at_most_all, percent_value, selects},
    equality::{have_same_items, is_same},
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
    if replicas.int().is_none() {
        found.required(replicas, "");
    }
    at_least_0(found, replicas);
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
    template_of(found, spec, "ReplicationController");
}

/// Refuses labels that the selector does not select.
pub(super) fn mismatch(found: &mut FoundCauses, labels: &Place<'_>) {
    found.invalid_as(labels, ShownValue::OrNull(labels.value), NO_MATCH);
}

/// Checks the template of a kind whose pods always restart, and have no deadline.
fn template_of(found: &mut FoundCauses, spec: &Place<'_>, kind: &str) {
    let template = spec.member("template");
    ValidationTable::get().run_named("PodTemplateSpec", &template, found);
    template_demands(found, &template, kind);
}

fn template_demands(found: &mut FoundCauses, template: &Place<'_>, kind: &str) {
    let pod = template.member("spec");
    let (policy, deadline) = (pod.member("restartPolicy"), pod.member("activeDeadlineSeconds"));
    if policy.text() != "Always" {
        found.unsupported(&policy, &["Always"]);
    }
    if deadline.is_set() {
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
    template_of(found, spec, "ReplicaSet");
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

fn progress_deadline(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let deadline = spec.member("progressDeadlineSeconds");
    let Some(seconds) = deadline.int() else { return };
    at_least_0(found, &deadline);
    if seconds <= spec.num("minReadySeconds").unwrap_or_default() {
        found.invalid(&deadline, "must be greater than minReadySeconds");
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
            at_least_0(found, &partition);
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
    // An update cannot change them: it does not check them again.
    if spec.is_update() {
        return;
    }
    for claim in spec.member("volumeClaimTemplates").items() {
        ValidationTable::get().run_named("ClaimSpec", &claim.member("spec"), found);
    }
}

fn ordinals(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let start = spec.get("ordinals").and_then(|ordinals| ordinals.get("start"));
    at_least_0(found, &spec.renamed("ordinals.start", start));
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
    template_demands(found, &template, "StatefulSet");
}

/// Checks the template. Its containers may mount the claims too. Its labels and annotations are checked twice.
///
/// A template may be replaced without any check if the stored set is invalid.
fn claimed_template(found: &mut FoundCauses, spec: &Place<'_>) {
    let (template, claims) = (spec.member("template"), spec.member("volumeClaimTemplates"));
    if template.is_retained() && !claims.is_changed() || spec.is_update() && !is_stored_valid(spec) {
        return;
    }
    let names = claims.items().map(|claim| claim.member("metadata").str("name").to_owned()).collect();
    // With other claims, a template that is retained may be invalid.
    let template = spec.renamed("template", template.value);
    found.claims = names;
    ValidationTable::get().run_named("PodTemplateSpec", &template, found);
    found.claims = Vec::new();
    let metadata = template.member("metadata");
    checks::labels(found, &template.renamed("labels", metadata.get("labels")));
    checks::annotations(found, &template.renamed("annotations", metadata.get("annotations")));
}

fn is_stored_valid(spec: &Place<'_>) -> bool {
    let mut found = FoundCauses::default();
    ValidationTable::get().run_named("StatefulSetSpec", &spec.before(), &mut found);
    found.count() == 0
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
    let may_change = |name: &str| match name {
        // kube-apiserver adds their types for clients only.
        "volumeClaimTemplates" => have_same_items(&["apiVersion", "kind"], spec.get(name), spec.stored_member(name)),
        name => MAY.contains(&name),
    };
    if is_changed_but(spec, may_change) {
        found.forbidden(spec, WHY);
    }
}

/// True if a member that may not change differs from the stored one.
pub(super) fn is_changed_but(place: &Place<'_>, may_change: impl Fn(&str) -> bool) -> bool {
    let both = [place.value, place.stored].into_iter().flatten().filter_map(Value::as_object);
    let mut names = both.flat_map(Object::keys);
    names.any(|name| !is_same(name, place.get(name), place.stored_member(name)) && !may_change(name))
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
    template_of(found, spec, "DaemonSet");
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
