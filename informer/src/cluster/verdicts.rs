//! What is known about streams. INVARIANT: grows with the types in use, never with objects.

use std::{collections::HashMap, time::Duration};

use informer_core::reflector::Verdict;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Verdicts by endpoint and path of the resource type: servers of one history may be of different versions.
#[derive(Default)]
pub(crate) struct Verdicts {
    by_type: Mutex<HashMap<(usize, String), Judged>>,
}

struct Judged {
    verdict: Verdict,
    until: Instant,
}

impl Verdicts {
    /// What is known about a type. A verdict ends by itself, so that an upgraded server is asked again.
    pub(crate) fn of(&self, endpoint: usize, path: String) -> Verdict {
        let now = Instant::now();
        let by_type = self.by_type.lock();
        by_type.get(&(endpoint, path)).filter(|judged| now < judged.until).map_or(Verdict::Streams, |it| it.verdict)
    }

    /// Remembers what an informer found out, so that the next one of the type need not.
    pub(crate) fn set(&self, endpoint: usize, path: String, verdict: Verdict) {
        let mut by_type = self.by_type.lock();
        match verdict {
            Verdict::Streams => drop(by_type.remove(&(endpoint, path))),
            Verdict::Pages(_) => {
                let until = Instant::now() + VERDICT_LASTS.mul_f64(1.0 + fastrand::f64() / 5.0);
                by_type.insert((endpoint, path), Judged { verdict, until });
            }
        }
    }
}

/// How long a verdict against streams is handed to new informers, a fifth of jitter added. Costs one refused request.
const VERDICT_LASTS: Duration = Duration::from_hours(1);
