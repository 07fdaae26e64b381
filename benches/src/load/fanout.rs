//! `load fanout`: many clients watch while few write. Each watcher must receive each write that matches its scope
//! exactly once.
//!
//! The cost of a delivery is the server's CPU time divided by the deliveries, including the cost of the writes. Latency
//! is measured from a timestamp in each write; writers and watchers use the same machine's clock.
//!
//! INVARIANT: a delivery that is lost, duplicated, or sent to a watcher of another scope is a failure.

pub(crate) mod crowd;
pub(crate) mod marks;
pub(crate) mod subject;

use std::{sync::Arc, time::Duration};

use serde_json::json;

use self::{
    crowd::{Crowd, Plan, Sight},
    subject::{Kind as ObjectKind, Scope, Subject},
};
use super::{
    client::{Http, Target},
    failure::{Failure, Failures, Kind},
    flags::seconds,
    report::{Looks, Report},
    sampler::{Sampler, own_cpu},
    writer::{Pace, Writer, Written, nanos},
};

/// Timeout of opening all streams.
const OPEN_WAIT: Duration = Duration::from_secs(120);
/// Deadline for all deliveries, from the response of the last write.
const HEAD_WAIT: Duration = Duration::from_secs(1);
/// Further wait for late deliveries, to distinguish late from lost.
const LATE_WAIT: Duration = Duration::from_secs(20);
/// Pause before and after the measurement, so that the cost of opening and closing streams is not included.
const REST: Duration = Duration::from_secs(1);
/// Default duration of each warm-up.
const WARM_UP: Duration = Duration::from_secs(1);
/// Maximum writes of one run: each watcher has a bitmap with one bit per write.
const WRITES_MAX: u32 = 100_000_000;
/// The `timeoutSeconds` of the watches.
const TIMEOUT_SECONDS: u32 = 3_600;

/// Flags of `fanout`.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "writes")]
pub(crate) struct Flags {
    /// Writes a second.
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = positive)]
    pub(crate) rate: f64,

    /// Writes that are sent at the same time; bursts keep the rate.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) burst: u32,

    /// Size of an object as the server sends it. An object whose size without padding is larger keeps that size.
    #[arg(long, value_name = "BYTES", default_value_t = 3_000)]
    pub(crate) bytes: usize,

    /// Objects that are written in turn.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) objects: u32,

    /// The part of the objects that each watcher requests. Left out: everything.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Scope::All)]
    pub(crate) scope: Scope,

    /// Kind of the written objects. Left out: config-maps, or pods when nodes are watched.
    #[arg(long, value_name = "KIND", value_enum)]
    pub(crate) kind: Option<ObjectKind>,

    /// Number of nodes, namespaces or labels that objects and watchers are spread over. Left out: one for each watcher.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) groups: Option<u32>,

    /// Connections that write.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) writers: u32,

    /// Watches that share a connection, over HTTP/2.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) streams: u32,

    /// Seconds of writes before the measurement: once without watchers, to measure the cost of a write alone, and once
    /// with them. Left out: one. Only for fanout.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) warm_up: Option<Duration>,
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err("must be more than 0".to_owned()) }
}

/// Settings common to fan-out and reconnect storm.
#[derive(Clone)]
pub(crate) struct Common {
    /// The server.
    pub(crate) target: Target,
    /// The process ID of the server.
    pub(crate) pid: Option<u32>,
    /// Number of streams.
    pub(crate) clients: u32,
    /// Connections per second.
    pub(crate) connect_rate: f64,
    /// Duration of the writes.
    pub(crate) time: Duration,
}

impl Flags {
    /// Checks combinations of flags for writes of this duration. The error is one line.
    pub(super) fn check(&self, time: Duration) -> Result<(), String> {
        if self.groups.is_some() && matches!(self.scope, Scope::All | Scope::Name) {
            return Err("--groups needs --scope node, namespace or label".to_owned());
        }
        let writes = self.rate * (time + 2 * self.warm_up()).as_secs_f64() + 3.0 * f64::from(self.burst);
        if writes > f64::from(WRITES_MAX) {
            return Err(format!("that is more than {WRITES_MAX} writes"));
        }
        Ok(())
    }

    fn warm_up(&self) -> Duration {
        self.warm_up.unwrap_or(WARM_UP)
    }

    /// The objects for this number of watchers.
    pub(super) fn subject(&self, watchers: u32) -> Subject {
        let objects = self.objects as usize;
        let groups = match self.scope {
            Scope::All => 1,
            Scope::Name => objects,
            Scope::Node | Scope::Namespace | Scope::Label => self.groups.unwrap_or(watchers) as usize,
        };
        let usual = if self.scope == Scope::Node { ObjectKind::Pods } else { ObjectKind::ConfigMaps };
        let kind = self.kind.unwrap_or(usual);
        // Unique names, because another run may use the same server.
        let run = format!("{:x}", nanos() / 1_000_000);
        Subject { kind, scope: self.scope, objects, groups, run, padding: 0 }
    }
}

