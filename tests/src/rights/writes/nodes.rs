//! Rows of nodes: what the node authorizer and `NodeRestriction` let them write. The node `w-n3` has all rights beside these,
//! so that only the restriction refuses its writes.

use http::Method;
use serde_json::{Value, json};

use super::{
    super::grants::{Manifest, Rule, binding, role, user},
    CREATED, FORBIDDEN, NOT_FOUND, OK, OWN_UID, WriteBody, WriteCase, WriteUser, apply, delete, patch, post, put, row,
};

const N1: &str = "system:node:w-n1";
/// A node that has not registered yet.
const NEW: &str = "system:node:w-new";
/// A node that may do everything, as far as authorizers are asked.
const MIGHTY: &str = "system:node:w-n3";
/// A member of the group of nodes without a name.
const NAMELESS: &str = "system:node:";
/// A user with the name of a node, outside the group.
const LOOKALIKE: &str = "system:node:w-n2";

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/w-a/pods";
const CLAIMS: &str = "/api/v1/namespaces/w-a/persistentvolumeclaims";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

pub(super) fn users() -> Vec<WriteUser> {
    let nodes = [N1, NEW, MIGHTY, NAMELESS].map(|name| (name, &["system:nodes"][..]));
    nodes.into_iter().chain([(LOOKALIKE, &[][..])]).collect()
}

fn object(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    super::merge(&mut object, &rest);
    object
}

fn pod(name: &str, node: &str) -> Value {
    let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]});
    object("v1", "Pod", name, json!({"spec": spec}))
}

/// A mirror pod of a node.
pub(super) fn mirror(node: &str) -> Value {
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": OWN_UID, "controller": true});
    let metadata = json!({"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]});
    let mut pod = pod("new", node);
    super::merge(&mut pod, &json!({"metadata": metadata}));
    pod
}

fn node(name: &str, labels: Value) -> Value {
    object("v1", "Node", name, json!({"metadata": {"labels": labels}}))
}

fn lease(name: &str) -> Value {
    object(
        "coordination.k8s.io/v1",
        "Lease",
        name,
        json!({"spec": {"holderIdentity": name, "leaseDurationSeconds": 40}}),
    )
}

fn csi_node(name: &str) -> Value {
    object("storage.k8s.io/v1", "CSINode", name, json!({"spec": {"drivers": []}}))
}

fn slice(name: &str, node: &str) -> Value {
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "d.example.com", "nodeName": node, "pool": pool, "devices": []});
    object("resource.k8s.io/v1", "ResourceSlice", name, json!({"spec": spec}))
}

fn claim(name: &str) -> Value {
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    object("v1", "PersistentVolumeClaim", name, json!({"spec": spec}))
}

