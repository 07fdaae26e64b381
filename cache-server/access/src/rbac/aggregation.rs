//! ClusterRoles that collect the rules of others by their labels.
//!
//! In a cluster, a controller writes the collected rules into the role, and those count there (`RbacPolicy::of_cluster`).
//! Without one, this server collects them itself, so that they have an effect at once.
//!
//! Source: Kubernetes `pkg/controller/clusterroleaggregation`.

use std::collections::BTreeMap;

use super::object::{AggregationRule, LabelCondition, RbacObject, RoleSelector};

impl AggregationRule {
    /// Returns true if one of the selectors selects a role with these labels.
    pub(super) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.cluster_role_selectors.iter().any(|selector| selector.selects(labels))
    }
}

impl RoleSelector {
    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|condition| condition.holds(labels))
    }
}

impl LabelCondition {
    /// An unknown operator selects nothing.
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match &*self.operator {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

/// Returns the roles whose own rules belong to the role at `start`, by position, in the order of `roles`. A role without
/// an aggregation has its own rules only; the rules stored in an aggregated role are those that a controller collected
/// before, and do not count.
///
/// Cost: for each aggregated role on the way, a look at the labels of all roles.
pub(super) fn sources(roles: &[&RbacObject], start: usize) -> Vec<usize> {
    let mut reached = vec![false; roles.len()];
    reached[start] = true;
    let mut open = vec![start];
    while let Some(at) = open.pop() {
        let Some(rule) = &roles[at].aggregation_rule else { continue };
        for (other, role) in roles.iter().enumerate() {
            if !reached[other] && rule.selects(&role.metadata.labels) {
                reached[other] = true;
                open.push(other);
            }
        }
    }
    (0..roles.len()).filter(|&at| reached[at] && roles[at].aggregation_rule.is_none()).collect()
}
