//! Tables of decisions, as Kubernetes' own tests have them.

use informer_serving::query::Query;
use serde_json::{Value, json};

use crate::{
    decision::AccessDecision,
    rbac::{GrantRefusal, RbacKind, RbacPolicy, RoleRule, allowed_subject, check_held, full_authority},
    request_info::RequestInfo,
    user::User,
};

fn info(request: &str) -> RequestInfo {
    let (method, target) = request.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    RequestInfo::new(method, path, &Query::parse(Some(query)))
}

fn rule(verbs: &str, groups: &str, resources: &str, names: &[&str]) -> Value {
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    json!({"verbs": list(verbs), "apiGroups": list(groups), "resources": list(resources), "resourceNames": names})
}

fn paths(verbs: &str, paths: &[&str]) -> Value {
    json!({"verbs": verbs.split(',').collect::<Vec<_>>(), "nonResourceURLs": paths})
}

/// Sets an object; `/` separates its namespace and name.
fn set(policy: &mut RbacPolicy, kind: RbacKind, name: &str, object: &Value) -> bool {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    policy.apply(kind, namespace, name, object.to_string().as_bytes()).unwrap()
}

fn remove(policy: &mut RbacPolicy, kind: RbacKind, name: &str) -> bool {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    policy.remove(kind, namespace, name)
}

fn binding(role: &str, subjects: &[&str]) -> Value {
    let (kind, name) = role.split_once(' ').unwrap();
    let subject = |text: &&str| {
        let (kind, name) = text.split_once(' ').unwrap();
        match name.split_once('/').filter(|_| kind == "ServiceAccount") {
            Some((namespace, name)) => json!({"kind": kind, "name": name, "namespace": namespace}),
            None => json!({"kind": kind, "name": name}),
        }
    };
    json!({"roleRef": {"kind": kind, "name": name}, "subjects": subjects.iter().map(subject).collect::<Vec<_>>()})
}

fn user(name: &str) -> User {
    User::authenticated(name, [format!("{name}s")])
}

/// Decides for a user with one ClusterRole.
fn allows(rules: &[Value], request: &RequestInfo) -> bool {
    let mut policy = RbacPolicy::default();
    set(&mut policy, RbacKind::ClusterRole, "r", &json!({"rules": rules}));
    set(&mut policy, RbacKind::ClusterRoleBinding, "b", &binding("ClusterRole r", &["User u"]));
    policy.decide(&user("u"), request).is_allowed()
}

#[test]
fn rules_match_as_in_kubernetes() {
    for (rule, allowed, refused) in [
        (rule("*", "*", "*", &[]), vec!["GET /api/v1/pods", "DELETE /apis/x/v1/y/z/w"], vec!["GET /healthz"]),
        (
            rule("get,list", "", "pods", &[]),
            vec!["GET /api/v1/namespaces/a/pods/b", "GET /api/v1/pods", "HEAD /api/v1/namespaces/a/pods/b"],
            vec!["GET /api/v1/namespaces/a/pods/b/log", "GET /api/v1/pods?watch=1", "GET /apis/apps/v1/pods"],
        ),
        (
            rule("get,create", "", "pods/log", &[]),
            vec!["GET /api/v1/namespaces/a/pods/b/log", "GET /api/v1/namespaces/a/pods/b%2Flog"],
            vec![
                "GET /api/v1/namespaces/a/pods/b",
                "GET /api/v1/namespaces/a/services/b/log",
                "GET /api/v1/namespaces/a/pods%2Flog/b",
            ],
        ),
        (
            rule("get,update", "apps", "*/scale", &[]),
            vec!["GET /apis/apps/v1/namespaces/a/deployments/b/scale"],
            vec![
                "GET /apis/apps/v1/namespaces/a/deployments/b",
                "GET /api/v1/namespaces/a/replicationcontrollers/b/scale",
            ],
        ),
        (
            rule("get,list,create,delete", "", "secrets", &["b"]),
            vec!["GET /api/v1/namespaces/a/secrets/b", "GET /api/v1/secrets?fieldSelector=metadata.name%3Db"],
            vec![
                "GET /api/v1/namespaces/a/secrets/c",
                "GET /api/v1/secrets",
                "POST /api/v1/namespaces/a/secrets",
                "DELETE /api/v1/namespaces/a/secrets",
            ],
        ),
        (rule("list", "", "pods/*", &[]), vec![], vec!["GET /api/v1/pods", "GET /api/v1/namespaces/a/pods/b/log"]),
        (rule("get", "", "namespaces", &[]), vec!["GET /api/v1/namespaces/a"], vec!["GET /api/v1/namespaces"]),
        (rule("Get", "", "pods", &[]), vec![], vec!["GET /api/v1/namespaces/a/pods/b"]),
        (
            paths("get,head", &["/healthz", "/apis/*", "/version/**"]),
            vec!["GET /healthz", "HEAD /apis/apps/v1", "GET /apis/", "GET /version/x"],
            vec!["GET /healthz/ping", "GET /apis", "POST /healthz", "GET /apis/apps/v1/deployments"],
        ),
        (paths("*", &["*"]), vec!["GET /metrics", "POST /x"], vec!["GET /api/v1/pods"]),
    ] {
        for (requests, expected) in [(allowed, true), (refused, false)] {
            for request in requests {
                assert_eq!(allows(std::slice::from_ref(&rule), &info(request)), expected, "{rule} {request}");
            }
        }
    }
}

