//! Objects and callers for tests, also of the crates above.

use std::sync::Arc;

use access_rules::{flow::objects::FlowObject, user::User};
use serde_json::json;

use crate::authenticate::{Caller, CallerCredential};

/// Seats of the mandatory levels: as many as their shares if the server has as many seats as there are shares.
pub const OTHER_SEATS: u32 = 5;

/// A level with `seats` of the seats, and a schema of all users but masters. Requests are refused if the queue has no
/// `length`.
pub fn objects(seats: u32, length: u32) -> [FlowObject; 2] {
    let queuing = json!({"queues": 1, "handSize": 1, "queueLengthLimit": length});
    let response = if length == 0 { json!({"type": "Reject"}) } else { json!({"type": "Queue", "queuing": queuing}) };
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "all", "uid": "level-uid"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": seats, "borrowingLimitPercent": 0,
            "limitResponse": response,
        }},
    });
    let rule = json!({
        "subjects": [{"kind": "Group", "group": {"name": "*"}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    });
    let schema = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": "all", "uid": "schema-uid"},
        "spec": {"matchingPrecedence": 5, "priorityLevelConfiguration": {"name": "all"}, "rules": [rule]},
    });
    [level, schema].map(|object| FlowObject::read(&object, true).expect("a valid object"))
}

/// A caller whose credentials do not expire.
pub fn caller(user: &User) -> Arc<Caller> {
    Arc::new(Caller { user: user.clone(), expires: None, credential: CallerCredential::None })
}
