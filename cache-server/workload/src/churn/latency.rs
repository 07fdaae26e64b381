//! Latency histogram with constant memory, for percentiles.
//!
//! INVARIANT: a percentile is never below the exact one, and at most one sixteenth above it.

use std::time::Duration;

/// Buckets per power of two, as a base-2 logarithm.
const STEPS_LOG2: u32 = 4;
const STEPS: usize = 1 << STEPS_LOG2;

/// Counts by microseconds: exact up to [`STEPS`], then sixteen buckets per power of two. Memory: 8 KiB.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    counts: Vec<u64>,
    total: u64,
}

impl Latencies {
    pub(super) fn new() -> Self {
        let powers = (u64::BITS - STEPS_LOG2 + 1) as usize;
        Self { counts: vec![0; powers * STEPS], total: 0 }
    }

    pub(super) fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket(micros)] += 1;
        self.total += 1;
    }

    /// The latency that `percent` of all values do not exceed; zero if there are no values.
    pub(super) fn percentile(&self, percent: u64) -> Duration {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Duration::from_micros(highest(bucket));
            }
        }
        Duration::ZERO
    }
}

/// Bucket index of a value: its power of two, and the [`STEPS_LOG2`] bits after the leading one.
fn bucket(micros: u64) -> usize {
    let power = u64::BITS - micros.leading_zeros();
    let (shift, row) = if power <= STEPS_LOG2 { (0, 0) } else { (power - STEPS_LOG2 - 1, power - STEPS_LOG2) };
    let step = usize::try_from(micros >> shift).expect("five bits at most") % STEPS;
    row as usize * STEPS + step
}

/// The largest value of a bucket.
fn highest(bucket: usize) -> u64 {
    let (row, step) = (bucket / STEPS, (bucket % STEPS) as u64);
    if row == 0 { step } else { ((STEPS as u64 + step) << (row - 1)) + ((1 << (row - 1)) - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_a_bucket_that_is_close() {
        let powers = (0..u64::BITS).map(|power| 1_u64 << power);
        for micros in powers.flat_map(|power| [power - 1, power, power + power / 3]).chain([u64::MAX]) {
            let highest = highest(bucket(micros));
            assert!(highest >= micros && highest - micros <= micros / 16, "{micros} is shown as {highest}");
        }
        assert!(bucket(u64::MAX) < Latencies::new().counts.len());
    }

    #[test]
    fn percentiles_are_those_of_all_times() {
        let mut times = Latencies::new();
        assert_eq!(times.percentile(50), Duration::ZERO);
        for millis in 1..=1_000 {
            times.add(Duration::from_millis(millis));
        }
        for (percent, millis) in [(50, 500), (99, 990), (100, 1_000)] {
            let (low, high) = (Duration::from_millis(millis), Duration::from_millis(millis + millis / 16));
            assert!((low..=high).contains(&times.percentile(percent)), "{percent} %");
        }
    }
}
