//! Definition of a measurement: the server, the load, and the rows that are derived from the results, each with its
//! target.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Failure, server::Server};

/// Results of a run. Names include units; only numbers are evaluated.
pub(crate) type Fields = Map<String, Value>;

/// A run against a new server.
#[derive(Debug)]
pub(crate) struct Case {
    /// Name, for `--row`.
    pub(crate) name: String,
    pub(crate) setup: Setup,
    /// An unmeasured load before the run, for everything that the server builds on first use and keeps.
    pub(crate) before: Option<How>,
    pub(crate) how: How,
    pub(crate) rows: Vec<Row>,
    /// True if a stock kube-apiserver can run this load.
    pub(crate) is_comparable: bool,
    /// True if the bare server can run this load, for its floor.
    pub(crate) has_floor: bool,
    /// True if `--quick` includes the case.
    pub(crate) is_quick: bool,
}

/// The server of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Synthetic pods at start.
    pub(crate) pods: u32,
    pub(crate) nodes: u32,
    /// Secrets of 1,000,000 characters each.
    pub(crate) large_secrets: u32,
    pub(crate) tls: bool,
    /// Users with a bearer token each, all nodes. None: callers have no credentials.
    pub(crate) identities: u32,
    /// Number of cores on which the server may run. `None`: all.
    pub(crate) cores: Option<u32>,
    /// Further flags of `cache-server serve`.
    pub(crate) flags: Vec<String>,
}

/// The load of a case.
pub(crate) enum How {
    /// No load: the idle server is sampled.
    Idle,
    /// The load tool with these arguments; the flags for the server are appended.
    Load(Vec<String>),
    /// A custom scenario.
    Run(fn(&Server) -> Result<Fields, Failure>),
    /// A function in this process, without a server.
    Inside(fn() -> Result<Fields, Failure>),
}

impl fmt::Debug for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("idle"),
            Self::Load(arguments) => write!(f, "load {}", arguments.join(" ")),
            Self::Run(_) => f.write_str("a scenario of its own"),
            Self::Inside(_) => f.write_str("in process"),
        }
    }
}

/// A number with its target.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Description for people.
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) take: Take,
    pub(crate) target: Target,
}

/// Derivation of a row's number from the results.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Take {
    /// A field.
    Field(&'static str),
    /// A field in milliseconds.
    Millis(&'static str),
    /// The first field minus the second.
    Beyond(&'static str, &'static str),
    /// The quotient of two fields.
    Ratio(&'static str, &'static str),
}

/// Unit of a row. Bytes and seconds are scaled to it for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    KibPerClient,
    KibPerRequest,
    KibPerWatch,
    Mib,
    Seconds,
    CpuSeconds,
    CpuMicros,
    Millis,
    PerSecond,
    Count,
    Percent,
    Times,
}

/// Target of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// No target, shown for information.
    None,
}

impl Case {
    /// Description of the setup and the load, so that they can be repeated by hand.
    pub(crate) fn text(&self) -> String {
        let Setup { pods, nodes, large_secrets, tls, identities, cores, flags } = &self.setup;
        let mut text = String::new();
        if *pods > 0 {
            let _ = write!(text, "{pods} pods on {nodes} nodes; ");
        }
        if *large_secrets > 0 {
            let _ = write!(text, "{large_secrets} Secrets of a million characters; ");
        }
        if *tls {
            text.push_str("TLS; ");
        }
        if *identities > 0 {
            let _ = write!(text, "{identities} tokens; ");
        }
        if let Some(cores) = cores {
            let _ = write!(text, "taskset to {cores} cores; ");
        }
        if !flags.is_empty() {
            let _ = write!(text, "serve {}; ", flags.join(" "));
        }
        if let Some(before) = &self.before {
            let _ = write!(text, "{before:?}; then ");
        }
        let _ = write!(text, "{:?}", self.how);
        text
    }
}

impl Unit {
    /// Divisor from bytes, seconds and counts to this unit.
    pub(crate) const fn scale(self) -> f64 {
        match self {
            Self::KibPerClient | Self::KibPerRequest | Self::KibPerWatch => 1024.0,
            Self::Mib => 1024.0 * 1024.0,
            Self::CpuMicros => 1e-6,
            Self::Millis => 1e-3,
            Self::Percent => 0.01,
            Self::Seconds | Self::CpuSeconds | Self::PerSecond | Self::Count | Self::Times => 1.0,
        }
    }

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::KibPerClient => "KiB a client",
            Self::KibPerRequest => "KiB a request",
            Self::KibPerWatch => "KiB a watch",
            Self::Mib => "MiB",
            Self::Seconds => "s",
            Self::CpuSeconds => "CPU s",
            Self::CpuMicros => "CPU µs",
            Self::Millis => "ms",
            Self::PerSecond => "a second",
            Self::Count => "",
            Self::Percent => "%",
            Self::Times => "times",
        }
    }
}

impl Target {
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
            Self::None => true,
        }
    }

    /// Text of the target column; empty without a target.
    pub(crate) fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("≤ {}", amount(most)),
            Self::AtLeast(least) => format!("≥ {}", amount(least)),
            Self::None => String::new(),
        }
    }
}

impl Take {
    /// The number in the row's unit; `None` if the run did not report it.
    pub(crate) fn read(self, found: &Fields, unit: Unit) -> Option<f64> {
        let number = |name: &str| found.get(name).and_then(Value::as_f64);
        let value = match self {
            Self::Field(name) => number(name)?,
            Self::Millis(name) => number(name)? * 1e-3,
            Self::Beyond(all, part) => number(all)? - number(part)?,
            Self::Ratio(above, below) => number(above)? / number(below)?,
        };
        Some(value / unit.scale()).filter(|value| value.is_finite())
    }
}

/// Formats a number with at most two decimals, fewer for larger numbers, and commas between thousands.
pub(crate) fn amount(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || value.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((&*text, None), |(whole, rest)| (whole, Some(rest)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let rest = rest.map_or_else(String::new, |rest| format!(".{rest}"));
    format!("{sign}{grouped}{rest}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found() -> Fields {
        let Value::Object(found) = json!({"growth_bytes": 2_097_152, "clients": 64}) else { panic!("an object") };
        found
    }

    #[test]
    fn numbers_are_read_in_the_unit_of_their_row() {
        let take = Take::Ratio("growth_bytes", "clients");
        assert_eq!(take.read(&found(), Unit::KibPerClient), Some(32.0));
        assert_eq!(Take::Field("growth_bytes").read(&found(), Unit::Mib), Some(2.0));
        assert_eq!(Take::Beyond("growth_bytes", "clients").read(&found(), Unit::Count), Some(2_097_088.0));
    }

    #[test]
    fn what_was_not_found_is_no_number() {
        assert_eq!(Take::Field("watts").read(&found(), Unit::Count), None);
        assert_eq!(Take::Ratio("clients", "watts").read(&found(), Unit::Count), None);
    }

    #[test]
    fn amounts_have_the_digits_that_say_something() {
        let texts: Vec<String> = [0.5, 2.0, 9.876, 12.34, 987.6, 1_234_567.0, -1_000.0].map(amount).to_vec();
        assert_eq!(texts, ["0.50", "2", "9.88", "12.3", "988", "1,234,567", "-1,000"]);
    }
}
