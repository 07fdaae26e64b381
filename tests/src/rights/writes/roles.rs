//! Rows of users that write roles and bindings, and of users that act as others.

use http::Method;
use serde_json::{Value, json};

use super::{
    super::grants::{Manifest, Rule, binding, role, user},
    CREATED, OK, WriteBody, WriteCase, WriteUser, apply, patch, post, row,
};

const RBAC: &str = "rbac.authorization.k8s.io";
const A: Option<&str> = Some("w-a");
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/w-a/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/w-a/rolebindings";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const MAPS: &str = "/api/v1/namespaces/w-a/configmaps";

/// A user, and its rules of one role in the cluster.
const USERS: [(&str, &[Rule]); 6] = [
    (
        "w-granter",
        &[rule(&["get", "create", "update", "patch"], RBAC, "*", &[]), rule(&["get", "list"], "", "configmaps", &[])],
    ),
    ("w-role-updater", &[rule(&["get", "update", "patch"], RBAC, "*", &[]), rule(&["get"], "", "configmaps", &[])]),
    ("w-escalator", &[rule(&["create", "update", "patch", "escalate"], RBAC, "roles", &[])]),
    (
        "w-binder",
        &[rule(&["create"], RBAC, "rolebindings", &[]), rule(&["bind"], RBAC, "clusterroles", &["cluster-admin"])],
    ),
    (
        "w-boss",
        &[
            rule(&["impersonate"], "", "users", &["w-writer", "system:node:w-n1"]),
            rule(&["impersonate"], "", "groups", &["system:nodes"]),
        ],
    ),
    ("w-servant", &[]),
];

const fn rule(
    verbs: &'static [&'static str],
    group: &'static str,
    resource: &'static str,
    names: &'static [&'static str],
) -> Rule {
    Rule { verbs, group, resource, names }
}

fn role_body(kind: &str, name: &str, verbs: &[&str], resource: &str) -> Value {
    let group = if resource == "*" { "*" } else { "" };
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": {"name": name},
        "rules": [{"verbs": verbs, "apiGroups": [group], "resources": [resource]}],
    })
}

fn binding_body(name: &str, kind: &str, role: &str) -> Value {
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "w-servant"}],
    })
}

fn put_new(caller: &'static str, name: &str, body: Value) -> WriteCase {
    let path = format!("{ROLES}/new");
    WriteCase { body: WriteBody::Sent(body), ..row(caller, name, Method::PUT, &path, Value::Null) }
}

fn grants() -> Vec<WriteCase> {
    let new = format!("{ROLES}/new");
    let small = format!("{ROLES}/w-small");
    let fits = || role_body("Role", "new", &["get"], "configmaps");
    let exceeds = || role_body("Role", "new", &["get"], "secrets");
    let all = || role_body("Role", "new", &["*"], "*");
    let more = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}]});
    let equal = json!({"rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}]});
    vec![
        post("w-granter", "a role it has", ROLES, fits()).expecting(CREATED),
        post("w-granter", "a role it lacks", ROLES, exceeds()),
        post("w-granter", "a role of everything", ROLES, all()),
        post(
            "w-granter",
            "a cluster role it has",
            CLUSTER_ROLES,
            role_body("ClusterRole", "new", &["get"], "configmaps"),
        )
        .expecting(CREATED),
        post("w-granter", "a cluster role it lacks", CLUSTER_ROLES, role_body("ClusterRole", "new", &["*"], "nodes")),
        put_new("w-granter", "put a role it has", fits()).expecting(CREATED),
        put_new("w-granter", "put a role it lacks", exceeds()),
        apply("w-granter", "apply a role it has", &new, fits()).expecting(CREATED),
        apply("w-granter", "apply a role it lacks", &new, exceeds()),
        patch("w-granter", "patch to a role it has", &small, equal).expecting(OK),
        patch("w-granter", "patch to a role it lacks", &small, more.clone()),
        post("w-granter", "bind a role it has", BINDINGS, binding_body("new", "Role", "w-small")).expecting(CREATED),
        post("w-granter", "bind everything", BINDINGS, binding_body("new", "ClusterRole", "cluster-admin")),
        post("w-role-updater", "post a role", ROLES, fits()),
        put_new("w-role-updater", "put a role", fits()),
        put_new("w-role-updater", "put a role it lacks", exceeds()),
        apply("w-role-updater", "apply a role", &new, fits()),
        patch("w-role-updater", "patch a role", &small, json!({"metadata": {"labels": {"a": "b"}}})).expecting(OK),
        patch("w-role-updater", "patch to a role it lacks", &small, more.clone()),
        post("w-escalator", "a role of everything", ROLES, all()).expecting(CREATED),
        patch("w-escalator", "patch to another role", &small, more).expecting(OK),
        apply("w-escalator", "apply a role of everything", &new, all()).expecting(CREATED),
        post("w-escalator", "bind a role", BINDINGS, binding_body("new", "Role", "w-small")),
        post("w-binder", "bind everything", BINDINGS, binding_body("new", "ClusterRole", "cluster-admin"))
            .expecting(CREATED),
        post("w-binder", "bind a role", BINDINGS, binding_body("new", "Role", "w-small")),
        post("w-binder", "a role", ROLES, fits()),
    ]
}

/// Requests that act as another user.
fn impersonation() -> Vec<WriteCase> {
    let map = || json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
    let create = |caller, name: &str| post(caller, name, MAPS, map());
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"},
        "spec": {"nodeName": "w-n1", "containers": [{"name": "c", "image": "i"}]},
    });
    let pods = "/api/v1/namespaces/w-a/pods";
    let as_node = |case: WriteCase| {
        case.with_header("impersonate-user", "system:node:w-n1").with_header("impersonate-group", "system:nodes")
    };
    vec![
        create("w-boss", "as itself"),
        create("w-boss", "as a writer").with_header("impersonate-user", "w-writer").expecting(CREATED),
        create("w-boss", "as a reader").with_header("impersonate-user", "w-reader"),
        create("w-boss", "as a writer of a group")
            .with_header("impersonate-user", "w-writer")
            .with_header("impersonate-group", "system:masters"),
        create("w-boss", "as a writer with a uid")
            .with_header("impersonate-user", "w-writer")
            .with_header("impersonate-uid", "u"),
        create("w-boss", "as an account").with_header("impersonate-user", "system:serviceaccount:w-a:bot"),
        as_node(post("w-boss", "an ordinary pod as a node", pods, pod)),
        as_node(post("w-boss", "a mirror pod as a node", pods, super::nodes::mirror("w-n1"))).expecting(CREATED),
        as_node(create("w-boss", "a map as a node")),
        create("w-writer", "as itself again").with_header("impersonate-user", "w-writer"),
        create("w-none", "as a writer").with_header("impersonate-user", "w-writer"),
        create("w-none", "as a master").with_header("impersonate-user", "admin"),
    ]
}

pub(super) fn cases() -> Vec<WriteCase> {
    [grants(), impersonation()].concat()
}

pub(super) fn users() -> Vec<WriteUser> {
    USERS.iter().map(|(name, _)| (*name, &[][..])).collect()
}

pub(super) fn world() -> Vec<Manifest> {
    let mut world = vec![role("w-small", A, rule(&["get"], "", "configmaps", &[]))];
    for (name, rules) in USERS {
        for (number, rule) in rules.iter().enumerate() {
            let of = role(&format!("{name}-{number}"), None, *rule);
            let to = binding(&format!("{name}-{number}"), None, &of, &user(name));
            world.extend([of, to]);
        }
    }
    world
}
