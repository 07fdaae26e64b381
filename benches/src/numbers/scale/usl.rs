//! Extrapolation to more cores: Gunther's universal scalability law without its quadratic term, which two points cannot
//! tell, and Amdahl's bound of the section that one thread executes at a time.
//!
//! With n cores, an operation takes c(n) = c(1)·(1 + σ·(n − 1)) of CPU time, so n cores do n / c(n) of them.

use super::loads::LoadCurve;

/// Capacity of a server by the cost of one operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Capacity {
    /// CPU microseconds with one core.
    pub(super) micros: f64,
    /// Contention: growth of the cost with each further core, as a share of the cost with one.
    pub(super) sigma: f64,
}

impl Capacity {
    /// Fits σ to the largest measured number of cores. Zero if only one was measured, or if the cost does not grow.
    pub(super) fn of(curve: &LoadCurve) -> Option<Self> {
        let (first, last) = (curve.points.first()?, curve.points.last()?);
        let micros = first.mean();
        let more = f64::from(last.cores.checked_sub(first.cores)?);
        let grown = last.mean() / micros - 1.0;
        let sigma = if more < 1.0 { 0.0 } else { (grown / more).max(0.0) };
        Some(Self { micros, sigma })
    }

    /// Operations a second with this number of cores, all of them busy.
    pub(super) fn per_second(self, cores: u32) -> f64 {
        let cores = f64::from(cores);
        cores * 1e6 / (self.micros * self.sigma.mul_add(cores - 1.0, 1.0))
    }

    /// Operations a second if each also needs `serial` microseconds in which no other one is executed.
    pub(super) fn bounded(self, cores: u32, serial: f64) -> f64 {
        self.per_second(cores).min(1e6 / serial)
    }

    /// Cores at which the serial section becomes the bound; `None` if contention is the bound at any number.
    pub(super) fn saturated_at(self, serial: f64) -> Option<f64> {
        // Solves n / (c·(1 + σ·(n − 1))) = 1 / serial for n.
        let Self { micros, sigma } = self;
        let rest = micros.mul_add(-sigma, serial);
        (0.0 < rest).then(|| (micros * (1.0 - sigma) / rest).max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::scale::loads::LoadPoint;

    fn curve(points: &[(u32, f64)]) -> LoadCurve {
        let points = points.iter().map(|(cores, micros)| LoadPoint { cores: *cores, micros: vec![*micros] }).collect();
        let text = String::new;
        LoadCurve { name: text(), what: text(), command: text(), points }
    }

    #[test]
    fn a_cost_that_does_not_grow_scales_with_the_cores() {
        let capacity = Capacity::of(&curve(&[(1, 50.0), (2, 50.0)])).unwrap();
        assert_eq!((capacity.per_second(1), capacity.per_second(16)), (20_000.0, 320_000.0));
        assert_eq!(capacity.bounded(16, 5.0), 200_000.0);
        assert_eq!(capacity.saturated_at(5.0), Some(10.0));
        assert_eq!(Capacity::of(&curve(&[(1, 50.0), (2, 45.0)])), Some(capacity), "faster is noise");
    }

    #[test]
    fn contention_bounds_the_gain() {
        let capacity = Capacity::of(&curve(&[(1, 50.0), (2, 55.0)])).unwrap();
        assert!((capacity.sigma - 0.1).abs() < 1e-9);
        // 16 / (1 + 15 · 0.1) = 6.4 times one core.
        assert!((capacity.per_second(16) / capacity.per_second(1) - 6.4).abs() < 1e-9);
        assert_eq!(capacity.saturated_at(1.0), None, "contention costs 5 µs a core");
        assert_eq!(Capacity::of(&curve(&[(1, 50.0)])).unwrap().sigma, 0.0);
        assert_eq!(Capacity::of(&curve(&[])), None);
    }
}
