//! `load writes`: all clients write objects of their own, one request at a time, without watchers.
//!
//! INVARIANT: each write changes its object, and its answer is read to the end. A refused write is a failure.

use std::{sync::Arc, time::Duration};

use hdrhistogram::Histogram;
use http::Method;
use memchr::memmem;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    client::{Connection, JSON, Target},
    failure::{Failure, Failures, Kind},
    fanout::{Common, blank, failed, quantiles},
    flags::positive,
    report::{Looks, Report},
    sampler::{Sampler, own_cpu},
    writer,
};

/// Collection of the leases of nodes.
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const PODS: &str = "/api/v1/namespaces/load/pods";
/// Writes before the measurement, and the pause after them.
const WARM_UP: Duration = Duration::from_millis(500);
const REST: Duration = Duration::from_millis(500);
/// Environment variables of a pod, which make it 5 KB in all.
const VARIABLES: u32 = 36;

/// Kind of the written objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WrittenKind {
    /// Leases of nodes, some 800 bytes.
    Lease,
    /// Pods of 5 KB.
    Pod,
}

/// The request that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WriteMethod {
    /// PUT of the whole object, at the version that the last answer had.
    Update,
    /// PATCH of an image and an annotation, as a strategic merge.
    StrategicMerge,
    /// Server-side apply of the whole object.
    Apply,
}

/// Flags of `writes`.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "own-writes")]
pub(crate) struct Flags {
    /// Kind of the written objects.
    #[arg(long, value_name = "KIND", value_enum, default_value_t = WrittenKind::Lease)]
    kind: WrittenKind,

    /// The request that writes. Leases are updated.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = WriteMethod::Update)]
    operation: WriteMethod,

    /// Writes a second of all clients together. Left out: each client writes again once it has the answer.
    #[arg(long, value_name = "N", value_parser = positive)]
    rate: Option<f64>,

    /// Objects of each client, which it writes in turn.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,

    /// Leave the objects behind.
    #[arg(long)]
    keep: bool,
}

impl Flags {
    /// Checks combinations of flags. The error is one line.
    pub(super) fn check(&self) -> Result<(), String> {
        match (self.kind, self.operation) {
            (WrittenKind::Lease, WriteMethod::Update)
            | (WrittenKind::Pod, WriteMethod::StrategicMerge | WriteMethod::Apply) => Ok(()),
            (WrittenKind::Lease, WriteMethod::StrategicMerge | WriteMethod::Apply) => {
                Err("leases are written with --operation update".to_owned())
            }
            (WrittenKind::Pod, WriteMethod::Update) => {
                Err("pods are written with --operation strategic-merge or apply".to_owned())
            }
        }
    }
}

/// Runs the scenario.
///
/// # Errors
/// The server cannot be set up or reached at all; later failures are in the report.
pub(super) async fn run(common: &Common, flags: &Flags) -> Result<Report, Failure> {
    let Common { target, pid, clients, time, .. } = common;
    let mut report = blank("writes", common);
    report.path = flags.kind.collection().to_owned();
    let mut writers = prepare(target, *clients, flags).await?;
    let sampler = pid.map(Sampler::without_sockets).transpose().map_err(failed)?;
    let sample = || sampler.as_ref().and_then(|sampler| sampler.sample().ok()).unwrap_or_default();
    let mut looks = Looks { idle: sample(), ..Looks::default() };
    let warm = write_all(&mut writers, *clients, flags.rate, WARM_UP).await;
    sleep(REST).await;
    looks.connected = sample();
    let own_before = own_cpu().unwrap_or_default();
    let written = write_all(&mut writers, *clients, flags.rate, *time).await;
    looks.ended = sample();
    report.client_cpu_seconds = (own_cpu().unwrap_or_default() - own_before).as_secs_f64();
    looks.peaks = sampler.as_ref().map(Sampler::peaks).unwrap_or_default();
    for writer in writers.iter_mut().filter(|_| !flags.keep) {
        writer.clean().await?;
    }
    looks.after = sample();
    report.server_process = pid.map(|pid| looks.report(pid, u64::from(*clients)));
    describe(&mut report, &written);
    report.add("requestsSent", warm.latency.len() + written.latency.len());
    report.failures.merge(warm.failures);
    report.failures.merge(written.failures);
    Ok(report)
}

/// Connects the clients and creates their objects.
async fn prepare(target: &Target, clients: u32, flags: &Flags) -> Result<Vec<LoadWriter>, Failure> {
    let mut first = target.connect().await?;
    for namespace in ["load", "kube-node-lease"] {
        let json = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#);
        writer::create(&mut first, "/api/v1/namespaces", json).await?;
    }
    let mut writers = Vec::new();
    for client in 0..clients {
        let mut connection = target.connect().await?;
        let mut objects = Vec::new();
        for number in client * flags.objects..(client + 1) * flags.objects {
            let body = flags.kind.object(number, None, 0);
            let collection = flags.kind.collection();
            let answer = writer::send(&mut connection, Method::POST, collection, Some((JSON, body))).await?;
            objects.push((number, version(&answer)?.to_owned()));
        }
        let Flags { kind, operation, .. } = flags;
        writers.push(LoadWriter { client, connection, kind: *kind, operation: *operation, objects, count: 0 });
    }
    Ok(writers)
}

