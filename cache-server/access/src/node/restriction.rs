//! Admission of writes by nodes: a node writes itself, its lease, its CSINode and its slices, and of pods the status of its
//! own and mirrors that refer to nothing.
//!
//! INVARIANT: a pod that a node creates relates no object to the node. INVARIANT: work and memory are linear in the objects.
//!
//! The authorizer knows no content, so it allows every node to create pods and to change nodes; the rules here divide that.
//! Kubernetes' own server also validates fields. Where a rule of this file relies on that, it checks the field itself.
//!
//! Source: Kubernetes `plugin/pkg/admission/noderestriction`, `pkg/api/pod/util.go` (`HasAPIObjectReference`),
//! `staging/src/k8s.io/kubelet/pkg/apis/well_known_labels.go`.

use std::collections::BTreeSet;

use informer_serving::{
    go::quote,
    status::{Status, StatusExt as _},
};
use serde_json::{Map, Value};

use super::{
    LEASES,
    object::{MIRROR, api_reference},
};
use crate::{
    authentication::{
        certificate,
        token_request::{TokenRequest, another_uid},
    },
    user::{NODE_PREFIX, NODES, User},
};

type Object = Map<String, Value>;

/// A node that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeWriter<'a> {
    /// Empty for a member of the group of nodes whose name has nothing after the prefix: it may write nothing.
    name: &'a str,
}

/// A write, as admission sees it: before fields that the writer cannot change are restored.
#[derive(Clone, Copy, Debug)]
pub struct NodeWrite<'a> {
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Plural name.
    pub resource: &'a str,
    /// True for the subresource `status`.
    pub is_status: bool,
    /// Empty for cluster-scoped types.
    pub namespace: &'a str,
    /// Name of the object; empty for a create that leaves the choice to the server.
    pub name: &'a str,
    /// The change.
    pub operation: NodeOperation<'a>,
}

/// The change of an object.
#[derive(Clone, Copy, Debug)]
pub enum NodeOperation<'a> {
    /// A new object.
    Create {
        /// As sent.
        new: &'a Object,
        /// The uid of the writer's Node; `None` if that is not stored. Read for pods only.
        own_uid: Option<&'a str>,
    },
    /// A new state of a stored object.
    Update {
        /// As stored. May lack all but metadata for types whose rule reads only their names: see [`reads_content`].
        old: &'a Object,
        /// As sent, or as a patch makes it.
        new: &'a Object,
    },
    /// The removal of an object.
    Delete {
        /// As stored.
        old: &'a Object,
    },
}

/// Text of a refusal.
type Reason = String;

/// Returns true for types whose updates by nodes are decided by more than the name of the object.
#[must_use]
pub fn reads_content(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        ("", "pods" | "nodes" | "persistentvolumeclaims") | ("resource.k8s.io", "resourceslices")
    )
}

impl<'a> NodeWriter<'a> {
    /// Returns the node that a caller is; `None` for other callers.
    #[must_use]
    pub fn of(user: &'a User) -> Option<Self> {
        let name = user.name.strip_prefix(NODE_PREFIX)?;
        user.is_in(NODES).then_some(Self { name })
    }

    /// The node with this name.
    #[must_use]
    pub const fn named(name: &'a str) -> Self {
        Self { name }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'a str {
        self.name
    }

    /// Returns `Ok` if the node may make the change.
    ///
    /// # Errors
    /// 403 with kube-apiserver's text; 404 if a mirror pod comes before its node.
    pub fn check(self, write: &NodeWrite<'_>) -> Result<(), Status> {
        let NodeWrite { group, resource, operation, .. } = *write;
        if self.name.is_empty() {
            return Err(write.forbidden(&format!("could not determine node from user {}", quote(NODE_PREFIX))));
        }
        if (group, resource) == ("", "pods")
            && let NodeOperation::Create { new, own_uid } = operation
            && !write.is_status
        {
            return self.create_pod(write, new, own_uid);
        }
        self.decide(write).map_err(|reason| write.forbidden(&reason))
    }

    /// Returns `Ok` if the node may evict this pod.
    ///
    /// # Errors
    /// 403 with kube-apiserver's text for the pod of another node.
    pub fn check_eviction(self, name: &str, pod: &Object) -> Result<(), Status> {
        let why = || format!("node {} can only evict pods with spec.nodeName set to itself", self.name);
        self.check_place(pod).map_err(|()| Status::forbidden("", "pods", name, &why()))
    }

