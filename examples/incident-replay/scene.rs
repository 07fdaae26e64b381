//! Results of one act on one server.

use std::time::Duration;

use crate::{
    bystander::DutySummary,
    latency::Latencies,
    plan::{Act, Side},
};

/// Results of an act.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) side: Side,
    pub(crate) act: Act,
    /// Resident bytes before the agents started.
    pub(crate) idle: usize,
    /// Most bytes ever resident, over all processes of the server.
    pub(crate) peak: usize,
    /// Like `peak`, of etcd; 0 without one.
    pub(crate) etcd_peak: usize,
    /// Seconds since the agents started, and resident MiB; none while the server was away.
    pub(crate) curve: Vec<(f64, Option<f64>)>,
    /// Lists that were answered, or initial states that were streamed.
    pub(crate) initial: u64,
    /// Watches that resumed where they broke.
    pub(crate) resumed: u64,
    /// Requests refused for the moment.
    pub(crate) refused: u64,
    /// Bytes of bodies that the agents received.
    pub(crate) bytes: u64,
    /// From the first attempt of a list to its end.
    pub(crate) lists: Latencies,
    pub(crate) leases: DutyComparison,
    pub(crate) health: DutyComparison,
    /// Time for which no server was ready, over all restarts.
    pub(crate) away: Duration,
    /// From the last kill of the server until every copy had the changes made after its restart. `None`: not in time.
    pub(crate) synced: Option<Duration>,
    pub(crate) copies: usize,
    /// Copies that were in sync at the end.
    pub(crate) in_sync: usize,
    /// Times the server was killed because of its memory.
    pub(crate) memory_kills: usize,
}

/// Requests of the bystander before the agents started, and while they synced.
#[derive(Debug, Clone, Default)]
pub(crate) struct DutyComparison {
    pub(crate) quiet: DutySummary,
    pub(crate) storm: DutySummary,
}

impl Scene {
    /// Time until all copies were in sync, as text.
    pub(crate) fn synced_text(&self) -> String {
        match self.synced {
            Some(time) => format!("{:.1} s", time.as_secs_f64()),
            None => format!("never: {} of {}", self.in_sync, self.copies),
        }
    }
}