/// Results of the writes.
struct ManyWritten {
    /// Microseconds from sending a write to its answer.
    latency: Histogram<u64>,
    /// Microseconds from the time at which a write was due to its answer, at a rate.
    since_due: Histogram<u64>,
    time: Duration,
    failures: Failures,
}

impl ManyWritten {
    fn none() -> Self {
        // Three significant digits, up to a minute.
        let times = || Histogram::new_with_max(60_000_000, 3).expect("constant bounds are valid");
        Self { latency: times(), since_due: times(), time: Duration::ZERO, failures: Failures::default() }
    }
}

/// Lets all clients write for this time.
async fn write_all(writers: &mut Vec<LoadWriter>, clients: u32, rate: Option<f64>, time: Duration) -> ManyWritten {
    let (start, mut tasks) = (Instant::now(), JoinSet::new());
    // Of all clients in turn.
    let pause = rate.map(|rate| Duration::from_secs_f64(1.0 / rate));
    for mut writer in writers.drain(..) {
        tasks.spawn(async move {
            let mut written = ManyWritten::none();
            let mut turn = writer.client;
            while start.elapsed() < time {
                let mut due_at = None;
                if let Some(pause) = pause {
                    let due = pause * turn;
                    turn += clients;
                    if time <= due {
                        break;
                    }
                    due_at = Some(start + due);
                    sleep_until(start + due).await;
                }
                let sent = Instant::now();
                if let Err(failure) = writer.write().await {
                    written.failures.add(failure);
                    break;
                }
                let micros = |since: Instant| u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
                written.latency.saturating_record(micros(sent));
                // A client that waited for its last answer writes late, which the time since sending hides.
                due_at.into_iter().for_each(|due_at| written.since_due.saturating_record(micros(due_at)));
            }
            (writer, written)
        });
    }
    let mut all = ManyWritten::none();
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok((writer, written)) => {
                writers.push(writer);
                // Cannot fail: the histograms have equal bounds.
                let _ = all.latency.add(written.latency);
                let _ = all.since_due.add(written.since_due);
                all.failures.merge(written.failures);
            }
            Err(error) => all.failures.add(Failure::new(Kind::Client, error)),
        }
    }
    all.time = start.elapsed();
    all
}

/// Adds rate, latency and costs to the report.
fn describe(report: &mut Report, written: &ManyWritten) {
    #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^52")]
    let writes = written.latency.len() as f64;
    let seconds = written.time.as_secs_f64();
    report.seconds = seconds;
    report.requests = written.latency.len();
    report.add("writesPerSecond", writes / seconds);
    report.add("writeMillis", quantiles(&written.latency));
    if !written.since_due.is_empty() {
        report.add("dueMillis", quantiles(&written.since_due));
    }
    report.add("clientMicrosPerWrite", report.client_cpu_seconds * 1e6 / writes);
    if let Some(server) = &report.server_process {
        let cpu = server.cpu_seconds;
        report.add("serverCpuSecondsPerWrite", cpu / writes);
        // Of all processes that take part: `numbers` adds those of another storage.
        report.add("allCpuSecondsPerWrite", cpu / writes);
        report.add("serverCpuPercent", cpu / seconds * 100.0);
    }
    if writes < 1.0 {
        report.failures.add(Failure::new(Kind::Count, "no write succeeded"));
    }
}

/// A client with its objects: their numbers and versions.
struct LoadWriter {
    client: u32,
    connection: Connection,
    kind: WrittenKind,
    operation: WriteMethod,
    objects: Vec<(u32, String)>,
    /// Number of its writes.
    count: u32,
}

impl LoadWriter {
    /// Writes the next object.
    async fn write(&mut self) -> Result<(), Failure> {
        self.count += 1;
        let turn = self.count as usize % self.objects.len();
        let (number, known) = &mut self.objects[turn];
        let path = self.kind.path(*number);
        let (method, path, kind, body) = match self.operation {
            WriteMethod::Update => (Method::PUT, path, JSON, self.kind.object(*number, Some(known), self.count)),
            WriteMethod::StrategicMerge => {
                (Method::PATCH, path, "application/strategic-merge-patch+json", strategic(self.count))
            }
            WriteMethod::Apply => {
                let path = format!("{path}?fieldManager=load&force=true");
                (Method::PATCH, path, "application/apply-patch+yaml", self.kind.object(*number, None, self.count))
            }
        };
        let answer = writer::send(&mut self.connection, method, &path, Some((kind, body))).await?;
        let new = version(&answer)?;
        if new == known {
            return Err(Failure::new(Kind::Protocol, format!("the write of {path} changed nothing")));
        }
        new.clone_into(known);
        Ok(())
    }