pub(super) fn world() -> Vec<Manifest> {
    let at = |collection: &str, body: Value| Manifest { collection: collection.to_owned(), body };
    let mut own = pod("own", "w-n1");
    own["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "own"}}]);
    let mut world = vec![at(PODS, own), at(PODS, pod("foreign", "w-n2")), at(PODS, pod("of-n3", "w-n3"))];
    for name in ["w-n1", "w-n2", "w-n3"] {
        world.push(at(NODES, node(name, json!({"team": "a"}))));
        world.push(at(LEASES, lease(name)));
        world.push(at(CSI_NODES, csi_node(name)));
        world.push(at(SLICES, slice(&format!("slice-{name}"), name)));
    }
    world.extend(["own", "foreign"].map(|name| at(CLAIMS, claim(name))));
    let everything = Rule { verbs: &["*"], group: "*", resource: "*", names: &[] };
    let of = role("w-mighty", None, everything);
    for (number, name) in [MIGHTY, NAMELESS].into_iter().enumerate() {
        let mut to = binding("w-mighty", None, &of, &user(name));
        to.body["metadata"]["name"] = json!(format!("w-mighty-{number}"));
        world.push(to);
    }
    world.insert(0, of);
    world
}

/// Mirror pods with one fault each.
fn faulty_mirrors() -> Vec<WriteCase> {
    let owner = |members: Value| {
        let mut owner = mirror("w-n1")["metadata"]["ownerReferences"][0].clone();
        super::merge(&mut owner, &members);
        json!({"metadata": {"ownerReferences": [owner]}})
    };
    let volume = |source: Value| json!({"spec": {"volumes": [source]}});
    let projected = |source: Value| volume(json!({"name": "v", "projected": {"sources": [source]}}));
    let container = |members: Value| {
        let mut container = json!({"name": "c", "image": "i"});
        super::merge(&mut container, &members);
        json!({"spec": {"containers": [container]}})
    };
    let second = json!({"apiVersion": "v1", "kind": "Node", "name": "w-n2", "uid": "x"});
    let owners = json!([mirror("w-n1")["metadata"]["ownerReferences"][0], second]);
    let faults = [
        ("elsewhere", json!({"spec": {"nodeName": "w-n2"}})),
        ("unscheduled", json!({"spec": {"nodeName": null}})),
        ("without owner", json!({"metadata": {"ownerReferences": null}})),
        ("with two owners", json!({"metadata": {"ownerReferences": owners}})),
        ("of another node", owner(json!({"name": "w-n2"}))),
        ("of another kind", owner(json!({"kind": "Pod"}))),
        ("without controller", owner(json!({"controller": null}))),
        ("that blocks", owner(json!({"blockOwnerDeletion": true}))),
        ("with another uid", owner(json!({"uid": "other"}))),
        ("with an account", json!({"spec": {"serviceAccountName": "bot"}})),
        ("with a deprecated account", json!({"spec": {"serviceAccount": "bot"}})),
        ("with a pull secret", json!({"spec": {"imagePullSecrets": [{"name": "one"}]}})),
        ("with a secret", volume(json!({"name": "v", "secret": {"secretName": "one"}}))),
        ("with a map", volume(json!({"name": "v", "configMap": {"name": "one"}}))),
        ("with a claim", volume(json!({"name": "v", "persistentVolumeClaim": {"claimName": "own"}}))),
        ("with a projected secret", projected(json!({"secret": {"name": "one"}}))),
        ("with a projected map", projected(json!({"configMap": {"name": "one"}}))),
        ("with a token", projected(json!({"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}))),
        ("with a driver", volume(json!({"name": "v", "csi": {"driver": "d.example.com"}}))),
        (
            "with a secret variable",
            container(json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}}]})),
        ),
        (
            "with a map variable",
            container(json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "one", "key": "k"}}}]})),
        ),
        ("with secret variables", container(json!({"envFrom": [{"secretRef": {"name": "one"}}]}))),
        ("with a device", json!({"spec": {"resourceClaims": [{"name": "r", "resourceClaimName": "one"}]}})),
    ];
    let row = |(name, change): (&str, Value)| {
        let mut pod = mirror("w-n1");
        super::merge(&mut pod, &change);
        post(N1, &format!("a mirror pod {name}"), PODS, pod)
    };
    faults.into_iter().map(row).collect()
}

