//! Compares the model with measured cases that its costs were not fitted to: one server, and watchers on its machine.

use super::{
    costs::Measurements,
    world::{Nanos, SECOND, TierPlan, TreePlan, World, micros},
};
use crate::numbers::Failure;

/// One compared value.
pub(crate) struct Comparison {
    pub(crate) case: String,
    pub(crate) what: &'static str,
    pub(crate) measured: f64,
    pub(crate) modelled: f64,
}

impl Comparison {
    /// Deviation of the model, in percent of the measurement.
    pub(crate) fn percent(&self) -> f64 {
        (self.modelled / self.measured - 1.0) * 100.0
    }
}

/// A measured fan-out.
struct FanOut {
    case: &'static str,
    watchers: usize,
    rate: f64,
    burst: usize,
    bytes: f64,
    time: Nanos,
}

const CASES: [FanOut; 3] = [
    FanOut { case: "flood", watchers: 1_000, rate: 505.0, burst: 5, bytes: 512.0, time: 3 * SECOND },
    FanOut { case: "wide-h1", watchers: 10_000, rate: 20.0, burst: 20, bytes: 512.0, time: 5 * SECOND },
    FanOut { case: "endpointslices", watchers: 5_000, rate: 4.0, burst: 1, bytes: 5_000.0, time: 8 * SECOND },
];

/// Cores of the machine that the numbers were measured on.
const CORES: usize = 2;

/// Writes of `cpu-by-rate` cost what those of the flood cost.
const PACED_LIKE: &str = "flood";

/// Runs the comparisons.
///
/// # Errors
/// A measurement is missing.
pub(crate) fn all(measured: &Measurements, seed: u64) -> Result<Vec<Comparison>, Failure> {
    let mut found = Vec::new();
    for case in &CASES {
        let world = run(measured, case, seed)?;
        let name = case.case;
        let quantile = |quantile: f64| world.staleness.value_at_quantile(quantile) as f64 / 1e3;
        let write = measured.field(name, false, "writeMillis.p50").unwrap_or(0.0);
        let latency = |text: &str| measured.field(name, false, text);
        let mut add = |what, measured, modelled| {
            found.push(Comparison { case: format!("`{name}`"), what, measured, modelled });
        };
        add("CPU of a delivery, µs", micros_of_delivery(measured, name)?, cpu(measured, case, &world)?);
        add("latency p50, ms", latency("latencyMillis.p50")?, quantile(0.5) + write);
        add("latency p99, ms", latency("latencyMillis.p99")?, quantile(0.99) + write);
    }
    for (rate, percent) in measured.paced() {
        let time = SECOND * if rate < 50.0 { 10 } else { 3 };
        let case = FanOut { case: PACED_LIKE, watchers: 1_000, rate, burst: 1, bytes: 512.0, time };
        let world = run(measured, &case, seed)?;
        let modelled = cpu(measured, &case, &world)? * rate * 1_000.0 / 1e6 * 100.0;
        let name = format!("1,000 watchers, {rate} paced events a second");
        found.push(Comparison { case: name, what: "% of a core", measured: percent, modelled });
    }
    found.push(large_sync(measured)?);
    Ok(found)
}

/// Initial streams of another size than those that the cost of an object was taken from.
fn large_sync(measured: &Measurements) -> Result<Comparison, Failure> {
    const CASE: &str = "sync-50000-h1";
    let (clients, objects) = (measured.field(CASE, false, "clients")?, measured.field(CASE, false, "objects")?);
    let modelled = clients.mul_add(measured.plain.connect, objects * measured.plain.object) / 1e6;
    let seconds = measured.field(CASE, false, "serverProcess.cpuSeconds")?;
    let what = "CPU of 64 streams of 50,000 pods, s";
    Ok(Comparison { case: format!("`{CASE}`"), what, measured: seconds, modelled })
}

fn micros_of_delivery(measured: &Measurements, case: &str) -> Result<f64, Failure> {
    Ok(measured.field(case, false, "serverCpuSecondsPerDelivery")? * 1e6)
}

/// CPU microseconds of a delivery with its share of the write, which the model takes as measured.
fn cpu(measured: &Measurements, case: &FanOut, world: &World) -> Result<f64, Failure> {
    let write = measured.field(case.case, false, "serverCpuSecondsPerWriteAlone")? * 1e6;
    let deliveries = world.staleness.len() as f64;
    Ok(world.sums[0].event_cpu / deliveries + write / case.watchers as f64)
}

fn run(measured: &Measurements, case: &FanOut, seed: u64) -> Result<World, Failure> {
    let server = TierPlan { name: "server", members: 1, cores: CORES, costs: measured.plain, window: SECOND };
    let mut world = World::new(TreePlan {
        name: "one server",
        tiers: vec![server],
        nodes: case.watchers,
        pods_per_node: 1,
        leaves_per_node: 1,
        agents_per_leaf: 1,
        node_cache: None,
        is_scoped: false,
        rate: case.rate,
        burst: case.burst,
        is_paced: true,
        bytes: case.bytes,
        hop: 0,
        bookmark: 60 * SECOND,
        shared: measured.field(case.case, false, "clientMicrosPerDelivery")?,
        has_lists: false,
        seed,
    });
    world.run(case.time + micros(1.0));
    Ok(world)
}
