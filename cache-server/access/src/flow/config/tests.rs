//! Requests and the schemas that they belong to.

use informer_serving::query::Query;

use super::*;
use crate::{
    flow::objects::FlowObject,
    user::{MASTERS, NODES},
};

fn info(request: &str) -> RequestInfo {
    let (method, target) = request.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    RequestInfo::new(method, path, &Query::parse(Some(query)))
}

fn schema_of<'a>(config: &'a FlowConfig, user: &User, request: &str) -> &'a FlowSchema {
    &config.schemas()[config.classify(user, &info(request))]
}

#[test]
fn requests_belong_to_the_schemas_of_a_cluster() {
    let config = FlowConfig::builtin();
    let user = |name: &str| User::authenticated(name, []);
    let node = User::authenticated("system:node:a", [NODES.to_owned()]);
    let master = User::authenticated("admin", [MASTERS.to_owned()]);
    let (manager, system) = (user("system:kube-controller-manager"), User::service_account("kube-system", "b"));
    let app = User::service_account("default", "b");
    for (user, request, schema, level) in [
        (&master, "GET /api/v1/pods", "exempt", "exempt"),
        (&User::unsecured(), "GET /metrics", "exempt", "exempt"),
        (&User::anonymous(), "GET /healthz", "probes", "exempt"),
        (&User::anonymous(), "GET /readyz/etcd", "probes", "exempt"),
        (&User::anonymous(), "HEAD /healthz", "global-default", "global-default"),
        (&User::anonymous(), "GET /healthzz", "global-default", "global-default"),
        (&user("alice"), "GET /api/v1/pods", "global-default", "global-default"),
        (&node, "PUT /api/v1/nodes/a/status", "system-node-high", "node-high"),
        (
            &node,
            "GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a",
            "system-node-high",
            "node-high",
        ),
        (&node, "GET /apis/coordination.k8s.io/v1/leases", "system-nodes", "system"),
        (&node, "GET /api/v1/nodes/a/proxy/x", "system-nodes", "system"),
        (&node, "GET /api/v1/pods", "system-nodes", "system"),
        (
            &manager,
            "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a",
            "system-leader-election",
            "leader-election",
        ),
        (
            &manager,
            "DELETE /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/a",
            "kube-controller-manager",
            "workload-high",
        ),
        (&user("system:kube-scheduler"), "GET /api/v1/pods?watch=1", "kube-scheduler", "workload-high"),
        (&system, "GET /api/v1/pods", "kube-system-service-accounts", "workload-high"),
        (&app, "GET /api/v1/pods", "service-accounts", "workload-low"),
        (&User::default(), "GET /api/v1/pods", "catch-all", "catch-all"),
    ] {
        let found = schema_of(&config, user, request);
        assert_eq!((&*found.name, &*found.level), (schema, level), "{} {request}", user.name);
        assert_eq!(found.is_exempt(), level == "exempt");
    }
}

#[test]
fn flows_are_distinguished_by_user_or_namespace() {
    let config = FlowConfig::builtin();
    let flow = |user: &User, request: &str| schema_of(&config, user, request).flow(1, user, &info(request));
    let (a, b) = (User::service_account("default", "a"), User::service_account("default", "b"));
    assert_eq!(flow(&a, "GET /api/v1/pods"), flow(&a, "GET /api/v1/namespaces/x/pods"));
    assert_ne!(flow(&a, "GET /api/v1/pods"), flow(&b, "GET /api/v1/pods"));
    let (a, b) = (User::service_account("kube-system", "a"), User::service_account("kube-system", "b"));
    assert_eq!(flow(&a, "GET /api/v1/namespaces/x/pods"), flow(&b, "PUT /api/v1/namespaces/x/pods/y"));
    assert_ne!(flow(&a, "GET /api/v1/namespaces/x/pods"), flow(&a, "GET /api/v1/namespaces/y/pods"));
    let schema = schema_of(&config, &a, "GET /api/v1/pods");
    let seeded = |seed| schema.flow(seed, &a, &info("GET /api/v1/pods"));
    assert_ne!(seeded(1), seeded(2));
}

fn schema(name: &str, precedence: i32, level: &str, rule: FlowRule) -> FlowObject {
    FlowObject::Schema(FlowSchema {
        name: name.to_owned(),
        uid: String::new(),
        precedence,
        level: level.to_owned(),
        distinguisher: None,
        rules: vec![rule],
    })
}

