//! The node authorizer: a node reads itself, its own pods, and the objects that they refer to.
//!
//! INVARIANT: a node gains access only by an object that another party wrote: [`restriction`] lets it create no pod but
//! mirror pods, which refer to nothing, and lets no status that it writes name further objects.
//!
//! In reading order: `object` (the references of pods and volumes), `graph` (all of them, by node), the rules for requests,
//! here, and [`restriction`], the rules for the content of writes.
//!
//! Source: Kubernetes `plugin/pkg/auth/authorizer/node`.

mod graph;
mod object;
pub mod restriction;
#[cfg(test)]
mod tests;

use informer_core::selector::field;

pub use self::graph::{NodeGraph, NodeObjectKind};
use self::graph::{ReferencedKind, ReferencedObject};
use crate::{
    bootstrap,
    decision::AccessDecision,
    rbac::{RoleRule, RuleRequest},
    request_info::{RequestInfo, ResourceAttributes},
    review::SubjectRules,
    user::User,
};

/// Namespace of the leases of nodes.
const LEASES: &str = "kube-node-lease";

/// Authorizes nodes.
#[derive(Clone, Debug)]
pub struct NodeAuthorizer {
    /// The references of the nodes' pods.
    pub graph: NodeGraph,
    /// Rules about resources that are not divided between nodes.
    rules: Vec<RoleRule>,
}

impl Default for NodeAuthorizer {
    fn default() -> Self {
        Self { graph: NodeGraph::default(), rules: bootstrap::node_rules() }
    }
}

/// A refusal: its reason, which may be empty.
type NodeRefusal = String;

impl NodeAuthorizer {
    /// Decides about a request of a node. Has no opinion about other users.
    #[must_use]
    pub fn decide(&self, user: &User, info: &RequestInfo) -> AccessDecision {
        if !user.name.starts_with("system:node:") || !user.is_in(crate::user::NODES) {
            return AccessDecision::NoOpinion { reason: String::new() };
        }
        let Some(node) = user.node() else {
            return AccessDecision::NoOpinion { reason: format!("unknown node for user \"{}\"", user.name) };
        };
        let decided = match &info.resource {
            Some(of) => self.decide_resource(node, &info.verb, of),
            None => None,
        };
        let decided = decided.unwrap_or_else(|| {
            let request = RuleRequest::new(info);
            self.rules.iter().any(|rule| rule.allows(&request)).then_some(()).ok_or_else(String::new)
        });
        match decided {
            Ok(()) => AccessDecision::Allowed { reason: String::new() },
            Err(reason) => AccessDecision::NoOpinion { reason },
        }
    }