    /// Returns `Ok` if the node may get this token: one that is bound to `pod`, which runs on it and mounts such a token.
    /// `pod` is the one that the request names, if it exists.
    ///
    /// # Errors
    /// 403 with kube-apiserver's text. Unlike there, tokens for drivers of volumes are not found.
    pub fn check_token(self, account: &str, request: &TokenRequest, pod: Option<&Object>) -> Result<(), Status> {
        let refuse = |why: &str| Err(Status::forbidden("", "serviceaccounts", account, why));
        let Some(bound) = request.bound_object_ref.as_ref().filter(|bound| bound.is_pod()) else {
            return refuse("node requested token not bound to a pod");
        };
        if bound.uid().is_empty() {
            return refuse("node requested token with a pod binding without a uid");
        }
        let Some(pod) = pod else { return Err(Status::not_found("", "pods", bound.name())) };
        if metadata(pod, "uid").as_str() != Some(bound.uid()) {
            return refuse(&another_uid(bound.uid()));
        }
        if self.check_place(pod).is_err() {
            return refuse("node requested token bound to a pod scheduled on a different node");
        }
        let audience = match request.audiences() {
            [] => "",
            [audience] => audience,
            _ => return refuse("node may only request 0 or 1 audiences"),
        };
        if mounts_token(pod, audience) {
            return Ok(());
        }
        let audience = quote(audience);
        refuse(&format!("{NODE_PREFIX}{} is not authorized to request tokens for audience {audience}", self.name))
    }

    /// Refuses a subresource of pods that no node may use.
    ///
    /// # Errors
    /// 403 with kube-apiserver's text.
    pub fn refuse_of_pod(self, name: &str, subresource: &str) -> Result<(), Status> {
        let subresource = quote(subresource);
        let why = format!("unexpected pod subresource {subresource}, only 'status' and 'eviction' are allowed");
        Err(Status::forbidden("", "pods", name, &why))
    }

    fn decide(self, write: &NodeWrite<'_>) -> Result<(), Reason> {
        use NodeOperation::{Create, Delete, Update};
        match ((write.group, write.resource), write.operation) {
            (("", "pods"), Update { old, new }) if write.is_status => self.update_pod_status(old, new),
            (("", "pods"), Delete { old }) => self.delete_pod(old),
            (("", "pods"), operation) => {
                let node = quote(self.name);
                let operation = operation.name();
                Err(format!("unexpected operation \"{operation}\", node {node} can only create and delete mirror pods"))
            }
            (("", "nodes"), operation) => self.write_node(write.name, operation),
            (("", "persistentvolumeclaims"), Update { old, new }) if write.is_status => {
                self.update_claim_status(old, new)
            }
            (("", "persistentvolumeclaims"), _) => refuse("may only update PVC status"),
            (("coordination.k8s.io", "leases"), _) if write.namespace != LEASES => {
                Err(format!("can only access leases in the {} system namespace", quote(LEASES)))
            }
            (("coordination.k8s.io", "leases"), _) if write.name != self.name => {
                refuse("can only access node lease with the same name as the requesting node")
            }
            (("storage.k8s.io", "csinodes"), _) if write.name != self.name => {
                refuse("can only access CSINode with the same name as the requesting node")
            }
            (("resource.k8s.io", "resourceslices"), operation) => self.write_slice(operation),
            (("certificates.k8s.io", CSRS), Create { new, .. }) => self.create_signing_request(new),
            (_, _) => Ok(()),
        }
    }

    fn create_pod(self, write: &NodeWrite<'_>, pod: &Object, own_uid: Option<&str>) -> Result<(), Status> {
        let (node, forbid) = (quote(self.name), |reason: &str| Err(write.forbidden(reason)));
        if metadata(pod, "annotations").get(MIRROR).is_none() {
            let mirror = quote(MIRROR);
            return forbid(&format!("pod does not have {mirror} annotation, node {node} can only create mirror pods"));
        }
        if self.check_place(pod).is_err() {
            return forbid(&format!("node {node} can only create pods with spec.nodeName set to itself"));
        }
        let owner = match self.only_owner(pod) {
            Ok(owner) => owner,
            Err(reason) => return forbid(&reason),
        };
        let (Some(expected), found) = (own_uid, text(owner, "uid")) else {
            return Err(Status::not_found("", "node", self.name));
        };
        if found != expected {
            return forbid(&format!("node {} UID mismatch: expected {found} got {expected}", self.name));
        }
        match api_reference(pod) {
            Ok(None) => Ok(()),
            Ok(Some(resource)) => forbid(&format!("node {node} can not create pods that reference {resource}")),
            Err(reason) => forbid(&reason),
        }
    }

