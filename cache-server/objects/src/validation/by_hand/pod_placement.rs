//! Where pods run: affinity, tolerations, spreading.
//!
//! Source: `validateAffinity`, `ValidateTolerations`, `validateTopologySpreadConstraints` in
//! `pkg/apis/core/validation/validation.go`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use informer_serving::go::quote;

use super::{FoundCauses, Place, RowArguments, ValueCheck};
use crate::validation::{checks, texts};

pub(super) fn find(name: &str) -> Option<ValueCheck> {
    Some(match name {
        "toleration" => toleration,
        "spread" => spread,
        "node_requirement" => node_requirement,
        "node_field" => node_field,
        "weight" => weight,
        "topologies" => topologies,
        "taints" => taints,
        _ => return None,
    })
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn toleration(found: &mut FoundCauses, toleration: &Place<'_>, _: &RowArguments) {
    let (key, operator, effect) =
        (toleration.member("key"), toleration.member("operator"), toleration.member("effect"));
    let value = toleration.str("value");
    if key.is_empty() {
        if operator.text() != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            found.invalid(&operator, why);
        }
    } else {
        found.refuse(&key, &texts::qualified(key.text()));
    }
    if toleration.has("tolerationSeconds") && effect.text() != "NoExecute" {
        found.invalid(&effect, "effect must be 'NoExecute' when `tolerationSeconds` is set");
    }
    match operator.text() {
        "Equal" | "" => {
            let refused = texts::label_value(value);
            if !refused.is_empty() {
                found.invalid_as(&operator, &quote(value), &refused.join(";"));
            }
        }
        "Exists" if value.is_empty() => {}
        "Exists" => found.invalid_as(&operator, &quote(value), "value must be empty when `operator` is 'Exists'"),
        "Lt" | "Gt" => found.unsupported(&operator, &["Equal", "Exists", "Lt", "Gt"]),
        _ => found.unsupported(&operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect.text()) {
        found.unsupported(&effect, &EFFECTS);
    }
}

fn spread(found: &mut FoundCauses, constraints: &Place<'_>, _: &RowArguments) {
    let pair = |constraint: &Place<'_>| {
        format!("{{{}, {}}}", constraint.str("topologyKey"), constraint.str("whenUnsatisfiable"))
    };
    let mut later = HashMap::new();
    constraints.items().for_each(|constraint| *later.entry(pair(&constraint)).or_insert(0_usize) += 1);
    for constraint in constraints.items() {
        let (skew, key, action) =
            (constraint.member("maxSkew"), constraint.member("topologyKey"), constraint.member("whenUnsatisfiable"));
        if skew.int().unwrap_or_default() <= 0 {
            found.invalid_number(&skew, "must be greater than zero");
        }
        if key.is_empty() {
            found.required(&key, "can not be empty");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        if !actions.contains(&action.text()) {
            found.unsupported(&action, &actions);
        }
        let text = pair(&constraint);
        let left = later.entry(text.clone()).or_insert(1);
        *left -= 1;
        if *left > 0 {
            found.duplicate_as(&constraint.member("{topologyKey, whenUnsatisfiable}"), &quote(&text));
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"].map(|policy| constraint.member(policy)) {
            let known = ["Honor", "Ignore"];
            if policy.is_set() && !known.contains(&policy.text()) {
                found.unsupported(&policy, &known);
            }
        }
        checks::selector(found, &constraint.member("labelSelector"));
    }
}

/// A requirement for labels of nodes; `strict` if its values must be those of labels.
fn node_requirement(found: &mut FoundCauses, requirement: &Place<'_>, arguments: &RowArguments) {
    let (key, operator, values) =
        (requirement.member("key"), requirement.member("operator"), requirement.member("values"));
    match operator.text() {
        "In" | "NotIn" => {
            if values.is_empty() {
                found.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                found.forbidden(&values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
        }
        "Gt" | "Lt" => {
            if values.len() != 1 {
                found.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
        }
        _ => found.invalid(&operator, "not a valid selector operator"),
    }
    found.refuse(&key, &texts::qualified(key.text()));
    if arguments.text == "strict" {
        for value in values.items() {
            found.refuse(&value, &texts::label_value(value.text()));
        }
    }
}

fn node_field(found: &mut FoundCauses, requirement: &Place<'_>, _: &RowArguments) {
    let (key, operator, values) =
        (requirement.member("key"), requirement.member("operator"), requirement.member("values"));
    if !["In", "NotIn"].contains(&operator.text()) {
        found.invalid(&operator, "not a valid selector operator");
    } else if values.len() != 1 {
        found.required(&values, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector");
    }
    if key.text() != "metadata.name" {
        return found.invalid(&key, "not a valid field selector key");
    }
    for value in values.items() {
        found.refuse(&value, &texts::subdomain(value.text()));
    }
}

fn weight(found: &mut FoundCauses, weight: &Place<'_>, _: &RowArguments) {
    if !(1..=100).contains(&weight.int().unwrap_or_default()) {
        found.invalid_number(weight, "must be in the range 1-100");
    }
}

/// The terms of a StorageClass. The original begins with an empty one for each: another one is a duplicate of them.
fn topologies(found: &mut FoundCauses, terms: &Place<'_>, _: &RowArguments) {
    let mut seen = HashMap::from([("{}".to_owned(), terms.len())]);
    for term in terms.items() {
        let expressions = term.member("matchLabelExpressions");
        topology(found, &expressions);
        let mut sets = BTreeMap::new();
        for expression in expressions.items() {
            let values = expression.member("values");
            let values: BTreeSet<String> = values.items().map(|value| value.text().to_owned()).collect();
            sets.insert(expression.str("key").to_owned(), values);
        }
        let count = seen.entry(format!("{sets:?}")).or_default();
        for _ in 0..*count {
            found.duplicate_as(&expressions, "\"\"");
        }
        *count += 1;
    }
}

fn topology(found: &mut FoundCauses, expressions: &Place<'_>) {
    let mut keys = HashSet::new();
    for expression in expressions.items() {
        let (key, values) = (expression.member("key"), expression.member("values"));
        if values.is_empty() {
            found.required(&values, "");
        }
        let mut seen = HashSet::new();
        for value in values.items() {
            if !seen.insert(value.text()) {
                found.duplicate(&value);
            }
        }
        found.refuse(&key, &texts::qualified(key.text()));
        if !keys.insert(expression.str("key")) {
            found.duplicate(&key);
        }
    }
}

/// Taints of a node, whose causes name its metadata.
fn taints(found: &mut FoundCauses, node: &Place<'_>, _: &RowArguments) {
    let (metadata, spec) = (node.member("metadata"), node.member("spec"));
    let taints = metadata.renamed("taints", spec.get("taints"));
    let mut seen = HashSet::new();
    for taint in taints.items() {
        let (key, value, effect) = (taint.member("key"), taint.member("value"), taint.member("effect"));
        found.refuse(&key, &texts::qualified(key.text()));
        let refused = texts::label_value(value.text());
        if !refused.is_empty() {
            found.invalid(&value, &refused.join(";"));
        }
        if effect.is_empty() {
            found.required(&effect, "");
        } else if !EFFECTS.contains(&effect.text()) {
            found.unsupported(&effect, &EFFECTS);
        }
        if !seen.insert((taint.str("key"), taint.str("effect"))) {
            let shown = super::super::found::shown(taint.value);
            found.duplicate_as(&taint, &format!("{shown}: taints must be unique by key and effect pair"));
        }
    }
}
