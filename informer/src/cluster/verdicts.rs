//! Verdicts on streams, shared by a cluster's informers. INVARIANT: memory grows with the types in use, never with
//! objects.

use std::{collections::HashMap, time::Duration};

use informer_core::reflector::Verdict;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Verdicts by endpoint and path of the resource type: servers of one history may run different versions.
pub(crate) struct Verdicts {
    by_type: Mutex<HashMap<(usize, String), StoredVerdict>>,
    /// Lifetime of a verdict against streams, before jitter.
    lasts: Duration,
}

struct StoredVerdict {
    verdict: Verdict,
    until: Instant,
}

impl Verdicts {
    pub(super) fn new(lasts: Duration) -> Self {
        Self { by_type: Mutex::default(), lasts }
    }

    /// Lifetime of a verdict against streams, before jitter.
    pub(crate) const fn lasts(&self) -> Duration {
        self.lasts
    }

    /// Returns the verdict on a type, `Streams` by default. A verdict expires, so that informers probe an upgraded
    /// server again.
    pub(crate) fn of(&self, endpoint: usize, path: String) -> Verdict {
        let now = Instant::now();
        let by_type = self.by_type.lock();
        by_type.get(&(endpoint, path)).filter(|judged| now < judged.until).map_or(Verdict::Streams, |it| it.verdict)
    }

    /// Stores the verdict an informer found, so that the next informer of the type need not probe.
    pub(crate) fn set(&self, endpoint: usize, path: String, verdict: Verdict) {
        let mut by_type = self.by_type.lock();
        match verdict {
            Verdict::Streams => drop(by_type.remove(&(endpoint, path))),
            Verdict::Pages(_) => {
                let until = Instant::now() + self.lasts.mul_f64(1.0 + fastrand::f64() / 5.0);
                by_type.insert((endpoint, path), StoredVerdict { verdict, until });
            }
        }
    }
}

/// Default lifetime of a verdict against streams, plus up to 20 % jitter. Each new probe costs one refused request.
pub(super) const VERDICT_LASTS: Duration = Duration::from_secs(60 * 60);
