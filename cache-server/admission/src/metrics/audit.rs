//! Metrics of the audit log, under kube-apiserver's names.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// Counters of the audit log. Cheap to clone; clones share the counts.
#[derive(Clone, Debug)]
pub struct AuditCounters {
    events: Counter,
    errors: Counter,
    levels: Family<AuditLevelLabels, Counter>,
}

impl AuditCounters {
    /// Creates the counters at zero, and registers them.
    pub fn registered(registry: &mut Registry) -> Self {
        let (events, levels) = (Counter::default(), Family::<AuditLevelLabels, Counter>::default());
        let errors = Family::<AuditPluginLabels, Counter>::default();
        registry.register("apiserver_audit_event", "Audit records made", events.clone());
        registry.register("apiserver_audit_error", "Audit records that are not in the log", errors.clone());
        registry.register("apiserver_audit_level", "Requests by the level of their audit records", levels.clone());
        let errors = errors.get_or_create(&AuditPluginLabels { plugin: "log" }).clone();
        Self { events, errors, levels }
    }

    /// Counts one record.
    pub fn recorded(&self) {
        self.events.inc();
    }

    /// Counts records that were not written.
    pub fn lost(&self, count: u64) {
        self.errors.inc_by(count);
    }

    /// Counts one request by its level, such as `Metadata`.
    pub fn decided(&self, level: &'static str) {
        self.levels.get_or_create(&AuditLevelLabels { level }).inc();
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuditPluginLabels {
    plugin: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuditLevelLabels {
    level: &'static str,
}
