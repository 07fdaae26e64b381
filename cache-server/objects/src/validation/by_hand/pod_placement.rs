//! Placement of pods: affinity, tolerations, spreading.
//!
//! Source: `validateAffinity`, `ValidateTolerations`, `validateTopologySpreadConstraints` in
//! `pkg/apis/core/validation/validation.go`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use informer_serving::status::{CauseExt as _, StatusCause};
use serde_json::Value;

use super::{FoundCauses, Place, RowArguments, ShownValue, ValueCheck, checks, texts};

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
                found.invalid_as(&operator, ShownValue::Text(value), &refused.join(";"));
            }
        }
        "Exists" if value.is_empty() => {}
        "Exists" => {
            found.invalid_as(&operator, ShownValue::Text(value), "value must be empty when `operator` is 'Exists'")
        }
        "Lt" | "Gt" => found.unsupported(&operator, &["Equal", "Exists", "Lt", "Gt"]),
        _ => found.unsupported(&operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect.text()) {
        found.unsupported(&effect, &EFFECTS);
    }
}

fn spread(found: &mut FoundCauses, constraints: &Place<'_>, _: &RowArguments) {
    let mut later = HashMap::new();
    for constraint in constraints.items() {
        let pair = (constraint.str("topologyKey"), constraint.str("whenUnsatisfiable"));
        *later.entry(pair).or_insert(0_usize) += 1;
    }
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
        let pair = (constraint.str("topologyKey"), constraint.str("whenUnsatisfiable"));
        let left = later.entry(pair).or_insert(1);
        *left -= 1;
        if *left > 0 {
            found.add(&constraint.member("{topologyKey, whenUnsatisfiable}"), |field| {
                let shown = format!("{{{}, {}}}", pair.0, pair.1);
                StatusCause::duplicate(field, &ShownValue::Text(&shown).to_string())
            });
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

/// `node_requirement strict`: a requirement for labels of nodes. If it is strict, its values must be valid for labels.
fn node_requirement(found: &mut FoundCauses, requirement: &Place<'_>, arguments: &RowArguments) {
    let (key, operator, values) =
        (requirement.member("key"), requirement.member("operator"), requirement.member("values"));
    if !["Gt", "Lt"].contains(&operator.text()) {
        checks::label_operator(found, requirement);
    } else if values.len() != 1 {
        found.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
    }
    found.refuse(&key, &texts::qualified(key.text()));
    if arguments.text == "strict" {
        checks::label_values(found, &values);
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

/// The terms of a StorageClass. kube-apiserver compares each with all before it, and with as many empty ones as there
/// are terms.
fn topologies(found: &mut FoundCauses, terms: &Place<'_>, _: &RowArguments) {
    let mut seen = HashMap::from([(BTreeMap::new(), terms.len())]);
    for term in terms.items() {
        let expressions = term.member("matchLabelExpressions");
        topology(found, &expressions);
        let count = seen.entry(sets(&term)).or_default();
        found.add_times(*count, &expressions, |field| StatusCause::duplicate(field, "\"\""));
        *count += 1;
    }
}

/// Returns the values of a term by their keys.
fn sets<'a>(term: &Place<'a>) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let list = |value: Option<&'a Value>| value.and_then(Value::as_array).into_iter().flatten();
    let text = |value: Option<&'a Value>| value.and_then(Value::as_str).unwrap_or_default();
    list(term.get("matchLabelExpressions"))
        .map(|expression| {
            let values = list(expression.get("values")).map(|value| text(Some(value))).collect();
            (text(expression.get("key")), values)
        })
        .collect()
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
fn taints(found: &mut FoundCauses, spec: &Place<'_>, _: &RowArguments) {
    let Some(node) = spec.outer() else { return };
    let metadata = node.member("metadata");
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
            found.add(&taint, |field| {
                let shown = ShownValue::Found(taint.value);
                StatusCause::duplicate(field, &format!("{shown}: taints must be unique by key and effect pair"))
            });
        }
    }
}
