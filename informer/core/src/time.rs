//! Time as the core sees it: a duration since the driver started. Printable, seedable, starting at zero.

use std::{fmt, ops, time::Duration};

/// A moment, counted from the driver's start.
///
/// Units: nanosecond resolution. Two `Time`s compare only within one driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub Duration);

impl Time {
    /// The driver's start.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// Time elapsed since `earlier`; zero if that is in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl ops::Add<Duration> for Time {
    type Output = Self;

    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.0.as_secs_f64())
    }
}
