//! Metrics of authentication, under kube-apiserver's names.
//!
//! INVARIANT: the labels are of fixed sets: names of users are not labels.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// Outcome of the check of a request's credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    result: &'static str,
}

/// Kind of an authenticated user.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UserLabels {
    username: &'static str,
}

/// Counters of authentication. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AuthenticationMetrics {
    attempts: Family<AttemptLabels, Counter>,
    users: Family<UserLabels, Counter>,
}

/// Names that kube-apiserver counts by themselves.
const COUNTED_NAMES: [&str; 5] =
    ["admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"];

impl AuthenticationMetrics {
    /// Registers the counters.
    pub fn register(&self, registry: &mut Registry) {
        let about = "Requests whose credentials were checked, by result";
        registry.register("authentication_attempts", about, self.attempts.clone());
        let about = "Requests of users that are known, by the kind of their name";
        registry.register("authenticated_user_requests", about, self.users.clone());
    }

    /// Counts a request of `user`.
    pub fn succeeded(&self, user: &str) {
        let known = COUNTED_NAMES.iter().find(|name| **name == user);
        let username = known.copied().unwrap_or_else(|| if user.contains('@') { "email_id" } else { "other" });
        self.users.get_or_create(&UserLabels { username }).inc();
        self.attempts.get_or_create(&AttemptLabels { result: "success" }).inc();
    }

    /// Counts a request that was refused with `code`.
    pub fn failed(&self, code: u16) {
        let result = if code == 401 { "failure" } else { "error" };
        self.attempts.get_or_create(&AttemptLabels { result }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_by_their_kind() {
        let metrics = AuthenticationMetrics::default();
        for name in ["admin", "alice@example.com", "system:node:a", "system:anonymous"] {
            metrics.succeeded(name);
        }
        metrics.failed(401);
        metrics.failed(503);
        for (username, count) in [("admin", 1), ("email_id", 1), ("other", 2)] {
            assert_eq!(metrics.users.get_or_create(&UserLabels { username }).get(), count, "{username}");
        }
        for (result, count) in [("success", 4), ("failure", 1), ("error", 1)] {
            assert_eq!(metrics.attempts.get_or_create(&AttemptLabels { result }).get(), count, "{result}");
        }
    }
}
