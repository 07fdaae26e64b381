//! `watchers-node`, `watchers-all`: watchers that moved from kube-apiserver to this server.

use std::{sync::Arc, time::Duration};

use super::{
    Failure, LoadSizes,
    front::{self, FrontServer},
    row::{SideRow, float},
};
use crate::{
    load::{
        client::Target,
        fanout::{
            concerned,
            crowd::{Crowd, Plan},
            subject::{Kind as ObjectKind, Scope},
        },
        sampler::Sampler,
        writer::{Pace, Writer},
    },
    numbers::{
        amount,
        case::Unit,
        server::{runtime, settle},
        stock::Cluster,
    },
};

const OBJECT_BYTES: usize = 3_000;
/// Connections that write.
const LANES: usize = 8;
/// Connections that watchers open per second.
const CONNECT_RATE: f64 = 500.0;
const OPEN_WAIT: Duration = Duration::from_secs(120);
/// Time for all events to arrive.
const LATE_WAIT: Duration = Duration::from_secs(20);
/// Pause before the writes, so that the cost of opening the watches is not included.
const REST: Duration = Duration::from_secs(3);
const SECONDS: u64 = 20;

/// The watches and writes of a case.
pub(super) struct WatchLoad {
    watchers: u32,
    scope: Scope,
    /// Writes per second.
    rate: f64,
    seconds: u64,
}

/// Costs to one process.
#[derive(Clone, Copy)]
struct ProcessCosts {
    /// Memory before the watches.
    before: f64,
    /// Peak memory with them.
    peak: f64,
    /// CPU time during the writes.
    cpu: f64,
}

impl WatchLoad {
    /// Watches of the pods of a node each, so that each event concerns one of them.
    pub(super) fn by_node(sizes: &LoadSizes) -> Self {
        Self { watchers: sizes.watchers, scope: Scope::Node, rate: 100.0, seconds: sizes.seconds.min(SECONDS) }
    }

    /// Watches of all pods.
    pub(super) fn of_all(sizes: &LoadSizes) -> Self {
        Self { scope: Scope::All, rate: 10.0, ..Self::by_node(sizes) }
    }

    pub(super) fn method(&self) -> String {
        let Self { watchers, rate, seconds, .. } = self;
        let scope = if self.scope == Scope::Node {
            "each watches the pods of its own node, so an event concerns one of them"
        } else {
            "each watches all pods, so an event concerns all of them"
        };
        format!(
            "{} watches of pods over TLS, each on a connection of its own; {scope}; {} writes/s of pods of 3 KB for {seconds} s, \
             directly to kube-apiserver on both sides; CPU during the writes; each side with a kube-apiserver started anew",
            amount(f64::from(*watchers)),
            amount(*rate)
        )
    }

    pub(super) fn rows(&self, cluster: &Cluster) -> Result<Vec<SideRow>, Failure> {
        let (alone, with_us) = (self.measure(cluster, false)?, self.measure(cluster, true)?);
        let ([alone], [with_us, ours]) = (&*alone, &*with_us) else {
            return Err(Failure::Server("a process was not sampled".to_owned()));
        };
        let both = |what: &str, unit, of: fn(&ProcessCosts) -> f64| SideRow::new(what, unit, of(with_us), of(alone));
        let watchers = amount(f64::from(self.watchers));
        Ok(vec![
            both(&format!("memory of kube-apiserver, peak with {watchers} watches"), Unit::Mib, |costs| costs.peak),
            both("… growth by them", Unit::Mib, |costs| costs.peak - costs.before),
            both("… CPU during the writes", Unit::CpuSeconds, |costs| costs.cpu),
            SideRow::new("memory of this server, peak with them", Unit::Mib, ours.peak, None),
            SideRow::new("… growth by them", Unit::Mib, ours.peak - ours.before, None),
            SideRow::new("… CPU during the writes", Unit::CpuSeconds, ours.cpu, None),
        ])
    }

