//! Rules that a user may grant: only those that the user has.
//!
//! INVARIANT: the work is bounded by the bytes of both sides and by [`COMBINATIONS_MAX`], whatever a rule multiplies to.
//!
//! Source: Kubernetes `pkg/registry/rbac/validation/rule.go`, `component-helpers/auth/rbac/validation`.

use std::collections::BTreeSet;

use informer_serving::go::quote;

use super::{RoleRule, held::HeldRules};
use crate::user::User;

/// Combinations of verb, group, resource and name, or of verb and path, that one object may grant if no single held rule
/// covers each of its rules. Cost: about 10 ns each, and one more for each 64 held rules. Roles of real clusters have some
/// hundred.
pub const COMBINATIONS_MAX: usize = 200_000;

/// Missing combinations that a refusal names. The search ends with them.
const MISSING_MAX: usize = 100;

/// Bytes of their texts after which the search ends, too: one long text may be part of each of them.
const MISSING_BYTES_MAX: usize = 64 << 10;

/// Reason to refuse the grant of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantRefusal {
    /// The user lacks some of them: the text of the answer.
    Unheld(String),
    /// They have more than [`COMBINATIONS_MAX`] combinations.
    TooManyCombinations,
}

/// The rules of a cluster administrator. A role that collects the rules of others can grow to these.
#[must_use]
pub fn full_authority() -> [RoleRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        RoleRule { verbs: all(), api_groups: all(), resources: all(), ..RoleRule::default() },
        RoleRule { verbs: all(), non_resource_urls: all(), ..RoleRule::default() },
    ]
}

/// Returns `Ok` if `held` covers `granted`. `errors` is the evaluation error of `held`; may be empty.
///
/// # Errors
/// The refusal, which names at most 100 missing combinations, and less if they exceed 64 KiB.
pub fn check_held(user: &User, held: &[RoleRule], errors: &str, granted: &[RoleRule]) -> Result<(), GrantRefusal> {
    let held = HeldRules::new(held);
    let open: Vec<&RoleRule> = granted.iter().filter(|rule| !held.covers_by_one(rule)).collect();
    let combinations = open.iter().map(|rule| combinations(rule)).fold(0, usize::saturating_add);
    if combinations > COMBINATIONS_MAX {
        return Err(GrantRefusal::TooManyCombinations);
    }
    let missing = missing_of(&held, open, MISSING_MAX, MISSING_BYTES_MAX);
    if missing.is_empty() {
        return Ok(());
    }
    let lines: BTreeSet<String> = compact(missing).iter().map(RoleRule::to_text).collect();
    let lines: Vec<String> = lines.into_iter().collect();
    let errors = if errors.is_empty() { String::new() } else { format!("; resolution errors: [{errors}]") };
    Err(GrantRefusal::Unheld(format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{errors}",
        quote(&user.name),
        quoted(&user.groups),
        lines.join("\n"),
    )))
}

/// Returns the combinations of `granted` that `held` does not cover. Has no bound: `granted` must not come from a request.
pub(crate) fn missing_rules(held: &[RoleRule], granted: &[RoleRule]) -> Vec<RoleRule> {
    missing_of(&HeldRules::new(held), granted, usize::MAX, usize::MAX)
}

/// Returns the combinations that `held` does not cover: up to `max`, the last of which is the first to exceed `bytes_max`
/// with the texts of all.
fn missing_of<'a>(
    held: &HeldRules<'_>,
    granted: impl IntoIterator<Item = &'a RoleRule>,
    max: usize,
    bytes_max: usize,
) -> Vec<RoleRule> {
    let (mut missing, mut bytes) = (Vec::new(), 0);
    for rule in granted {
        held.missing(rule, |part| {
            bytes += part.text_bytes();
            missing.push(part);
            missing.len() < max && bytes < bytes_max
        });
        if missing.len() >= max || bytes >= bytes_max {
            break;
        }
    }
    missing
}

/// Returns the number of combinations that a rule multiplies to.
fn combinations(rule: &RoleRule) -> usize {
    let product = |sizes: &[usize]| sizes.iter().fold(1, |all: usize, &size| all.saturating_mul(size));
    let verbs = rule.verbs.len();
    let of_resources = [rule.api_groups.len(), rule.resources.len(), verbs, rule.resource_names.len().max(1)];
    product(&of_resources).saturating_add(product(&[rule.non_resource_urls.len(), verbs]))
}

impl RoleRule {
    /// Returns the length of all its texts.
    fn text_bytes(&self) -> usize {
        let lists = [&self.api_groups, &self.resources, &self.non_resource_urls, &self.resource_names, &self.verbs];
        lists.into_iter().flatten().map(String::len).sum()
    }

    /// Returns `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}`.
    fn to_text(&self) -> String {
        let members = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let given = members.into_iter().filter(|(_, values)| !values.is_empty());
        let texts: Vec<String> = given.map(|(name, values)| format!("{name}:{}", quoted(values))).collect();
        format!("{{{}}}", texts.join(", "))
    }
}

