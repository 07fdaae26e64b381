//! Cost in the cache, in process, of an event for one of many node-scoped watchers, beside the cost with few watchers.

use std::time::Duration;

use serde_json::json;

use super::{Failure, case::Fields, run};
use crate::publish::{Setup, Watched};

const MANY: usize = 10_000;
const FEW: usize = 100;
/// Events per round of waking, and the number of rounds.
const BURST: usize = 20;
const BURSTS: usize = 1_000;
/// Number of objects, and the bytes of each.
const OBJECTS: (usize, usize) = (10_000, 512);
/// As upstream's `BenchmarkStoreWriteThroughput`: pods, and the bytes of one in JSON; watchers of everything; and as many
/// writes before each turn of the watchers as it has writers.
const UPSTREAM_OBJECTS: (usize, usize) = (150_000, 7_000);
const UPSTREAM_WATCHERS: usize = 10;
const UPSTREAM_WRITERS: usize = 25;
/// Time of that benchmark.
const THROUGHPUT_TIME: Duration = Duration::from_secs(10);

/// Seconds per event, to apply it and to wake its watchers, with few and with many watchers.
pub(crate) fn compare() -> Result<Fields, Failure> {
    let cost = |watchers| {
        let setup = Setup { watched: Watched::Nodes, watchers, burst: BURST, bursts: BURSTS, objects: OBJECTS };
        let cost = crate::publish::run(setup);
        (cost.publish + cost.wake, cost)
    };
    let ((few, few_parts), (many, many_parts)) = (cost(FEW), cost(MANY));
    Ok(run::flat(json!({
        "fewSeconds": few.as_secs_f64(),
        "manySeconds": many.as_secs_f64(),
        "fewDeliverSeconds": few_parts.deliver.as_secs_f64(),
        "manyDeliverSeconds": many_parts.deliver.as_secs_f64(),
    })))
}

/// Writes and events of a second in the cache, with the load of upstream's benchmark of its own cache.
pub(crate) fn throughput() -> Result<Fields, Failure> {
    let setup = |watchers| Setup {
        watched: Watched::All,
        watchers,
        burst: UPSTREAM_WRITERS,
        bursts: 0,
        objects: UPSTREAM_OBJECTS,
    };
    let alone = crate::publish::throughput(setup(0), THROUGHPUT_TIME);
    let watched = crate::publish::throughput(setup(UPSTREAM_WATCHERS), THROUGHPUT_TIME);
    Ok(run::flat(json!({
        "writesPerSecondAlone": alone.writes,
        "writesPerSecond": watched.writes,
        "eventsPerSecond": watched.deliveries,
    })))
}
