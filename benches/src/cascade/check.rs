//! Compares the model with measured cases that its costs were not fitted to: one server, and watchers on its machine.

use super::{
    costs::Measurements,
    world::{Nanos, SECOND, TierPlan, TreePlan, World, micros},
};
use crate::numbers::Failure;

/// Compared values of one case.
pub(crate) struct Comparison {
    pub(crate) case: String,
    pub(crate) what: String,
    /// Each value as measured and as modelled.
    pub(crate) values: Vec<(f64, f64)>,
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
        let values = vec![
            (micros_of_delivery(measured, name)?, cpu(measured, case, &world)?),
            (latency("latencyMillis.p50")?, quantile(0.5) + write),
            (latency("latencyMillis.p99")?, quantile(0.99) + write),
        ];
        let what = "CPU of a delivery, µs / latency p50 / p99, ms".to_owned();
        found.push(Comparison { case: format!("`{name}`"), what, values });
    }
    let (mut rates, mut values) = (Vec::new(), Vec::new());
    for (rate, percent) in measured.paced() {
        let time = SECOND * if rate < 50.0 { 10 } else { 3 };
        let case = FanOut { case: PACED_LIKE, watchers: 1_000, rate, burst: 1, bytes: 512.0, time };
        let world = run(measured, &case, seed)?;
        let modelled = cpu(measured, &case, &world)? * rate * 1_000.0 / 1e6 * 100.0;
        rates.push(rate.to_string());
        values.push((percent, modelled));
    }
    let what = format!("% of a core, 1,000 watchers, {} paced events a second", rates.join(" / "));
    found.push(Comparison { case: "`cpu-by-rate`".to_owned(), what, values });
    found.push(large_sync(measured)?);
    Ok(found)
}

/// Initial streams of another size than those that the cost of an object was taken from.
fn large_sync(measured: &Measurements) -> Result<Comparison, Failure> {
    const CASE: &str = "sync-50000-h1";
    let (clients, objects) = (measured.field(CASE, false, "clients")?, measured.field(CASE, false, "objects")?);
    let modelled = clients.mul_add(measured.plain.connect, objects * measured.plain.object) / 1e6;
    let seconds = measured.field(CASE, false, "serverProcess.cpuSeconds")?;
    let what = "CPU of 64 streams of 50,000 pods, s".to_owned();
    Ok(Comparison { case: format!("`{CASE}`"), what, values: vec![(seconds, modelled)] })
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
