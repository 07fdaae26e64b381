//! Latencies and their quantiles.

/// Latencies in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Latencies(Vec<f64>);

impl Latencies {
    pub(crate) fn push(&mut self, ms: f64) {
        self.0.push(ms);
    }

    /// The smallest latency that at least this share of all does not exceed; `None` without any.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
        let at = ((share * sorted.len() as f64).ceil() as usize).saturating_sub(1);
        sorted.get(at).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = f64> {
        self.0.iter().copied()
    }

    /// The last latencies, at most `count`.
    pub(crate) fn last(&self, count: usize) -> &[f64] {
        &self.0[self.0.len().saturating_sub(count)..]
    }
}

impl FromIterator<f64> for Latencies {
    fn from_iter<T: IntoIterator<Item = f64>>(all: T) -> Self {
        Self(all.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_latencies_that_occurred() {
        let all: Latencies = (1..=100).rev().map(f64::from).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|share| all.quantile(share)), [Some(50.0), Some(99.0), Some(100.0)]);
        assert_eq!(all.last(2), [2.0, 1.0]);
        let one: Latencies = [7.0].into_iter().collect();
        assert_eq!((one.quantile(0.0), one.quantile(0.99), one.last(5)), (Some(7.0), Some(7.0), &[7.0][..]));
        assert_eq!(Latencies::default().quantile(0.5), None);
    }
}
