//! Seats that a priority level needs over time, and how levels share the server's seats by that.
//!
//! Source: apiserver `util/flowcontrol/fairqueuing/integrator.go`, `util/flowcontrol/conc_alloc.go`.

use std::time::Duration;

/// Integrates the number of seats that a level uses or waits for.
#[derive(Clone, Debug)]
pub(super) struct SeatDemand {
    last: Duration,
    seats: f64,
    most: f64,
    seconds: f64,
    /// Integral of the seats.
    sum: f64,
    /// Integral of their square.
    squares: f64,
}

/// The demand within one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DemandSummary {
    /// Most seats at any time.
    pub(super) most: f64,
    /// Average and standard deviation over time; `None` for a period without length.
    pub(super) moments: Option<(f64, f64)>,
}

impl SeatDemand {
    pub(super) fn new(now: Duration) -> Self {
        Self { last: now, seats: 0.0, most: 0.0, seconds: 0.0, sum: 0.0, squares: 0.0 }
    }

    /// Sets the seats from now on.
    pub(super) fn set(&mut self, now: Duration, seats: u32) {
        self.integrate(now);
        self.seats = f64::from(seats);
        self.most = self.most.max(self.seats);
    }

    /// Ends the period, and begins the next one.
    pub(super) fn take(&mut self, now: Duration) -> DemandSummary {
        self.integrate(now);
        let moments = (self.seconds > 0.0).then(|| {
            let average = self.sum / self.seconds;
            (average, (self.squares / self.seconds - average * average).max(0.0).sqrt())
        });
        let summary = DemandSummary { most: self.most, moments };
        *self = Self { seats: self.seats, most: self.seats, ..Self::new(self.last) };
        summary
    }

    fn integrate(&mut self, now: Duration) {
        let time = now.saturating_sub(self.last).as_secs_f64();
        self.last = self.last.max(now);
        self.seconds += time;
        self.sum += self.seats * time;
        self.squares += self.seats * self.seats * time;
    }
}

/// Bounds and target of one level's part of the shared seats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SeatBounds {
    /// Seats that it gets in any case.
    pub(super) lower: f64,
    /// Seats that it gets at most.
    pub(super) upper: f64,
    /// Seats that it would like to have.
    pub(super) target: f64,
}

/// Smallest target, so that no level is divided by zero.
const TARGET_MIN: f64 = 0.001;

/// Difference of sums that counts as none.
const EPSILON: f64 = 1e-7;

/// Shares `sum` among levels: each gets its target times one common factor, within its bounds. Returns the factor and the
/// shares, or `None` if the bounds do not allow that sum.
pub(super) fn share(sum: f64, levels: &[SeatBounds]) -> Option<(f64, Vec<f64>)> {
    let total = |bound: fn(&SeatBounds) -> f64| levels.iter().map(bound).sum::<f64>();
    let is_valid = |level: &SeatBounds| level.lower >= 0.0 && level.target >= level.lower && level.upper >= level.lower;
    if !levels.iter().all(is_valid) || total(|of| of.lower) - sum > EPSILON || sum - total(|of| of.upper) > EPSILON {
        return None;
    }
    let of_factor =
        |level: &SeatBounds, factor: f64| (factor * level.target.max(TARGET_MIN)).clamp(level.lower, level.upper);
    let shares = |factor: f64| levels.iter().map(|level| of_factor(level, factor)).collect::<Vec<_>>();
    // The sum of the shares grows with the factor, in straight lines between the factors where a level meets a bound.
    let mut bounds: Vec<f64> =
        levels.iter().flat_map(|of| [of.lower, of.upper].map(|bound| bound / of.target.max(TARGET_MIN))).collect();
    bounds.sort_by(f64::total_cmp);
    let sum_at = |factor: f64| levels.iter().map(|level| of_factor(level, factor)).sum::<f64>();
    let mut below = 0.0;
    for bound in bounds {
        let (low, high) = (sum_at(below), sum_at(bound));
        if high >= sum - EPSILON {
            let factor =
                if high - low > EPSILON { below + (bound - below) * (sum - low) / (high - low) } else { bound };
            let factor = factor.clamp(below, bound);
            return Some((factor, shares(factor)));
        }
        below = bound;
    }
    Some((below, shares(below)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_is_averaged_over_time() {
        let at = Duration::from_secs;
        let mut demand = SeatDemand::new(at(0));
        demand.set(at(0), 2);
        demand.set(at(5), 4);
        let summary = demand.take(at(10));
        assert_eq!(summary, DemandSummary { most: 4.0, moments: Some((3.0, 1.0)) });
        demand.set(at(10), 0);
        assert_eq!(demand.take(at(10)), DemandSummary { most: 4.0, moments: None });
        assert_eq!(demand.take(at(20)), DemandSummary { most: 0.0, moments: Some((0.0, 0.0)) });
    }

    /// Goal: shares are fair within the bounds. Method: as kube-apiserver's `TestConcAlloc`: random levels, and the
    /// conditions that each share has to meet.
    #[test]
    fn shares_are_proportional_to_targets_within_their_bounds() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..10_000 {
            let levels: Vec<_> = (0..random.usize(1..9))
                .map(|_| {
                    let lower = (random.f64() * 5.0 - 1.0).max(0.0);
                    let target = if random.u8(..) < 20 { lower } else { lower + 2.0 * random.f64() };
                    SeatBounds { lower, target, upper: lower + 3.0 * random.f64() + 1e-5 }
                })
                .collect();
            let low: f64 = levels.iter().map(|level| level.lower).sum();
            let high: f64 = levels.iter().map(|level| level.upper).sum();
            let sum = low + (high - low) * random.f64();
            let (factor, shares) = share(sum, &levels).unwrap();
            assert!((shares.iter().sum::<f64>() - sum).abs() < 1e-6, "{sum} {levels:?} {shares:?}");
            for (level, given) in levels.iter().zip(shares) {
                let fair = (factor * level.target.max(TARGET_MIN)).clamp(level.lower, level.upper);
                assert!((given - fair).abs() < 1e-9, "{level:?} {given} {fair}");
            }
            assert_eq!(share(low - 0.01, &levels), None);
            assert_eq!(share(high + 0.01, &levels), None);
        }
        assert_eq!(share(0.0, &[]), Some((0.0, Vec::new())));
    }

    #[test]
    fn bounds_in_another_order_have_no_share() {
        let share = |lower, target, upper| share(1.0, &[SeatBounds { lower, target, upper }]);
        assert_eq!(share(0.5, 1.0, 2.0), Some((1.0, vec![1.0])));
        assert_eq!(share(-0.5, 1.0, 2.0), None);
        assert_eq!(share(0.5, 0.4, 2.0), None);
        assert_eq!(share(1.0, 2.0, 0.9), None);
    }
}
