//! The requests and callers of the table, and which of them the server allows.

#![allow(clippy::unwrap_used, reason = "a test panics with the story")]

use http::Method;
use serde_json::{Value, json};
use tests::http::MERGE_PATCH;

/// A request, by its name.
pub(super) struct RefusedRequest {
    pub(super) name: &'static str,
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) headers: &'static [(&'static str, &'static str)],
    pub(super) body: Value,
}

/// A caller, by the name of its user.
pub(super) struct RefusedCaller {
    pub(super) name: &'static str,
    pub(super) groups: &'static str,
    /// Rules of a role in the named namespace, or of the cluster.
    pub(super) rules: Option<(Option<&'static str>, Value)>,
    /// Names of the requests that it may send.
    pub(super) allowed: &'static [&'static str],
}

const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
const METADATA: (&str, &str) =
    ("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json");
const WATCH_LIST: &str = concat!(
    "/api/v1/configmaps?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
    "&allowWatchBookmarks=true"
);

fn read(name: &'static str, path: &'static str) -> RefusedRequest {
    RefusedRequest { name, method: Method::GET, path, headers: &[], body: Value::Null }
}

fn write(name: &'static str, method: Method, path: &'static str, body: Value) -> RefusedRequest {
    RefusedRequest { name, method, path, headers: &[("content-type", "application/json")], body }
}

fn patch(name: &'static str, path: &'static str, headers: &'static [(&'static str, &'static str)]) -> RefusedRequest {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"labels": {"patched": "yes"}}});
    RefusedRequest { name, method: Method::PATCH, path, headers, body }
}

/// Reads of one type in each scope and form.
fn reads() -> Vec<RefusedRequest> {
    vec![
        read("get", "/api/v1/namespaces/rights-a/configmaps/one"),
        read("get-cached", "/api/v1/namespaces/rights-a/configmaps/one?resourceVersion=0"),
        read("get-missing", "/api/v1/namespaces/rights-a/configmaps/missing"),
        read("list", "/api/v1/namespaces/rights-a/configmaps"),
        read("list-all", "/api/v1/configmaps"),
        read("list-cached", "/api/v1/configmaps?resourceVersion=0"),
        read("list-labels", "/api/v1/configmaps?labelSelector=app%3Dweb"),
        read("list-name", "/api/v1/namespaces/rights-a/configmaps?fieldSelector=metadata.name%3Done"),
        read("list-page", "/api/v1/configmaps?limit=1"),
        read("list-missing-namespace", "/api/v1/namespaces/missing/configmaps"),
        RefusedRequest { headers: &[TABLE], ..read("table", "/api/v1/namespaces/rights-a/configmaps") },
        RefusedRequest { headers: &[METADATA], ..read("metadata", "/api/v1/namespaces/rights-a/configmaps") },
        RefusedRequest { headers: &[("accept-encoding", "gzip")], ..read("gzip", "/api/v1/configmaps") },
        RefusedRequest { method: Method::HEAD, ..read("head", "/api/v1/configmaps") },
        read("watch", "/api/v1/namespaces/rights-a/configmaps?watch=1&timeoutSeconds=1"),
        read("watch-all", "/api/v1/configmaps?watch=true&timeoutSeconds=1"),
        read("watch-list", WATCH_LIST),
        read("watch-path", "/api/v1/watch/namespaces/rights-a/configmaps?timeoutSeconds=1"),
        read("escaped", "/api/v1/namespaces/rights-a/%63onfigmaps"),
        read("trailing-slash", "/api/v1/namespaces/rights-a/configmaps/"),
    ]
}

