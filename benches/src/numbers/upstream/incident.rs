//! `incident`, `incident-etcd`: many agents list the pods of their nodes at once.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    Failure, LoadSizes,
    front::FrontServer,
    metrics,
    row::{SideRow, float},
};
use crate::{
    load::sampler::{Memory, Sampler},
    numbers::{
        amount,
        case::{Fields, Unit},
        run,
        server::settle,
        stock::Cluster,
    },
};

/// etcd's counter of the bytes that it sent to kube-apiserver, its only client.
const ETCD_BYTES: &str = "etcd_network_client_grpc_sent_bytes_total";
/// Largest memory of kube-apiserver and etcd together. Above it kube-apiserver is killed, as the kernel did in the
/// incident.
const MEMORY_BYTES_MAX: u64 = 14 << 30;
/// Pause between two checks of that memory.
const GUARD_EVERY: Duration = Duration::from_millis(20);
/// Flags with which kube-apiserver 1.36 reads consistent lists from etcd, as it did by default before 1.31.
const FROM_ETCD: &[&str] = &["--emulated-version=1.33", "--feature-gates=ConsistentListFromCache=false"];

/// The lists of a case.
struct ListLoad {
    /// Flags of kube-apiserver.
    flags: &'static [&'static str],
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
    etcd_bytes: f64,
    etcd_peak: f64,
    /// Time until all were answered; `None` if not all were.
    seconds: Option<f64>,
    answered: f64,
    /// Memory growth and CPU time of this server.
    ours: Option<(f64, f64)>,
}

pub(super) fn method(sizes: &LoadSizes) -> String {
    ListLoad::new(sizes, &[]).method()
}

pub(super) fn etcd_method(sizes: &LoadSizes) -> String {
    let kube_apiserver = FROM_ETCD.join(" ");
    format!("{}; kube-apiserver {kube_apiserver}: consistent lists read etcd, as before 1.31", method(sizes))
}

pub(super) fn run(cluster: &Cluster, sizes: &LoadSizes) -> Result<Vec<SideRow>, Failure> {
    ListLoad::new(sizes, &[]).rows(cluster)
}

pub(super) fn run_etcd(cluster: &Cluster, sizes: &LoadSizes) -> Result<Vec<SideRow>, Failure> {
    ListLoad::new(sizes, FROM_ETCD).rows(cluster)
}

impl ListLoad {
    const fn new(sizes: &LoadSizes, flags: &'static [&'static str]) -> Self {
        Self { flags, lists: sizes.lists, nodes: sizes.incident.nodes }
    }

    const fn clients(&self) -> u32 {
        self.lists * self.nodes
    }

    /// Arguments of the load tool.
    fn arguments(&self) -> String {
        let Self { nodes, .. } = self;
        let clients = self.clients();
        // Some nodes have one pod more than others.
        format!(
            "list --clients {clients} --field-selector spec.nodeName=node-{{i%{nodes}}} --counts-may-differ --settle 0"
        )
    }

    fn method(&self) -> String {
        format!(
            "{} LISTs at once, each on a connection of its own: load {}; each side with a kube-apiserver started anew",
            amount(f64::from(self.clients())),
            self.arguments()
        )
    }

    fn rows(&self, cluster: &Cluster) -> Result<Vec<SideRow>, Failure> {
        let (alone, with_us) = (self.measure(cluster, false)?, self.measure(cluster, true)?);
        let both = |what: &str, unit, of: fn(&ListCosts) -> f64| SideRow::new(what, unit, of(&with_us), of(&alone));
        let optional =
            |what: &str, unit, of: fn(&ListCosts) -> Option<f64>| SideRow::new(what, unit, of(&with_us), of(&alone));
        Ok(vec![
            both("peak memory of kube-apiserver", Unit::Mib, |costs| costs.peak),
            both("… growth", Unit::Mib, |costs| costs.growth),
            optional("… CPU", Unit::CpuSeconds, |costs| costs.cpu),
            both("read from etcd", Unit::Mib, |costs| costs.etcd_bytes),
            both("peak memory of etcd", Unit::Mib, |costs| costs.etcd_peak),
            optional("until all lists are answered", Unit::Seconds, |costs| costs.seconds),
            both("lists answered", Unit::Count, |costs| costs.answered),
            SideRow::new("memory growth of this server", Unit::Mib, with_us.ours.map(|(growth, _)| growth), None),
            SideRow::new("… CPU", Unit::CpuSeconds, with_us.ours.map(|(_, cpu)| cpu), None),
        ])
    }

    /// Runs the lists against a new kube-apiserver, directly or through this server.
    fn measure(&self, cluster: &Cluster, is_through: bool) -> Result<ListCosts, Failure> {
        let stock = cluster.serve_with(self.flags)?;
        let front = if is_through { Some(FrontServer::start(&stock, "pods")?) } else { None };
        let server = front.as_ref().map_or_else(|| stock.endpoint(), FrontServer::endpoint);
        let (pid, etcd) = (stock.endpoint().pid, cluster.etcd());
        settle(pid)?;
        let (sampler, etcd_sampler) = (Sampler::without_sockets(pid)?, Sampler::without_sockets(etcd.pid)?);
        let (before, bytes_before) = (sampler.sample()?, metrics::read(&etcd, ETCD_BYTES)?);
        let (found, problem, is_killed) =
            guarded([pid, etcd.pid], || run::try_load(server, &run::words(&self.arguments())))?;
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
            etcd_bytes: metrics::read(&etcd, ETCD_BYTES)? - bytes_before,
            etcd_peak: float(etcd_sampler.peaks().rss_bytes),
            seconds: if problem.is_none() { Some(run::number(&found, "seconds")?) } else { None },
            answered: f64::from(self.clients()) - failures(&found),
            ours: ours.transpose()?,
        })
    }
}

/// Number of failures of all kinds.
fn failures(found: &Fields) -> f64 {
    let errors = found.iter().filter(|(name, _)| name.starts_with("errors."));
    errors.filter_map(|(_, count)| Value::as_f64(count)).sum()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failures_of_all_kinds_count() {
        let found = run::flat(json!({"clients": 9, "errors": {"reset": 3, "status429": 4}}));
        assert!((failures(&found) - 7.0).abs() < f64::EPSILON);
    }
}
