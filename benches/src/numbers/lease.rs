//! Cost of node leases and EndpointSlices: many writes without watchers, and single writes to many watchers.

use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Failure,
    case::{Case, Fields, How, Row, Setup, Take, Target, Unit},
    run,
    server::Server,
};
use crate::load::{
    client::{Connection, JSON, Target as Goal},
    sampler::Cpu,
    writer,
    writes::{LEASES, lease, version},
};

/// Number of nodes, each of which renews its lease every 10 s (`RENEWED_EVERY`).
const NODES: u32 = 5_000;
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// Connections for renewals. Each kubelet has its own, but the cost of connections is measured elsewhere.
const LANES: u32 = 8;

/// The cases of this module.
pub(crate) fn cases() -> Vec<Case> {
    let row = |what: &str, unit, take, target| Row { what: what.to_owned(), unit, take, target };
    let leases = Case {
        name: "leases".to_owned(),
        setup: Setup::default(),
        before: None,
        how: How::Run(renew),
        rows: vec![
            row(
                "5,000 leases renewed every 10 s, without watchers: of one core",
                Unit::Percent,
                Take::Field("serverCpuShare"),
                Target::AtMost(6.0),
            ),
            row("… a renewal, paced", Unit::CpuMicros, Take::Field("serverCpuSecondsPerWrite"), Target::AtMost(120.0)),
        ],
        is_comparable: false,
        has_floor: true,
        is_quick: true,
    };
    let flags = "fanout --clients 5000 --kind endpoint-slices --objects 4 --rate 4 --burst 1 --bytes 5000 --seconds 8 \
                 --connect-rate 4000 --http 1";
    let slices = Case {
        name: "endpointslices".to_owned(),
        setup: Setup::default(),
        before: None,
        how: How::Load(flags.split_whitespace().map(str::to_owned).collect()),
        rows: vec![
            row(
                "one EndpointSlice of 5 KB to 5,000 watchers: a delivery, each woken for it alone",
                Unit::CpuMicros,
                Take::Field("serverCpuSecondsPerDelivery"),
                Target::AtMost(15.0),
            ),
            row("… latency, p99", Unit::Millis, Take::Millis("latencyMillis.p99"), Target::None),
        ],
        is_comparable: false,
        has_floor: true,
        is_quick: false,
    };
    vec![leases, slices]
}

/// Creates a lease for each node and renews each once, at the pace of the kubelets.
fn renew(server: &Server) -> Result<Fields, Failure> {
    let goal = Goal::new(&server.endpoint().access()).map_err(Failure::Server)?;
    let pid = server.endpoint().pid;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut lanes = JoinSet::new();
        for lane in 0..LANES {
            lanes.spawn(Lane::create(goal.clone(), lane));
        }
        let lanes = all(lanes).await?;
        let mut cpu = Cpu::default();
        cpu.look(pid)?;
        let (before, start) = (cpu.total(), Instant::now());
        let mut renewing = JoinSet::new();
        for lane in lanes {
            renewing.spawn(lane.renew(start));
        }
        let late: Vec<Duration> = all(renewing).await?;
        let time = start.elapsed().as_secs_f64();
        cpu.look(pid)?;
        let spent = (cpu.total() - before).as_secs_f64();
        Ok(run::flat(json!({
            "writes": NODES,
            "seconds": time,
            "lateSeconds": late.into_iter().max().unwrap_or_default().as_secs_f64(),
            "serverCpuShare": spent / time,
            "serverCpuSecondsPerWrite": spent / f64::from(NODES),
        })))
    })
}

/// Waits for all tasks; returns their results, or the first error.
async fn all<T: 'static>(mut tasks: JoinSet<Result<T, Failure>>) -> Result<Vec<T>, Failure> {
    let mut done = Vec::new();
    while let Some(task) = tasks.join_next().await {
        done.push(task.map_err(|error| Failure::Load(error.to_string()))??);
    }
    Ok(done)
}

/// A connection and the leases renewed over it: node number and resourceVersion.
struct Lane {
    connection: Connection,
    leases: Vec<(u32, String)>,
}

impl Lane {
    async fn create(goal: Goal, lane: u32) -> Result<Self, Failure> {
        let mut this = Self { connection: goal.connect().await?, leases: Vec::new() };
        for node in (lane..NODES).step_by(LANES as usize) {
            let body = lease(node, None, 0);
            let answer = writer::send(&mut this.connection, Method::POST, LEASES, Some((JSON, body))).await?;
            this.leases.push((node, version(&answer)?.to_owned()));
        }
        Ok(this)
    }

    /// Renews each lease at its due time relative to `start`. Returns the largest delay of a renewal.
    async fn renew(mut self, start: Instant) -> Result<Duration, Failure> {
        let mut late = Duration::ZERO;
        for (node, version) in self.leases {
            let due = start + RENEWED_EVERY.mul_f64(f64::from(node) / f64::from(NODES));
            sleep_until(due).await;
            late = late.max(due.elapsed());
            let (path, body) = (format!("{LEASES}/node-{node}"), lease(node, Some(&version), 1));
            writer::send(&mut self.connection, Method::PUT, &path, Some((JSON, body))).await?;
        }
        Ok(late)
    }
}
