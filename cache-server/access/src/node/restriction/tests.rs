//! Writes of the node n1, as tables.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::json;

use super::{
    super::{NodeAuthorizer, NodeObjectKind},
    *,
};
use crate::{decision::AccessDecision, request_info::RequestInfo};

const UID: &str = "uid-of-n1";

fn object(value: &Value) -> Object {
    value.as_object().expect("an object").clone()
}

/// Group and resource, with `/status`.
fn write<'a>(resource: &'a str, namespace: &'a str, name: &'a str, operation: NodeOperation<'a>) -> NodeWrite<'a> {
    let (resource, is_status) = resource.strip_suffix("/status").map_or((resource, false), |resource| (resource, true));
    let (group, resource) = resource.rsplit_once('/').unwrap_or(("", resource));
    NodeWrite { group, resource, is_status, namespace, name, operation }
}

/// The outcome: empty, or code and text.
fn outcome(write: &NodeWrite<'_>) -> String {
    outcome_of("n1", write)
}

fn outcome_of(node: &str, write: &NodeWrite<'_>) -> String {
    NodeWriter::named(node)
        .check(write)
        .map_or_else(|status| format!("{} {}", status.code, status.message), |()| String::new())
}

fn create(resource: &str, namespace: &str, new: &Value) -> String {
    let new = object(new);
    let name = new["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    outcome(&write(resource, namespace, &name, NodeOperation::Create { new: &new, own_uid: Some(UID) }))
}

fn update(resource: &str, name: &str, old: &Value, new: &Value) -> String {
    let (old, new) = (object(old), object(new));
    outcome(&write(resource, "a", name, NodeOperation::Update { old: &old, new: &new }))
}

fn mirror() -> Value {
    json!({
        "metadata": {
            "name": "p", "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": UID, "controller": true}],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
    })
}

/// A mirror pod with a member replaced.
fn with(pointer: &str, value: Value) -> Value {
    let mut pod = mirror();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[name] = value;
    pod
}

#[test]
fn a_node_creates_mirror_pods_of_its_own_only() {
    assert_eq!(create("pods", "a", &mirror()), "");
    let owner = |members: &Value| {
        let mut owner = mirror()["metadata"]["ownerReferences"][0].clone();
        members.as_object().unwrap().iter().for_each(|(name, value)| owner[name] = value.clone());
        with("/metadata/ownerReferences", json!([owner]))
    };
    for (pod, reason) in [
        (
            with("/metadata/annotations", json!({"a": "b"})),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods",
        ),
        (with("/spec/nodeName", json!("n2")), "node \"n1\" can only create pods with spec.nodeName set to itself"),
        (with("/spec/nodeName", Value::Null), "node \"n1\" can only create pods with spec.nodeName set to itself"),
        (
            with("/metadata/ownerReferences", json!([])),
            "node \"n1\" can only create pods with an owner reference set to itself",
        ),
        (
            with("/metadata/ownerReferences", json!([{}, {}])),
            "node \"n1\" can only create pods with a single owner reference set to itself",
        ),
        (owner(&json!({"name": "n2"})), "node \"n1\" can only create pods with an owner reference set to itself"),
        (owner(&json!({"kind": "Pod"})), "node \"n1\" can only create pods with an owner reference set to itself"),
        (
            owner(&json!({"controller": false})),
            "node \"n1\" can only create pods with a controller owner reference set to itself",
        ),
        (
            owner(&json!({"blockOwnerDeletion": true})),
            "node \"n1\" must not set blockOwnerDeletion on an owner reference",
        ),
        (owner(&json!({"uid": "other"})), "node n1 UID mismatch: expected other got uid-of-n1"),
    ] {
        assert_eq!(create("pods", "a", &pod), format!("403 pods \"p\" is forbidden: {reason}"), "{pod}");
    }
    let unknown = object(&mirror());
    let unknown = write("pods", "a", "p", NodeOperation::Create { new: &unknown, own_uid: None });
    assert_eq!(outcome(&unknown), "404 node \"n1\" not found");
}

