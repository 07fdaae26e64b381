//! Measurements of a running controller, for its metrics.

use std::time::Duration;

#[cfg(feature = "metrics")]
use super::metrics::ControllerSeries;

/// Event of a running controller that its metrics count.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "only metrics read the values"))]
pub(super) enum Measurement {
    /// Number of objects that began to wait for their turn.
    Added(u64),
    /// A failed reconcile is to be repeated.
    Retried,
    /// A run started after this wait.
    Started { waited: Duration },
    /// A reconcile ended after this time.
    Ended { result: ReconcileResult, took: Duration },
    /// Objects that wait for their turn, and reconciles that run.
    Busy { waiting: usize, running: usize },
}

/// Result of a reconcile, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReconcileResult {
    /// Succeeded, without a delay.
    Success,
    /// Succeeded, to be repeated after a delay.
    RequeueAfter,
    /// Failed.
    Error,
    /// Panicked, which also counts as an error.
    Panic,
}

/// The metrics of one running controller, if the program collects them.
#[derive(Default)]
pub(super) struct Meter {
    #[cfg(feature = "metrics")]
    pub(super) series: Option<ControllerSeries>,
}

impl Meter {
    #[cfg_attr(not(feature = "metrics"), expect(clippy::unused_self, reason = "a build without metrics has none"))]
    pub(super) fn record(&self, measured: Measurement) {
        #[cfg(feature = "metrics")]
        if let Some(series) = &self.series {
            series.record(measured);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = measured;
    }
}

#[cfg(feature = "metrics")]
impl Drop for Meter {
    /// A controller that has ended has no queue and no workers.
    fn drop(&mut self) {
        self.record(Measurement::Busy { waiting: 0, running: 0 });
    }
}
