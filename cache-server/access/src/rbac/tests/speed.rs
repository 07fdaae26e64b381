//! Time of a decision with many bindings.

use std::{hint::black_box, time::Duration, time::Instant};

use informer_serving::query::Query;
use serde_json::json;

use crate::{
    rbac::{RbacKind, RbacPolicy},
    request_info::RequestInfo,
    user::User,
};

const BINDINGS: usize = 2_000;

/// Time of a decision in a release build; builds without optimization may take [`SLOWER`] times as long.
const DECISION_MAX: Duration = Duration::from_micros(30);
const SLOWER: u32 = 20;

/// A policy of ClusterRoleBindings, each with a role of its own, for groups that `group` chooses by number.
fn policy(group: impl Fn(usize) -> String) -> RbacPolicy {
    let mut policy = RbacPolicy::default();
    for number in 0..BINDINGS {
        let resources: Vec<String> = (0..5).map(|resource| format!("resource{number}x{resource}")).collect();
        let rule = json!({"verbs": ["get", "list", "watch"], "apiGroups": ["example.com"], "resources": resources});
        let names =
            json!({"verbs": ["update"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"]});
        let role = json!({"rules": [rule, names]}).to_string();
        policy.apply(RbacKind::ClusterRole, "", &format!("role{number}"), role.as_bytes()).unwrap();
        let binding = json!({
            "roleRef": {"kind": "ClusterRole", "name": format!("role{number}")},
            "subjects": [{"kind": "Group", "name": group(number)}],
        });
        policy
            .apply(RbacKind::ClusterRoleBinding, "", &format!("binding{number}"), binding.to_string().as_bytes())
            .unwrap();
    }
    policy
}

/// Returns the shortest time of a refusal, which visits all bindings of the user.
fn refusal(policy: &RbacPolicy, user: &User) -> Duration {
    let info = RequestInfo::new("GET", "/api/v1/namespaces/a/pods", &Query::default());
    let run = |_| {
        let begun = Instant::now();
        assert!(!black_box(policy.decide(black_box(user), black_box(&info))).is_allowed());
        begun.elapsed()
    };
    (0..200).map(run).min().unwrap_or_default()
}

/// Goal: a decision takes at most 30 µs with 2,000 bindings. Method: refusals, for a user with few of the bindings, and for
/// one with all of them and as many roles.
#[test]
fn two_thousand_bindings_are_decided_in_thirty_microseconds() {
    let user = User::authenticated("u", (0..5).map(|number| format!("group{number}")));
    let spread = refusal(&policy(|number| format!("group{}", number % 100)), &user);
    let all = refusal(&policy(|_| "group0".to_owned()), &user);
    println!("{BINDINGS} bindings: {spread:?} with 100 of them, {all:?} with all of them");
    let slower = if cfg!(debug_assertions) { SLOWER } else { 1 };
    assert!(spread.max(all) <= DECISION_MAX * slower, "{spread:?} {all:?}");
}