fn pods() -> Vec<WriteCase> {
    let own = format!("{PODS}/own");
    let foreign = format!("{PODS}/foreign");
    let status = |path: &str| format!("{path}/status");
    let running = || json!({"status": {"phase": "Running"}});
    let claims = json!({"status": {"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "one"}]}});
    let extended = json!({"status": {"extendedResourceClaimStatus": {"resourceClaimName": "one",
        "requestMappings": [{"containerName": "c", "resourceName": "r", "requestName": "q"}]}}});
    let labels = || json!({"metadata": {"labels": {"a": "b"}}});
    let eviction = |name: &str| object("policy/v1", "Eviction", name, json!({}));
    let evict =
        |name: &'static str| post(N1, &format!("evict {name}"), &format!("{PODS}/{name}/eviction"), eviction(name));
    let bound = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "own"}, "target": {"kind": "Node", "name": "w-n1"}});
    let bound_to_n3 = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "of-n3"},
        "target": {"kind": "Node", "name": "w-n3"}});
    vec![
        post(N1, "an ordinary pod", PODS, pod("new", "w-n1")),
        post(
            N1,
            "an unscheduled pod",
            PODS,
            object("v1", "Pod", "new", json!({"spec": {"containers": [{"name": "c", "image": "i"}]}})),
        ),
        post(N1, "a mirror pod", PODS, mirror("w-n1")).expecting(CREATED),
        post(NEW, "a mirror pod before its node", PODS, mirror("w-new")).expecting(NOT_FOUND),
        post(LOOKALIKE, "a mirror pod", PODS, mirror("w-n2")),
        post(NAMELESS, "an ordinary pod", PODS, pod("new", "w-n1")),
        post(MIGHTY, "an ordinary pod", PODS, pod("new", "w-n3")),
        post(MIGHTY, "a mirror pod", PODS, mirror("w-n3")).expecting(CREATED),
        apply(MIGHTY, "apply an ordinary pod", &format!("{PODS}/new"), pod("new", "w-n3")),
        apply(MIGHTY, "apply a mirror pod", &format!("{PODS}/new"), mirror("w-n3")).expecting(CREATED),
        apply(N1, "apply a mirror pod", &format!("{PODS}/new"), mirror("w-n1")),
        patch(N1, "patch a pod", &own, labels()),
        put(N1, "put a pod", &own, labels()),
        patch(MIGHTY, "patch a pod", &format!("{PODS}/of-n3"), labels()),
        put(MIGHTY, "put a pod", &format!("{PODS}/of-n3"), labels()),
        patch(MIGHTY, "patch a foreign pod", &foreign, labels()),
        delete(N1, "delete a pod", &own).expecting(OK),
        delete(N1, "delete a foreign pod", &foreign),
        delete(N1, "delete no pod", &format!("{PODS}/none")).expecting(NOT_FOUND),
        delete(N1, "delete all pods", PODS),
        delete(MIGHTY, "delete a pod", &format!("{PODS}/of-n3")).expecting(OK),
        delete(MIGHTY, "delete a foreign pod", &foreign),
        patch(N1, "patch a status", &status(&own), running()).expecting(OK),
        put(N1, "put a status", &status(&own), running()).expecting(OK),
        patch(N1, "patch a foreign status", &status(&foreign), running()),
        put(N1, "put a foreign status", &status(&foreign), running()),
        patch(MIGHTY, "patch a foreign status", &status(&foreign), running()),
        patch(N1, "patch labels by a status", &status(&own), labels()),
        patch(N1, "patch claims by a status", &status(&own), claims),
        patch(N1, "patch an extended claim by a status", &status(&own), extended),
        patch(N1, "patch no status", &status(&format!("{PODS}/none")), running()).expecting(NOT_FOUND),
        post(N1, "bind a pod", &format!("{PODS}/own/binding"), bound),
        post(MIGHTY, "bind a pod", &format!("{PODS}/of-n3/binding"), bound_to_n3),
        evict("own").expecting(CREATED),
        evict("foreign"),
    ]
}

