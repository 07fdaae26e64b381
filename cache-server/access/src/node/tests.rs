//! Requests of nodes, as tables.

use informer_serving::query::Query;
use serde_json::{Value, json};

use super::*;
use crate::user::NODES;

fn node(name: &str) -> User {
    User::authenticated(format!("system:node:{name}"), [NODES.to_owned()])
}

fn apply(authorizer: &mut NodeAuthorizer, kind: NodeObjectKind, name: &str, object: &Value) -> bool {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    authorizer.graph.apply(kind, namespace, name, object.to_string().as_bytes()).unwrap()
}

fn decide(authorizer: &NodeAuthorizer, of: &str, request: &str) -> AccessDecision {
    let (method, target) = request.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    authorizer.decide(&node(of), &RequestInfo::new(method, path, &Query::parse(Some(query))))
}

fn pod(node: &str) -> Value {
    json!({
        "spec": {
            "nodeName": node, "serviceAccountName": "bot", "imagePullSecrets": [{"name": "pull"}],
            "containers": [{
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}},
                    {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "k"}}},
                ],
                "envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "from"}}],
            }],
            "volumes": [
                {"name": "s", "secret": {"secretName": "mounted"}},
                {"name": "c", "configMap": {"name": "mounted"}},
                {"name": "p", "projected": {"sources": [
                    {"secret": {"name": "projected"}}, {"configMap": {"name": "projected"}}, {"serviceAccountToken": {}},
                ]}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
                {"name": "i", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "csi"}}},
                {"name": "r", "rbd": {"secretRef": {"name": "rbd"}}},
            ],
            "resourceClaims": [
                {"name": "x", "resourceClaimName": "device"}, {"name": "y", "resourceClaimTemplateName": "t"},
            ],
        },
        "status": {"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "made"}]},
    })
}

fn volume() -> Value {
    json!({"spec": {
        "claimRef": {"namespace": "a", "name": "claim"},
        "csi": {"nodeStageSecretRef": {"namespace": "vault", "name": "stage"}, "controllerPublishSecretRef": {"namespace": "vault", "name": "publish"}},
    }})
}

#[test]
fn a_node_reads_what_its_pods_refer_to() {
    let mut authorizer = NodeAuthorizer::default();
    assert!(apply(&mut authorizer, NodeObjectKind::Pod, "a/p", &pod("n1")));
    assert!(apply(&mut authorizer, NodeObjectKind::Volume, "pv", &volume()));
    let own: Vec<String> = [
        "pods/p",
        "secrets/pull",
        "secrets/env",
        "secrets/from",
        "secrets/mounted",
        "secrets/projected",
        "secrets/csi",
        "secrets/rbd",
        "configmaps/env",
        "configmaps/from",
        "configmaps/mounted",
        "configmaps/projected",
        "persistentvolumeclaims/claim",
        "persistentvolumeclaims/p-e",
    ]
    .map(|object| format!("GET /api/v1/namespaces/a/{object}"))
    .into_iter()
    .chain(["device", "made"].map(|name| format!("GET /apis/resource.k8s.io/v1/namespaces/a/resourceclaims/{name}")))
    .chain([
        "POST /api/v1/namespaces/a/serviceaccounts/bot/token".to_owned(),
        "GET /api/v1/persistentvolumes/pv".to_owned(),
        "GET /api/v1/namespaces/vault/secrets/stage".to_owned(),
        "PATCH /api/v1/namespaces/a/persistentvolumeclaims/claim/status".to_owned(),
        "GET /api/v1/namespaces/a/secrets?watch=1&fieldSelector=metadata.name%3Dpull".to_owned(),
        "GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp".to_owned(),
    ])
    .collect();
    for request in &own {
        assert!(decide(&authorizer, "n1", request).is_allowed(), "{request}");
        let refused = decide(&authorizer, "n2", request);
        assert_eq!(refused.reason(), "no relationship found between node 'n2' and this object", "{request}");
    }
    for (request, reason) in [
        ("GET /api/v1/namespaces/b/secrets/pull", "no relationship found between node 'n1' and this object"),
        ("GET /api/v1/namespaces/vault/secrets/publish", "no relationship found between node 'n1' and this object"),
        ("GET /api/v1/namespaces/a/secrets", "No Object name found"),
        ("GET /api/v1/secrets?fieldSelector=metadata.name%3Dpull", "can only read namespaced object of this type"),
        ("DELETE /api/v1/namespaces/a/secrets/pull", "can only read resources of this type"),
        ("GET /api/v1/persistentvolumes", "can only get individual resources of this type"),
        ("GET /api/v1/namespaces/a/serviceaccounts/bot", "can only create tokens for individual service accounts"),
        (
            "POST /api/v1/namespaces/a/serviceaccounts/other/token",
            "no relationship found between node 'n1' and this object",
        ),
    ] {
        assert_eq!(decide(&authorizer, "n1", request).reason(), reason, "{request}");
    }
    assert!(!apply(&mut authorizer, NodeObjectKind::Pod, "a/p", &pod("n1")), "the same state is no change");
    assert!(authorizer.graph.remove(NodeObjectKind::Pod, "a", "p"));
    for request in &own {
        assert!(!decide(&authorizer, "n1", request).is_allowed(), "{request} without the pod");
    }
    authorizer.graph.remove(NodeObjectKind::Volume, "", "pv");
    assert_eq!(authorizer.graph.len(), 0);
}