    /// Returns the one owner of a mirror pod, which is the node.
    fn only_owner(self, pod: &Object) -> Result<&Value, Reason> {
        let node = quote(self.name);
        let owners = metadata(pod, "ownerReferences").as_array().map_or(&[][..], Vec::as_slice);
        let owner = match owners {
            [owner] => owner,
            [] => return Err(format!("node {node} can only create pods with an owner reference set to itself")),
            _ => return Err(format!("node {node} can only create pods with a single owner reference set to itself")),
        };
        if (text(owner, "apiVersion"), text(owner, "kind"), text(owner, "name")) != ("v1", "Node", self.name) {
            return Err(format!("node {node} can only create pods with an owner reference set to itself"));
        }
        if owner["controller"] != true {
            return Err(format!("node {node} can only create pods with a controller owner reference set to itself"));
        }
        if owner["blockOwnerDeletion"] == true {
            return Err(format!("node {node} must not set blockOwnerDeletion on an owner reference"));
        }
        Ok(owner)
    }

    /// Returns an error if the object is not placed at the node.
    fn check_place(self, object: &Object) -> Result<(), ()> {
        let is_here = !self.name.is_empty() && spec(object, "nodeName").as_str() == Some(self.name);
        if is_here { Ok(()) } else { Err(()) }
    }

    fn delete_pod(self, pod: &Object) -> Result<(), Reason> {
        let text = || format!("node {} can only delete pods with spec.nodeName set to itself", quote(self.name));
        self.check_place(pod).map_err(|()| text())
    }

    fn update_pod_status(self, old: &Object, new: &Object) -> Result<(), Reason> {
        let node = quote(self.name);
        if self.check_place(old).is_err() {
            return Err(format!("node {node} can only update pod status for pods with spec.nodeName set to itself"));
        }
        if !is_same(metadata(old, "labels"), metadata(new, "labels")) {
            return Err(format!("node {node} cannot update labels through pod status"));
        }
        // The claims that a status names become readable for the node.
        let status = |object, name| member(object, "status", name);
        if !is_same(status(old, "resourceClaimStatuses"), status(new, "resourceClaimStatuses")) {
            return Err(format!("node {node} cannot update resource claim statues"));
        }
        if !is_same(status(old, "extendedResourceClaimStatus"), status(new, "extendedResourceClaimStatus")) {
            return Err(format!("node {node} cannot update extended resource claim status"));
        }
        Ok(())
    }

    fn update_claim_status(self, old: &Object, new: &Object) -> Result<(), Reason> {
        let comparable = |claim: &Object| {
            let mut claim = claim.clone();
            let mut without = |part: &str, names: &[&str]| {
                if let Some(part) = claim.get_mut(part).and_then(Value::as_object_mut) {
                    names.iter().for_each(|name| drop(part.remove(*name)));
                }
            };
            without("metadata", &["resourceVersion", "managedFields"]);
            without("status", &["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"]);
            Value::Object(claim)
        };
        if is_same(&comparable(old), &comparable(new)) {
            return Ok(());
        }
        Err(format!(
            "node {} is not allowed to update fields other than status.quantity and status.conditions",
            quote(self.name)
        ))
    }

    fn write_node(self, name: &str, operation: NodeOperation<'_>) -> Result<(), Reason> {
        let node = quote(self.name);
        if name != self.name {
            return Err(format!("node {node} is not allowed to modify node {}", quote(name)));
        }
        let source = |object| spec(object, "configSource");
        match operation {
            NodeOperation::Create { new, .. } => {
                if !source(new).is_null() {
                    return Err(format!("node {node} is not allowed to create pods with a non-nil configSource"));
                }
                match forbidden_labels(&Value::Null, metadata(new, "labels")) {
                    labels if labels.is_empty() => Ok(()),
                    labels => Err(format!("node {node} is not allowed to set the following labels: {labels}")),
                }
            }
            NodeOperation::Update { old, new } => {
                if !source(new).is_null() && !is_same(source(new), source(old)) {
                    return Err(format!(
                        "node {node} is not allowed to update configSource to a new non-nil configSource"
                    ));
                }
                if !is_same(spec(new, "taints"), spec(old, "taints")) {
                    return Err(format!("node {node} is not allowed to modify taints"));
                }
                if !is_same(metadata(new, "ownerReferences"), metadata(old, "ownerReferences")) {
                    return Err(format!("node {node} is not allowed to modify ownerReferences"));
                }
                match forbidden_labels(metadata(old, "labels"), metadata(new, "labels")) {
                    labels if labels.is_empty() => Ok(()),
                    labels => Err(format!("is not allowed to modify labels: {labels}")),
                }
            }
            NodeOperation::Delete { .. } => Ok(()),
        }
    }

