//! The result of a scenario: a JSON line for programs, with units in its names, and a summary for people.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write as _},
    time::Duration,
};

use serde::Serialize;
use serde_json::Value;

use super::{
    failure::Failures,
    sampler::{Peaks, Sample},
};

/// Median, 99th percentile and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
}

impl Quantiles {
    /// Quantiles in milliseconds; `None` without values.
    #[must_use]
    pub fn millis(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        // Nearest rank: the smallest value that at least `percent` of all values do not exceed.
        let rank = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
        // Rounded to the microsecond.
        let at = |percent| (rank(percent).as_secs_f64() * 1e6).round() / 1e3;
        (!times.is_empty()).then(|| Self { p50: at(50), p99: at(99), max: at(100) })
    }
}

/// Memory and CPU time of the server's process during a scenario.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerReport {
    /// The process ID.
    pub pid: u32,
    /// Resident bytes before the first connection.
    pub rss_idle_bytes: u64,
    /// Maximum of resident bytes.
    pub rss_peak_bytes: u64,
    /// Resident bytes while all streams are open and idle, in scenarios that hold them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_held_bytes: Option<u64>,
    /// Resident bytes some time after the last connection closed.
    pub rss_after_bytes: u64,
    /// Peak minus idle.
    pub rss_growth_bytes: u64,
    /// Peak minus idle, divided by clients.
    pub rss_growth_per_client_bytes: u64,
    /// Held minus idle, divided by clients, in scenarios that hold streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_held_per_client_bytes: Option<u64>,
    /// Maximum of the bytes that its sockets held unsent; `null` without `ss`.
    pub socket_peak_bytes: Option<u64>,
    /// Growth of resident and unsent bytes together, divided by clients; `null` without `ss`.
    pub rss_and_socket_growth_per_client_bytes: Option<u64>,
    /// CPU time from the first request to the last response.
    pub cpu_seconds: f64,
    /// CPU time while clients connected.
    pub connect_cpu_seconds: f64,
    /// Maximum of threads.
    pub threads_peak: u64,
}

/// Samples of the server, in the order they were taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    /// Before the first connection.
    pub idle: Sample,
    /// Once all clients were connected.
    pub connected: Sample,
    /// While all streams were open and idle.
    pub held: Option<Sample>,
    /// After the last response.
    pub ended: Sample,
    /// Some time after the last connection closed.
    pub after: Sample,
    /// Maxima over the whole run.
    pub peaks: Peaks,
}

impl Looks {
    /// Derives the report from the samples, for this number of clients.
    #[must_use]
    pub fn report(&self, pid: u32, clients: u64) -> ServerReport {
        let Self { idle, connected, held, ended, after, peaks } = self;
        let each = |bytes: u64, before: u64| bytes.saturating_sub(before) / clients.max(1);
        let unsent = |sample: &Sample| sample.sockets.map(|sockets| sockets.unsent_bytes).unwrap_or_default();
        ServerReport {
            pid,
            rss_idle_bytes: idle.rss_bytes,
            rss_peak_bytes: peaks.rss_bytes,
            rss_held_bytes: held.map(|sample| sample.rss_bytes),
            rss_after_bytes: after.rss_bytes,
            rss_growth_bytes: peaks.rss_bytes.saturating_sub(idle.rss_bytes),
            rss_growth_per_client_bytes: each(peaks.rss_bytes, idle.rss_bytes),
            rss_held_per_client_bytes: held.map(|sample| each(sample.rss_bytes, idle.rss_bytes)),
            socket_peak_bytes: peaks.socket_bytes,
            // Sockets are sampled less often than memory, so take memory's own growth as the lower bound.
            rss_and_socket_growth_per_client_bytes: peaks
                .rss_and_socket_bytes
                .map(|bytes| each(bytes, idle.rss_bytes + unsent(idle)).max(each(peaks.rss_bytes, idle.rss_bytes))),
            cpu_seconds: ended.cpu_seconds - connected.cpu_seconds,
            connect_cpu_seconds: connected.cpu_seconds - idle.cpu_seconds,
            threads_peak: peaks.threads,
        }
    }
}

/// The result of a scenario.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Name of the scenario.
    pub scenario: String,
    /// URL of the server as given.
    pub server: String,
    /// The requested path.
    pub path: String,
    /// HTTP version, `1` or `2`.
    pub http: u8,
    /// True for TLS.
    pub tls: bool,
    /// True if gzip was requested.
    pub gzip: bool,
    /// Number of clients.
    pub clients: u64,
    /// Time from the first request to the last response.
    pub seconds: f64,
    /// Time to connect all clients.
    pub connect_seconds: f64,
    /// Bytes of bodies on the wire.
    pub bytes: u64,
    /// Number of requests.
    pub requests: u64,
    /// Objects of all initial states.
    pub objects: u64,
    /// Objects of each client, if equal for all.
    pub objects_per_client: Option<u64>,
    /// Events after initial states.
    pub events: u64,
    /// Bookmarks, including the ones at the end of initial states.
    pub bookmarks: u64,
    /// Time from a request to its first object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_object_millis: Option<Quantiles>,
    /// Time from the request of the stream or of the first page to the last object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_millis: Option<Quantiles>,
    /// CPU time of this program from the first request to the last response.
    pub client_cpu_seconds: f64,
    /// Number of failures by kind.
    pub errors: BTreeMap<String, u64>,
    /// Cost of the server, with `--pid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_process: Option<ServerReport>,
    /// Values that only this scenario reports.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
    /// The failures behind `errors`, with messages.
    #[serde(skip)]
    pub failures: Failures,
}

