//! Minimal objects to write: `pod("a").namespace("ns1").node("n1").label("app", "web")`.

use serde_json::{Map, Value, json};

/// A request for a certificate of CN=a in PEM, for CertificateSigningRequests.
pub const SIGNING_REQUEST: &str = include_str!("request.pem");
/// A request for a certificate of O=system:masters, CN=a.
pub const MASTERS_REQUEST: &str = include_str!("masters.pem");

/// An object and the collection it belongs to.
#[derive(Clone, Debug)]
pub struct Object {
    prefix: &'static str,
    plural: &'static str,
    namespace: Option<String>,
    body: Value,
}

/// A pod in `default`.
pub fn pod(name: &str) -> Object {
    let spec = json!({"containers": [{"name": "c", "image": "i"}]});
    Object::new("/api/v1", "pods", "v1", "Pod", name).in_default().with("spec", spec)
}

/// A ConfigMap in `default`, without data.
pub fn configmap(name: &str) -> Object {
    Object::new("/api/v1", "configmaps", "v1", "ConfigMap", name).in_default()
}

/// A Secret in `default`, without data.
pub fn secret(name: &str) -> Object {
    Object::new("/api/v1", "secrets", "v1", "Secret", name).in_default()
}

/// A ReplicaSet in `default`.
pub fn replica_set(name: &str) -> Object {
    let spec = json!({
        "replicas": 0,
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    });
    Object::new("/apis/apps/v1", "replicasets", "apps/v1", "ReplicaSet", name).in_default().with("spec", spec)
}

/// A namespace.
pub fn namespace(name: &str) -> Object {
    Object::new("/api/v1", "namespaces", "v1", "Namespace", name)
}

/// A node.
pub fn node(name: &str) -> Object {
    Object::new("/api/v1", "nodes", "v1", "Node", name)
}

/// Path of the collection that the object of a manifest belongs to. The plural is that of English, as for all built-in
/// types.
pub fn collection_of(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text in {manifest}")).to_owned();
    let (api_version, kind) = (text(&manifest["apiVersion"]), text(&manifest["kind"]).to_lowercase());
    let plural = match kind.as_bytes() {
        b"endpoints" => kind,
        [.., b's' | b'x'] => format!("{kind}es"),
        [rest @ .., b'y'] if !rest.ends_with(b"a") => format!("{}ies", &kind[..rest.len()]),
        _ => format!("{kind}s"),
    };
    let root = if api_version.contains('/') { "/apis" } else { "/api" };
    let namespace = manifest["metadata"]["namespace"].as_str();
    let within = namespace.map_or_else(String::new, |namespace| format!("namespaces/{namespace}/"));
    format!("{root}/{api_version}/{within}{plural}")
}

impl Object {
    fn new(prefix: &'static str, plural: &'static str, api_version: &str, kind: &str, name: &str) -> Self {
        let body = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
        Self { prefix, plural, namespace: None, body }
    }

    fn in_default(self) -> Self {
        self.namespace("default")
    }

    /// In another namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self.body["metadata"]["namespace"] = namespace.into();
        self
    }

    /// With a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        let labels =
            self.body["metadata"].as_object_mut().unwrap().entry("labels").or_insert_with(|| Map::new().into());
        labels[key] = value.into();
        self
    }

    /// Bound to a node: `spec.nodeName`. An empty name removes it.
    #[must_use]
    pub fn node(mut self, node: &str) -> Self {
        self.body["spec"].as_object_mut().unwrap().remove("nodeName");
        if !node.is_empty() {
            self.body["spec"]["nodeName"] = node.into();
        }
        self
    }

    /// With a member `data`, one entry `k`.
    #[must_use]
    pub fn data(self, value: &str) -> Self {
        self.with("data", json!({"k": value}))
    }

    /// With any top-level member.
    #[must_use]
    pub fn with(mut self, member: &str, value: Value) -> Self {
        self.body[member] = value;
        self
    }

    /// The JSON to send.
    pub const fn body(&self) -> &Value {
        &self.body
    }

    /// Path of its collection, in its namespace if it has one: the path for POST.
    pub fn collection(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{}/namespaces/{namespace}/{}", self.prefix, self.plural),
            None => self.everywhere(),
        }
    }

    /// Path of the collection over all namespaces.
    pub fn everywhere(&self) -> String {
        format!("{}/{}", self.prefix, self.plural)
    }

    /// Path of the object: the path for GET, PUT, PATCH and DELETE.
    pub fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.body["metadata"]["name"].as_str().unwrap())
    }
}
