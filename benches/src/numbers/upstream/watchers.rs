//! `watchers-node`, `watchers-all`: watchers that moved from kube-apiserver to this server.

use std::{sync::Arc, time::Duration};

use super::{
    Failure, LoadSizes,
    front::{self, FrontServer},
    row::{SideRow, float},
};
use crate::{
    load::{
        fanout::{
            concerned,
            crowd::{Crowd, Plan},
            subject::{Kind as ObjectKind, Scope},
        },
        sampler::{Sample, Sampler},
        writer::Writer,
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
        let (alone, _) = self.measure(cluster, false)?;
        let (with_us, ours) = self.measure(cluster, true)?;
        let ours = ours.ok_or_else(|| Failure::Server("it was never started".to_owned()))?;
        let both = |what: &str, unit, of: fn(&ProcessCosts) -> f64| SideRow::new(what, unit, of(&with_us), of(&alone));
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
    fn measure(&self, cluster: &Cluster, is_through: bool) -> Result<(ProcessCosts, Option<ProcessCosts>), Failure> {
        let stock = cluster.serve()?;
        let direct = stock.endpoint().target()?;
        let groups = if self.scope == Scope::Node { self.watchers as usize } else { 1 };
        let subject = front::subject(ObjectKind::Pods, self.scope, groups.max(100), groups);
        let runtime = runtime()?;
        let mut writer = runtime.block_on(Writer::prepare(&direct, subject, LANES, OBJECT_BYTES))?;
        let front = if is_through { Some(FrontServer::start(&stock, "pods")?) } else { None };
        settle(stock.endpoint().pid)?;
        let api = SampledProcess::start(stock.endpoint().pid)?;
        let ours = front.as_ref().map(|front| SampledProcess::start(front.pid())).transpose()?;
        let server = front.as_ref().map_or_else(|| stock.endpoint(), FrontServer::endpoint);
        let position = runtime.block_on(front::position(&server.target()?, &writer.subject().watched(0)))?;
        let path = |watcher| front::watch_path(&writer.subject().watched(watcher), &position);
        let plan = Plan {
            target: server.target()?,
            paths: Arc::new((0..self.watchers as usize).map(path).collect()),
            streams: 1,
            connect_rate: CONNECT_RATE,
            initial: false,
        };
        runtime.block_on(async {
            let crowd = Crowd::start(&plan)?;
            let closed = crowd.opened(self.watchers as usize, OPEN_WAIT).await;
            tokio::time::sleep(REST).await;
            let (api_begin, our_begin) = (api.sample()?, ours.as_ref().map(SampledProcess::sample).transpose()?);
            let written = writer.write(front::pace(self.rate, self.seconds), 0).await;
            let all = concerned(writer.subject(), self.watchers, &written.numbers);
            let lost = crowd.delivered(all, LATE_WAIT).await;
            let api_costs = api.costs(&api_begin)?;
            let our_costs = ours.as_ref().zip(our_begin).map(|(ours, begin)| ours.costs(&begin)).transpose()?;
            let mut failures = crowd.stop()?.failures;
            failures.merge(written.failures);
            writer.clean().await?;
            if closed > 0 || lost > 0 || failures.total() > 0 {
                let lines = failures.lines().collect::<Vec<_>>().join("; ");
                return Err(Failure::Load(format!("{closed} watches did not open, {lost} events were lost; {lines}")));
            }
            Ok((api_costs, our_costs))
        })
    }
}

/// A process that is sampled from before the watches.
struct SampledProcess {
    sampler: Sampler,
    before: Sample,
}

impl SampledProcess {
    fn start(pid: u32) -> Result<Self, Failure> {
        let sampler = Sampler::without_sockets(pid)?;
        let before = sampler.sample()?;
        Ok(Self { sampler, before })
    }

    fn sample(&self) -> Result<Sample, Failure> {
        Ok(self.sampler.sample()?)
    }

    /// Costs since the start; CPU time since `begin`.
    fn costs(&self, begin: &Sample) -> Result<ProcessCosts, Failure> {
        Ok(ProcessCosts {
            before: float(self.before.rss_bytes),
            peak: float(self.sampler.peaks().rss_bytes),
            cpu: self.sample()?.cpu_seconds - begin.cpu_seconds,
        })
    }
}
