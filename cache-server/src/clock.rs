//! The current time as objects and answers carry it.

use std::time::Duration;

use jiff::Timestamp;

/// Returns the current time in whole seconds.
pub(crate) fn whole_seconds() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Returns the current time in UTC and whole seconds, in the format of API objects.
pub(crate) fn now() -> String {
    whole_seconds().to_string()
}

/// Returns the time so long ago, in UTC and whole seconds, in the format of API objects.
pub(crate) fn before(time: Duration) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(unix_seconds().saturating_sub(seconds)).unwrap_or_default().to_string()
}

/// Returns the current time in Unix seconds, used for the ages in tables.
pub(crate) fn unix_seconds() -> i64 {
    Timestamp::now().as_second()
}

/// Returns the current time in microseconds since 1970.
pub(crate) fn unix_micros() -> i64 {
    Timestamp::now().as_microsecond()
}
