//! Metrics of authorization, under kube-apiserver's name.
//!
//! INVARIANT: the labels are of fixed sets: names of users are not labels.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// The authorizer that decided, and its decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    r#type: &'static str,
    decision: &'static str,
}

/// Counter of decisions. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct AuthorizationMetrics {
    decisions: Family<DecisionLabels, Counter>,
}

impl AuthorizationMetrics {
    /// Registers the counters.
    pub fn register(&self, registry: &mut Registry) {
        let about = "Decisions about requests, by the authorizer that decided";
        registry.register("apiserver_authorization_decisions", about, self.decisions.clone());
    }

    /// Counts a request that an authorizer allowed.
    pub fn allowed(&self, by: &'static str) {
        self.decisions.get_or_create(&DecisionLabels { r#type: by, decision: "allowed" }).inc();
    }

    /// Counts a request that none of the authorizers allowed.
    pub fn denied(&self) {
        self.decisions.get_or_create(&DecisionLabels { r#type: "All", decision: "denied" }).inc();
    }
}