    /// Deletes the objects, so that the next run finds the server in the same state.
    async fn clean(&mut self) -> Result<(), Failure> {
        for (number, _) in &self.objects {
            let path = format!("{}?gracePeriodSeconds=0", self.kind.path(*number));
            writer::send(&mut self.connection, Method::DELETE, &path, None).await?;
        }
        Ok(())
    }
}

impl WrittenKind {
    const fn collection(self) -> &'static str {
        match self {
            Self::Lease => LEASES,
            Self::Pod => PODS,
        }
    }

    fn path(self, number: u32) -> String {
        let name = if self == Self::Lease { "node" } else { "pod" };
        format!("{}/{name}-{number}", self.collection())
    }

    /// The object after this number of writes.
    fn object(self, number: u32, version: Option<&str>, count: u32) -> String {
        match self {
            Self::Lease => lease(number, version, count),
            Self::Pod => pod(number, count),
        }
    }
}

/// The resourceVersion of a written object.
///
/// # Errors
/// There is none.
pub(crate) fn version(object: &[u8]) -> Result<&str, Failure> {
    const MEMBER: &[u8] = br#""resourceVersion":""#;
    let start = memmem::find(object, MEMBER).map(|at| at + MEMBER.len());
    let digits = start.and_then(|start| object.get(start..)?.split(|byte| *byte == b'"').next());
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.ok_or_else(|| Failure::new(Kind::Protocol, "an answer without a resourceVersion"))
}

/// A lease as written by a kubelet, with the ownerReferences and managedFields that kube-apiserver stores. Each count
/// gives another time.
pub(crate) fn lease(node: u32, version: Option<&str>, count: u32) -> String {
    let version = version.map_or_else(String::new, |version| format!(r#""resourceVersion":"{version}","#));
    let uid = format!("1f0e3dad-9990-4f5e-8b3e-{node:012}");
    format!(
        r#"{{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{{"name":"node-{node}","namespace":"kube-node-lease",{version}"ownerReferences":[{{"apiVersion":"v1","kind":"Node","name":"node-{node}","uid":"{uid}"}}],"managedFields":[{{"manager":"kubelet","operation":"Update","apiVersion":"coordination.k8s.io/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"{uid}\"}}":{{}}}}}},"f:spec":{{"f:holderIdentity":{{}},"f:leaseDurationSeconds":{{}},"f:renewTime":{{}}}}}}}}]}},"spec":{{"holderIdentity":"node-{node}","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:00.{count:06}Z"}}}}"#
    )
}

/// A pod of 5 KB. Each count gives another image.
fn pod(number: u32, count: u32) -> String {
    let text: Arc<str> = "a value as long as an address in a cluster: ".repeat(2).into();
    let variables: Vec<String> = (0..VARIABLES)
        .map(|variable| format!(r#"{{"name":"VARIABLE_{variable:02}","value":"{text}{variable}"}}"#))
        .collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"pod-{number}","namespace":"load","labels":{{"app":"load","tier":"backend"}},"annotations":{{"load/count":"{count}"}}}},"spec":{{"nodeName":"node-{number}","containers":[{{"name":"main","image":"registry.example/load:{count}","env":[{}],"resources":{{"requests":{{"cpu":"100m","memory":"64Mi"}}}}}}]}}}}"#,
        variables.join(",")
    )
}

/// A strategic merge patch of such a pod.
fn strategic(count: u32) -> String {
    format!(
        r#"{{"metadata":{{"annotations":{{"load/count":"{count}"}}}},"spec":{{"containers":[{{"name":"main","image":"registry.example/load:{count}"}}]}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_lease_is_json_of_the_usual_size() {
        let text = lease(7, Some("12"), 1_234_567 % 1_000_000);
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:renewTime"], json!({}));
        assert!((700..1_000).contains(&text.len()), "{}", text.len());
        assert_eq!(version(text.as_bytes()), Ok("12"));
        assert!(version(b"{}").is_err());
    }

    #[test]
    fn a_pod_has_5_kb_and_its_patch_changes_it() {
        let text = pod(7, 1);
        assert!((4_700..5_300).contains(&text.len()), "{}", text.len());
        let (object, patch): (Value, Value) =
            (serde_json::from_str(&text).unwrap(), serde_json::from_str(&strategic(2)).unwrap());
        assert_eq!(object["spec"]["containers"][0]["name"], patch["spec"]["containers"][0]["name"]);
        assert_ne!(object["spec"]["containers"][0]["image"], patch["spec"]["containers"][0]["image"]);
    }

    #[test]
    fn a_kind_is_written_as_its_clients_do() {
        let flags = |kind, operation| Flags { kind, operation, rate: None, objects: 8, keep: false };
        assert!(flags(WrittenKind::Lease, WriteMethod::Update).check().is_ok());
        assert!(flags(WrittenKind::Lease, WriteMethod::Apply).check().is_err());
        assert!(flags(WrittenKind::Pod, WriteMethod::Update).check().is_err());
    }
}
