//! An object of each kind of key, with the key that Kubernetes gives it.

use serde_json::{Value, json};
use tests::objects::{namespace, node, pod, replica_set, secret};

/// A manifest, the collection that it is sent to, and its key below the prefix.
pub(crate) type KeyedManifest = (&'static str, Value, &'static str);

/// An object named `a` with more members.
fn named(api_version: &str, kind: &str, more: &Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// Manifests in an order in which they can be created.
pub(crate) fn manifests() -> Vec<KeyedManifest> {
    [core(), grouped(), custom()].concat()
}

fn core() -> Vec<KeyedManifest> {
    let ports = json!({"spec": {"clusterIP": "None", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]}});
    let template = replica_set("a").body()["spec"]["template"].clone();
    let controller = json!({"spec": {"replicas": 0, "selector": {"app": "a"}, "template": template}});
    let none = json!({});
    let within = |plural: &str| format!("/api/v1/namespaces/default/{plural}").leak() as &'static str;
    vec![
        ("/api/v1/nodes", node("a").body().clone(), "minions/a"),
        ("/api/v1/namespaces", namespace("team").body().clone(), "namespaces/team"),
        (within("pods"), pod("a").body().clone(), "pods/default/a"),
        (within("secrets"), secret("a").body().clone(), "secrets/default/a"),
        (within("services"), named("v1", "Service", &ports), "services/specs/default/a"),
        (within("endpoints"), named("v1", "Endpoints", &none), "services/endpoints/default/a"),
        (within("serviceaccounts"), named("v1", "ServiceAccount", &none), "serviceaccounts/default/a"),
        (within("replicationcontrollers"), named("v1", "ReplicationController", &controller), "controllers/default/a"),
    ]
}

fn grouped() -> Vec<KeyedManifest> {
    let rules = json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    let deployment = json!({"spec": replica_set("a").body()["spec"]});
    let ingress = json!({"spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}});
    let service = json!({"spec": {
        "group": "metrics.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "a"},
    }});
    let mut service = named("apiregistration.k8s.io/v1", "APIService", &service);
    service["metadata"]["name"] = "v1.metrics.example.com".into();
    vec![
        (
            "/apis/apps/v1/namespaces/default/deployments",
            named("apps/v1", "Deployment", &deployment),
            "deployments/default/a",
        ),
        ("/apis/apps/v1/namespaces/default/replicasets", replica_set("a").body().clone(), "replicasets/default/a"),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            named("coordination.k8s.io/v1", "Lease", &json!({})),
            "leases/default/a",
        ),
        (
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            named("networking.k8s.io/v1", "Ingress", &ingress),
            "ingress/default/a",
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            named("rbac.authorization.k8s.io/v1", "ClusterRole", &rules),
            "clusterroles/a",
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            named("storage.k8s.io/v1", "StorageClass", &json!({"provisioner": "example.com/p"})),
            "storageclasses/a",
        ),
        (
            "/apis/apiregistration.k8s.io/v1/apiservices",
            service,
            "apiregistration.k8s.io/apiservices/v1.metrics.example.com",
        ),
    ]
}

fn custom() -> Vec<KeyedManifest> {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (cat, house) = (definition("cats", "Cat", "Namespaced"), definition("houses", "House", "Cluster"));
    let object = |kind: &str| named("example.com/v1", kind, &json!({}));
    vec![
        (definitions, cat, "apiextensions.k8s.io/customresourcedefinitions/cats.example.com"),
        (definitions, house, "apiextensions.k8s.io/customresourcedefinitions/houses.example.com"),
        ("/apis/example.com/v1/namespaces/default/cats", object("Cat"), "example.com/cats/default/a"),
        ("/apis/example.com/v1/houses", object("House"), "example.com/houses/a"),
    ]
}

/// A CustomResourceDefinition.
fn definition(plural: &str, kind: &str, scope: &str) -> Value {
    let lower = kind.to_lowercase();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com", "scope": scope,
            "names": {"plural": plural, "singular": lower, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}