#[test]
fn a_node_reads_itself_and_its_own_pods() {
    let authorizer = NodeAuthorizer::default();
    for (request, reason) in [
        ("GET /api/v1/nodes/n1", None),
        ("GET /api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dn1", None),
        ("POST /api/v1/nodes", None),
        ("PATCH /api/v1/nodes/n1/status", None),
        ("GET /api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1", None),
        ("GET /api/v1/pods?fieldSelector=spec.nodeName%3D%3Dn1,status.phase%21%3DFailed", None),
        ("POST /api/v1/namespaces/a/pods", None),
        ("PATCH /api/v1/namespaces/a/pods/p/status", None),
        ("POST /api/v1/namespaces/a/pods/p/eviction", None),
        ("GET /api/v1/services?watch=1", None),
        ("POST /api/v1/namespaces/a/events", None),
        ("PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1", None),
        ("GET /apis/storage.k8s.io/v1/csinodes/n1", None),
        ("POST /apis/storage.k8s.io/v1/csinodes", None),
        (
            "GET /apis/storage.k8s.io/v1/csinodes/n2",
            Some("can only access CSINode with the same name as the requesting node"),
        ),
        ("GET /apis/resource.k8s.io/v1/resourceslices?watch=1&fieldSelector=spec.nodeName%3Dn1", None),
        ("GET /api/v1/nodes/n2", Some("node 'n1' cannot read 'n2', only its own Node object")),
        ("GET /api/v1/nodes", Some("node 'n1' cannot read all nodes, only its own Node object")),
        ("GET /api/v1/pods", Some("can only list/watch pods with spec.nodeName field selector")),
        (
            "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn2",
            Some("can only list/watch pods with spec.nodeName field selector"),
        ),
        (
            "GET /api/v1/pods?fieldSelector=spec.nodeName%21%3Dn1",
            Some("can only list/watch pods with spec.nodeName field selector"),
        ),
        ("GET /api/v1/namespaces/a/pods/p/log", Some("")),
        ("DELETE /api/v1/nodes/n1", Some("")),
        ("GET /apis/apps/v1/deployments", Some("")),
        ("GET /metrics", Some("")),
        (
            "PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2",
            Some("can only access node lease with the same name as the requesting node"),
        ),
        (
            "PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/n1",
            Some("can only access leases in the \"kube-node-lease\" system namespace"),
        ),
        ("GET /apis/storage.k8s.io/v1/csinodes", Some("can only get, create, update, patch, or delete a CSINode")),
        (
            "GET /apis/resource.k8s.io/v1/resourceslices",
            Some("can only list/watch/deletecollection resourceslices with nodeName field selector"),
        ),
    ] {
        let decision = decide(&authorizer, "n1", request);
        let expected = reason.map_or(AccessDecision::Allowed { reason: String::new() }, |reason: &str| {
            AccessDecision::NoOpinion { reason: reason.to_owned() }
        });
        assert_eq!(decision, expected, "{request}");
    }
}

#[test]
fn mirror_pods_and_unscheduled_pods_refer_to_nothing() {
    let mut authorizer = NodeAuthorizer::default();
    let mut mirror = pod("n1");
    mirror["metadata"] = json!({"annotations": {"kubernetes.io/config.mirror": "1"}});
    apply(&mut authorizer, NodeObjectKind::Pod, "a/m", &mirror);
    apply(&mut authorizer, NodeObjectKind::Pod, "a/u", &pod(""));
    assert!(decide(&authorizer, "n1", "GET /api/v1/namespaces/a/pods/m").is_allowed());
    assert!(!decide(&authorizer, "n1", "GET /api/v1/namespaces/a/pods/u").is_allowed());
    assert!(!decide(&authorizer, "n1", "GET /api/v1/namespaces/a/secrets/pull").is_allowed());
}

