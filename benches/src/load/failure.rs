//! Failures by kind: counts per kind, with the first message of each.

use std::{collections::BTreeMap, fmt};

/// Maximum characters of a message.
const MESSAGE_CHARS_MAX: usize = 200;

/// Kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The connection could not be made.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The response is not HTTP, or its content is not as expected.
    Protocol,
    /// A status other than 2xx.
    Status(u16),
    /// The connection broke.
    Reset,
    /// The connection ended before the answer was complete.
    Short,
    /// The stream ended with an ERROR event of this code; 410 means that the position was expired.
    ErrorEvent(u16),
    /// The number of objects or deliveries is not as expected.
    Count,
    /// An operation exceeded its deadline.
    Timeout,
    /// A stream that should have stayed open ended cleanly.
    Ended,
    /// A task of this program failed.
    Client,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect => f.write_str("connect"),
            Self::Tls => f.write_str("tls"),
            Self::Protocol => f.write_str("protocol"),
            Self::Status(code) => write!(f, "status{code}"),
            Self::Reset => f.write_str("reset"),
            Self::Short => f.write_str("short"),
            Self::ErrorEvent(code) => write!(f, "errorEvent{code}"),
            Self::Count => f.write_str("count"),
            Self::Timeout => f.write_str("timeout"),
            Self::Ended => f.write_str("ended"),
            Self::Client => f.write_str("client"),
        }
    }
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Failure {
    /// Its kind.
    pub kind: Kind,
    /// One line of text.
    pub message: String,
}

impl Failure {
    /// Makes a failure; the message is reduced to one line of at most 200 characters (`MESSAGE_CHARS_MAX`).
    pub fn new(kind: Kind, message: impl fmt::Display) -> Self {
        let line = message.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { kind, message: line.chars().take(MESSAGE_CHARS_MAX).collect() }
    }

    /// True if the connection or stream broke, which no client takes for a clean end.
    pub(crate) const fn is_cut(&self) -> bool {
        matches!(self.kind, Kind::Reset | Kind::Short)
    }
}

/// Counts of failures by kind, with the first message of each.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    kinds: BTreeMap<Kind, (u64, String)>,
}

impl Failures {
    /// Counts a failure.
    pub fn add(&mut self, failure: Failure) {
        self.kinds.entry(failure.kind).or_insert((0, failure.message)).0 += 1;
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: Self) {
        for (kind, (count, message)) in other.kinds {
            self.kinds.entry(kind).or_insert((0, message)).0 += count;
        }
    }

    /// Number of failures of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.kinds.values().map(|(count, _)| count).sum()
    }

    /// Number of failures of each kind.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<String, u64> {
        self.kinds.iter().map(|(kind, (count, _))| (kind.to_string(), *count)).collect()
    }

    /// One line per kind.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.kinds.iter().map(|(kind, (count, message))| format!("{count} x {kind}: {message}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_kind_with_the_first_message() {
        let mut failures = Failures::default();
        failures.add(Failure::new(Kind::Status(429), "too\n many"));
        failures.add(Failure::new(Kind::Status(429), "later"));
        let mut others = Failures::default();
        others.add(Failure::new(Kind::Reset, "gone"));
        failures.merge(others);
        assert_eq!(failures.lines().collect::<Vec<_>>(), ["2 x status429: too many", "1 x reset: gone"]);
        assert_eq!(failures.total(), 3);
        let kinds: Vec<_> = failures.by_kind().into_iter().collect();
        assert_eq!(kinds, [("reset".to_owned(), 1), ("status429".to_owned(), 2)]);
    }
}
