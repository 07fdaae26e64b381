//! Roles and their bindings.
//!
//! Source: `pkg/apis/rbac/validation/validation.go`.

use super::{FoundCauses, Place, RowArguments, ShownValue, ValueCheck, checks, texts};
use crate::validation::checks::SelectorMatch;

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "policy_rule" => policy_rule,
        "aggregation" => aggregation,
        "subject" => subject,
        "role_ref_update" => role_ref_update,
        _ => return None,
    })
}

const GROUP: &str = "rbac.authorization.k8s.io";

/// `policy_rule namespaced`, or of the whole cluster.
fn policy_rule(found: &mut FoundCauses, rule: &Place<'_>, arguments: &RowArguments) {
    let [verbs, urls, groups, resources, names] =
        ["verbs", "nonResourceURLs", "apiGroups", "resources", "resourceNames"].map(|member| rule.member(member));
    if verbs.is_empty() {
        found.required(&verbs, "verbs must contain at least one value");
    }
    if !urls.is_empty() {
        if arguments.text == "namespaced" {
            found.invalid(&urls, "namespaced rules cannot apply to non-resource URLs");
        }
        if ![groups, resources, names].iter().all(Place::is_empty) {
            found.invalid(&urls, "rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if groups.is_empty() {
        found.required(&groups, "resource rules must supply at least one api group");
    }
    if resources.is_empty() {
        found.required(&resources, "resource rules must supply at least one resource");
    }
}

fn aggregation(found: &mut FoundCauses, rule: &Place<'_>, _: &RowArguments) {
    if !rule.is_set() {
        return;
    }
    let selectors = rule.member("clusterRoleSelectors");
    if selectors.is_empty() {
        found.required(&selectors, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for selector in selectors.items() {
        checks::selector(found, &selector);
        if matches!(checks::selects(&selector, None), SelectorMatch::Invalid) {
            found.invalid_as(&selector, ShownValue::OrNull(None), "invalid label selector.");
        }
    }
}

/// `subject namespaced`, or of a binding for the whole cluster.
fn subject(found: &mut FoundCauses, subject: &Place<'_>, arguments: &RowArguments) {
    let [kind, name, group, namespace] = ["kind", "name", "apiGroup", "namespace"].map(|member| subject.member(member));
    if name.is_empty() {
        found.required(&name, "");
    }
    match kind.text() {
        "ServiceAccount" => {
            if !name.is_empty() {
                found.refuse(&name, &texts::subdomain(name.text()));
            }
            if !group.is_empty() {
                found.unsupported(&group, &[""]);
            }
            if arguments.text != "namespaced" && namespace.is_empty() {
                found.required(&namespace, "");
            }
        }
        "User" | "Group" if group.text() != GROUP => found.unsupported(&group, &[GROUP]),
        "User" | "Group" => {}
        _ => found.unsupported(&kind, &["ServiceAccount", "User", "Group"]),
    }
}

fn role_ref_update(found: &mut FoundCauses, reference: &Place<'_>, _: &RowArguments) {
    if reference.is_changed() {
        found.invalid(reference, "cannot change roleRef");
    }
}