fn nodes() -> Vec<WriteCase> {
    let own = format!("{NODES}/w-n1");
    let other = format!("{NODES}/w-n2");
    let label = |name: &str| json!({"metadata": {"labels": {name: "x"}}});
    let taint = || json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}});
    let owner =
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "w-n2", "uid": "x"}]}});
    let mut cases = vec![
        post(NEW, "itself", NODES, node("w-new", json!({"kubernetes.io/hostname": "w-new"}))).expecting(CREATED),
        post(NEW, "itself with a role", NODES, node("w-new", json!({"node-role.kubernetes.io/control-plane": ""}))),
        post(
            NEW,
            "itself with a restricted label",
            NODES,
            node("w-new", json!({"node-restriction.kubernetes.io/a": ""})),
        ),
        post(NEW, "another node", NODES, node("w-newer", json!({}))),
        post(N1, "another node", NODES, node("w-newer", json!({}))),
        post(N1, "itself again", NODES, node("w-n1", json!({}))).expecting((409, "AlreadyExists")),
        post(LOOKALIKE, "a node", NODES, node("w-n2", json!({}))),
        post(MIGHTY, "another node", NODES, node("w-newer", json!({}))),
        put(N1, "put itself", &own, label("kubelet.kubernetes.io/a")).expecting(OK),
        put(N1, "put another node", &other, json!({})),
        put(N1, "put itself with a taint", &own, taint()),
        put(N1, "put its status with a taint", &format!("{own}/status"), taint()),
        patch(N1, "taint another node", &other, taint()),
        patch(N1, "patch another status", &format!("{other}/status"), json!({"status": {"phase": "x"}})),
        patch(
            N1,
            "patch its status",
            &format!("{own}/status"),
            json!({"status": {"addresses": [{"type": "Hostname", "address": "x"}]}}),
        )
        .expecting(OK),
        patch(N1, "taint its status", &format!("{own}/status"), taint()),
        patch(N1, "own itself", &own, owner),
        patch(N1, "remove a label", &own, json!({"metadata": {"labels": {"team": null}}})).expecting(OK),
        patch(MIGHTY, "taint itself", &format!("{NODES}/w-n3"), taint()),
        patch(MIGHTY, "patch another node", &other, label("a")),
        delete(N1, "delete itself", &own),
        delete(N1, "delete another node", &other),
        delete(MIGHTY, "delete itself", &format!("{NODES}/w-n3")).expecting(OK),
        delete(MIGHTY, "delete another node", &other),
    ];
    for (name, is_allowed) in [
        ("team", true),
        ("example.com/a", true),
        ("kubernetes.io/hostname", true),
        ("topology.kubernetes.io/zone", true),
        ("node.kubernetes.io/instance-type", true),
        ("a.kubelet.kubernetes.io/b", true),
        ("node-role.kubernetes.io/control-plane", false),
        ("node-restriction.kubernetes.io/a", false),
        ("a.node-restriction.kubernetes.io/b", false),
        ("kubernetes.io/other", false),
        ("a.k8s.io/b", false),
    ] {
        let expected = if is_allowed { OK } else { FORBIDDEN };
        cases.push(patch(N1, &format!("label itself {name}"), &own, label(name)).expecting(expected));
        cases.push(
            patch(N1, &format!("label its status {name}"), &format!("{own}/status"), label(name)).expecting(expected),
        );
    }
    cases
}

