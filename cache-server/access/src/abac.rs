//! Policies of a file: one JSON object per line, Kubernetes' ABAC v1beta1.
//!
//! Source: Kubernetes `pkg/auth/authorizer/abac`, `pkg/apis/abac/v1beta1`.

use serde::Deserialize;

use crate::{
    decision::AccessDecision,
    rbac::{RoleRule, nullable, path_matches},
    request_info::RequestInfo,
    review::SubjectRules,
    user::{AUTHENTICATED, User},
};

/// Version of the lines.
const API_VERSION: &str = "abac.authorization.kubernetes.io/v1beta1";

/// The policies of a file. A request is allowed if one of them matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbacPolicies {
    policies: Vec<AbacPolicy>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyLine {
    api_version: String,
    kind: String,
    spec: AbacPolicy,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct AbacPolicy {
    #[serde(deserialize_with = "nullable")]
    user: String,
    #[serde(deserialize_with = "nullable")]
    group: String,
    #[serde(deserialize_with = "nullable")]
    readonly: bool,
    #[serde(deserialize_with = "nullable")]
    api_group: String,
    #[serde(deserialize_with = "nullable")]
    resource: String,
    #[serde(deserialize_with = "nullable")]
    namespace: String,
    #[serde(deserialize_with = "nullable")]
    non_resource_path: String,
}

/// A line that is not a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct PolicyLineError {
    line: usize,
    reason: String,
}

impl AbacPolicies {
    /// Reads a file. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// [`PolicyLineError`] for the first line that is not a policy.
    pub fn parse(text: &str) -> Result<Self, PolicyLineError> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let policies =
            lines.map(|(line, text)| AbacPolicy::parse(text).map_err(|reason| PolicyLineError { line, reason }));
        Ok(Self { policies: policies.collect::<Result<_, _>>()? })
    }

    /// Decides about a request. Cost: linear in the number of lines.
    #[must_use]
    pub fn decide(&self, user: &User, info: &RequestInfo) -> AccessDecision {
        if self.policies.iter().any(|policy| policy.is_for(user) && policy.allows(info)) {
            return AccessDecision::Allowed { reason: String::new() };
        }
        AccessDecision::NoOpinion { reason: "No policy matched.".to_owned() }
    }

    /// Returns the rules of a user in a namespace.
    #[must_use]
    pub fn rules_for(&self, user: &User, namespace: &str) -> SubjectRules {
        let mut rules = SubjectRules::default();
        let is_here = |policy: &&AbacPolicy| policy.namespace == "*" || policy.namespace == namespace;
        for policy in self.policies.iter().filter(|policy| policy.is_for(user)).filter(is_here) {
            rules.extend(&policy.rules());
        }
        rules
    }
}

impl AbacPolicy {
    fn parse(text: &str) -> Result<Self, String> {
        let PolicyLine { api_version, kind, spec } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if (&*api_version, &*kind) != (API_VERSION, "Policy") {
            return Err(format!("{api_version} {kind} is not {API_VERSION} Policy"));
        }
        if spec.user.is_empty() && spec.group.is_empty() {
            return Err("a policy needs a user or a group".to_owned());
        }
        Ok(spec.restricted())
    }

    /// `*` as user or group means all users with valid credentials. Beside a named user or group, `*` widens nothing.
    fn restricted(mut self) -> Self {
        let is_any = self.user == "*" || self.group == "*";
        for name in [&mut self.user, &mut self.group] {
            if name == "*" {
                name.clear();
            }
        }
        if is_any && self.group.is_empty() {
            AUTHENTICATED.clone_into(&mut self.group);
        }
        self
    }

    fn is_for(&self, user: &User) -> bool {
        (self.user.is_empty() || self.user == user.name) && (self.group.is_empty() || user.is_in(&self.group))
    }

    fn allows(&self, info: &RequestInfo) -> bool {
        if self.readonly && !info.is_read() {
            return false;
        }
        let has = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        match &info.resource {
            Some(of) => {
                has(&self.namespace, &of.namespace)
                    && has(&self.resource, &of.resource)
                    && has(&self.api_group, &of.group)
            }
            None => path_matches(&self.non_resource_path, &info.path),
        }
    }