/// Runs the scenario.
///
/// # Errors
/// The server cannot be set up or reached at all; later failures are in the report.
pub(crate) async fn run(common: &Common, flags: &Flags) -> Result<Report, Failure> {
    let Common { target, pid, clients, .. } = common;
    let mut writer = Writer::prepare(target, flags.subject(*clients), flags.writers as usize, flags.bytes).await?;
    let mut report = blank("fanout", common);
    report.path = writer.subject().watched(0).trim_end_matches(['?', '&']).to_owned();
    let sampler = sampler(*pid, target)?;
    let sample = || sampler.as_ref().and_then(|sampler| sampler.sample().ok()).unwrap_or_default();
    tokio::time::sleep(REST).await;
    let mut looks = Looks { idle: sample(), ..Looks::default() };

    let mut warm = WarmUp::default();
    let before = sample();
    warm.write(&mut writer, flags).await;
    let alone = Alone { cpu_seconds: sample().cpu_seconds - before.cpu_seconds, writes: warm.numbers.len() };
    warm.numbers.clear();
    let position = writer.position().await?;
    let crowd = Crowd::start(&plan(common, flags, writer.subject(), &position)).map_err(failed)?;
    let closed = crowd.opened(*clients as usize, OPEN_WAIT).await;
    tokio::time::sleep(REST).await;
    warm.write(&mut writer, flags).await;
    crowd.settled(HEAD_WAIT).await;
    crowd.forget_latency();
    looks.connected = sample();
    looks.held = Some(looks.connected);

    let (client_before, bytes_before) = (own_cpu().unwrap_or_default(), crowd.bytes());
    let pace = Pace { rate: flags.rate, burst: flags.burst, time: common.time };
    let written = writer.write(pace, warm.next).await;
    let expected: Vec<u32> = warm.numbers.iter().chain(&written.numbers).copied().collect();
    let all = concerned(writer.subject(), *clients, &expected);
    let late = crowd.delivered(all, HEAD_WAIT).await;
    let never = crowd.delivered(all, LATE_WAIT).await;
    looks.ended = sample();
    report.client_cpu_seconds = (own_cpu().unwrap_or_default() - client_before).as_secs_f64();
    report.bytes = crowd.bytes() - bytes_before;
    looks.peaks = sampler.as_ref().map(Sampler::peaks).unwrap_or_default();
    let sight = crowd.stop()?;
    tokio::time::sleep(REST).await;
    looks.after = sample();
    report.server_process = pid.map(|pid| looks.report(pid, u64::from(*clients)));

    report.failures.merge(std::mem::take(&mut warm.failures));
    for _ in 0..closed {
        report.failures.add(Failure::new(Kind::Timeout, "a watch did not open"));
    }
    report.add("behindAfterOneSecond", late);
    report.add("neverDelivered", never);
    let counted = concerned(writer.subject(), *clients, &written.numbers);
    report.add("objectBytes", writer.bytes());
    describe(&mut report, &written, counted);
    describe_alone(&mut report, alone);
    check(&mut report, writer.subject(), &expected, sight);
    writer.clean().await.err().into_iter().for_each(|failure| report.failures.add(failure));
    Ok(report)
}

/// An empty report.
pub(super) fn blank(scenario: &str, common: &Common) -> Report {
    let Common { target, clients, .. } = common;
    Report {
        scenario: scenario.to_owned(),
        server: target.url().to_owned(),
        http: if target.http() == Http::Two { 2 } else { 1 },
        tls: target.is_tls(),
        clients: u64::from(*clients),
        ..Report::default()
    }
}

pub(super) fn sampler(pid: Option<u32>, target: &Target) -> Result<Option<Sampler>, Failure> {
    pid.map(|pid| Sampler::start(pid, target.address().port())).transpose().map_err(failed)
}

pub(super) fn failed(error: std::io::Error) -> Failure {
    Failure::new(Kind::Client, error)
}

/// One watch per client, all from the same position.
pub(super) fn plan(common: &Common, flags: &Flags, subject: &Subject, position: &str) -> Plan {
    let rest =
        format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={TIMEOUT_SECONDS}&resourceVersion={position}");
    let paths = (0..common.clients as usize).map(|watcher| format!("{}{rest}", subject.watched(watcher))).collect();
    let Common { target, connect_rate, .. } = common;
    Plan {
        target: target.clone(),
        paths: Arc::new(paths),
        streams: flags.streams as usize,
        connect_rate: *connect_rate,
        initial: false,
    }
}

/// Writes before the measurement.
#[derive(Default)]
struct WarmUp {
    /// Numbers of the successful writes, which watchers must receive.
    numbers: Vec<u32>,
    /// The first number after these writes.
    next: u32,
    failures: Failures,
}

impl WarmUp {
    async fn write(&mut self, writer: &mut Writer, flags: &Flags) {
        let time = flags.warm_up();
        if time.is_zero() {
            return;
        }
        let pace = Pace { rate: flags.rate, burst: flags.burst, time };
        let Written { numbers, failures, .. } = writer.write(pace, self.next).await;
        self.numbers.extend(numbers);
        self.next += pace.writes();
        self.failures.merge(failures);
    }
}