    /// Costs to a new kube-apiserver, and to this server if the watches are there.
    fn measure(&self, cluster: &Cluster, is_through: bool) -> Result<Vec<ProcessCosts>, Failure> {
        let stock = cluster.serve()?;
        let groups = if self.scope == Scope::Node { self.watchers as usize } else { 1 };
        let subject = front::subject(ObjectKind::Pods, self.scope, groups.max(100), groups);
        let runtime = runtime()?;
        let mut writer = runtime.block_on(async {
            let direct = stock.endpoint().target()?;
            Ok::<_, Failure>(Writer::prepare(&direct, subject, LANES, OBJECT_BYTES).await?)
        })?;
        let front = if is_through { Some(FrontServer::start(&stock, "pods")?) } else { None };
        let pids = std::iter::once(stock.endpoint().pid).chain(front.as_ref().map(FrontServer::pid));
        let mut processes = pids.map(SampledProcess::start).collect::<Result<Vec<_>, _>>()?;
        // The memory that writes need is not counted as that of the watches.
        runtime.block_on(writer.write(self.pace(), 0));
        for process in &mut processes {
            process.begin_watches()?;
        }
        let server = front.as_ref().map_or_else(|| stock.endpoint(), FrontServer::endpoint);
        runtime.block_on(self.watch(server.target()?, &mut writer, &processes))
    }

    fn pace(&self) -> Pace {
        front::pace(self.rate, self.seconds)
    }

    /// Opens the watches and writes. Every event must arrive.
    async fn watch(
        &self,
        target: Target,
        writer: &mut Writer,
        processes: &[SampledProcess],
    ) -> Result<Vec<ProcessCosts>, Failure> {
        let position = front::position(&target, &writer.subject().watched(0)).await?;
        let path = |watcher| front::watch_path(&writer.subject().watched(watcher), &position);
        let paths = Arc::new((0..self.watchers as usize).map(path).collect());
        let crowd = Crowd::start(&Plan { target, paths, streams: 1, connect_rate: CONNECT_RATE, initial: false })?;
        let closed = crowd.opened(self.watchers as usize, OPEN_WAIT).await;
        tokio::time::sleep(REST).await;
        let begun = processes.iter().map(SampledProcess::cpu).collect::<Result<Vec<_>, _>>()?;
        let written = writer.write(self.pace(), self.pace().writes()).await;
        let all = concerned(writer.subject(), self.watchers, &written.numbers);
        let lost = crowd.delivered(all, LATE_WAIT).await;
        let costs = processes.iter().zip(begun).map(|(process, begun)| process.costs(begun)).collect();
        let mut failures = crowd.stop()?.failures;
        failures.merge(written.failures);
        writer.clean().await?;
        if closed > 0 || lost > 0 || failures.total() > 0 {
            let lines = failures.lines().collect::<Vec<_>>().join("; ");
            return Err(Failure::Load(format!("{closed} watches did not open, {lost} events were lost; {lines}")));
        }
        costs
    }
}

/// A process whose costs are sampled.
struct SampledProcess {
    sampler: Sampler,
    /// Resident bytes before the watches.
    before: u64,
}

impl SampledProcess {
    fn start(pid: u32) -> Result<Self, Failure> {
        Ok(Self { sampler: Sampler::without_sockets(pid)?, before: 0 })
    }

    /// Ends the period of the writes before the watches.
    fn begin_watches(&mut self) -> Result<(), Failure> {
        self.before = settle(self.sampler.pid())?;
        self.sampler.reset();
        Ok(())
    }

    fn cpu(&self) -> Result<f64, Failure> {
        Ok(self.sampler.cpu()?.as_secs_f64())
    }

    /// Costs of the watches; CPU time since `begun`.
    fn costs(&self, begun: f64) -> Result<ProcessCosts, Failure> {
        Ok(ProcessCosts {
            before: float(self.before),
            peak: float(self.sampler.peaks().rss_bytes),
            cpu: self.cpu()? - begun,
        })
    }
}
