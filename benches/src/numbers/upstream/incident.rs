//! `incident`, `incident-etcd`, `incident-etcd-80`: many agents list the pods of their nodes at once.

use std::{
    fmt::Write as _,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use super::{
    Failure, LoadSizes,
    front::{self, FrontServer},
    metrics,
    row::{SideRow, float},
};
use crate::{
    load::sampler::{Memory, Sampler},
    numbers::{
        amount,
        case::{Fields, Unit},
        run,
        server::{runtime, settle},
        stock::Cluster,
    },
};

/// etcd's counter of the bytes that it sent to kube-apiserver, its only client.
const ETCD_BYTES: &str = "etcd_network_client_grpc_sent_bytes_total";
/// Largest memory of kube-apiserver and etcd together. Above it kube-apiserver is killed, as the kernel did in the
/// incident.
const MEMORY_BYTES_MAX: u64 = 12 << 30;
/// Pause between two checks of that memory.
const GUARD_EVERY: Duration = Duration::from_millis(20);
/// Flag with which kube-apiserver 1.36 reads lists of an exact resourceVersion from etcd. Before 1.31 it read lists without
/// one from there too, which agents send.
const FROM_ETCD: &[&str] = &["--feature-gates=ListFromCacheSnapshot=false"];

/// The lists of a case.
pub(super) struct ListLoad {
    /// True if the lists name the present resourceVersion, and kube-apiserver reads those from etcd.
    is_exact: bool,
    /// Lists of each node.
    lists: u32,
    nodes: u32,
}

/// Costs of the lists.
struct ListCosts {
    peak: f64,
    growth: f64,
    /// `None` if kube-apiserver was killed.
    cpu: Option<f64>,
    reviews: f64,
    etcd_bytes: f64,
    etcd_growth: f64,
    /// Time until all were answered; `None` if not all were.
    seconds: Option<f64>,
    /// Memory growth and CPU time of this server.
    ours: Option<(f64, f64)>,
}

impl ListLoad {
    /// Lists without a resourceVersion.
    pub(super) const fn most_recent(sizes: &LoadSizes) -> Self {
        Self { is_exact: false, lists: sizes.lists, nodes: sizes.incident.nodes }
    }

    /// As many lists of an exact resourceVersion.
    pub(super) const fn exact(sizes: &LoadSizes) -> Self {
        Self { is_exact: true, ..Self::most_recent(sizes) }
    }

    /// One list of an exact resourceVersion for each node.
    pub(super) const fn one_each(sizes: &LoadSizes) -> Self {
        Self { lists: 1, ..Self::exact(sizes) }
    }

    const fn clients(&self) -> u32 {
        self.lists * self.nodes
    }

    /// Arguments of the load tool.
    fn arguments(&self, position: &str) -> String {
        let (clients, nodes) = (self.clients(), self.nodes);
        let exact = if self.is_exact {
            format!("--path /api/v1/pods?resourceVersionMatch=Exact --resource-version {position} ")
        } else {
            String::new()
        };
        // Some nodes have one pod more than others.
        format!(
            "list {exact}--clients {clients} --field-selector spec.nodeName=node-{{i%{nodes}}} --counts-may-differ --settle 0"
        )
    }

    pub(super) fn method(&self) -> String {
        let mut text = format!(
            "{} LISTs at once, each on a connection of its own: load {}; each side with a kube-apiserver started anew",
            amount(f64::from(self.clients())),
            self.arguments("PRESENT")
        );
        if self.is_exact {
            let flags = FROM_ETCD.join(" ");
            let most = MEMORY_BYTES_MAX >> 30;
            let _ = write!(
                text,
                ", with {flags}: it reads these lists from etcd, as it read lists without resourceVersion before 1.31; killed \
                 once it and etcd have {most} GiB"
            );
        }
        text
    }

    pub(super) fn rows(&self, cluster: &Cluster) -> Result<Vec<SideRow>, Failure> {
        // First with us: etcd keeps the memory that the other side makes it take.
        let (with_us, alone) = (self.measure(cluster, true)?, self.measure(cluster, false)?);
        let both = |what: &str, unit, of: fn(&ListCosts) -> f64| SideRow::new(what, unit, of(&with_us), of(&alone));
        let optional =
            |what: &str, unit, of: fn(&ListCosts) -> Option<f64>| SideRow::new(what, unit, of(&with_us), of(&alone));
        Ok(vec![
            both("peak memory of kube-apiserver", Unit::Mib, |costs| costs.peak),
            both("… growth", Unit::Mib, |costs| costs.growth),
            optional("… CPU", Unit::CpuSeconds, |costs| costs.cpu),
            both("read from etcd", Unit::Mib, |costs| costs.etcd_bytes),
            both("memory growth of etcd", Unit::Mib, |costs| costs.etcd_growth),
            optional("until all lists are answered", Unit::Seconds, |costs| costs.seconds),
            both(metrics::REVIEWS, Unit::Count, |costs| costs.reviews),
            SideRow::new("memory growth of this server", Unit::Mib, with_us.ours.map(|(growth, _)| growth), None),
            SideRow::new("… CPU", Unit::CpuSeconds, with_us.ours.map(|(_, cpu)| cpu), None),
        ])
    }

    /// Runs the lists against a new kube-apiserver, directly or through this server.
    fn measure(&self, cluster: &Cluster, is_through: bool) -> Result<ListCosts, Failure> {
        let stock = cluster.serve_with(if self.is_exact { FROM_ETCD } else { &[] })?;
        let front = if is_through { Some(FrontServer::start(&stock, "pods")?) } else { None };
        let server = front.as_ref().map_or_else(|| stock.endpoint(), FrontServer::endpoint);
        let (pid, etcd) = (stock.endpoint().pid, cluster.etcd());
        let position = runtime()?.block_on(front::position(&server.target()?, "/api/v1/pods?"))?;
        let arguments = run::words(&self.arguments(&position));
        settle(pid)?;
        let (sampler, etcd_sampler) = (Sampler::without_sockets(pid)?, Sampler::without_sockets(etcd.pid)?);
        let (before, etcd_before) = (sampler.sample()?, etcd_sampler.sample()?.rss_bytes);
        let bytes_before = metrics::read(&etcd, ETCD_BYTES)?;
        let (found, problem, is_killed) = guarded([pid, etcd.pid], || run::try_load(server, &arguments))?;
        let peak = sampler.peaks().rss_bytes;
        let cpu = sampler.cpu().ok().filter(|_| !is_killed);
        if let Some(problem) = problem.as_ref().filter(|_| !is_killed) {
            return Err(Failure::Load(problem.clone()));
        }
        let ours = front.is_some().then(|| {
            let number = |name: &str| run::number(&found, &format!("serverProcess.{name}"));
            Ok::<_, Failure>((number("rssGrowthBytes")?, number("cpuSeconds")?))
        });
        Ok(ListCosts {
            peak: float(peak),
            growth: float(peak.saturating_sub(before.rss_bytes)),
            cpu: cpu.map(|cpu| cpu.as_secs_f64() - before.cpu_seconds),
            // A killed one answers nothing; it got no reviews.
            reviews: if is_killed { 0.0 } else { metrics::reviews(stock.endpoint())? },
            etcd_bytes: metrics::read(&etcd, ETCD_BYTES)? - bytes_before,
            etcd_growth: float(etcd_sampler.peaks().rss_bytes.saturating_sub(etcd_before)),
            seconds: if problem.is_none() { Some(run::number(&found, "seconds")?) } else { None },
            ours: ours.transpose()?,
        })
    }
}

/// Runs a load, and kills the first process once all of them together have more memory than
/// [`MEMORY_BYTES_MAX`]. Returns true if it was killed.
fn guarded(
    pids: [u32; 2],
    load: impl FnOnce() -> Result<(Fields, Option<String>), Failure>,
) -> Result<(Fields, Option<String>, bool), Failure> {
    let (is_over, is_killed) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let memory = pids.iter().filter_map(|pid| Memory::of(*pid).ok());
                if memory.map(|memory| memory.rss_bytes).sum::<u64>() > MEMORY_BYTES_MAX {
                    is_killed.store(true, Ordering::Release);
                    let _ = Command::new("kill").args(["-9", &pids[0].to_string()]).status();
                    return;
                }
                thread::sleep(GUARD_EVERY);
            }
        });
        let loaded = load();
        is_over.store(true, Ordering::Release);
        loaded
    })
    .map(|(found, problem)| (found, problem, is_killed.load(Ordering::Acquire)))
}