/// Cost of writes without watchers.
#[derive(Clone, Copy)]
struct Alone {
    cpu_seconds: f64,
    writes: usize,
}

/// Expected deliveries of these writes to all watchers.
pub(crate) fn concerned(subject: &Subject, watchers: u32, numbers: &[u32]) -> u64 {
    let watchers = u64::from(watchers);
    let groups = subject.groups as u64;
    let of = |group: u64| (watchers + groups - 1 - group) / groups;
    numbers.iter().map(|number| of(subject.group(subject.object_of(*number)) as u64)).sum()
}

/// Adds rates, costs and latencies of the run to the report.
fn describe(report: &mut Report, written: &Written, deliveries: u64) {
    #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
    let (writes, counted) = (written.numbers.len() as f64, deliveries as f64);
    let seconds = written.time.as_secs_f64();
    report.seconds = seconds;
    report.requests = written.numbers.len() as u64;
    report.events = deliveries;
    report.add("writesPerSecond", writes / seconds);
    report.add("deliveriesPerSecond", counted / seconds);
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^52")]
    report.add("bytesPerDelivery", report.bytes as f64 / counted);
    report.add("clientMicrosPerDelivery", report.client_cpu_seconds * 1e6 / counted);
    if let Some(server) = &report.server_process {
        let cpu = server.cpu_seconds;
        report.add("serverCpuSecondsPerDelivery", cpu / counted);
        report.add("serverCpuSecondsPerWrite", cpu / writes);
        report.add("serverCpuPercent", cpu / seconds * 100.0);
    }
    report.add("writeMillis", quantiles(&written.latency));
    report.failures.merge(written.failures.clone());
}

#[expect(clippy::cast_precision_loss, reason = "a count of writes")]
fn describe_alone(report: &mut Report, Alone { cpu_seconds, writes }: Alone) {
    if report.server_process.is_some() && writes > 0 {
        report.add("serverCpuSecondsPerWriteAlone", cpu_seconds / writes as f64);
    }
}

/// Quantiles in milliseconds of a histogram in microseconds.
pub(super) fn quantiles(micros: &hdrhistogram::Histogram<u64>) -> serde_json::Value {
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a run are far below 2^52")]
    let millis = |micros: u64| micros as f64 / 1e3;
    let at = |quantile| millis(micros.value_at_quantile(quantile));
    json!({ "p50": at(0.5), "p99": at(0.99), "max": millis(micros.max()) })
}

/// Compares the writes that each watcher received with the expected ones.
pub(super) fn check(report: &mut Report, subject: &Subject, expected: &[u32], sight: Sight) {
    report.add("latencyMillis", quantiles(&sight.latency));
    let (mut lost, mut twice, mut strange) = (0, 0, 0);
    for (watcher, tally) in &sight.tallies {
        let group = subject.group(*watcher);
        let mine = expected.iter().filter(|number| subject.group(subject.object_of(**number)) == group);
        let seen = mine.clone().filter(|number| tally.has(**number)).count() as u64;
        lost += mine.count() as u64 - seen;
        twice += tally.again;
        strange += tally.seen - seen;
    }
    report.add("lost", lost);
    report.add("duplicated", twice);
    report.add("strange", strange);
    report.failures.merge(sight.failures);
    for (count, what) in [(lost, "were lost"), (twice, "came twice"), (strange, "came to somebody else")] {
        if count > 0 {
            report.failures.add(Failure::new(Kind::Count, format!("{count} deliveries {what}")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(scope: Scope, objects: usize, groups: usize) -> Subject {
        Subject { kind: ObjectKind::Pods, scope, objects, groups, run: String::new(), padding: 0 }
    }

    #[test]
    fn deliveries_are_foretold() {
        assert_eq!(concerned(&subject(Scope::All, 10, 1), 7, &[0, 1, 2]), 21);
        // Five watchers of three nodes: two of the first, two of the second, one of the third.
        assert_eq!(concerned(&subject(Scope::Node, 3, 3), 5, &[0, 1, 2, 3]), 2 + 2 + 1 + 2);
        assert_eq!(concerned(&subject(Scope::Node, 100, 10_000), 10_000, &[5, 105]), 2);
    }

    #[test]
    fn a_write_that_one_watcher_missed_is_found() {
        let subject = subject(Scope::All, 4, 1);
        let (mut all, mut less) = (marks::Tally::default(), marks::Tally::default());
        for number in [0, 1, 2] {
            all.add(number);
        }
        for number in [0, 2, 2, 9] {
            less.add(number);
        }
        let times = || hdrhistogram::Histogram::new_with_max(10, 3).unwrap();
        let tallies = vec![(0, all), (1, less)];
        let sight = Sight { tallies, latency: times(), opening: times(), failures: Default::default() };
        let mut report = Report::default();
        check(&mut report, &subject, &[0, 1, 2], sight);
        let counts = ["lost", "duplicated", "strange"].map(|name| report.more[name].as_u64());
        assert_eq!(counts, [Some(1), Some(1), Some(1)]);
        assert!(!report.is_good());
    }
}