/// Leases, CSINodes, slices, claims, and what nodes may not write at all.
fn others() -> Vec<WriteCase> {
    let renewal = || json!({"spec": {"leaseDurationSeconds": 41}});
    let at = |collection: &str, name: &str| format!("{collection}/{name}");
    let capacity = || json!({"status": {"capacity": {"storage": "1Gi"}}});
    let claim_status = |name: &str| format!("{CLAIMS}/{name}/status");
    let labels = || json!({"metadata": {"labels": {"a": "b"}}});
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/w-a/leases";
    let map = |kind: &str| object("v1", kind, "new", json!({}));
    let event = json!({"reason": "r", "involvedObject": {"kind": "Pod", "namespace": "w-a", "name": "own"}});
    let token = object("authentication.k8s.io/v1", "TokenRequest", "", json!({"spec": {"audiences": ["a"]}}));
    vec![
        post(NEW, "its lease", LEASES, lease("w-new")).expecting(CREATED),
        post(N1, "another lease", LEASES, lease("w-new")),
        post(N1, "its lease elsewhere", elsewhere, lease("w-n1")),
        put(N1, "put its lease", &at(LEASES, "w-n1"), renewal()).expecting(OK),
        patch(N1, "patch its lease", &at(LEASES, "w-n1"), renewal()).expecting(OK),
        put(N1, "put another lease", &at(LEASES, "w-n2"), renewal()),
        patch(N1, "patch another lease", &at(LEASES, "w-n2"), renewal()),
        delete(N1, "delete its lease", &at(LEASES, "w-n1")).expecting(OK),
        delete(N1, "delete another lease", &at(LEASES, "w-n2")),
        post(MIGHTY, "another lease", LEASES, lease("w-new")),
        post(MIGHTY, "its lease elsewhere", elsewhere, lease("w-n3")),
        put(MIGHTY, "put another lease", &at(LEASES, "w-n2"), renewal()),
        delete(MIGHTY, "delete another lease", &at(LEASES, "w-n2")),
        delete(MIGHTY, "delete a lease elsewhere", &at(elsewhere, "one")),
        WriteCase {
            body: WriteBody::Sent(lease("w-new")),
            ..row(NEW, "put its new lease", Method::PUT, &at(LEASES, "w-new"), Value::Null)
        }
        .expecting(CREATED),
        post(NEW, "its CSINode", CSI_NODES, csi_node("w-new")).expecting(CREATED),
        post(N1, "another CSINode", CSI_NODES, csi_node("w-new")),
        patch(N1, "patch its CSINode", &at(CSI_NODES, "w-n1"), labels()).expecting(OK),
        put(N1, "put its CSINode", &at(CSI_NODES, "w-n1"), labels()).expecting(OK),
        patch(N1, "patch another CSINode", &at(CSI_NODES, "w-n2"), labels()),
        delete(N1, "delete its CSINode", &at(CSI_NODES, "w-n1")).expecting(OK),
        delete(N1, "delete another CSINode", &at(CSI_NODES, "w-n2")),
        patch(MIGHTY, "patch another CSINode", &at(CSI_NODES, "w-n2"), labels()),
        delete(MIGHTY, "delete another CSINode", &at(CSI_NODES, "w-n2")),
        post(N1, "its slice", SLICES, slice("new", "w-n1")).expecting(CREATED),
        post(N1, "another slice", SLICES, slice("new", "w-n2")),
        delete(N1, "delete its slice", &at(SLICES, "slice-w-n1")).expecting(OK),
        delete(N1, "delete another slice", &at(SLICES, "slice-w-n2")),
        patch(N1, "move its slice", &at(SLICES, "slice-w-n1"), json!({"spec": {"nodeName": "w-n2"}}))
            .expecting((422, "Invalid"))
            .differing(FORBIDDEN, "fields of slices are not validated: the restriction keeps the node instead"),
        delete(MIGHTY, "delete another slice", &at(SLICES, "slice-w-n2")),
        patch(N1, "patch the capacity of a claim", &claim_status("own"), capacity()).expecting(OK),
        patch(N1, "patch the phase of a claim", &claim_status("own"), json!({"status": {"phase": "Lost"}})),
        patch(N1, "label a claim by its status", &claim_status("own"), labels()),
        patch(N1, "patch a foreign claim", &claim_status("foreign"), capacity()),
        patch(N1, "patch a claim", &at(CLAIMS, "own"), labels()),
        patch(MIGHTY, "patch a claim", &at(CLAIMS, "own"), labels()),
        post(MIGHTY, "a claim", CLAIMS, claim("new")),
        delete(MIGHTY, "delete a claim", &at(CLAIMS, "own")),
        post(N1, "an event", "/api/v1/namespaces/w-a/events", object("v1", "Event", "new", event)).expecting(CREATED),
        post(N1, "a map", "/api/v1/namespaces/w-a/configmaps", map("ConfigMap")),
        post(N1, "a secret", "/api/v1/namespaces/w-a/secrets", map("Secret")),
        patch(N1, "patch a secret", "/api/v1/namespaces/w-a/secrets/one", labels()),
        post(MIGHTY, "a map", "/api/v1/namespaces/w-a/configmaps", map("ConfigMap")).expecting(CREATED),
        post(NAMELESS, "a map", "/api/v1/namespaces/w-a/configmaps", map("ConfigMap")),
        post(N1, "a token of no pod", "/api/v1/namespaces/w-a/serviceaccounts/bot/token", token),
    ]
}

pub(super) fn cases() -> Vec<WriteCase> {
    [faulty_mirrors(), pods(), nodes(), others()].concat()
}