/// Reads of other types and of documents.
fn others() -> Vec<RefusedRequest> {
    vec![
        read("pods-of-node", "/api/v1/pods?fieldSelector=spec.nodeName%3Drights-n1"),
        read("watch-pods-of-node", "/api/v1/pods?watch=1&timeoutSeconds=1&fieldSelector=spec.nodeName%3Drights-n1"),
        read("pods", "/api/v1/pods"),
        read("pod", "/api/v1/namespaces/rights-a/pods/on-n1"),
        read("secret", "/api/v1/namespaces/rights-a/secrets/one"),
        read("secrets", "/api/v1/secrets"),
        read("node", "/api/v1/nodes/rights-n1"),
        read("namespaces", "/api/v1/namespaces"),
        read("widgets", "/apis/rights.example.com/v1/widgets"),
        read("unknown-type", "/apis/rights.example.com/v1/nothings"),
        read("unknown-group", "/apis/nothing.example.com/v1/things"),
        read("unknown-path", "/nothing"),
        read("metrics", "/metrics"),
        read("log", "/api/v1/namespaces/rights-a/pods/on-n1/log"),
        read("roles", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ]
}

/// Writes. None of them may change anything.
fn writes() -> Vec<RefusedRequest> {
    const ONE: &str = "/api/v1/namespaces/rights-a/configmaps/one";
    const MAPS: &str = "/api/v1/namespaces/rights-a/configmaps";
    let map = || json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
    let one = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "mine"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "mine"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "cluster-admin"}, "subjects": [{"kind": "Group", "name": "system:authenticated",
        "apiGroup": "rbac.authorization.k8s.io"}]});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "root", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    vec![
        write("create", Method::POST, MAPS, map()),
        write("create-dry", Method::POST, "/api/v1/namespaces/rights-a/configmaps?dryRun=All", map()),
        write("create-elsewhere", Method::POST, "/api/v1/namespaces/rights-b/configmaps", map()),
        write("create-broken", Method::POST, MAPS, json!("no object")),
        write("update", Method::PUT, ONE, one),
        patch("patch", ONE, &[("content-type", MERGE_PATCH)]),
        patch("patch-strategic", ONE, &[("content-type", "application/strategic-merge-patch+json")]),
        patch(
            "apply",
            "/api/v1/namespaces/rights-a/configmaps/one?fieldManager=a",
            &[("content-type", "application/apply-patch+yaml")],
        ),
        write("delete", Method::DELETE, ONE, Value::Null),
        write("delete-missing", Method::DELETE, "/api/v1/namespaces/rights-a/configmaps/missing", Value::Null),
        write("delete-collection", Method::DELETE, MAPS, Value::Null),
        patch("status", "/api/v1/namespaces/rights-a/pods/on-n1/status", &[("content-type", MERGE_PATCH)]),
        write("exec", Method::POST, "/api/v1/namespaces/rights-a/pods/on-n1/exec?command=ls", Value::Null),
        write("create-role", Method::POST, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role),
        write("bind-role", Method::POST, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
        write("review-others", Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review),
        write("unknown-method", Method::from_bytes(b"BREW").unwrap(), MAPS, Value::Null),
    ]
}

/// All requests.
pub(super) fn requests() -> Vec<RefusedRequest> {
    [reads(), others(), writes()].into_iter().flatten().collect()
}

fn caller(name: &'static str, rules: Option<(Option<&'static str>, Value)>) -> RefusedCaller {
    RefusedCaller { name, groups: "", rules, allowed: &[] }
}

/// A rule for configmaps.
fn rule(verbs: &[&str], names: &[&str]) -> Value {
    json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs, "resourceNames": names}])
}

/// The callers with tokens.
pub(super) fn callers() -> Vec<RefusedCaller> {
    let everywhere = |verbs: &[&str], names: &[&str]| Some((None, rule(verbs, names)));
    let all: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    vec![
        caller("nothing", None),
        caller("elsewhere", Some((Some("rights-b"), rule(&["*"], &[])))).allowing(&["create-elsewhere"]),
        caller("named", everywhere(all, &["two"])),
        caller("getter", everywhere(&["get"], &[])).allowing(&["get", "get-cached", "get-missing"]),
        caller("lister", everywhere(&["list"], &[])).allowing(&[
            "list",
            "list-all",
            "list-cached",
            "list-labels",
            "list-name",
            "list-page",
            "list-missing-namespace",
            "table",
            "metadata",
            "gzip",
            "head",
            "escaped",
            "trailing-slash",
        ]),
        caller("watcher", everywhere(&["watch"], &[])).allowing(&["watch", "watch-all", "watch-list", "watch-path"]),
        caller("name-reader", everywhere(&["get", "list", "watch"], &["one"])).allowing(&[
            "get",
            "get-cached",
            "list-name",
        ]),
        caller(
            "status-reader",
            Some((
                None,
                json!([{"apiGroups": [""], "verbs": ["*"],
            "resources": ["configmaps/status", "pods/log"]}]),
            )),
        )
        .allowing(&["log"]),
        caller("wrong-group", Some((None, json!([{"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]}])))),
        caller("paths", Some((None, json!([{"nonResourceURLs": ["/metrics", "/healthz/*"], "verbs": ["get"]}]))))
            .allowing(&["metrics"]),
        RefusedCaller { groups: "system:nodes", ..caller("system:node:rights-n2", None) }
            // The node authorizer leaves the pods of a status to an admission plugin.
            .allowing(&["status", "review-others"]),
        RefusedCaller { groups: "system:masters-not", ..caller("almost-admin", None) },
        caller("system:masters", None),
        RefusedCaller { groups: "system:serviceaccounts", ..caller("system:serviceaccount:rights-b:default", None) },
    ]
}

impl RefusedCaller {
    fn allowing(self, allowed: &'static [&'static str]) -> Self {
        Self { allowed, ..self }
    }
}