    fn write_slice(self, operation: NodeOperation<'_>) -> Result<(), Reason> {
        let (verb, slice) = match operation {
            NodeOperation::Create { new, .. } => ("create", new),
            // kube-apiserver does not let an update change the name.
            NodeOperation::Update { new, .. } => ("update", new),
            NodeOperation::Delete { old } => ("delete", old),
        };
        let text = || format!("can only {verb} ResourceSlice with the same NodeName as the requesting node");
        self.check_place(slice).map_err(|()| text())
    }

    fn create_signing_request(self, request: &Object) -> Result<(), Reason> {
        if !NODE_SIGNERS.contains(&spec(request, "signerName").as_str().unwrap_or_default()) {
            return Ok(());
        }
        let text = spec(request, "request").as_str().unwrap_or_default();
        let name =
            certificate::requested_subject(text).map_err(|problem| format!("unable to parse csr: {problem}"))?.name;
        let own = format!("{NODE_PREFIX}{}", self.name);
        if name == own { Ok(()) } else { Err(format!("can only create a node CSR with CN={own}")) }
    }
}

/// True if a volume of the pod has a token for this audience.
fn mounts_token(pod: &Object, audience: &str) -> bool {
    let volumes = spec(pod, "volumes").as_array().into_iter().flatten();
    let sources = volumes.filter_map(|volume| volume["projected"]["sources"].as_array()).flatten();
    let mut tokens = sources.filter_map(|source| source.get("serviceAccountToken"));
    tokens.any(|token| token.is_object() && token["audience"].as_str().unwrap_or_default() == audience)
}

impl NodeOperation<'_> {
    /// Its name in texts of kube-apiserver.
    const fn name(self) -> &'static str {
        match self {
            Self::Create { .. } => "CREATE",
            Self::Update { .. } => "UPDATE",
            Self::Delete { .. } => "DELETE",
        }
    }
}

impl NodeWrite<'_> {
    /// The refusal. Names the object by what its name will begin with, if the server chooses it.
    fn forbidden(&self, reason: &str) -> Status {
        let base = match self.operation {
            NodeOperation::Create { new, .. } => metadata(new, "generateName").as_str().unwrap_or_default(),
            NodeOperation::Update { .. } | NodeOperation::Delete { .. } => "",
        };
        let name = [self.name, base, "Unknown"].into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        Status::forbidden(self.group, self.resource, name, reason)
    }
}

/// Plural name of the type whose creates are restricted by their content.
const CSRS: &str = "certificatesigningrequests";

/// Signers of the certificates of nodes.
const NODE_SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/// Labels of Kubernetes that a node may set.
const NODE_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Returns the labels that differ and that a node may not change, sorted and separated by commas.
fn forbidden_labels(old: &Value, new: &Value) -> String {
    let names = |labels| Value::as_object(labels).into_iter().flat_map(Map::keys);
    let changed: BTreeSet<&String> =
        names(old).chain(names(new)).filter(|&name| old.get(name) != new.get(name)).collect();
    let forbidden: Vec<&str> =
        changed.into_iter().map(String::as_str).filter(|name| is_forbidden_label(name)).collect();
    forbidden.join(", ")
}

fn is_forbidden_label(name: &str) -> bool {
    let prefix = name.split_once('/').map_or("", |(prefix, _)| prefix);
    let is_in = |domain: &str| prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let is_kubelets = || NODE_LABELS.contains(&name) || is_in("kubelet.kubernetes.io") || is_in("node.kubernetes.io");
    is_in("node-restriction.kubernetes.io") || ((is_in("kubernetes.io") || is_in("k8s.io")) && !is_kubelets())
}

fn metadata<'a>(object: &'a Object, name: &str) -> &'a Value {
    member(object, "metadata", name)
}

fn spec<'a>(object: &'a Object, name: &str) -> &'a Value {
    member(object, "spec", name)
}

fn member<'a>(object: &'a Object, part: &str, name: &str) -> &'a Value {
    object.get(part).map_or(&Value::Null, |part| &part[name])
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Returns true if two values mean the same: a member that is left out is null, empty, or an empty text.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.iter().all(|(name, value)| is_same(value, other.get(name).unwrap_or(&Value::Null)))
                && other.iter().all(|(name, value)| one.contains_key(name) || is_empty(value))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (one, other) => one == other || (is_empty(one) && is_empty(other)),
    }
}

/// Returns true if leaving the value out means the same.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn refuse(reason: &str) -> Result<(), Reason> {
    Err(reason.to_owned())
}

#[cfg(test)]
mod tests;