fn everything(subjects: Vec<FlowSubject>) -> FlowRule {
    let all = || TextSet::All;
    let resources = vec![FlowResourceRule {
        verbs: all(),
        groups: all(),
        resources: all(),
        namespaces: all(),
        cluster_scope: true,
    }];
    FlowRule { subjects, resources, paths: vec![FlowPathRule { verbs: all(), paths: all() }] }
}

#[test]
fn the_lowest_precedence_wins_and_of_equal_ones_the_first_name() {
    let of =
        |name: &str, precedence| schema(name, precedence, "exempt", everything(vec![FlowSubject::User("*".into())]));
    let config = FlowConfig::new([of("z", 10_000), of("c", 5), of("b", 5), of("a", 9)]);
    let names: Vec<_> = config.schemas().iter().map(|schema| &*schema.name).collect();
    assert_eq!(names, ["exempt", "b", "c", "a", "z", "catch-all"]);
    assert_eq!(schema_of(&config, &User::anonymous(), "GET /").name, "b");
}

#[test]
fn schemas_without_a_level_have_no_effect_and_mandatory_objects_keep_their_spec() {
    let all = || everything(vec![FlowSubject::Group("*".into())]);
    let mut of_level = FlowConfig::builtin().levels()[CATCH_ALL].clone();
    (of_level.shares, of_level.uid) = (1_000, "u".to_owned());
    let objects = [schema("lost", 2, "none", all()), schema(CATCH_ALL, 3, EXEMPT, all()), FlowObject::Level(of_level)];
    let config = FlowConfig::new(objects);
    assert_eq!(config.unused(), ["lost"]);
    assert_eq!((config.levels()[CATCH_ALL].shares, &*config.levels()[CATCH_ALL].uid), (5, "u"));
    assert_eq!(config.schemas().last().unwrap().level, CATCH_ALL);
}

#[test]
fn rules_match_verbs_resources_namespaces_and_paths() {
    let these = |texts: &[&str]| TextSet::These(texts.iter().map(|&text| text.to_owned()).collect());
    let rule = |verbs: &[&str], resources: &[&str], namespaces: &[&str], cluster_scope| FlowResourceRule {
        verbs: these(verbs),
        groups: these(&[""]),
        resources: these(resources),
        namespaces: these(namespaces),
        cluster_scope,
    };
    let matches = |rule: &FlowResourceRule, request: &str| {
        let info = info(request);
        rule.matches(&info.verb, info.resource.as_ref().unwrap())
    };
    let scoped = rule(&["get", "list"], &["pods", "nodes/status"], &["a"], false);
    assert!(matches(&scoped, "GET /api/v1/namespaces/a/pods"));
    assert!(!matches(&scoped, "GET /api/v1/namespaces/b/pods"));
    assert!(!matches(&scoped, "GET /api/v1/pods"));
    assert!(!matches(&scoped, "GET /api/v1/namespaces/a/pods/x/status"));
    assert!(!matches(&scoped, "POST /api/v1/namespaces/a/pods"));
    assert!(!matches(&scoped, "GET /apis/b/v1/namespaces/a/pods"));
    let cluster = rule(&["get"], &["nodes/status"], &[], true);
    assert!(matches(&cluster, "GET /api/v1/nodes/x/status"));
    assert!(!matches(&cluster, "GET /api/v1/nodes/x"));
    let path =
        |rule: &str, path: &str| FlowPathRule { verbs: these(&["get"]), paths: these(&[rule]) }.matches("get", path);
    assert!(path("/healthz", "/healthz") && path("/healthz", "/healthz/a") && !path("/healthz", "/healthzz"));
    assert!(path("/api/*", "/api/v1") && !path("/api/*", "/apis") && !path("/api/*", "/api"));
    assert!(path("/", "/") && path("/", "/metrics"));
}

#[test]
fn service_accounts_match_by_namespace_and_name() {
    let subject = |namespace: &str, name: &str| FlowSubject::ServiceAccount {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let account = User::service_account("a", "b");
    assert!(subject("a", "b").matches(&account) && subject("a", "*").matches(&account));
    assert!(!subject("a", "c").matches(&account) && !subject("b", "*").matches(&account));
    assert!(!subject("a", "*").matches(&User::authenticated("system:serviceaccount:ab:b", [])));
}
