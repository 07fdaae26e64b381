//! Rate-limited logging of HTTP/2 clients that are disconnected for flooding: one line a minute for all of them.

use std::{error::Error, iter::successors, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Minimum time between two log lines.
const EVERY: Duration = Duration::from_secs(60);

/// Disconnected floods of this process.
static FLOODS: Floods = Floods(Mutex::new(UnloggedConnections { last: None, count: 0 }));

struct Floods(Mutex<UnloggedConnections>);

struct UnloggedConnections {
    /// Time of the last log line.
    last: Option<Instant>,
    /// Connections since that line.
    count: u64,
}

/// Logs a connection's error if its client was disconnected for flooding; returns true in that case.
pub fn note(error: &hyper::Error) -> bool {
    let is_flood = is_flood(error);
    if is_flood && let Some(connections) = FLOODS.count(Instant::now()) {
        tracing::warn!(connections, "HTTP/2 flood detected");
    }
    is_flood
}

/// Returns true for the errors that h2 raises for floods; only this text identifies them.
fn is_flood(error: &hyper::Error) -> bool {
    let causes = successors(Some(error as &(dyn Error + 'static)), |&error| error.source());
    causes.map(ToString::to_string).any(|text| text.starts_with("connection error detected: detected excessive load"))
}

impl Floods {
    /// Counts one connection. Returns the number since the last line if a line is due.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut unreported = self.0.lock();
        unreported.count += 1;
        if unreported.last.is_some_and(|last| now < last + EVERY) {
            return None;
        }
        unreported.last = Some(now);
        Some(std::mem::take(&mut unreported.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_once_a_minute_with_its_count() {
        let floods = Floods(Mutex::new(UnloggedConnections { last: None, count: 0 }));
        let start = Instant::now();
        let reported = [0, 1, 59, 60, 61, 200].map(|seconds| floods.count(start + Duration::from_secs(seconds)));
        assert_eq!(reported, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