impl Report {
    /// Adds a value that only this scenario reports.
    pub fn add(&mut self, name: &str, value: impl Into<Value>) {
        self.more.insert(name.to_owned(), value.into());
    }

    /// True if there was no failure.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failures.total() == 0
    }

    /// The report as one line of JSON, without a newline.
    #[must_use]
    pub fn json(&self) -> String {
        let mut report = self.clone();
        report.errors = self.failures.by_kind();
        serde_json::to_string(&report).expect("a report is numbers and texts")
    }

    /// Prints the JSON line to stdout if requested, and the summary to stderr.
    pub fn print(&self, json: bool) {
        if json {
            let mut stdout = io::stdout();
            // stdout may be closed; the summary is still printed.
            let _ = writeln!(stdout, "{}", self.json()).and_then(|()| stdout.flush());
        }
        let _ = write!(io::stderr(), "{}", self.summary());
    }

    /// The summary for people, of several lines.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let Self { scenario, server, path, clients, requests, objects, events, seconds, .. } = self;
        let http = if self.http == 2 { "HTTP/2" } else { "HTTP/1.1" };
        let tls = if self.tls { ", TLS" } else { "" };
        let _ = writeln!(text, "{scenario}: {clients} clients of {server}{path}, {http}{tls}");
        let each = self.objects_per_client.map(|count| format!(" ({count} each)")).unwrap_or_default();
        let _ = writeln!(
            text,
            "  {requests} requests, {objects} objects{each}, {events} events, {} in {seconds:.2} s; connecting took {:.2} s",
            mib(self.bytes),
            self.connect_seconds
        );
        for (what, times) in [("first object", self.first_object_millis), ("synced", self.sync_millis)] {
            if let Some(Quantiles { p50, p99, max }) = times {
                let _ = writeln!(text, "  {what}: p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms");
            }
        }
        for (name, value) in &self.more {
            let _ = writeln!(text, "  {name}: {value}");
        }
        let _ = writeln!(text, "  client: {:.2} CPU s", self.client_cpu_seconds);
        if let Some(server) = &self.server_process {
            server.summary(&mut text);
        }
        for line in self.failures.lines() {
            let _ = writeln!(text, "  FAILED {line}");
        }
        text
    }
}

impl ServerReport {
    fn summary(&self, text: &mut String) {
        let held = self.rss_held_bytes.map(|bytes| format!(", held {}", mib(bytes))).unwrap_or_default();
        let _ = writeln!(
            text,
            "  server: {:.3} CPU s ({:.3} for connecting), {} threads; RSS idle {}, peak {}{held}, after {}",
            self.cpu_seconds,
            self.connect_cpu_seconds,
            self.threads_peak,
            mib(self.rss_idle_bytes),
            mib(self.rss_peak_bytes),
            mib(self.rss_after_bytes)
        );
        let each = self.rss_held_per_client_bytes.map(|bytes| format!("held {}, ", kib(bytes))).unwrap_or_default();
        let sockets = match (self.socket_peak_bytes, self.rss_and_socket_growth_per_client_bytes) {
            (Some(unsent), Some(both)) => format!("with unsent bytes {} (sockets {} in all)", kib(both), mib(unsent)),
            _ => "ss is missing, so its sockets' memory is not known".to_owned(),
        };
        let growth = kib(self.rss_growth_per_client_bytes);
        let _ = writeln!(text, "  for each client: {each}peak {growth}; {sockets}");
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[expect(clippy::cast_precision_loss, reason = "bytes are far below 2^52")]
fn kib(bytes: u64) -> String {
    format!("{:.1} KiB", bytes as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::failure::{Failure, Kind};

    #[test]
    fn quantiles_are_of_the_nearest_rank() {
        let times = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(Quantiles::millis(times), Some(Quantiles { p50: 100.0, p99: 198.0, max: 200.0 }));
        let one = vec![Duration::from_millis(7)];
        assert_eq!(Quantiles::millis(one), Some(Quantiles { p50: 7.0, p99: 7.0, max: 7.0 }));
        assert_eq!(Quantiles::millis(Vec::new()), None);
    }

    #[test]
    fn growth_is_over_idle_and_by_client() {
        let at = |rss_bytes, cpu_seconds| Sample { rss_bytes, cpu_seconds, ..Sample::default() };
        let looks = Looks {
            idle: at(100, 1.0),
            connected: at(200, 1.5),
            held: Some(at(300, 2.0)),
            ended: at(300, 4.0),
            after: at(90, 5.0),
            peaks: Peaks { rss_bytes: 500, rss_and_socket_bytes: Some(700), ..Peaks::default() },
        };
        let report = looks.report(1, 10);
        assert_eq!((report.rss_growth_bytes, report.rss_growth_per_client_bytes), (400, 40));
        assert_eq!(report.rss_held_per_client_bytes, Some(20));
        assert_eq!(report.rss_and_socket_growth_per_client_bytes, Some(60));
        assert_eq!(
            (report.connect_cpu_seconds.to_bits(), report.cpu_seconds.to_bits()),
            (0.5_f64.to_bits(), 2.5_f64.to_bits())
        );
    }

    #[test]
    fn a_report_is_one_line_with_its_errors() {
        let mut report = Report { scenario: "list".to_owned(), ..Report::default() };
        assert!(report.is_good());
        report.add("pages", 3);
        report.failures.add(Failure::new(Kind::Reset, "gone"));
        let json = report.json();
        assert!(
            !json.contains('\n') && json.contains(r#""errors":{"reset":1}"#) && json.contains(r#""pages":3"#),
            "{json}"
        );
        assert!(!report.is_good() && report.summary().contains("FAILED 1 x reset: gone"));
    }
}
