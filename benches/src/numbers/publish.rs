//! Cost in the cache, in process, of an event for one of many node-scoped watchers, beside the cost with few watchers.

use serde_json::json;

use super::{Failure, case::Fields, run};
use crate::publish::{Setup, Watched};

const MANY: usize = 10_000;
const FEW: usize = 100;
/// Events per round of waking, and the number of rounds.
const BURST: usize = 20;
const BURSTS: usize = 1_000;

/// Seconds per event, to apply it and to wake its watchers, with few and with many watchers.
pub(crate) fn compare() -> Result<Fields, Failure> {
    let cost = |watchers| {
        let setup = Setup { watched: Watched::Nodes, watchers, burst: BURST, bursts: BURSTS };
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
