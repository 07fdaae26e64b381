//! Prometheus metrics of controllers and their work queues, with the names of controller-runtime.
//!
//! INVARIANT: label values are names of controllers, which the program chooses, and results of a closed list.

use std::time::Duration;

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::meter::{Measurement, ReconcileResult};

type SeriesLabels = Vec<(&'static str, String)>;
type Histograms = Family<SeriesLabels, Histogram, fn() -> Histogram>;

/// Metrics of a program's controllers, for [`Controller::metrics`](super::Controller::metrics). Cheap to clone.
///
/// Names, labels and buckets are those of controller-runtime, so that its dashboards and alerts work here too. The label
/// `controller` is the [name](super::Controller::name) of the controller, which must be unique in the program; the
/// metrics of its queue repeat it as `name`.
///
/// | metric | meaning |
/// | --- | --- |
/// | `controller_runtime_reconcile_total` | reconciles that ended, by `result`: `success`, `requeue_after`, `error` |
/// | `controller_runtime_reconcile_errors_total` | reconciles that failed |
/// | `controller_runtime_reconcile_panics_total` | reconciles that panicked, which count as failed too |
/// | `controller_runtime_reconcile_time_seconds` | histogram of the times of reconciles |
/// | `controller_runtime_active_workers` | reconciles that run |
/// | `controller_runtime_max_concurrent_reconciles` | most reconciles that may run at once |
/// | `workqueue_depth` | objects that wait for their turn; those that wait for a delay do not count |
/// | `workqueue_adds_total` | times that an object began to wait for its turn |
/// | `workqueue_queue_duration_seconds` | histogram of the times that objects waited for their turn |
/// | `workqueue_work_duration_seconds` | histogram of the times of reconciles |
/// | `workqueue_retries_total` | reconciles that failed, and are to be repeated |
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    reconciles: Family<SeriesLabels, Counter>,
    errors: Family<SeriesLabels, Counter>,
    panics: Family<SeriesLabels, Counter>,
    reconcile_time: Histograms,
    running: Family<SeriesLabels, Gauge>,
    running_max: Family<SeriesLabels, Gauge>,
    depth: Family<SeriesLabels, Gauge>,
    adds: Family<SeriesLabels, Counter>,
    queue_time: Histograms,
    work_time: Histograms,
    retries: Family<SeriesLabels, Counter>,
}

