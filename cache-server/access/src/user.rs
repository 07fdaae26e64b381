//! Identity of a caller.
//!
//! Source: apiserver `authentication/user`; `authentication.k8s.io/v1` UserInfo.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name of callers without credentials.
pub const ANONYMOUS: &str = "system:anonymous";

/// Group of callers without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Group of all callers with valid credentials.
pub const AUTHENTICATED: &str = "system:authenticated";

/// Group whose members may do everything, whatever the policies contain.
pub const MASTERS: &str = "system:masters";

/// Group of the nodes of the cluster.
pub const NODES: &str = "system:nodes";

/// Name of callers on a server without any authentication, as on kube-apiserver's former insecure port.
const UNSECURED: &str = "system:unsecured";

pub(crate) const NODE_PREFIX: &str = "system:node:";

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Group of all service accounts.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// An identity: who sends a request. Serializes as UserInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// Unique name, such as `system:node:a` or `alice@example.com`.
    #[serde(rename = "username", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Identifier that is never used again for another user; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups, in the order of the credentials.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// More attributes of the authenticator, by lower-case key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns a user with valid credentials: a member of `groups` and of [`AUTHENTICATED`].
    #[must_use]
    pub fn authenticated(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut user = Self { name: name.into(), groups: groups.into_iter().collect(), ..Self::default() };
        if !user.is_in(AUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        user
    }

    /// Returns a service account, with its groups.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = [SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")];
        Self::authenticated(format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"), groups)
    }

    /// Returns the caller without credentials.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// Returns the caller of a server that knows no users: everything is allowed to it.
    #[must_use]
    pub fn unsecured() -> Self {
        Self::authenticated(UNSECURED, [MASTERS.to_owned()])
    }

    /// Returns true for a member of `group`.
    #[must_use]
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Returns true for a caller without credentials.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS || self.is_in(UNAUTHENTICATED)
    }

    /// Returns the node's name if the user is a node: named `system:node:NAME`, in the group [`NODES`].
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.name.strip_prefix(NODE_PREFIX).filter(|name| !name.is_empty() && self.is_in(NODES))
    }

    /// Returns namespace and name of a service account's user name.
    #[must_use]
    pub fn service_account_name(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.name.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes_need_their_group() {
        let node = User::authenticated("system:node:a", [NODES.to_owned()]);
        assert_eq!(node.node(), Some("a"));
        assert_eq!(User::authenticated("system:node:a", []).node(), None);
        assert_eq!(User::authenticated("system:node:", [NODES.to_owned()]).node(), None);
    }

    #[test]
    fn callers_without_credentials_are_anonymous_by_name_or_group() {
        assert_eq!((&*User::anonymous().name, User::anonymous().is_anonymous()), (ANONYMOUS, true));
        let named = User { name: ANONYMOUS.to_owned(), ..User::default() };
        let grouped = User { name: "a".to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..User::default() };
        assert!(named.is_anonymous() && grouped.is_anonymous());
        assert!(!User::authenticated("a", []).is_anonymous());
    }

    #[test]
    fn names_of_service_accounts_have_a_namespace_and_a_name() {
        for name in ["system:serviceaccount::b", "system:serviceaccount:a:", "system:serviceaccount:a:b:c", "a:b"] {
            assert_eq!(User::authenticated(name, []).service_account_name(), None, "{name}");
        }
    }

    #[test]
    fn service_accounts_have_their_groups() {
        let user = User::service_account("a", "b");
        assert_eq!(user.name, "system:serviceaccount:a:b");
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"]);
        assert_eq!(user.service_account_name(), Some(("a", "b")));
        assert_eq!(User::authenticated("system:serviceaccount:a", []).service_account_name(), None);
    }
}