#[test]
fn attachments_and_slices_belong_to_their_node() {
    let mut authorizer = NodeAuthorizer::default();
    let object = json!({"spec": {"nodeName": "n1"}});
    apply(&mut authorizer, NodeObjectKind::Attachment, "v", &object);
    apply(&mut authorizer, NodeObjectKind::Slice, "s", &object);
    for (request, kind, name) in [
        ("GET /apis/storage.k8s.io/v1/volumeattachments/v", NodeObjectKind::Attachment, "v"),
        ("DELETE /apis/resource.k8s.io/v1/resourceslices/s", NodeObjectKind::Slice, "s"),
    ] {
        assert!(decide(&authorizer, "n1", request).is_allowed(), "{request}");
        assert!(!decide(&authorizer, "n2", request).is_allowed(), "{request}");
        apply(&mut authorizer, kind, name, &json!({"spec": {"nodeName": "n2"}}));
        assert!(!decide(&authorizer, "n1", request).is_allowed(), "{request}");
        assert!(authorizer.graph.apply(kind, "", name, br#"{"spec":5}"#).is_err());
        assert!(!decide(&authorizer, "n2", request).is_allowed(), "{request}");
    }
    assert_eq!(authorizer.graph.len(), 0);
}

#[test]
fn other_users_are_not_its_business() {
    let authorizer = NodeAuthorizer::default();
    let info = RequestInfo::new("GET", "/api/v1/nodes/n1", &Query::default());
    for user in [User::authenticated("system:node:n1", []), User::authenticated("alice", [NODES.to_owned()])] {
        assert_eq!(authorizer.decide(&user, &info), AccessDecision::NoOpinion { reason: String::new() });
        assert!(!authorizer.rules_for(&user).incomplete);
    }
    let nameless = authorizer.decide(&node(""), &info);
    assert_eq!(nameless.reason(), "unknown node for user \"system:node:\"");
    assert!(authorizer.rules_for(&node("n1")).incomplete);
}

/// Goal: no refusal counts before the objects that it depends on were applied. Method: requests that are allowed by objects of
/// the kinds that they name, and refused without any.
#[test]
fn requests_name_the_kinds_that_decide_about_them() {
    use NodeObjectKind::{Attachment, Pod, Slice, Volume};
    let placed = json!({"spec": {"nodeName": "n1"}});
    let objects =
        [(Pod, "a/p", pod("n1")), (Volume, "pv", volume()), (Attachment, "at", placed.clone()), (Slice, "sl", placed)];
    for (request, kinds) in [
        ("GET /api/v1/namespaces/a/secrets/mounted", &[Pod, Volume][..]),
        ("GET /api/v1/namespaces/vault/secrets/stage", &[Pod, Volume]),
        ("GET /api/v1/persistentvolumes/pv", &[Pod, Volume]),
        ("GET /api/v1/namespaces/a/configmaps/mounted", &[Pod]),
        ("GET /api/v1/namespaces/a/persistentvolumeclaims/claim", &[Pod]),
        ("GET /api/v1/namespaces/a/pods/p", &[Pod]),
        ("POST /api/v1/namespaces/a/serviceaccounts/bot/token", &[Pod]),
        ("GET /apis/resource.k8s.io/v1/namespaces/a/resourceclaims/device", &[Pod]),
        ("GET /apis/storage.k8s.io/v1/volumeattachments/at", &[Attachment]),
        ("GET /apis/resource.k8s.io/v1/resourceslices/sl", &[Slice]),
    ] {
        let (method, path) = request.split_once(' ').unwrap();
        let info = RequestInfo::new(method, path, &Query::parse(None));
        assert_eq!(NodeAuthorizer::deciding_kinds(&node("n1"), &info), kinds, "{request}");
        assert_eq!(NodeAuthorizer::deciding_kinds(&User::anonymous(), &info), [], "{request}");
        let mut authorizer = NodeAuthorizer::default();
        assert!(!decide(&authorizer, "n1", request).is_allowed(), "{request}");
        for (kind, name, object) in objects.iter().filter(|(kind, ..)| kinds.contains(kind)) {
            apply(&mut authorizer, *kind, name, object);
        }
        assert!(decide(&authorizer, "n1", request).is_allowed(), "{request}");
    }
    let own = RequestInfo::new("GET", "/api/v1/nodes/n1", &Query::parse(None));
    assert_eq!(NodeAuthorizer::deciding_kinds(&node("n1"), &own), []);
}