#[test]
fn reasons_have_the_words_of_kubernetes() {
    let mut policy = RbacPolicy::default();
    set(&mut policy, RbacKind::ClusterRole, "all", &json!({"rules": [rule("*", "*", "*", &[])]}));
    set(&mut policy, RbacKind::Role, "a/reader", &json!({"rules": [rule("get", "", "pods", &[])]}));
    set(&mut policy, RbacKind::ClusterRoleBinding, "admins", &binding("ClusterRole all", &["User x", "Group admins"]));
    set(&mut policy, RbacKind::RoleBinding, "a/bots", &binding("Role reader", &["ServiceAccount bot"]));
    set(&mut policy, RbacKind::RoleBinding, "a/far", &binding("Role reader", &["ServiceAccount other/bot"]));
    set(&mut policy, RbacKind::ClusterRoleBinding, "lost", &binding("ClusterRole none", &["User carl", "User dora"]));
    set(&mut policy, RbacKind::RoleBinding, "a/lost", &binding("Role gone", &["User dora"]));
    let get = info("GET /api/v1/namespaces/a/pods/b");
    for (user, expected) in [
        (user("admin"), r#"RBAC: allowed by ClusterRoleBinding "admins" of ClusterRole "all" to Group "admins""#),
        (
            User::service_account("a", "bot"),
            r#"RBAC: allowed by RoleBinding "bots/a" of Role "reader" to ServiceAccount "bot/a""#,
        ),
        (
            User::service_account("other", "bot"),
            r#"RBAC: allowed by RoleBinding "far/a" of Role "reader" to ServiceAccount "bot/other""#,
        ),
        (user("carl"), r#"RBAC: clusterrole.rbac.authorization.k8s.io "none" not found"#),
        (
            user("dora"),
            r#"RBAC: [clusterrole.rbac.authorization.k8s.io "none" not found, role.rbac.authorization.k8s.io "gone" not found]"#,
        ),
        (user("emil"), ""),
    ] {
        assert_eq!(policy.decide(&user, &get).reason(), expected, "{}", user.name);
    }
    assert_eq!(
        policy.rules_for(&user("carl"), "a").evaluation_error,
        r#"clusterrole.rbac.authorization.k8s.io "none" not found"#
    );
}

#[test]
fn roles_in_a_namespace_end_there() {
    let mut policy = RbacPolicy::default();
    set(&mut policy, RbacKind::ClusterRole, "all", &json!({"rules": [rule("*", "*", "*", &[]), paths("*", &["*"])]}));
    set(&mut policy, RbacKind::RoleBinding, "a/b", &binding("ClusterRole all", &["User u"]));
    for (request, expected) in [
        ("GET /api/v1/namespaces/a/pods", true),
        ("GET /api/v1/namespaces/a", true),
        ("DELETE /api/v1/namespaces/a", true),
        ("GET /api/v1/namespaces/b/pods", false),
        ("GET /api/v1/pods", false),
        ("GET /api/v1/nodes", false),
        ("GET /healthz", false),
    ] {
        assert_eq!(policy.decide(&user("u"), &info(request)).is_allowed(), expected, "{request}");
    }
}

#[test]
fn every_change_of_an_object_has_its_effect() {
    let (mut policy, get) = (RbacPolicy::default(), info("GET /api/v1/namespaces/a/pods/b"));
    let is_allowed = |policy: &RbacPolicy| policy.decide(&user("u"), &get).is_allowed();
    let role = json!({"rules": [rule("get", "", "pods", &[])]});
    assert!(set(&mut policy, RbacKind::RoleBinding, "a/b", &binding("Role r", &["User u", "User u"])));
    assert!(!is_allowed(&policy));
    assert!(set(&mut policy, RbacKind::Role, "a/r", &role));
    assert!(is_allowed(&policy));
    assert!(!set(&mut policy, RbacKind::Role, "a/r", &role), "the same state is no change");
    assert!(set(&mut policy, RbacKind::Role, "a/r", &json!({"rules": null})));
    assert!(!is_allowed(&policy));
    set(&mut policy, RbacKind::Role, "a/r", &role);
    assert!(set(&mut policy, RbacKind::RoleBinding, "a/b", &binding("Role r", &["User v"])));
    assert!(!is_allowed(&policy));
    set(&mut policy, RbacKind::RoleBinding, "a/b", &binding("Role r", &["Group us"]));
    assert!(is_allowed(&policy));
    assert!(remove(&mut policy, RbacKind::Role, "a/r"));
    assert!(!is_allowed(&policy));
    set(&mut policy, RbacKind::Role, "a/r", &role);
    assert!(policy.apply(RbacKind::Role, "a", "r", br#"{"rules": 5}"#).is_err());
    assert!(!is_allowed(&policy), "an unreadable role grants nothing");
    assert!(remove(&mut policy, RbacKind::RoleBinding, "a/b"));
    assert!(!remove(&mut policy, RbacKind::RoleBinding, "a/b"));
}

#[test]
fn aggregated_roles_have_the_rules_of_their_parts() {
    let mut policy = RbacPolicy::default();
    let aggregated = |label: &str| json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]});
    let stale = rule("delete", "", "pods", &[]);
    set(
        &mut policy,
        RbacKind::ClusterRole,
        "admin",
        &json!({"aggregationRule": aggregated("to-admin"), "rules": [stale]}),
    );
    let edit = json!({"metadata": {"labels": {"to-admin": "true"}}, "aggregationRule": aggregated("to-edit")});
    set(&mut policy, RbacKind::ClusterRole, "edit", &edit);
    // A cycle.
    let part = json!({"metadata": {"labels": {"to-edit": "true"}}, "rules": [rule("get", "", "pods", &[])]});
    set(&mut policy, RbacKind::ClusterRole, "part", &part);
    let around = json!({"metadata": {"labels": {"to-edit": "true"}}, "aggregationRule": aggregated("to-admin")});
    set(&mut policy, RbacKind::ClusterRole, "around", &around);
    for name in ["admin", "edit", "around"] {
        let rules = policy.rules_of("ClusterRole", "", name).unwrap();
        assert_eq!(rules.len(), 1, "{name}: {rules:?}");
        assert_eq!(rules[0].verbs, ["get"], "{name}");
    }
    let expressions = json!([{"key": "to-edit", "operator": "In", "values": ["true", "yes"]}]);
    let own = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": expressions}]}});
    set(&mut policy, RbacKind::ClusterRole, "own", &own);
    assert_eq!(policy.rules_of("ClusterRole", "", "own").unwrap().len(), 1);
    remove(&mut policy, RbacKind::ClusterRole, "part");
    assert_eq!(policy.rules_of("ClusterRole", "", "admin"), Ok(&[][..]));
    let missing = policy.rules_of("ClusterRole", "", "part").unwrap_err();
    assert_eq!(missing, r#"clusterrole.rbac.authorization.k8s.io "part" not found"#);
}

/// Goal: in front of a cluster, an aggregated role grants what the cluster's own authorizer grants. Method: a role whose parts
/// the cluster's controller has not collected yet.
#[test]
fn in_front_of_a_cluster_the_stored_rules_count() {
    let mut policy = RbacPolicy::of_cluster();
    let aggregation = json!({"clusterRoleSelectors": [{"matchLabels": {"to-admin": "true"}}]});
    let admin = json!({"aggregationRule": aggregation, "rules": [rule("get", "", "pods", &[])]});
    set(&mut policy, RbacKind::ClusterRole, "admin", &admin);
    let part = json!({"metadata": {"labels": {"to-admin": "true"}}, "rules": [rule("delete", "", "pods", &[])]});
    set(&mut policy, RbacKind::ClusterRole, "part", &part);
    let rules = policy.rules_of("ClusterRole", "", "admin").unwrap();
    assert_eq!(rules.iter().map(|rule| &rule.verbs[..]).collect::<Vec<_>>(), [["get"]]);
}

fn rules(rules: &[Value]) -> Vec<RoleRule> {
    serde_json::from_value(json!(rules)).unwrap()
}

#[test]
fn rights_are_granted_by_those_who_have_them() {
    let all = full_authority();
    let held = rules(&[
        rule("get,list", "", "pods,*/status", &[]),
        rule("*", "apps", "deployments", &["a", "b"]),
        paths("get", &["/healthz/*"]),
    ]);
    let user = user("u");
    for (granted, missing) in [
        (rule("get", "", "pods", &[]), ""),
        (rule("get", "", "nodes/status,pods", &[]), ""),
        (rule("get", "", "pods", &["x"]), ""),
        (rule("delete,get", "apps", "deployments", &["b"]), ""),
        (paths("get", &["/healthz/ping", "/healthz/*"]), ""),
        (rule("get", "apps", "deployments", &[]), r#"{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}"#),
        (
            rule("watch,get,delete", "", "pods", &[]),
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}"#,
        ),
        (rule("*", "", "pods", &[]), r#"{APIGroups:[""], Resources:["pods"], Verbs:["*"]}"#),
        (
            rule("get", "apps", "deployments", &["b", "c"]),
            r#"{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["c"], Verbs:["get"]}"#,
        ),
        (paths("get", &["/healthz"]), r#"{NonResourceURLs:["/healthz"], Verbs:["get"]}"#),
        (
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "nonResourceURLs": []}),
            r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#,
        ),
    ] {
        let granted = rules(&[granted]);
        let head = r#"user "u" (groups=["us" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:"#;
        let expected =
            if missing.is_empty() { Ok(()) } else { Err(GrantRefusal::Unheld(format!("{head}\n{missing}"))) };
        assert_eq!(check_held(&user, &held, "", &granted), expected);
        assert_eq!(check_held(&user, &all, "", &granted), Ok(()));
    }
    assert!(matches!(RbacPolicy::default().decide(&user, &info("GET /")), AccessDecision::NoOpinion { .. }));
}

#[test]
fn a_policy_with_a_role_or_a_binding_alone_is_not_empty() {
    let role = br#"{"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}"#;
    let binding = br#"{"roleRef": {"kind": "ClusterRole", "name": "a"}, "subjects": [{"kind": "Group", "name": "g"}]}"#;
    assert!(RbacPolicy::default().is_empty());
    for (kind, object) in [(RbacKind::ClusterRole, &role[..]), (RbacKind::ClusterRoleBinding, &binding[..])] {
        let mut policy = RbacPolicy::default();
        policy.apply(kind, "", "a", object).unwrap();
        assert!(!policy.is_empty(), "{kind:?}");
    }
}

#[test]
fn kinds_have_their_resources() {
    for kind in RbacKind::ALL {
        assert_eq!(RbacKind::of_resource(kind.resource()), Some(kind));
    }
    assert_eq!(RbacKind::of_resource("pods"), None);
}

/// Goal: only the text of an allow names a subject, and no name can pass for another one. Method: texts of other authorizers,
/// and names that contain parts of the text.
#[test]
fn only_an_allow_of_rbac_names_its_subject() {
    let by = |subject: &str| format!("RBAC: allowed by ClusterRoleBinding \"b\" of ClusterRole \"r\" to {subject}");
    for (reason, expected) in [
        (by(r#"User "u""#), Some(("u", &[][..]))),
        (by(r#"Group "g""#), Some(("", &["g"][..]))),
        (by(r#"ServiceAccount "a/n""#), Some(("system:serviceaccount:n:a", &[]))),
        (by(r#"ServiceAccount "a""#), None),
        (by(r#"User "a\" of Role \"r\" to Group \"g""#), None),
        (by(r#"User "u" "#), None),
        (by(r#"Robot "u""#), None),
        (by(r#"User "u"; also by webhook"#), None),
        (by("User u"), None),
        (String::new(), None),
        ("allowed by a webhook".to_owned(), None),
        (by(r#"User "u""#).replace("RBAC: ", "ABAC: "), None),
        (by(r#"User "u""#).replace("ClusterRoleBinding", "Binding"), None),
    ] {
        let subject = allowed_subject(&reason);
        let found = subject.as_ref().map(|subject| (&*subject.name, subject.groups.iter().map(|it| &**it).collect()));
        let expected = expected.map(|(name, groups)| (name, groups.to_vec()));
        assert_eq!(found, expected, "{reason}");
    }
}
