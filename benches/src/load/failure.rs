//! What can go wrong, by kind: kinds are counted, the first message of each is shown.

use std::{collections::BTreeMap, fmt};

/// Characters of a message that are shown.
const MESSAGE_CHARS_MAX: usize = 200;

/// What went wrong, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// No connection.
    Connect,
    /// No TLS, or not with this server.
    Tls,
    /// What came is not HTTP, or not what was asked for.
    Protocol,
    /// An answer that is not a good one.
    Status(u16),
    /// The connection broke.
    Reset,
    /// The connection ended before the answer was complete.
    Short,
    /// The stream ended with an ERROR of this code; 410 is one that was too late.
    ErrorEvent(u16),
    /// Another number of objects than it must be.
    Count,
    /// It took too long.
    Timeout,
    /// A stream that should have stayed ended, and said so.
    Ended,
    /// A client's task failed.
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

/// One thing that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Failure {
    /// What it counts as.
    pub kind: Kind,
    /// One line.
    pub message: String,
}

impl Failure {
    /// With a message of one line.
    pub fn new(kind: Kind, message: impl fmt::Display) -> Self {
        let line = message.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { kind, message: line.chars().take(MESSAGE_CHARS_MAX).collect() }
    }

    /// Whether the connection or the stream broke, which no client takes for an end.
    pub(crate) const fn is_cut(&self) -> bool {
        matches!(self.kind, Kind::Reset | Kind::Short)
    }
}

/// How often each kind happened, and in which words first.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    kinds: BTreeMap<Kind, (u64, String)>,
}

impl Failures {
    /// Counts one.
    pub fn add(&mut self, failure: Failure) {
        self.kinds.entry(failure.kind).or_insert((0, failure.message)).0 += 1;
    }

    /// Counts those of another.
    pub fn merge(&mut self, other: Self) {
        for (kind, (count, message)) in other.kinds {
            self.kinds.entry(kind).or_insert((0, message)).0 += count;
        }
    }

    /// How many, of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.kinds.values().map(|(count, _)| count).sum()
    }

    /// How many of each kind.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<String, u64> {
        self.kinds.iter().map(|(kind, (count, _))| (kind.to_string(), *count)).collect()
    }

    /// One line for each kind.
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
