//! The Retry-After of refused requests: longer while many are refused.
//!
//! Source: apiserver `util/flowcontrol/dropped_requests_tracker.go`.

/// Longest Retry-After, in seconds.
const SECONDS_MAX: u64 = 32;

/// Recent refusals of one priority level, and the Retry-After that follows from them.
///
/// Doubles, as TCP does, when at least three times as many requests as its seconds were refused within them; falls by one
/// second when fewer than its seconds were.
#[derive(Clone, Debug)]
pub struct RetryAfter {
    seconds: u64,
    raised: u64,
    /// Seconds with refusals, and their number, oldest first; at most [`SECONDS_MAX`] + 2.
    history: Vec<(u64, u64)>,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { seconds: 1, raised: 0, history: Vec::new() }
    }
}

impl RetryAfter {
    /// Records a refusal at `now`, in seconds of any clock that does not go back. Returns the seconds to wait.
    pub fn refused(&mut self, now: u64) -> u64 {
        match self.history.last_mut() {
            Some((second, count)) if *second == now => *count += 1,
            _ => {
                self.update(now);
                let retained = (2 * self.seconds).min(SECONDS_MAX);
                self.history.retain(|(second, _)| now - second <= retained);
                self.history.push((now, 1));
            }
        }
        self.seconds
    }

    /// Adapts the seconds to the refusals before `now`.
    fn update(&mut self, now: u64) {
        let recent = self.history.iter().filter(|(second, _)| now - second <= self.seconds);
        let refused: u64 = recent.map(|(_, count)| count).sum();
        if now - self.raised >= self.seconds && refused >= 3 * self.seconds {
            self.seconds = (2 * self.seconds).min(SECONDS_MAX);
            self.raised = now;
        } else if refused < self.seconds && self.seconds > 1 {
            self.seconds -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps: the second, its refusals, and the seconds to wait afterwards.
    fn play(steps: &[(u64, u32, u64)]) {
        let mut retry = RetryAfter::default();
        for &(second, refusals, seconds) in steps {
            let last = (0..refusals).map(|_| retry.refused(second)).last();
            assert_eq!(last, Some(seconds), "{second}");
        }
    }

    #[test]
    fn the_wait_follows_the_refusals_as_in_kube_apiservers_test() {
        play(&[
            (1_000, 5, 1),
            (1_001, 11, 2),
            (1_002, 1, 2),
            (1_003, 11, 4),
            (1_004, 1, 4),
            (1_007, 1, 8),
            (1_011, 1, 8),
            (1_015, 1, 7),
            (1_017, 1, 6),
            (1_021, 14, 5),
            (1_022, 1, 10),
        ]);
    }

    #[test]
    fn the_wait_stays_at_one_refusal_a_second() {
        play(&[(1_000, 5, 1), (1_001, 2, 2), (1_003, 1, 2)]);
    }
}