    fn rules(&self) -> Vec<RoleRule> {
        let verbs = if self.readonly { vec!["get", "list", "watch"] } else { vec!["*"] };
        let verbs: Vec<String> = verbs.into_iter().map(str::to_owned).collect();
        let mut rules = Vec::new();
        if !self.resource.is_empty() {
            let (api_groups, resources) = (vec![self.api_group.clone()], vec![self.resource.clone()]);
            rules.push(RoleRule { verbs: verbs.clone(), api_groups, resources, ..RoleRule::default() });
        }
        if !self.non_resource_path.is_empty() {
            let non_resource_urls = vec![self.non_resource_path.clone()];
            rules.push(RoleRule { verbs, non_resource_urls, ..RoleRule::default() });
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use informer_serving::query::Query;

    use super::*;

    fn policies(specs: &[&str]) -> AbacPolicies {
        let line = |spec: &&str| format!(r#"{{"apiVersion":"{API_VERSION}","kind":"Policy","spec":{{{spec}}}}}"#);
        AbacPolicies::parse(&specs.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap()
    }

    fn is_allowed(policies: &AbacPolicies, user: &User, request: &str) -> bool {
        let (method, path) = request.split_once(' ').unwrap();
        policies.decide(user, &RequestInfo::new(method, path, &Query::default())).is_allowed()
    }

    #[test]
    fn three_lines_are_a_policy() {
        let policies = policies(&[
            r#""group":"admins","apiGroup":"*","resource":"*","namespace":"*""#,
            r#""user":"bob","readonly":true,"resource":"pods","namespace":"a""#,
            r#""group":"*","readonly":true,"nonResourcePath":"/healthz*""#,
        ]);
        let [admin, bob] =
            [("alice", "admins"), ("bob", "users")].map(|(name, group)| User::authenticated(name, [group.to_owned()]));
        for (user, request, expected) in [
            (&admin, "DELETE /api/v1/nodes/n1", true),
            (&admin, "GET /metrics", false),
            (&bob, "GET /api/v1/namespaces/a/pods", true),
            (&bob, "GET /api/v1/namespaces/a/pods/x/log", true),
            (&bob, "GET /api/v1/namespaces/b/pods", false),
            (&bob, "GET /api/v1/pods", false),
            (&bob, "DELETE /api/v1/namespaces/a/pods/x", false),
            (&bob, "GET /apis/apps/v1/namespaces/a/pods", false),
            (&bob, "GET /healthz/ping", true),
            (&bob, "POST /healthz", false),
            (&User::anonymous(), "GET /healthz", false),
        ] {
            assert_eq!(is_allowed(&policies, user, request), expected, "{} {request}", user.name);
        }
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let (verbs, api_groups, resources) = (texts(&["get", "list", "watch"]), texts(&[""]), texts(&["pods"]));
        let non_resource_urls = texts(&["/healthz*"]);
        let of_resources = RoleRule { verbs: verbs.clone(), api_groups, resources, ..RoleRule::default() };
        let of_paths = RoleRule { verbs, non_resource_urls, ..RoleRule::default() };
        assert_eq!(policies.rules_for(&bob, "a").into_rules(), [of_resources]);
        // As in kube-apiserver, a policy without a namespace is listed for none.
        assert_eq!(policies.rules_for(&bob, "").into_rules(), [of_paths]);
        assert_eq!(policies.rules_for(&admin, "a").resource_rules[0].verbs, ["*"]);
        assert_eq!(policies.rules_for(&bob, "b").resource_rules.len(), 0);
    }

    /// Goal: `*` means every caller with valid credentials, and widens no other name. Method: each pair of user and group.
    #[test]
    fn an_asterisk_widens_no_other_name() {
        let bob = User::authenticated("bob", ["users".to_owned()]);
        let anonymous = User::anonymous();
        for (subjects, is_for_bob) in [
            (r#""user":"*""#, true),
            (r#""group":"*""#, true),
            (r#""user":"*","group":"*""#, true),
            (r#""user":"*","group":"users""#, true),
            (r#""user":"*","group":"admins""#, false),
            (r#""user":"bob","group":"*""#, true),
            (r#""user":"alice","group":"*""#, false),
            (r#""user":"bob","group":"users""#, true),
            (r#""user":"bob","group":"admins""#, false),
            (r#""user":"bob""#, true),
            (r#""group":"users""#, true),
        ] {
            let policies = policies(&[&format!(r#"{subjects},"resource":"pods","namespace":"*""#)]);
            let request = "GET /api/v1/namespaces/a/pods";
            assert_eq!(is_allowed(&policies, &bob, request), is_for_bob, "{subjects}");
            assert!(!is_allowed(&policies, &anonymous, request), "{subjects}");
        }
        // A policy of a user's name alone does not ask for credentials.
        let named = policies(&[r#""user":"system:anonymous","nonResourcePath":"/version""#]);
        assert!(is_allowed(&named, &anonymous, "GET /version"));
    }

    #[test]
    fn errors_name_the_line() {
        let good = format!(r#"{{"apiVersion":"{API_VERSION}","kind":"Policy","spec":{{"user":"a"}}}}"#);
        for (line, expected) in [
            (r#"{"user":"a"}"#, "line 3: unknown field `user`"),
            (r#"{"apiVersion":"v1","kind":"Policy","spec":{}}"#, "line 3: v1 Policy is not"),
            (&good.replace("user", "name"), "line 3: unknown field `name`"),
            (&good.replace(r#""user":"a""#, ""), "line 3: a policy needs a user or a group"),
        ] {
            let error = AbacPolicies::parse(&format!("# comment\n{good}\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