/// Goal: a pod that a node creates gives it nothing. Method: a mirror pod with each kind of reference; as what it is not, an
/// ordinary pod, it would relate its object to the node.
#[test]
fn a_pod_of_a_node_refers_to_nothing() {
    let volume = |source: &str, value: Value| with("/spec/volumes", json!([{"name": "v", source: value}]));
    let container = |members: Value| with("/spec/initContainers", json!([members]));
    let projected =
        |source: &str| volume("projected", json!({"sources": [{"downwardAPI": {}}, {source: {"name": "x"}}]}));
    for (pod, resource) in [
        (with("/spec/serviceAccountName", json!("bot")), "serviceaccounts"),
        (with("/spec/serviceAccount", json!("bot")), "serviceaccounts"),
        (with("/spec/imagePullSecrets", json!([{"name": "x"}])), "secrets"),
        (container(json!({"env": [{"valueFrom": {"secretKeyRef": {"name": "x"}}}]})), "secrets"),
        (container(json!({"envFrom": [{"configMapRef": {"name": "x"}}]})), "configmaps"),
        (volume("secret", json!({"secretName": "x"})), "secrets"),
        (volume("secret", json!({})), "secrets (via secret volumes)"),
        (volume("rbd", json!({"secretRef": {"name": "x"}})), "secrets"),
        (volume("azureFile", json!({"secretName": "x"})), "secrets"),
        (volume("configMap", json!({"name": "x"})), "configmaps"),
        (volume("csi", json!({"driver": "x"})), "csidrivers (via CSI volumes)"),
        (volume("glusterfs", json!({"endpoints": "x"})), "endpoints (via glusterFS volumes)"),
        (volume("persistentVolumeClaim", json!({"claimName": "x"})), "persistentvolumeclaims"),
        (volume("ephemeral", json!({})), "persistentvolumeclaims (via ephemeral volumes)"),
        (projected("secret"), "secrets"),
        (projected("configMap"), "configmaps"),
        (projected("serviceAccountToken"), "serviceaccounts (via projected volumes)"),
        (projected("clusterTrustBundle"), "clustertrustbundles"),
        (projected("podCertificate"), "podcertificates"),
        (with("/spec/resourceClaims", json!([{"name": "c", "resourceClaimName": "x"}])), "resourceclaims"),
    ] {
        let refused = format!("403 pods \"p\" is forbidden: node \"n1\" can not create pods that reference {resource}");
        assert_eq!(create("pods", "a", &pod), refused, "{pod}");
    }
    for (pod, reason) in [
        (volume("magic", json!({})), "unknown volume type \"magic\""),
        (projected("magic"), "unknown source \"magic\" of a projected volume"),
    ] {
        assert_eq!(create("pods", "a", &pod), format!("403 pods \"p\" is forbidden: {reason}"));
    }
}

/// Goal: whatever a node may create relates no object to it, even if it takes the annotation away later. Method: all pods
/// that the restriction allows, of thousands of random ones, in the graph.
#[test]
fn an_allowed_pod_relates_only_itself() {
    let sources = json!({
        "secret": {"secretName": "x"}, "configMap": {"name": "x"}, "emptyDir": {}, "hostPath": {"path": "/"},
        "persistentVolumeClaim": {"claimName": "x"}, "ephemeral": {}, "csi": {"nodePublishSecretRef": {"name": "x"}},
        "iscsi": {"secretRef": {"name": "x"}}, "projected": {"sources": [{"secret": {"name": "x"}}]}, "nfs": {},
    });
    let sources: Vec<(&String, &Value)> = sources.as_object().unwrap().iter().collect();
    let mut random = fastrand::Rng::with_seed(7);
    let mut allowed = 0;
    for _ in 0..20_000 {
        let mut pod = mirror();
        for (pointer, value) in [
            ("serviceAccountName", json!("x")),
            ("imagePullSecrets", json!([{"name": "x"}])),
            ("resourceClaims", json!([{"name": "x", "resourceClaimName": "x"}])),
        ] {
            if random.u8(0..6) == 0 {
                pod["spec"][pointer] = value;
            }
        }
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            if random.u8(0..6) == 0 {
                let from = if random.bool() { "secretKeyRef" } else { "configMapKeyRef" };
                pod["spec"][list] = json!([{"env": [{"name": "A", "valueFrom": {from: {"name": "x"}}}]}]);
            }
        }
        let mut volume = json!({"name": "v"});
        for _ in 0..random.usize(0..3) {
            let (source, value) = sources[random.usize(0..sources.len())];
            volume[source] = value.clone();
        }
        pod["spec"]["volumes"] = json!([volume]);
        if !create("pods", "a", &pod).is_empty() {
            continue;
        }
        allowed += 1;
        pod["metadata"]["annotations"] = Value::Null;
        let mut authorizer = NodeAuthorizer::default();
        authorizer.graph.apply(NodeObjectKind::Pod, "a", "p", pod.to_string().as_bytes()).unwrap();
        // The node's name and the pod's.
        assert_eq!(authorizer.graph.len(), 2, "{pod}");
    }
    assert!(allowed > 500, "{allowed}");
}