impl ControllerMetrics {
    /// Registers the metrics of all controllers that get a clone of the result. Call it once for each registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Family::default(),
            errors: Family::default(),
            panics: Family::default(),
            reconcile_time: Family::new_with_constructor(reconcile_times as fn() -> Histogram),
            running: Family::default(),
            running_max: Family::default(),
            depth: Family::default(),
            adds: Family::default(),
            queue_time: Family::new_with_constructor(queue_times as fn() -> Histogram),
            work_time: Family::new_with_constructor(queue_times as fn() -> Histogram),
            retries: Family::default(),
        };
        metrics.register_reconciles(registry);
        metrics.register_queue(registry);
        metrics
    }

    fn register_reconciles(&self, registry: &mut Registry) {
        let name = |rest: &str| format!("controller_runtime_{rest}");
        registry.register(name("reconcile"), "Reconciles that ended", self.reconciles.clone());
        registry.register(name("reconcile_errors"), "Reconciles that failed", self.errors.clone());
        registry.register(name("reconcile_panics"), "Reconciles that panicked", self.panics.clone());
        let time = self.reconcile_time.clone();
        registry.register_with_unit(name("reconcile_time"), "Time of a reconcile", Unit::Seconds, time);
        registry.register(name("active_workers"), "Reconciles that run", self.running.clone());
        let most = self.running_max.clone();
        registry.register(name("max_concurrent_reconciles"), "Most reconciles that may run at once", most);
    }

    fn register_queue(&self, registry: &mut Registry) {
        let name = |rest: &str| format!("workqueue_{rest}");
        registry.register(name("depth"), "Objects that wait for their turn", self.depth.clone());
        registry.register(name("adds"), "Times that an object began to wait for its turn", self.adds.clone());
        let waited = self.queue_time.clone();
        registry.register_with_unit(name("queue_duration"), "Time of waiting for a turn", Unit::Seconds, waited);
        let worked = self.work_time.clone();
        registry.register_with_unit(name("work_duration"), "Time of a reconcile", Unit::Seconds, worked);
        registry.register(name("retries"), "Failed reconciles to be repeated", self.retries.clone());
    }

    /// The series of one controller, all of which a scrape shows from now on.
    pub(super) fn series(&self, controller: &str, running_max: usize) -> ControllerSeries {
        let label = |name: &'static str, value: &str| (name, value.to_owned());
        let labels = vec![label("controller", controller)];
        let queue = vec![label("name", controller), label("controller", controller)];
        let result = |result: &str| {
            self.reconciles.get_or_create_owned(&vec![label("controller", controller), label("result", result)])
        };
        self.running_max.get_or_create(&labels).set(i64::try_from(running_max).unwrap_or(i64::MAX));
        ControllerSeries {
            success: result("success"),
            requeue_after: result("requeue_after"),
            error: result("error"),
            errors: self.errors.get_or_create_owned(&labels),
            panics: self.panics.get_or_create_owned(&labels),
            reconcile_time: self.reconcile_time.get_or_create_owned(&labels),
            running: self.running.get_or_create_owned(&labels),
            depth: self.depth.get_or_create_owned(&queue),
            adds: self.adds.get_or_create_owned(&queue),
            queue_time: self.queue_time.get_or_create_owned(&queue),
            work_time: self.work_time.get_or_create_owned(&queue),
            retries: self.retries.get_or_create_owned(&queue),
        }
    }
}

/// Series of one controller.
pub(super) struct ControllerSeries {
    success: Counter,
    requeue_after: Counter,
    error: Counter,
    errors: Counter,
    panics: Counter,
    reconcile_time: Histogram,
    running: Gauge,
    depth: Gauge,
    adds: Counter,
    queue_time: Histogram,
    work_time: Histogram,
    retries: Counter,
}

impl ControllerSeries {
    pub(super) fn record(&self, measured: Measurement) {
        match measured {
            Measurement::Added(objects) => _ = self.adds.inc_by(objects),
            Measurement::Retried => _ = self.retries.inc(),
            Measurement::Started { waited } => self.queue_time.observe(waited.as_secs_f64()),
            Measurement::Ended { result, took } => self.ended(result, took),
            Measurement::Busy { waiting, running } => {
                self.depth.set(i64::try_from(waiting).unwrap_or(i64::MAX));
                self.running.set(i64::try_from(running).unwrap_or(i64::MAX));
            }
        }
    }

    fn ended(&self, result: ReconcileResult, took: Duration) {
        self.reconcile_time.observe(took.as_secs_f64());
        self.work_time.observe(took.as_secs_f64());
        match result {
            ReconcileResult::Success => _ = self.success.inc(),
            ReconcileResult::RequeueAfter => _ = self.requeue_after.inc(),
            ReconcileResult::Error | ReconcileResult::Panic => {
                self.error.inc();
                self.errors.inc();
            }
        }
        if result == ReconcileResult::Panic {
            self.panics.inc();
        }
    }
}

/// Buckets of controller-runtime's `ReconcileTime`, in seconds.
const RECONCILE_SECONDS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];

/// Buckets of controller-runtime's work queue, in seconds: ten times as long each, from 10 ns.
const QUEUE_SECONDS: [f64; 12] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0];

fn reconcile_times() -> Histogram {
    Histogram::new(RECONCILE_SECONDS)
}

fn queue_times() -> Histogram {
    Histogram::new(QUEUE_SECONDS)
}
