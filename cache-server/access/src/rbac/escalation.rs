//! Rules that a user may grant: only those that the user has.
//!
//! Source: Kubernetes `pkg/registry/rbac/validation/rule.go`, `component-helpers/auth/rbac/validation`.

use std::collections::BTreeSet;

use informer_serving::go::quote;

use super::{RoleRule, rule::path_matches};
use crate::user::User;

/// The rules of a cluster administrator. A role that collects the rules of others can grow to these.
#[must_use]
pub fn full_authority() -> [RoleRule; 2] {
    let all = || vec!["*".to_owned()];
    [
        RoleRule { verbs: all(), api_groups: all(), resources: all(), ..RoleRule::default() },
        RoleRule { verbs: all(), non_resource_urls: all(), ..RoleRule::default() },
    ]
}

/// Returns the text of the refusal if `granted` has rules that `held` does not cover. `errors` is the evaluation error of
/// `held`; may be empty.
///
/// Cost: each rule is split into its verbs, groups, resources and names, and each part is compared with all rules that
/// are held.
#[must_use]
pub fn grants_unheld(user: &User, held: &[RoleRule], errors: &str, granted: &[RoleRule]) -> Option<String> {
    let missing = missing_rules(held, granted);
    if missing.is_empty() {
        return None;
    }
    let lines: BTreeSet<String> = compact(missing).iter().map(RoleRule::to_text).collect();
    let lines: Vec<String> = lines.into_iter().collect();
    let errors = if errors.is_empty() { String::new() } else { format!("; resolution errors: [{errors}]") };
    Some(format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{errors}",
        quote(&user.name),
        quoted(&user.groups),
        lines.join("\n"),
    ))
}

/// Returns the parts of `granted` that `held` does not cover.
pub(crate) fn missing_rules(held: &[RoleRule], granted: &[RoleRule]) -> Vec<RoleRule> {
    granted.iter().flat_map(parts).filter(|part| !held.iter().any(|rule| rule.covers(part))).collect()
}

/// Splits a rule into rules with one verb, group, resource and name, or one verb and path.
fn parts(rule: &RoleRule) -> Vec<RoleRule> {
    let mut parts = Vec::new();
    let names: Vec<Vec<String>> = match &*rule.resource_names {
        [] => vec![Vec::new()],
        names => names.iter().map(|name| vec![name.clone()]).collect(),
    };
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                parts.extend(names.iter().map(|names| RoleRule {
                    verbs: vec![verb.clone()],
                    api_groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    resource_names: names.clone(),
                    non_resource_urls: Vec::new(),
                }));
            }
        }
    }
    for path in &rule.non_resource_urls {
        parts.extend(rule.verbs.iter().map(|verb| RoleRule {
            verbs: vec![verb.clone()],
            non_resource_urls: vec![path.clone()],
            ..RoleRule::default()
        }));
    }
    parts
}

impl RoleRule {
    /// Returns true if this rule allows all that a part of another one allows.
    fn covers(&self, part: &Self) -> bool {
        let all = |held: &[String], wanted: &[String]| {
            held.iter().any(|value| value == "*") || wanted.iter().all(|value| held.contains(value))
        };
        let names = self.resource_names.is_empty()
            || (!part.resource_names.is_empty()
                && part.resource_names.iter().all(|name| self.resource_names.contains(name)));
        let paths = |path: &String| self.non_resource_urls.iter().any(|held| path_matches(held, path));
        all(&self.verbs, &part.verbs)
            && all(&self.api_groups, &part.api_groups)
            && part.resources.iter().all(|resource| self.covers_resource(resource))
            && names
            && part.non_resource_urls.iter().all(paths)
    }

    fn covers_resource(&self, resource: &str) -> bool {
        let has = |wanted: &str| self.resources.iter().any(|held| held == wanted);
        let in_every = |(_, subresource): (&str, &str)| has(&format!("*/{subresource}"));
        has("*") || has(resource) || resource.split_once('/').is_some_and(in_every)
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

/// Joins rules for one resource, without names, that differ in their verbs only.
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
}
