//! The rows, grouped by the part of a read that decides.

use serde_json::Value;

use super::{
    CONTINUE, Expected, Manifest, NOW, RightsCaller, RightsCase, RightsChange,
    grants::{Rule, binding, group, role, service_account, subject, user},
};

/// All cases.
pub fn cases() -> Vec<RightsCase> {
    [verbs(), scopes(), names(), selectors(), types(), forms(), positions(), callers(), impersonation(), changes()]
        .concat()
}

const CONFIGMAPS: &str = "/api/v1/namespaces/rights-a/configmaps";
const BOTH: &[&str] = &["rights-a/one", "rights-a/two"];
const A: Option<&str> = Some("rights-a");

fn rule(verbs: &'static [&'static str], resource: &'static str) -> Rule {
    Rule { verbs, group: "", resource, names: &[] }
}

fn only(verbs: &'static [&'static str], resource: &'static str, names: &'static [&'static str]) -> Rule {
    Rule { names, ..rule(verbs, resource) }
}

/// A read of ConfigMaps in the first namespace by a user without rights.
fn case(name: &'static str) -> RightsCase {
    let caller = RightsCaller::User { name: format!("rights-{name}"), groups: Vec::new() };
    let (path, expected) = (CONFIGMAPS, Expected::Refused(403));
    RightsCase { name, caller, grants: Vec::new(), path, headers: Vec::new(), expected, then: None }
}

impl RightsCase {
    /// Gives the caller a Role in a namespace.
    fn with_role(self, namespace: &str, rule: Rule) -> Self {
        let to = subject(&self.caller);
        self.with_role_for(Some(namespace), Some(namespace), rule, &to)
    }

    /// Gives the caller a ClusterRole in all namespaces and of all types without namespaces.
    fn with_cluster_role(self, rule: Rule) -> Self {
        let to = subject(&self.caller);
        self.with_role_for(None, None, rule, &to)
    }

    /// Gives `to` a role of one namespace or the cluster, in another one.
    fn with_role_for(mut self, of: Option<&str>, within: Option<&str>, rule: Rule, to: &Value) -> Self {
        let name = format!("rights-{}-{}", self.name, self.grants.len());
        let role = role(&name, of, rule);
        let binding = binding(&name, within, &role, to);
        self.grants.extend([role, binding]);
        self
    }

    fn with_caller(self, caller: RightsCaller) -> Self {
        Self { caller, ..self }
    }

    fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    fn reads(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    fn allowed(self, keys: &[&str]) -> Self {
        Self { expected: allowed(keys), ..self }
    }

    fn refused(self, code: u16) -> Self {
        Self { expected: Expected::Refused(code), ..self }
    }

    fn then(self, change: RightsChange, expected: Expected) -> Self {
        Self { then: Some((change, expected)), ..self }
    }

    /// The last object of the grants.
    fn last(&self) -> &Manifest {
        self.grants.last().expect("the case has grants")
    }
}

fn allowed(keys: &[&str]) -> Expected {
    Expected::Allowed(keys.iter().map(|&key| key.to_owned()).collect())
}

fn verbs() -> Vec<RightsCase> {
    let list = rule(&["list"], "configmaps");
    let watch = rule(&["watch"], "configmaps");
    let get = rule(&["get"], "configmaps");
    let watch_list = concat!(
        "/api/v1/namespaces/rights-a/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true",
        "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let watched = "/api/v1/namespaces/rights-a/configmaps?watch=true&timeoutSeconds=1";
    let one = "/api/v1/namespaces/rights-a/configmaps/one";
    let cached_one = "/api/v1/namespaces/rights-a/configmaps/one?resourceVersion=0";
    vec![
        case("list").with_role("rights-a", list).allowed(BOTH),
        case("list-without-right"),
        case("list-by-get").with_role("rights-a", get),
        case("list-by-watch").with_role("rights-a", watch),
        case("list-by-all-verbs").with_role("rights-a", rule(&["*"], "configmaps")).allowed(BOTH),
        case("list-by-writes")
            .with_role("rights-a", rule(&["create", "update", "delete", "deletecollection"], "configmaps")),
        case("watch").with_role("rights-a", watch).reads(watched).allowed(BOTH),
        case("watch-without-right").reads(watched),
        case("watch-by-list").with_role("rights-a", list).reads(watched),
        case("watch-by-get").with_role("rights-a", get).reads(watched),
        case("watch-list").with_role("rights-a", watch).reads(watch_list).allowed(BOTH),
        case("watch-list-without-right").reads(watch_list),
        case("watch-list-by-list").with_role("rights-a", list).reads(watch_list),
        case("get").with_role("rights-a", get).reads(one).allowed(&["rights-a/one"]),
        case("get-cached").with_role("rights-a", get).reads(cached_one).allowed(&["rights-a/one"]),
        case("get-without-right").reads(cached_one),
        case("get-by-list").with_role("rights-a", rule(&["list", "watch"], "configmaps")).reads(cached_one),
    ]
}

fn scopes() -> Vec<RightsCase> {
    let list = rule(&["list"], "configmaps");
    let everywhere = "/api/v1/configmaps";
    let in_b = "/api/v1/namespaces/rights-b/configmaps";
    let by_selector = "/api/v1/configmaps?fieldSelector=metadata.namespace%3Drights-a";
    let namespaces = rule(&["get", "list", "watch"], "namespaces");
    let nodes = rule(&["list"], "nodes");
    let everything = [BOTH, &["rights-b/one"]].concat();
    vec![
        case("other-namespace").with_role("rights-a", list).reads(in_b),
        case("all-namespaces").with_cluster_role(list).reads(everywhere).allowed(&everything),
        case("all-namespaces-by-role").with_role("rights-a", list).reads(everywhere),
        case("all-namespaces-by-two-roles").with_role("rights-a", list).with_role("rights-b", list).reads(everywhere),
        case("all-namespaces-by-selector").with_role("rights-a", list).reads(by_selector),
        case("watch-all-namespaces-by-role")
            .with_role("rights-a", rule(&["list", "watch"], "configmaps"))
            .reads("/api/v1/configmaps?watch=1&timeoutSeconds=1"),
        case("cluster-role-in-namespace")
            .with_role_for(None, A, list, &user("rights-cluster-role-in-namespace"))
            .allowed(BOTH),
        case("cluster-role-in-other-namespace")
            .with_role_for(None, A, list, &user("rights-cluster-role-in-other-namespace"))
            .reads(in_b),
        case("missing-namespace")
            .with_cluster_role(list)
            .reads("/api/v1/namespaces/rights-none/configmaps")
            .allowed(&[]),
        case("missing-namespace-without-right").reads("/api/v1/namespaces/rights-none/configmaps"),
        case("cluster-scoped").with_cluster_role(nodes).reads("/api/v1/nodes").allowed(&["rights-n1", "rights-n2"]),
        case("cluster-scoped-by-role").with_role("rights-a", nodes).reads("/api/v1/nodes"),
        // A namespace is in itself, so a Role in it gives its object, and not the collection.
        case("namespace-by-role")
            .with_role("rights-a", namespaces)
            .reads("/api/v1/namespaces/rights-a?resourceVersion=0")
            .allowed(&["rights-a"]),
        case("other-namespace-by-role")
            .with_role("rights-a", namespaces)
            .reads("/api/v1/namespaces/rights-b?resourceVersion=0"),
        case("namespaces-by-role").with_role("rights-a", namespaces).reads("/api/v1/namespaces"),
        case("namespace-by-role-and-selector")
            .with_role("rights-a", namespaces)
            .reads("/api/v1/namespaces?fieldSelector=metadata.name%3Drights-a"),
    ]
}

fn names() -> Vec<RightsCase> {
    let one = only(&["get", "list", "watch"], "configmaps", &["one"]);
    let case = |name| case(name).with_role("rights-a", one);
    vec![
        case("named").reads("/api/v1/namespaces/rights-a/configmaps/one?resourceVersion=0").allowed(&["rights-a/one"]),
        case("named-other").reads("/api/v1/namespaces/rights-a/configmaps/two?resourceVersion=0"),
        case("named-list"),
        case("named-list-by-selector")
            .reads("/api/v1/namespaces/rights-a/configmaps?fieldSelector=metadata.name%3Done")
            .allowed(&["rights-a/one"]),
        case("named-list-by-other-selector")
            .reads("/api/v1/namespaces/rights-a/configmaps?fieldSelector=metadata.name%3Dtwo"),
        case("named-list-by-negated-selector")
            .reads("/api/v1/namespaces/rights-a/configmaps?fieldSelector=metadata.name!%3Dtwo"),
        case("named-watch-by-selector")
            .reads("/api/v1/namespaces/rights-a/configmaps?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Done")
            .allowed(&["rights-a/one"]),
        case("named-watch-by-other-selector")
            .reads("/api/v1/namespaces/rights-a/configmaps?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dtwo"),
        case("named-in-all-namespaces").reads("/api/v1/configmaps?fieldSelector=metadata.name%3Done"),
        // Of two names the first one in the order of the terms' texts counts.
        case("named-by-two-selectors")
            .reads("/api/v1/namespaces/rights-a/configmaps?fieldSelector=metadata.name%3Dtwo,metadata.name%3D%3Done")
            .allowed(&[]),
        case("named-by-two-other-selectors")
            .reads("/api/v1/namespaces/rights-a/configmaps?fieldSelector=metadata.name%3Done,metadata.name%3D%3Dtwo"),
        case("named-by-unreadable-options")
            .reads("/api/v1/namespaces/rights-a/configmaps?fieldSelector=metadata.name%3Done&limit=x"),
        case("named-watch-by-path")
            .reads("/api/v1/watch/namespaces/rights-a/configmaps/one?timeoutSeconds=1")
            .allowed(&["rights-a/one"]),
        case("named-watch-by-other-path").reads("/api/v1/watch/namespaces/rights-a/configmaps/two?timeoutSeconds=1"),
        // Paths with `/watch/` take no name from selectors.
        case("named-watch-by-path-and-selector")
            .reads("/api/v1/watch/namespaces/rights-a/configmaps?timeoutSeconds=1&fieldSelector=metadata.name%3Done"),
    ]
}

fn selectors() -> Vec<RightsCase> {
    let labels = "/api/v1/namespaces/rights-a/configmaps?labelSelector=app%3Dweb";
    let on_n1 = "/api/v1/pods?fieldSelector=spec.nodeName%3Drights-n1";
    let node = |name: &str| RightsCaller::User {
        name: format!("system:node:{name}"),
        groups: vec!["system:nodes".to_owned()],
    };
    vec![
        case("labels").with_role("rights-a", rule(&["list"], "configmaps")).reads(labels).allowed(&["rights-a/one"]),
        case("labels-without-right").reads(labels),
        case("node").with_cluster_role(rule(&["list"], "pods")).reads(on_n1).allowed(&["rights-a/on-n1"]),
        case("node-without-right").reads(on_n1),
        case("node-by-role").with_role("rights-a", rule(&["list"], "pods")).reads(on_n1),
        // A node may read its own pods, and the API server decides that by the selector.
        case("own-pods").with_caller(node("rights-n1")).reads(on_n1).allowed(&["rights-a/on-n1"]),
        case("own-pods-watched")
            .with_caller(node("rights-n1"))
            .reads("/api/v1/pods?watch=1&timeoutSeconds=1&fieldSelector=spec.nodeName%3Drights-n1")
            .allowed(&["rights-a/on-n1"]),
        case("pods-of-other-node").with_caller(node("rights-n2")).reads(on_n1),
        case("pods-of-all-nodes").with_caller(node("rights-n2")).reads("/api/v1/pods"),
        case("pods-of-all-other-nodes")
            .with_caller(node("rights-n2"))
            .reads("/api/v1/pods?fieldSelector=spec.nodeName!%3Drights-n1"),
        case("own-pods-by-watch-path")
            .with_caller(node("rights-n1"))
            .reads("/api/v1/watch/pods?timeoutSeconds=1&fieldSelector=spec.nodeName%3Drights-n1"),
    ]
}

fn types() -> Vec<RightsCase> {
    let widgets = "/apis/rights.example.com/v1/namespaces/rights-a/widgets";
    let of = |group| Rule { group, ..rule(&["list"], "widgets") };
    vec![
        case("other-type")
            .with_role("rights-a", rule(&["list"], "configmaps"))
            .reads("/api/v1/namespaces/rights-a/secrets"),
        case("custom").with_role("rights-a", of("rights.example.com")).reads(widgets).allowed(&["rights-a/one"]),
        case("custom-without-right").reads(widgets),
        case("custom-by-other-group").with_role("rights-a", of("other.example.com")).reads(widgets),
        case("custom-by-all-groups").with_role("rights-a", of("*")).reads(widgets).allowed(&["rights-a/one"]),
        case("type-by-subresource").with_cluster_role(rule(&["list"], "pods/status")).reads("/api/v1/pods"),
    ]
}

fn forms() -> Vec<RightsCase> {
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let list = rule(&["list"], "configmaps");
    vec![
        case("metadata").with_role("rights-a", list).with_header("accept", metadata).allowed(BOTH),
        case("metadata-without-right").with_header("accept", metadata),
        case("metadata-by-get").with_role("rights-a", rule(&["get"], "configmaps")).with_header("accept", metadata),
        case("table").with_role("rights-a", list).with_header("accept", table).allowed(BOTH),
        case("table-without-right").with_header("accept", table),
    ]
}

fn positions() -> Vec<RightsCase> {
    let list = rule(&["list"], "configmaps");
    let first = "/api/v1/namespaces/rights-a/configmaps?limit=1";
    let second = "/api/v1/namespaces/rights-a/configmaps?limit=1&continue={continue}";
    let any = "/api/v1/namespaces/rights-a/configmaps?resourceVersion=0";
    let exact = "/api/v1/namespaces/rights-a/configmaps?resourceVersion={now}&resourceVersionMatch=Exact";
    let watch = "/api/v1/namespaces/rights-a/configmaps?watch=1&timeoutSeconds=1&resourceVersion={now}";
    assert!(second.contains(CONTINUE) && exact.contains(NOW) && watch.contains(NOW), "places have their names");
    vec![
        case("first-page").with_role("rights-a", list).reads(first).allowed(&["rights-a/one"]),
        case("first-page-without-right").reads(first),
        case("second-page").with_role("rights-a", list).reads(second).allowed(&["rights-a/two"]),
        case("second-page-without-right").reads(second),
        case("any-version").with_role("rights-a", list).reads(any).allowed(BOTH),
        case("any-version-without-right").reads(any),
        case("exact-version").with_role("rights-a", list).reads(exact).allowed(BOTH),
        case("exact-version-without-right").reads(exact),
        case("watch-from-version").with_role("rights-a", rule(&["watch"], "configmaps")).reads(watch).allowed(&[]),
        case("watch-from-version-without-right").reads(watch),
    ]
}

fn callers() -> Vec<RightsCase> {
    let list = rule(&["list"], "configmaps");
    let member = |name: &str, group: &str| RightsCaller::User { name: name.to_owned(), groups: vec![group.to_owned()] };
    let account = |name: &str| RightsCaller::ServiceAccount { namespace: "rights-a".to_owned(), name: name.to_owned() };
    let mut served = case("service-account").with_caller(account("reader"));
    served.grants.push(service_account("rights-a", "reader"));
    vec![
        case("group")
            .with_caller(member("rights-group", "rights-readers"))
            .with_role_for(A, A, list, &group("rights-readers"))
            .allowed(BOTH),
        case("other-group").with_caller(member("rights-other-group", "rights-writers")).with_role_for(
            A,
            A,
            list,
            &group("rights-keepers"),
        ),
        case("user-named-as-group").with_role_for(A, A, list, &group("rights-user-named-as-group")),
        served.with_role("rights-a", list).allowed(BOTH),
        case("anonymous").with_caller(RightsCaller::Anonymous),
        case("unknown-token").with_caller(RightsCaller::UnknownToken).refused(401),
    ]
}

fn impersonation() -> Vec<RightsCase> {
    let list = rule(&["list"], "configmaps");
    let users = |names| only(&["impersonate"], "users", names);
    let target = "rights-impersonated";
    let other = "rights-impersonated-without-right";
    vec![
        case("impersonation")
            .with_cluster_role(users(&["rights-impersonated"]))
            .with_role_for(A, A, list, &user(target))
            .with_header("impersonate-user", target)
            .allowed(BOTH),
        case("impersonation-without-right")
            .with_role("rights-a", list)
            .with_role_for(A, A, list, &user(target))
            .with_header("impersonate-user", target),
        // The caller may read, and the user that it impersonates may not.
        case("impersonation-of-user-without-right")
            .with_cluster_role(users(&["rights-impersonated-without-right"]))
            .with_role("rights-a", list)
            .with_header("impersonate-user", other),
        case("impersonation-of-group")
            .with_cluster_role(users(&["rights-impersonated-without-right"]))
            .with_cluster_role(only(&["impersonate"], "groups", &["rights-impersonated-readers"]))
            .with_role_for(A, A, list, &group("rights-impersonated-readers"))
            .with_header("impersonate-user", other)
            .with_header("impersonate-group", "rights-impersonated-readers")
            .allowed(BOTH),
        case("impersonation-of-group-without-right")
            .with_cluster_role(users(&["rights-impersonated-without-right"]))
            .with_role_for(A, A, list, &group("rights-impersonated-keepers"))
            .with_header("impersonate-user", other)
            .with_header("impersonate-group", "rights-impersonated-keepers"),
    ]
}

fn changes() -> Vec<RightsCase> {
    let list = rule(&["list"], "configmaps");
    let revoked = case("revoked-binding").with_role("rights-a", list).allowed(BOTH);
    let revoke = RightsChange::Delete(revoked.last().path());
    let revoked_role = case("revoked-role").with_role("rights-a", list).allowed(BOTH);
    let revoke_role = RightsChange::Delete(revoked_role.grants[0].path());
    let watch = rule(&["watch"], "configmaps");
    let unwatched = case("revoked-watch").with_role("rights-a", watch).allowed(BOTH);
    let unwatched = unwatched.reads("/api/v1/namespaces/rights-a/configmaps?watch=1&timeoutSeconds=1");
    let unwatch = RightsChange::Delete(unwatched.last().path());
    let mut granted = case("granted-later").with_role("rights-a", list);
    let grant = RightsChange::Create(granted.grants.pop().expect("a binding"));
    let account = RightsCaller::ServiceAccount { namespace: "rights-a".to_owned(), name: "deleted".to_owned() };
    let mut deleted = case("deleted-service-account").with_caller(account).with_role("rights-a", list).allowed(BOTH);
    deleted.grants.push(service_account("rights-a", "deleted"));
    let delete = RightsChange::Delete(deleted.last().path());
    vec![
        revoked.then(revoke, Expected::Refused(403)),
        revoked_role.then(revoke_role, Expected::Refused(403)),
        unwatched.then(unwatch, Expected::Refused(403)),
        granted.then(grant, allowed(BOTH)),
        deleted.then(delete, Expected::Refused(401)),
    ]
}
