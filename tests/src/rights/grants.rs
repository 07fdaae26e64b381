//! Objects of the cases: the ones that are read, and the roles and bindings that allow it.

use serde_json::{Value, json};

use super::{MARKER, RightsCaller};

/// An object to create.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Path to POST it to.
    pub collection: String,
    /// The object.
    pub body: Value,
}

impl Manifest {
    /// An object at `collection`, whose apiVersion is part of it.
    fn new(collection: &str, kind: &str, name: &str, rest: Value) -> Self {
        let parts: Vec<&str> = collection.split('/').collect();
        let api_version = if parts[1] == "api" { parts[2].to_owned() } else { parts[2..4].join("/") };
        let mut body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        let Value::Object(rest) = rest else { panic!("the rest of an object is an object") };
        for (member, value) in rest {
            match (&member[..], value) {
                ("labels" | "annotations", value) => body["metadata"][member] = value,
                (_, value) => body[member] = value,
            }
        }
        Self { collection: collection.to_owned(), body }
    }

    /// Path of the object.
    pub fn path(&self) -> String {
        format!("{}/{}", self.collection, self.body["metadata"]["name"].as_str().expect("a name"))
    }
}

/// One rule of a role. Empty names allow all objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) verbs: &'static [&'static str],
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) names: &'static [&'static str],
}

impl Rule {
    fn to_json(self) -> Value {
        let mut rule = json!({"verbs": self.verbs, "apiGroups": [self.group], "resources": [self.resource]});
        if !self.names.is_empty() {
            rule["resourceNames"] = json!(self.names);
        }
        rule
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// A role with one rule: in a namespace, or in the cluster.
pub(super) fn role(name: &str, namespace: Option<&str>, rule: Rule) -> Manifest {
    let (collection, kind) = rbac(namespace, "Role");
    Manifest::new(&collection, kind, name, json!({"rules": [rule.to_json()]}))
}

/// The binding of the role with its name, in a namespace or in the cluster.
pub(super) fn binding(name: &str, namespace: Option<&str>, role: &Manifest, subject: &Value) -> Manifest {
    let (collection, kind) = rbac(namespace, "RoleBinding");
    let of = json!({"apiGroup": RBAC, "kind": role.body["kind"], "name": role.body["metadata"]["name"]});
    Manifest::new(&collection, kind, name, json!({"roleRef": of, "subjects": [subject]}))
}

/// Collection and kind of an object of RBAC.
fn rbac(namespace: Option<&str>, kind: &'static str) -> (String, &'static str) {
    let plural = format!("{}s", kind.to_lowercase());
    let in_cluster = if kind == "Role" { "ClusterRole" } else { "ClusterRoleBinding" };
    match namespace {
        Some(namespace) => (format!("/apis/{RBAC}/v1/namespaces/{namespace}/{plural}"), kind),
        None => (format!("/apis/{RBAC}/v1/cluster{plural}"), in_cluster),
    }
}

/// A user as a subject.
pub(super) fn user(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "User", "name": name})
}

/// A group as a subject.
pub(super) fn group(name: &str) -> Value {
    json!({"apiGroup": RBAC, "kind": "Group", "name": name})
}

/// A ServiceAccount.
pub(super) fn service_account(namespace: &str, name: &str) -> Manifest {
    Manifest::new(&format!("/api/v1/namespaces/{namespace}/serviceaccounts"), "ServiceAccount", name, json!({}))
}

/// The caller as a subject.
pub(super) fn subject(caller: &RightsCaller) -> Value {
    match caller {
        RightsCaller::User { name, .. } => user(name),
        RightsCaller::ServiceAccount { namespace, name } => {
            json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
        }
        RightsCaller::Anonymous | RightsCaller::UnknownToken => panic!("no rights are given to {caller:?}"),
    }
}

/// The objects that the cases read, in the order of their creation. The definition is in effect once its type is
/// served.
pub fn world() -> Vec<Manifest> {
    let namespace = |name| Manifest::new("/api/v1/namespaces", "Namespace", name, json!({"labels": {"m": MARKER}}));
    let node = |name| Manifest::new("/api/v1/nodes", "Node", name, json!({"labels": {"m": MARKER}}));
    let configmap = |space: &str, name: &str, app: &str| {
        let rest = json!({"labels": {"app": app, "m": MARKER}, "data": {"m": MARKER}});
        Manifest::new(&format!("/api/v1/namespaces/{space}/configmaps"), "ConfigMap", name, rest)
    };
    let secret = json!({"labels": {"m": MARKER}, "stringData": {"m": MARKER}});
    let pod = |name: &str, node: &str| {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
        let rest = json!({"labels": {"m": MARKER}, "spec": spec});
        Manifest::new("/api/v1/namespaces/rights-a/pods", "Pod", name, rest)
    };
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let definition =
        json!({"spec": {"group": "rights.example.com", "scope": "Namespaced", "names": names, "versions": [version]}});
    vec![
        namespace("rights-a"),
        namespace("rights-b"),
        node("rights-n1"),
        node("rights-n2"),
        configmap("rights-a", "one", "web"),
        configmap("rights-a", "two", "db"),
        configmap("rights-b", "one", "web"),
        Manifest::new("/api/v1/namespaces/rights-a/secrets", "Secret", "one", secret),
        pod("on-n1", "rights-n1"),
        pod("on-n2", "rights-n2"),
        Manifest::new(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "CustomResourceDefinition",
            "widgets.rights.example.com",
            definition,
        ),
        Manifest::new(
            "/apis/rights.example.com/v1/namespaces/rights-a/widgets",
            "Widget",
            "one",
            json!({"labels": {"m": MARKER}, "m": MARKER}),
        ),
    ]
}