#[test]
fn a_node_changes_the_status_of_its_own_pods_only() {
    let pod = |node: &str, label: &str, claim: &str| {
        json!({
            "metadata": {"labels": {"a": label}}, "spec": {"nodeName": node},
            "status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": claim}]},
        })
    };
    let own = pod("n1", "1", "x");
    let mut extended = own.clone();
    extended["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": "y"});
    let mut phase = own.clone();
    phase["status"]["phase"] = json!("Running");
    let forbidden = |text: &str| format!("403 pods \"p\" is forbidden: node \"n1\" {text}");
    assert_eq!(update("pods/status", "p", &own, &phase), "");
    for (old, new, text) in [
        (&pod("n2", "1", "x"), &own, "can only update pod status for pods with spec.nodeName set to itself"),
        (&pod("", "1", "x"), &own, "can only update pod status for pods with spec.nodeName set to itself"),
        (&own, &pod("n1", "2", "x"), "cannot update labels through pod status"),
        (&own, &pod("n1", "1", "y"), "cannot update resource claim statues"),
        (&own, &extended, "cannot update extended resource claim status"),
    ] {
        assert_eq!(update("pods/status", "p", old, new), forbidden(text));
    }
    let main = "unexpected operation \"UPDATE\", node \"n1\" can only create and delete mirror pods";
    assert_eq!(update("pods", "p", &own, &own), format!("403 pods \"p\" is forbidden: {main}"));
    for (pod, expected) in [
        (&own, String::new()),
        (&pod("n2", "1", "x"), forbidden("can only delete pods with spec.nodeName set to itself")),
    ] {
        let old = object(pod);
        assert_eq!(outcome(&write("pods", "a", "p", NodeOperation::Delete { old: &old })), expected);
    }
}

#[test]
fn a_node_writes_its_own_node_without_taints_owners_and_labels_of_others() {
    let node = |labels: &Value, taints: &Value| json!({"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": taints}});
    let plain = node(&json!({"kubernetes.io/hostname": "n1", "team": "a"}), &json!([]));
    let forbidden = |text: &str| format!("403 nodes \"n1\" is forbidden: {text}");
    assert_eq!(create("nodes", "", &plain), "");
    let tainted = json!([{"key": "k", "effect": "NoSchedule"}]);
    assert_eq!(create("nodes", "", &node(&json!({}), &tainted)), "", "a node registers with taints");
    assert_eq!(
        create("nodes", "", &json!({"metadata": {"name": "n2"}})),
        "403 nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\""
    );
    let refused = json!({"node-restriction.kubernetes.io/a": "", "x.k8s.io/b": "", "kubelet.kubernetes.io/c": "", "d": "",
        "kubernetes.io/os": "", "node-role.kubernetes.io/control-plane": "", "a.node.kubernetes.io/e": ""});
    let names = "node-restriction.kubernetes.io/a, node-role.kubernetes.io/control-plane, x.k8s.io/b";
    let set = forbidden(&format!("node \"n1\" is not allowed to set the following labels: {names}"));
    assert_eq!(create("nodes", "", &node(&refused, &json!([]))), set);
    for part in ["nodes", "nodes/status"] {
        let changed = |new: &Value| update(part, "n1", &plain, new);
        assert_eq!(
            changed(&node(&json!({"kubernetes.io/hostname": "n3", "kubernetes.io/arch": "x"}), &Value::Null)),
            ""
        );
        let taints = forbidden("node \"n1\" is not allowed to modify taints");
        assert_eq!(changed(&node(&plain["metadata"]["labels"], &tainted)), taints);
        assert_eq!(update(part, "n1", &node(&json!({}), &tainted), &node(&json!({}), &json!([]))), taints);
        assert_eq!(
            changed(&node(&refused, &json!([]))),
            forbidden(&format!("is not allowed to modify labels: {names}"))
        );
        let mut owned = plain.clone();
        owned["metadata"]["ownerReferences"] = json!([{"name": "x"}]);
        assert_eq!(changed(&owned), forbidden("node \"n1\" is not allowed to modify ownerReferences"));
        let other = "403 nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"";
        assert_eq!(update(part, "n2", &plain, &plain), other);
    }
}

