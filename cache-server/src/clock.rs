//! The current time as objects and answers carry it.

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

/// Returns the current time in Unix seconds, used for the ages in tables.
pub(crate) fn unix_seconds() -> i64 {
    Timestamp::now().as_second()
}