    /// Kinds of objects that the decision about a request may depend on: before all of theirs were applied, a refusal counts
    /// for nothing. Empty for users that are no nodes, and for requests that no relation decides.
    #[must_use]
    pub fn deciding_kinds(user: &User, info: &RequestInfo) -> &'static [NodeObjectKind] {
        let Some(of) = info.resource.as_ref().filter(|_| user.node().is_some()) else { return &[] };
        match (&*of.group, &*of.resource) {
            ("", "secrets" | "persistentvolumes") => &[NodeObjectKind::Pod, NodeObjectKind::Volume],
            ("", "configmaps" | "persistentvolumeclaims" | "serviceaccounts" | "pods")
            | ("resource.k8s.io", "resourceclaims") => &[NodeObjectKind::Pod],
            ("storage.k8s.io", "volumeattachments") => &[NodeObjectKind::Attachment],
            ("resource.k8s.io", "resourceslices") => &[NodeObjectKind::Slice],
            _ => &[],
        }
    }

    /// Returns the rules of a user: a node has rules that cannot be listed.
    #[must_use]
    pub fn rules_for(&self, user: &User) -> SubjectRules {
        let mut rules = SubjectRules::default();
        if user.node().is_some() {
            rules.incomplete = true;
            "node authorizer does not support user rule resolution".clone_into(&mut rules.evaluation_error);
        }
        rules
    }

    /// Decides about a resource that is divided between nodes. `None` for the others.
    fn decide_resource(&self, node: &str, verb: &str, of: &ResourceAttributes) -> Option<Result<(), NodeRefusal>> {
        let decided = match (&*of.group, &*of.resource) {
            ("", "secrets") => self.read_one(node, verb, ReferencedKind::Secret, of),
            ("", "configmaps") => self.read_one(node, verb, ReferencedKind::ConfigMap, of),
            ("", "persistentvolumeclaims") if of.subresource == "status" => match verb {
                "update" | "patch" => self.related(node, ReferencedKind::Claim, of),
                _ => refuse("can only get/update/patch this type"),
            },
            ("", "persistentvolumeclaims") => self.get(node, verb, ReferencedKind::Claim, of),
            ("", "persistentvolumes") => self.get(node, verb, ReferencedKind::Volume, of),
            ("", "serviceaccounts") => self.create_token(node, verb, of),
            ("", "nodes") => read_node(node, verb, of),
            ("", "pods") => self.pod(node, verb, of),
            ("resource.k8s.io", "resourceclaims") => self.get(node, verb, ReferencedKind::ResourceClaim, of),
            ("resource.k8s.io", "resourceslices") => self.resource_slice(node, verb, of),
            ("storage.k8s.io", "volumeattachments") => self.get(node, verb, ReferencedKind::Attachment, of),
            ("storage.k8s.io", "csinodes") => csi_node(node, verb, of),
            ("coordination.k8s.io", "leases") => lease(node, verb, of),
            _ => return None,
        };
        Some(decided)
    }

    /// Reads of one secret or configmap.
    fn read_one(
        &self,
        node: &str,
        verb: &str,
        kind: ReferencedKind,
        of: &ResourceAttributes,
    ) -> Result<(), NodeRefusal> {
        if !matches!(verb, "get" | "list" | "watch") {
            return refuse("can only read resources of this type");
        }
        if !of.subresource.is_empty() {
            return refuse("cannot read subresource");
        }
        if of.namespace.is_empty() {
            return refuse("can only read namespaced object of this type");
        }
        self.related(node, kind, of)
    }

    fn get(&self, node: &str, verb: &str, kind: ReferencedKind, of: &ResourceAttributes) -> Result<(), NodeRefusal> {
        if verb != "get" {
            return refuse("can only get individual resources of this type");
        }
        if !of.subresource.is_empty() {
            return refuse("cannot get subresource");
        }
        self.related(node, kind, of)
    }

    fn create_token(&self, node: &str, verb: &str, of: &ResourceAttributes) -> Result<(), NodeRefusal> {
        if verb != "create" || of.name.is_empty() {
            return refuse("can only create tokens for individual service accounts");
        }
        if of.subresource != "token" {
            return refuse("can only create token subresource of serviceaccount");
        }
        self.related(node, ReferencedKind::ServiceAccount, of)
    }

    fn resource_slice(&self, node: &str, verb: &str, of: &ResourceAttributes) -> Result<(), NodeRefusal> {
        if !of.subresource.is_empty() {
            return refuse("cannot authorize ResourceSlice subresources");
        }
        match verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, ReferencedKind::Slice, of),
            "watch" | "list" | "deletecollection" if selects(of, "spec.nodeName", node) => Ok(()),
            "watch" | "list" | "deletecollection" => {
                refuse("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => refuse(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                 delete, deletecollection",
            ),
        }
    }

    fn pod(&self, node: &str, verb: &str, of: &ResourceAttributes) -> Result<(), NodeRefusal> {
        match (&*of.subresource, verb) {
            ("", "get") => self.get(node, verb, ReferencedKind::Pod, of),
            ("", "list" | "watch") if selects(of, "spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if !of.name.is_empty() => self.related(node, ReferencedKind::Pod, of),
            ("", "list" | "watch") => refuse("can only list/watch pods with spec.nodeName field selector"),
            // Mirror pods, and the status and eviction of the node's pods.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => refuse(""),
        }
    }

    /// Decides about an object by its relation to the node.
    fn related(&self, node: &str, kind: ReferencedKind, of: &ResourceAttributes) -> Result<(), NodeRefusal> {
        if of.name.is_empty() {
            return refuse("No Object name found");
        }
        let object = ReferencedObject::new(kind, &of.namespace, &of.name);
        if self.graph.is_related(node, &object) {
            return Ok(());
        }
        Err(format!("no relationship found between node '{node}' and this object"))
    }
}

fn refuse(reason: &str) -> Result<(), NodeRefusal> {
    Err(reason.to_owned())
}

/// Requests for Node objects.
fn read_node(node: &str, verb: &str, of: &ResourceAttributes) -> Result<(), NodeRefusal> {
    match (&*of.subresource, verb) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") if of.name == node => Ok(()),
        ("", "get" | "list" | "watch") if of.name.is_empty() => {
            Err(format!("node '{node}' cannot read all nodes, only its own Node object"))
        }
        ("", "get" | "list" | "watch") => {
            Err(format!("node '{node}' cannot read '{}', only its own Node object", of.name))
        }
        _ => refuse(""),
    }
}

fn lease(node: &str, verb: &str, of: &ResourceAttributes) -> Result<(), NodeRefusal> {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return refuse("can only get, create, update, patch, or delete a node lease");
    }
    if of.namespace != LEASES {
        return Err(format!("can only access leases in the \"{LEASES}\" system namespace"));
    }
    if verb != "create" && of.name != node {
        return refuse("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn csi_node(node: &str, verb: &str, of: &ResourceAttributes) -> Result<(), NodeRefusal> {
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return refuse("can only get, create, update, patch, or delete a CSINode");
    }
    if !of.subresource.is_empty() {
        return refuse("cannot authorize CSINode subresources");
    }
    if verb != "create" && of.name != node {
        return refuse("can only access CSINode with the same name as the requesting node");
    }
    Ok(())
}

/// Returns true if the field selector of the request requires that a field has this value. An unreadable selector
/// requires nothing.
fn selects(of: &ResourceAttributes, name: &str, value: &str) -> bool {
    let selector = field::Selector::parse(&of.field_selector.raw_selector);
    selector.is_ok_and(|selector| selector.exact(name) == Some(value))
}