/// Joins rules for one resource, without names, that differ in their verbs only. Cost: quadratic in at most
/// [`MISSING_MAX`] rules.
fn compact(rules: Vec<RoleRule>) -> Vec<RoleRule> {
    let mut compacted: Vec<RoleRule> = Vec::new();
    for rule in rules {
        let is_simple = rule.resource_names.is_empty() && rule.non_resource_urls.is_empty();
        let is_alike = |known: &&mut RoleRule| {
            known.resource_names.is_empty() && known.api_groups == rule.api_groups && known.resources == rule.resources
        };
        match compacted.iter_mut().find(is_alike).filter(|_| is_simple) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => compacted.push(rule),
        }
    }
    compacted
}

/// Returns texts as Go's `%q` prints them: `["a" "b"]`.
fn quoted(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(group: &str, resource: &str, name: &str, verb: &str) -> RoleRule {
        let list = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
        let (api_groups, resources) = (vec![group.to_owned()], list(resource));
        RoleRule { verbs: list(verb), api_groups, resources, resource_names: list(name), ..RoleRule::default() }
    }

    /// Goal: a message has one rule for each resource, and none that allows more than the rules it stands for. Method: rules
    /// that differ in one part.
    #[test]
    fn only_rules_that_differ_in_their_verbs_are_joined() {
        let get = rule("", "pods", "", "get");
        let joined = RoleRule { verbs: vec!["get".to_owned(), "list".to_owned()], ..get.clone() };
        assert_eq!(compact(vec![get.clone(), rule("", "pods", "", "list")]), [joined]);
        for other in [rule("", "nodes", "", "list"), rule("apps", "pods", "", "list"), rule("", "pods", "a", "list")] {
            for rules in [[get.clone(), other.clone()], [other, get.clone()]] {
                assert_eq!(compact(rules.to_vec()), rules);
            }
        }
        let paths = RoleRule { non_resource_urls: vec!["/metrics".to_owned()], ..get.clone() };
        assert_eq!(compact(vec![get.clone(), paths.clone()]), [get, paths]);
    }

    /// Returns a rule with `size` values in each of its four lists.
    fn cube(size: usize) -> RoleRule {
        let values = |kind: &str| (0..size).map(|index| format!("{kind}{index}")).collect::<Vec<_>>();
        RoleRule {
            verbs: values("v"),
            api_groups: values("g"),
            resources: values("r"),
            resource_names: values("n"),
            ..RoleRule::default()
        }
    }

    /// Goal: a small text that multiplies to many combinations is refused by a short answer, and one that is covered by a
    /// single rule is not refused for its size. Method: cubes below and above the bound, whose grantor has nothing of them,
    /// all but one combination, and everything.
    #[test]
    fn combinations_are_bounded() {
        let user = User::authenticated("u", []);
        let refusal = |held: &[RoleRule], size| check_held(&user, held, "", &[cube(size)]);
        for size in [12, 21] {
            let Err(GrantRefusal::Unheld(text)) = refusal(&[], size) else { panic!("lacks everything") };
            assert_eq!(text.lines().count(), 1 + MISSING_MAX, "{size}");
            let mut most = cube(size);
            let last = most.resource_names.pop().unwrap();
            let other = RoleRule { resource_names: vec![last], verbs: cube(size - 1).verbs, ..cube(size) };
            let Err(GrantRefusal::Unheld(text)) = refusal(&[most, other], size) else { panic!("lacks one verb") };
            let verb = format!("v{}", size - 1);
            assert!(text.lines().skip(1).all(|line| line.ends_with(&format!("Verbs:[\"{verb}\"]}}"))), "{text}");
        }
        for size in [22, 1_000] {
            assert_eq!(refusal(&[], size), Err(GrantRefusal::TooManyCombinations));
            assert_eq!(refusal(&full_authority(), size), Ok(()));
            assert_eq!(refusal(&[cube(size)], size), Ok(()));
        }
    }

    /// Goal: a refusal is not longer than the rules that it refuses, but for a bound. Method: one long text that is part of a
    /// hundred combinations, as resource, group, verb and path.
    #[test]
    fn a_long_text_is_not_repeated_for_each_combination() {
        let (user, long) = (User::authenticated("u", []), vec!["r".repeat(1 << 20)]);
        let many: Vec<String> = (0..100).map(|index| format!("n{index}")).collect();
        let get = || vec!["get".to_owned()];
        let empty = RoleRule::default;
        for rule in [
            RoleRule {
                verbs: get(),
                api_groups: get(),
                resources: long.clone(),
                resource_names: many.clone(),
                ..empty()
            },
            RoleRule { verbs: get(), api_groups: long.clone(), resources: many.clone(), ..empty() },
            RoleRule { verbs: long.clone(), api_groups: many.clone(), resources: get(), ..empty() },
            RoleRule { verbs: many, non_resource_urls: long, ..empty() },
        ] {
            let Err(GrantRefusal::Unheld(text)) = check_held(&user, &[], "", &[rule]) else {
                panic!("lacks everything")
            };
            assert!(text.len() < (1 << 20) + MISSING_BYTES_MAX, "{}", text.len());
        }
    }
}
