//! Answers about the rights of a user: the status of a SelfSubjectRulesReview.

use serde::Serialize;

use crate::rbac::RoleRule;

/// The rules of a user, as far as authorizers can list them. Serializes as SubjectRulesReviewStatus.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectRules {
    /// Rules about resources.
    pub resource_rules: Vec<RoleRule>,
    /// Rules about paths.
    pub non_resource_rules: Vec<RoleRule>,
    /// True if an authorizer may allow more than it lists.
    pub incomplete: bool,
    /// Reason why rules are missing; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub evaluation_error: String,
}

impl SubjectRules {
    /// Adds rules. A rule with resources and paths is listed as two.
    pub fn extend<'a>(&mut self, rules: impl IntoIterator<Item = &'a RoleRule>) {
        for rule in rules {
            if !rule.resources.is_empty() {
                self.resource_rules.push(RoleRule { non_resource_urls: Vec::new(), ..rule.clone() });
            }
            if !rule.non_resource_urls.is_empty() {
                let (verbs, non_resource_urls) = (rule.verbs.clone(), rule.non_resource_urls.clone());
                self.non_resource_rules.push(RoleRule { verbs, non_resource_urls, ..RoleRule::default() });
            }
        }
    }

    /// Adds the rules of another authorizer.
    pub fn append(&mut self, other: Self) {
        self.resource_rules.extend(other.resource_rules);
        self.non_resource_rules.extend(other.non_resource_rules);
        self.incomplete |= other.incomplete;
        if !self.evaluation_error.is_empty() && !other.evaluation_error.is_empty() {
            self.evaluation_error = format!("[{}, {}]", self.evaluation_error, other.evaluation_error);
        } else {
            self.evaluation_error.push_str(&other.evaluation_error);
        }
    }

    /// All rules, those about resources first.
    #[must_use]
    pub fn into_rules(self) -> Vec<RoleRule> {
        self.resource_rules.into_iter().chain(self.non_resource_rules).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(error: &str) -> SubjectRules {
        SubjectRules { evaluation_error: error.to_owned(), ..SubjectRules::default() }
    }

    #[test]
    fn errors_of_authorizers_are_joined() {
        for (first, second, expected) in [("", "", ""), ("a", "", "a"), ("", "b", "b"), ("a", "b", "[a, b]")] {
            let mut rules = failed(first);
            rules.append(failed(second));
            assert_eq!(rules.evaluation_error, expected);
        }
    }

    #[test]
    fn a_rule_with_resources_and_paths_is_listed_as_two() {
        let text = |text: &str| vec![text.to_owned()];
        let (verbs, non_resource_urls) = (text("get"), text("/metrics"));
        let rule = RoleRule { verbs, resources: text("pods"), non_resource_urls, ..RoleRule::default() };
        let mut rules = SubjectRules::default();
        rules.extend([&rule]);
        let of_resources = RoleRule { non_resource_urls: Vec::new(), ..rule.clone() };
        let of_paths = RoleRule { resources: Vec::new(), ..rule };
        assert_eq!(rules.into_rules(), [of_resources, of_paths]);
    }
}
