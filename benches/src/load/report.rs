//! What a scenario found: one JSON line for programs, with units in its names; a few lines for people.

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

/// The middle, the worst of a hundred, and the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half of them were faster.
    pub p50: f64,
    /// One of a hundred was slower.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

impl Quantiles {
    /// In milliseconds; `None` of nothing.
    #[must_use]
    pub fn millis(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        // The nearest rank: the smallest that so many of a hundred do not exceed.
        let rank = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
        // To the microsecond.
        let at = |percent| (rank(percent).as_secs_f64() * 1e6).round() / 1e3;
        (!times.is_empty()).then(|| Self { p50: at(50), p99: at(99), max: at(100) })
    }
}

/// What the server's process did meanwhile.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerReport {
    /// Its process.
    pub pid: u32,
    /// Resident bytes before the first connection.
    pub rss_idle_bytes: u64,
    /// Most resident bytes.
    pub rss_peak_bytes: u64,
    /// Resident bytes while all was open and nothing moved, in scenarios that hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_held_bytes: Option<u64>,
    /// Resident bytes some time after the last connection.
    pub rss_after_bytes: u64,
    /// Peak over idle.
    pub rss_growth_bytes: u64,
    /// The same for each client.
    pub rss_growth_per_client_bytes: u64,
    /// Held over idle for each client, in scenarios that hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_held_per_client_bytes: Option<u64>,
    /// Most bytes its sockets held unsent; `null` without `ss`.
    pub socket_peak_bytes: Option<u64>,
    /// Growth of resident and unsent bytes together, for each client; `null` without `ss`.
    pub rss_and_socket_growth_per_client_bytes: Option<u64>,
    /// CPU time from the first request to the last answer.
    pub cpu_seconds: f64,
    /// CPU time of connecting.
    pub connect_cpu_seconds: f64,
    /// Most threads.
    pub threads_peak: u64,
}

/// Looks at the server, in the order in which they were taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    /// Before the first connection.
    pub idle: Sample,
    /// When all were connected.
    pub connected: Sample,
    /// While all was open and nothing moved.
    pub held: Option<Sample>,
    /// After the last answer.
    pub ended: Sample,
    /// Some time later.
    pub after: Sample,
    /// Over all of it.
    pub peaks: Peaks,
}

impl Looks {
    /// What they say, for so many clients.
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
            // Sockets are looked at less often than memory is: both together are never less than memory alone.
            rss_and_socket_growth_per_client_bytes: peaks
                .rss_and_socket_bytes
                .map(|bytes| each(bytes, idle.rss_bytes + unsent(idle)).max(each(peaks.rss_bytes, idle.rss_bytes))),
            cpu_seconds: ended.cpu_seconds - connected.cpu_seconds,
            connect_cpu_seconds: connected.cpu_seconds - idle.cpu_seconds,
            threads_peak: peaks.threads,
        }
    }
}

/// What a scenario found.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Its name.
    pub scenario: String,
    /// The server, as it was named.
    pub server: String,
    /// What was asked for.
    pub path: String,
    /// `1` or `2`.
    pub http: u8,
    /// Whether over TLS.
    pub tls: bool,
    /// Whether answers might be compressed.
    pub gzip: bool,
    /// Clients that were to be.
    pub clients: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// For connecting.
    pub connect_seconds: f64,
    /// Bytes of bodies, as sent.
    pub bytes: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// Objects of initial states.
    pub objects: u64,
    /// The same of each client, where all have the same.
    pub objects_per_client: Option<u64>,
    /// Changes after initial states.
    pub events: u64,
    /// Bookmarks, end bookmarks too.
    pub bookmarks: u64,
    /// From a request to its first object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_object_millis: Option<Quantiles>,
    /// From a request, of a stream or of the first page, to the last object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_millis: Option<Quantiles>,
    /// CPU time of this program over the same time.
    pub client_cpu_seconds: f64,
    /// What went wrong, how often.
    pub errors: BTreeMap<String, u64>,
    /// The server's side, with `--pid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_process: Option<ServerReport>,
    /// What only this scenario has.
    #[serde(flatten)]
    pub more: BTreeMap<String, Value>,
    /// The same as `errors`, with words.
    #[serde(skip)]
    pub failures: Failures,
}

impl Report {
    /// Adds what only this scenario has.
    pub fn add(&mut self, name: &str, value: impl Into<Value>) {
        self.more.insert(name.to_owned(), value.into());
    }

    /// Whether nothing went wrong.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failures.total() == 0
    }

    /// One line, without its end.
    #[must_use]
    pub fn json(&self) -> String {
        let mut report = self.clone();
        report.errors = self.failures.by_kind();
        serde_json::to_string(&report).expect("a report is numbers and texts")
    }

    /// The line to stdout, if it is wanted, and the summary to stderr.
    pub fn print(&self, json: bool) {
        if json {
            let mut stdout = io::stdout();
            // Whoever started us may not read; the summary is still there.
            let _ = writeln!(stdout, "{}", self.json()).and_then(|()| stdout.flush());
        }
        let _ = write!(io::stderr(), "{}", self.summary());
    }

    /// A few lines for people.
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
