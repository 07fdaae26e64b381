//! The current time as objects and answers carry it.

use std::{cell::RefCell, time::Duration};

use http::HeaderValue;
use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};

/// Returns the current time in whole seconds.
pub fn whole_seconds() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Returns the current time in UTC and whole seconds, in the format of API objects.
pub fn now() -> String {
    whole_seconds().to_string()
}

/// Returns the time so long ago, in UTC and whole seconds, in the format of API objects.
pub fn before(time: Duration) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(unix_seconds().saturating_sub(seconds)).unwrap_or_default().to_string()
}

/// Returns the time so many seconds after 1970, in UTC, in the format of API objects.
pub fn at(unix_seconds: i64) -> String {
    Timestamp::from_second(unix_seconds).unwrap_or(Timestamp::MAX).to_string()
}

/// Returns the current time in Unix seconds, used for the ages in tables.
pub fn unix_seconds() -> i64 {
    Timestamp::now().as_second()
}

/// Returns the current time in microseconds since 1970.
pub fn unix_micros() -> i64 {
    Timestamp::now().as_microsecond()
}

/// Returns the current time as the Date header of an answer. Cost: rendered once a second by each thread.
pub fn http_date() -> HeaderValue {
    thread_local!(static LAST: RefCell<DateHeader> = RefCell::new(DateHeader::at(0)));
    LAST.with_borrow_mut(|last| last.get(unix_seconds()))
}

/// A rendered Date header.
struct DateHeader {
    second: i64,
    value: HeaderValue,
}

impl DateHeader {
    fn at(second: i64) -> Self {
        let time = Timestamp::from_second(second).unwrap_or_default();
        let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_default();
        Self { second, value: HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("")) }
    }

    /// Returns the header of a second. Rendered again for every other second, also for an earlier one: the clock may be set
    /// back, and hyper's own header would stand still until it has caught up.
    fn get(&mut self, second: i64) -> HeaderValue {
        if self.second != second {
            *self = Self::at(second);
        }
        self.value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_follows_a_clock_that_is_set_back() {
        let mut date = DateHeader::at(0);
        for (second, expected) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_778, "Sun, 06 Nov 1994 08:49:38 GMT"),
            (784_108_177, "Sun, 06 Nov 1994 07:49:37 GMT"),
            (784_108_178, "Sun, 06 Nov 1994 07:49:38 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
        ] {
            assert_eq!(date.get(second), expected, "{second}");
        }
    }
}
