//! A number with this server beside the number of kube-apiserver without it, and statistics of samples.

use serde::{Deserialize, Serialize};

use crate::numbers::{
    amount,
    case::{Target, Unit},
};

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SideRow {
    what: String,
    unit: Unit,
    target: Target,
    /// Value with this server, in the unit; `None` if there is none.
    with_us: Option<f64>,
    /// Value of kube-apiserver without it, in the unit.
    alone: Option<f64>,
}

impl SideRow {
    /// A row without a target. Values are bytes, seconds or counts.
    pub(super) fn new(
        what: impl Into<String>,
        unit: Unit,
        with_us: impl Into<Option<f64>>,
        alone: impl Into<Option<f64>>,
    ) -> Self {
        let scaled = |value: Option<f64>| value.map(|value| value / unit.scale()).filter(|value| value.is_finite());
        let (with_us, alone) = (scaled(with_us.into()), scaled(alone.into()));
        Self { what: what.into(), unit, target: Target::None, with_us, alone }
    }

    /// Sets the largest value that meets the target, in the unit.
    pub(super) fn at_most(self, most: f64) -> Self {
        Self { target: Target::AtMost(most), ..self }
    }

    pub(super) fn holds(&self) -> bool {
        self.target == Target::None || self.with_us.is_some_and(|value| self.target.is_met(value))
    }

    /// The cells: what, unit, target, with us, alone. A missing value is empty.
    pub(super) fn cells(&self) -> [String; 5] {
        let Self { what, unit, target, with_us, alone } = self;
        let optional = |value: Option<f64>| value.map_or_else(String::new, amount);
        let measured = if self.holds() { optional(*with_us) } else { format!("**{}** missed", optional(*with_us)) };
        [what.clone(), unit.label().to_owned(), target.text(), measured, optional(*alone)]
    }

    /// The sentence about a missed target.
    pub(super) fn miss(&self) -> Option<String> {
        let Self { what, unit, target, with_us, .. } = self;
        let found = with_us.map_or_else(|| "nothing".to_owned(), amount);
        let found = format!("{found} {}", unit.label());
        (!self.holds())
            .then(|| format!("{}: {}, target {}", what.trim_start_matches("… "), found.trim_end(), target.text()))
    }
}

/// The value that `percent` percent of the values do not exceed (nearest rank). Not a number without values.
pub(super) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied().unwrap_or(f64::NAN)
}

/// Converts bytes and counts, which are far below 2^52 here.
#[expect(clippy::cast_precision_loss, reason = "bytes and counts of a run are far below 2^52")]
pub(super) const fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank_and_may_be_negative() {
        let values: Vec<f64> = (0..200).rev().map(|value| f64::from(value) - 100.0).collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&values, percent)), [-1.0, 97.0, 99.0]);
        assert!(percentile(&[], 50).is_nan());
    }

    #[test]
    fn a_miss_keeps_its_value_and_names_its_target() {
        let row = SideRow::new("read", Unit::Millis, 0.003, 0.006).at_most(2.0);
        assert_eq!(row.cells(), ["read", "ms", "≤ 2", "**3** missed", "6"]);
        assert_eq!(row.miss().as_deref(), Some("read: 3 ms, target ≤ 2"));
        assert_eq!(SideRow::new("read", Unit::Millis, 0.003, None).at_most(4.0).miss(), None);
    }

    #[test]
    fn no_number_meets_no_target() {
        assert!(!SideRow::new("read", Unit::Millis, f64::NAN, None).at_most(2.0).holds());
    }
}