#[test]
fn leases_csi_nodes_slices_and_claims_are_the_nodes_own() {
    let none = json!({});
    let named = |name: &str| json!({"metadata": {"name": name}});
    let lease = "403 leases.coordination.k8s.io \"n2\" is forbidden: can only access node lease with the same name as the requesting node";
    assert_eq!(create("coordination.k8s.io/leases", LEASES, &named("n1")), "");
    assert_eq!(create("coordination.k8s.io/leases", LEASES, &named("n2")), lease);
    let elsewhere = "403 leases.coordination.k8s.io \"n1\" is forbidden: can only access leases in the \"kube-node-lease\" system namespace";
    assert_eq!(create("coordination.k8s.io/leases", "a", &named("n1")), elsewhere);
    let generated = json!({"metadata": {"generateName": "n"}});
    assert_eq!(create("coordination.k8s.io/leases", LEASES, &generated), lease.replace("n2", "n"));
    let csi = "403 csinodes.storage.k8s.io \"n2\" is forbidden: can only access CSINode with the same name as the requesting node";
    assert_eq!(create("storage.k8s.io/csinodes", "", &named("n1")), "");
    assert_eq!(create("storage.k8s.io/csinodes", "", &named("n2")), csi);
    assert_eq!(update("storage.k8s.io/csinodes", "n2", &none, &none), csi);

    let slice = |node: &str| json!({"metadata": {"name": "s"}, "spec": {"nodeName": node}});
    let refused = |verb: &str| {
        format!(
            "403 resourceslices.resource.k8s.io \"s\" is forbidden: can only {verb} ResourceSlice with the same NodeName as the requesting node"
        )
    };
    assert_eq!(create("resource.k8s.io/resourceslices", "", &slice("n1")), "");
    assert_eq!(create("resource.k8s.io/resourceslices", "", &slice("n2")), refused("create"));
    assert_eq!(update("resource.k8s.io/resourceslices", "s", &slice("n1"), &slice("n2")), refused("update"));

    let claim = json!({"metadata": {"name": "c", "labels": {"a": "1"}}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
    let mut resized = claim.clone();
    resized["status"] = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}, "conditions": [{"type": "x"}]});
    assert_eq!(update("persistentvolumeclaims/status", "c", &claim, &resized), "");
    for (pointer, value) in
        [("/status/phase", json!("Lost")), ("/metadata/labels/a", json!("2")), ("/spec/volumeName", json!("w"))]
    {
        let mut changed = claim.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        let outcome = update("persistentvolumeclaims/status", "c", &claim, &changed);
        assert!(outcome.starts_with("403 ") && outcome.contains("other than status.quantity"), "{pointer}: {outcome}");
    }
    let outcome = update("persistentvolumeclaims", "c", &claim, &claim);
    assert_eq!(outcome, "403 persistentvolumeclaims \"c\" is forbidden: may only update PVC status");
}

#[test]
fn a_request_for_a_nodes_certificate_names_the_node() {
    let request = |signer: &str, name: &str| {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        json!({"metadata": {"name": "r"}, "spec": {"signerName": signer, "request": STANDARD.encode(pem)}})
    };
    let requested = |request: &Value| create("certificates.k8s.io/certificatesigningrequests", "", request);
    for signer in NODE_SIGNERS {
        assert_eq!(requested(&request(signer, "system:node:n1")), "");
        let refused = requested(&request(signer, "system:node:n2"));
        assert!(refused.ends_with("can only create a node CSR with CN=system:node:n1"), "{refused}");
        for (text, problem) in [
            (STANDARD.encode("x"), "PEM block type must be CERTIFICATE REQUEST"),
            ("?".to_owned(), "it is no base64"),
            (
                STANDARD.encode("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----"),
                "it is malformed",
            ),
        ] {
            let broken = json!({"metadata": {"name": "r"}, "spec": {"signerName": signer, "request": text}});
            let refused = requested(&broken);
            assert!(refused.ends_with(&format!("unable to parse csr: {problem}")), "{refused}");
        }
    }
    assert_eq!(requested(&request("example.com/other", "anything")), "");
}

#[test]
fn only_nodes_are_restricted_and_nameless_ones_write_nothing() {
    let node = User::authenticated("system:node:n1", [NODES.to_owned()]);
    assert_eq!(NodeWriter::of(&node).map(NodeWriter::name), Some("n1"));
    assert_eq!(NodeWriter::of(&User::authenticated("system:node:n1", [])), None);
    assert_eq!(NodeWriter::of(&User::authenticated("alice", [NODES.to_owned()])), None);
    let nameless = User::authenticated("system:node:", [NODES.to_owned()]);
    let name = NodeWriter::of(&nameless).map(NodeWriter::name).expect("a node");
    let map = object(&json!({"metadata": {"name": "m"}}));
    let create = write("configmaps", "a", "m", NodeOperation::Create { new: &map, own_uid: None });
    let refused = "403 configmaps \"m\" is forbidden: could not determine node from user \"system:node:\"";
    assert_eq!([outcome_of(name, &create), outcome_of("n1", &create)], [refused, ""]);
    let authorizer = NodeAuthorizer::default();
    let info = RequestInfo::new("POST", "/api/v1/namespaces/a/pods", &informer_serving::query::Query::default());
    assert_eq!(authorizer.decide(&node, &info), AccessDecision::Allowed { reason: String::new() });
}
