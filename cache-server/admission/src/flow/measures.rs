//! Metrics of flow control, under kube-apiserver's names.
//!
//! INVARIANT: the labels are the names of objects in force: their number is bounded by
//! [`FLOW_OBJECTS_MAX`](access_rules::flow::config::FLOW_OBJECTS_MAX), and the series of an object end with it. A schema
//! has series from its first request on: all others would be zeros.

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::Duration,
};

use access_rules::flow::{levels::LevelSeats, queues::RefusalReason};
use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::rules::FlowRules;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FlowLabels {
    priority_level: String,
    flow_schema: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    priority_level: String,
    flow_schema: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabels {
    priority_level: String,
    flow_schema: String,
    execute: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LevelLabels {
    priority_level: String,
}

type SeatGauge = Gauge<u64, AtomicU64>;

/// Upper bounds of the durations, in seconds, as in kube-apiserver.
const DURATIONS: [f64; 13] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0];

fn durations() -> Histogram {
    Histogram::new(DURATIONS)
}

const REASONS: [RefusalReason; 3] = [RefusalReason::ConcurrencyLimit, RefusalReason::QueueFull, RefusalReason::TimeOut];

/// The metrics of all schemas and levels.
pub(super) struct FlowMeasures {
    dispatched: Family<FlowLabels, Counter>,
    refused: Family<RefusalLabels, Counter>,
    waiting: Family<FlowLabels, Gauge>,
    waiting_seats: Family<FlowLabels, Gauge>,
    executing: Family<FlowLabels, Gauge>,
    executing_seats: Family<FlowLabels, Gauge>,
    wait: Family<WaitLabels, Histogram, fn() -> Histogram>,
    execution: Family<FlowLabels, Histogram, fn() -> Histogram>,
    nominal: Family<LevelLabels, SeatGauge>,
    lower: Family<LevelLabels, SeatGauge>,
    upper: Family<LevelLabels, SeatGauge>,
    current: Family<LevelLabels, SeatGauge>,
    reloads: Family<ReloadLabels, Counter>,
    /// Schemas and levels with series.
    known: Mutex<(HashSet<FlowLabels>, HashSet<LevelLabels>)>,
}

impl Default for FlowMeasures {
    fn default() -> Self {
        Self {
            dispatched: Family::default(),
            refused: Family::default(),
            waiting: Family::default(),
            waiting_seats: Family::default(),
            executing: Family::default(),
            executing_seats: Family::default(),
            wait: Family::new_with_constructor(durations),
            execution: Family::new_with_constructor(durations),
            nominal: Family::default(),
            lower: Family::default(),
            upper: Family::default(),
            current: Family::default(),
            reloads: Family::default(),
            known: Mutex::default(),
        }
    }
}

impl FlowMeasures {
    pub(super) fn register(&self, registry: &mut Registry) {
        let name = |name: &str| format!("apiserver_flowcontrol_{name}");
        let about = "Requests that got their seats, exempt ones included";
        registry.register(name("dispatched_requests"), about, self.dispatched.clone());
        registry.register(name("rejected_requests"), "Requests answered 429", self.refused.clone());
        registry.register(name("current_inqueue_requests"), "Requests that wait for seats", self.waiting.clone());
        registry.register(name("current_inqueue_seats"), "Seats that requests wait for", self.waiting_seats.clone());
        let about = "Requests with seats, watches until their initial state is sent";
        registry.register(name("current_executing_requests"), about, self.executing.clone());
        registry.register(name("current_executing_seats"), "Seats in use", self.executing_seats.clone());
        let about = "Time that requests waited for seats";
        registry.register_with_unit(name("request_wait_duration"), about, Unit::Seconds, self.wait.clone());
        let about = "Time that requests had seats";
        registry.register_with_unit(name("request_execution"), about, Unit::Seconds, self.execution.clone());
        registry.register(name("nominal_limit_seats"), "Seats by configuration", self.nominal.clone());
        registry.register(name("lower_limit_seats"), "Seats that are not lent", self.lower.clone());
        registry.register(name("upper_limit_seats"), "Seats with all that may be borrowed", self.upper.clone());
        registry.register(name("current_limit_seats"), "Seats at present", self.current.clone());
        let about = "Changed files of flow control that were read";
        registry.register("cache_flow_config_reloads", about, self.reloads.clone());
    }

    pub(super) fn reloaded(&self, is_used: bool) {
        let result = if is_used { "success" } else { "failure" };
        self.reloads.get_or_create(&ReloadLabels { result }).inc();
    }

    /// Returns the metrics of one schema.
    pub(super) fn of_schema(self: &Arc<Self>, schema: &str, level: &str) -> SchemaMeasures {
        let labels = FlowLabels { priority_level: level.to_owned(), flow_schema: schema.to_owned() };
        let (used, waited_in_vain) = Default::default();
        SchemaMeasures { all: Arc::clone(self), labels, used, waited_in_vain }
    }

    /// Creates the series of a schema, those of refusals at zero: the first refusal is an increase.
    fn begin(&self, labels: &FlowLabels) -> UsedSchema {
        // Held, so that `retain` does not miss series.
        let known = &mut self.known.lock().0;
        known.insert(labels.clone());
        UsedSchema {
            refused: REASONS.map(|reason| self.refused.get_or_create_owned(&labels.refusal(reason))),
            dispatched: self.dispatched.get_or_create_owned(labels),
            waiting: self.waiting.get_or_create_owned(labels),
            waiting_seats: self.waiting_seats.get_or_create_owned(labels),
            executing: self.executing.get_or_create_owned(labels),
            executing_seats: self.executing_seats.get_or_create_owned(labels),
            waited: self.wait.get_or_create_owned(&labels.wait("true")),
            execution: self.execution.get_or_create_owned(labels),
        }
    }

    /// Creates the series of waits of a schema that ended without seats.
    fn begin_waits_in_vain(&self, labels: &FlowLabels) -> Histogram {
        let known = &mut self.known.lock().0;
        // A request may wait for longer than its schema is in force.
        known.insert(labels.clone());
        self.wait.get_or_create_owned(&labels.wait("false"))
    }

    /// Ends the series of schemas that are not in force.
    pub(super) fn retain(&self, rules: &FlowRules) {
        let stays = |labels: &FlowLabels| rules.names().any(|(schema, level)| labels.is_of(schema, level));
        for labels in self.known.lock().0.extract_if(|labels| !stays(labels)) {
            self.dispatched.remove(&labels);
            self.waiting.remove(&labels);
            self.waiting_seats.remove(&labels);
            self.executing.remove(&labels);
            self.executing_seats.remove(&labels);
            self.execution.remove(&labels);
            for reason in REASONS {
                self.refused.remove(&labels.refusal(reason));
            }
            for execute in ["true", "false"] {
                self.wait.remove(&labels.wait(execute));
            }
        }
    }

    /// Sets the limits of all levels, and ends the series of others.
    pub(super) fn set_limits(&self, levels: impl Iterator<Item = LevelSeats>) {
        let mut present = HashSet::new();
        for seats in levels {
            let labels = LevelLabels { priority_level: seats.name };
            self.nominal.get_or_create(&labels).set(seats.nominal.into());
            self.lower.get_or_create(&labels).set(seats.lower.into());
            self.upper.get_or_create(&labels).set(seats.upper.into());
            self.current.get_or_create(&labels).set(seats.current.into());
            present.insert(labels);
        }
        let known = &mut self.known.lock().1;
        for labels in known.difference(&present) {
            for family in [&self.nominal, &self.lower, &self.upper, &self.current] {
                family.remove(labels);
            }
        }
        *known = present;
    }
}

impl FlowLabels {
    fn is_of(&self, schema: &str, level: &str) -> bool {
        self.flow_schema == schema && self.priority_level == level
    }

    fn refusal(&self, reason: RefusalReason) -> RefusalLabels {
        let Self { priority_level, flow_schema } = self.clone();
        RefusalLabels { priority_level, flow_schema, reason: reason.name() }
    }

    fn wait(&self, execute: &'static str) -> WaitLabels {
        let Self { priority_level, flow_schema } = self.clone();
        WaitLabels { priority_level, flow_schema, execute }
    }
}

/// The metrics of one schema. Cost: one atomic addition for each change of a counter.
pub(super) struct SchemaMeasures {
    all: Arc<FlowMeasures>,
    labels: FlowLabels,
    /// Empty before the first request.
    used: OnceLock<UsedSchema>,
    waited_in_vain: OnceLock<Histogram>,
}

/// The series of a schema that had a request.
struct UsedSchema {
    /// By the place in [`REASONS`].
    refused: [Counter; REASONS.len()],
    dispatched: Counter,
    waiting: Gauge,
    waiting_seats: Gauge,
    executing: Gauge,
    executing_seats: Gauge,
    waited: Histogram,
    execution: Histogram,
}

impl SchemaMeasures {
    fn used(&self) -> &UsedSchema {
        self.used.get_or_init(|| self.all.begin(&self.labels))
    }

    pub(super) fn begin(&self, width: u32) {
        let used = self.used();
        used.dispatched.inc();
        used.executing.inc();
        used.executing_seats.inc_by(width.into());
    }

    pub(super) fn end(&self, width: u32) {
        let used = self.used();
        used.executing.dec();
        used.executing_seats.dec_by(width.into());
    }

    pub(super) fn executed(&self, time: Duration) {
        self.used().execution.observe(time.as_secs_f64());
    }

    pub(super) fn enqueued(&self, width: u32) {
        let used = self.used();
        used.waiting.inc();
        used.waiting_seats.inc_by(width.into());
    }

    pub(super) fn dequeued(&self, width: u32) {
        let used = self.used();
        used.waiting.dec();
        used.waiting_seats.dec_by(width.into());
    }

    pub(super) fn waited(&self, time: Duration, executes: bool) {
        let histogram = if executes {
            &self.used().waited
        } else {
            self.waited_in_vain.get_or_init(|| self.all.begin_waits_in_vain(&self.labels))
        };
        histogram.observe(time.as_secs_f64());
    }

    pub(super) fn refused(&self, reason: RefusalReason) {
        if let Some((_, refused)) = REASONS.iter().zip(&self.used().refused).find(|(one, _)| **one == reason) {
            refused.inc();
        }
    }
}
