//! `watchers-node`, `watchers-all`: watchers that moved from kube-apiserver to this server.

use std::{sync::Arc, time::Duration};

use super::{
    Failure, LoadSizes,
    front::{self, FrontServer},
    metrics,
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
    /// CPU time during equal writes before the watches.
    cpu_before: f64,
}

/// Costs to the processes of one side.
struct SideCosts {
    stock: ProcessCosts,
    /// Costs to this server.
    ours: Option<ProcessCosts>,
    /// Reviews of rights until all watches were open, and during the writes.
    reviews: [f64; 2],
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
             directly to kube-apiserver on both sides; CPU during the writes, and during equal ones before the watches; each side with a kube-apiserver started anew",
            amount(f64::from(*watchers)),
            amount(*rate)
        )
    }

    pub(super) fn rows(&self, cluster: &Cluster) -> Result<Vec<SideRow>, Failure> {
        let (alone, with_us) = (self.measure(cluster, false)?, self.measure(cluster, true)?);
        let Some(ours) = with_us.ours else { return Err(Failure::Server("this server was not sampled".to_owned())) };
        let both = |what: &str, unit, of: fn(&ProcessCosts) -> f64| {
            SideRow::new(what, unit, of(&with_us.stock), of(&alone.stock))
        };
        let reviews = |what: &str, at: usize| SideRow::new(what, Unit::Count, with_us.reviews[at], alone.reviews[at]);
        let watchers = amount(f64::from(self.watchers));
        Ok(vec![
            both(&format!("memory of kube-apiserver, peak with {watchers} watches"), Unit::Mib, |costs| costs.peak),
            both("… growth by them", Unit::Mib, |costs| costs.peak - costs.before),
            both("… CPU during the writes", Unit::CpuSeconds, |costs| costs.cpu),
            both("… ÷ CPU during equal writes before the watches", Unit::Times, |costs| {
                costs.cpu / costs.cpu_before
            })
            .at_most(1.1),
            reviews(&format!("{}, until the watches were open", metrics::REVIEWS), 0),
            reviews("… during the writes", 1),
            SideRow::new("memory of this server, peak with them", Unit::Mib, ours.peak, None),
            SideRow::new("… growth by them", Unit::Mib, ours.peak - ours.before, None),
            SideRow::new("… CPU during the writes", Unit::CpuSeconds, ours.cpu, None),
        ])
    }

    /// Costs to a new kube-apiserver, and to this server if the watches are there.
    fn measure(&self, cluster: &Cluster, is_through: bool) -> Result<SideCosts, Failure> {
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
        // The first writes take memory and CPU that later ones need not.
        runtime.block_on(writer.write(self.pace(), 0));
        let begun = processes.iter().map(SampledProcess::cpu).collect::<Result<Vec<_>, _>>()?;
        runtime.block_on(writer.write(self.pace(), 0));
        for (process, begun) in processes.iter_mut().zip(begun) {
            process.begin_watches(begun)?;
        }
        let server = front.as_ref().map_or_else(|| stock.endpoint(), FrontServer::endpoint);
        let (crowd, opened) = runtime.block_on(self.open(server.target()?, &writer))?;
        let reviews = metrics::reviews(stock.endpoint())?;
        let costs = runtime.block_on(self.watch(crowd, opened, &mut writer, &processes))?;
        let during = metrics::reviews(stock.endpoint())? - reviews;
        let (Some(&of_stock), ours) = (costs.first(), costs.get(1).copied()) else {
            return Err(Failure::Server("a process was not sampled".to_owned()));
        };
        Ok(SideCosts { stock: of_stock, ours, reviews: [reviews, during] })
    }

    fn pace(&self) -> Pace {
        front::pace(self.rate, self.seconds)
    }

    /// Opens the watches. Returns the number of those that did not open, too.
    async fn open(&self, target: Target, writer: &Writer) -> Result<(Crowd, usize), Failure> {
        let position = front::position(&target, &writer.subject().watched(0)).await?;
        let path = |watcher| front::watch_path(&writer.subject().watched(watcher), &position);
        let paths = Arc::new((0..self.watchers as usize).map(path).collect());
        let crowd = Crowd::start(&Plan { target, paths, streams: 1, connect_rate: CONNECT_RATE, initial: false })?;
        let closed = crowd.opened(self.watchers as usize, OPEN_WAIT).await;
        Ok((crowd, closed))
    }

    /// Writes. Every event must arrive.
    async fn watch(
        &self,
        crowd: Crowd,
        closed: usize,
        writer: &mut Writer,
        processes: &[SampledProcess],
    ) -> Result<Vec<ProcessCosts>, Failure> {
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
    /// CPU time of writes before the watches.
    cpu_before: f64,
}

impl SampledProcess {
    fn start(pid: u32) -> Result<Self, Failure> {
        Ok(Self { sampler: Sampler::without_sockets(pid)?, before: 0, cpu_before: f64::NAN })
    }

    /// Ends the period of the writes before the watches, the last of which began at the CPU time `begun`.
    fn begin_watches(&mut self, begun: f64) -> Result<(), Failure> {
        self.cpu_before = self.cpu()? - begun;
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
            cpu_before: self.cpu_before,
        })
    }
}
