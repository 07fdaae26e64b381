//! What an event for one of many node-scoped watchers costs the cache, in process, beside what it costs among few.

use serde_json::json;

use super::{Failure, case::Fields, run};
use crate::publish::{Setup, Watched};

const MANY: usize = 10_000;
const FEW: usize = 100;
/// Events between two rounds of waking, and such rounds.
const BURST: usize = 20;
const BURSTS: usize = 1_000;

/// Both, in seconds of an event: taking it in, and waking whom it concerns.
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
