//! HTTP/2 clients that are cut off for what they send: said once a minute, however many they are.

use std::{error::Error, iter::successors, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Least time between two lines of the log.
const EVERY: Duration = Duration::from_secs(60);

/// Connections of this process that were cut off.
static FLOODS: Floods = Floods(Mutex::new(Untold { last: None, count: 0 }));

struct Floods(Mutex<Untold>);

struct Untold {
    /// Time of the last line.
    last: Option<Instant>,
    /// Connections since then.
    count: u64,
}

/// Notes how a connection ended; true if its client was cut off for what it sent.
pub(super) fn note(error: &hyper::Error) -> bool {
    let is_flood = is_flood(error);
    if is_flood && let Some(connections) = FLOODS.count(Instant::now()) {
        tracing::warn!(connections, "HTTP/2 clients cut off: they reset streams or send small frames too fast");
    }
    is_flood
}

/// True for the errors that h2 raises itself: it has no other mark for them than these words.
fn is_flood(error: &hyper::Error) -> bool {
    let causes = successors(Some(error as &(dyn Error + 'static)), |&error| error.source());
    causes.map(ToString::to_string).any(|text| text.starts_with("connection error detected: detected excessive load"))
}

impl Floods {
    /// Counts one more; how many there were, when it is time to say so.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut untold = self.0.lock();
        untold.count += 1;
        if untold.last.is_some_and(|last| now < last + EVERY) {
            return None;
        }
        untold.last = Some(now);
        Some(std::mem::take(&mut untold.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_once_a_minute_with_its_count() {
        let floods = Floods(Mutex::new(Untold { last: None, count: 0 }));
        let start = Instant::now();
        let told = [0, 1, 59, 60, 61, 200].map(|seconds| floods.count(start + Duration::from_secs(seconds)));
        assert_eq!(told, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
