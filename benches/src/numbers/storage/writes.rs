//! Writes of 64 clients: each creates ConfigMaps, and then changes its own, one request at a time.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use http::Method;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::{Failure, StorageSizes, disk::DiskSpeed, subject::MeasuredStorage};
use crate::{
    load::{
        client::{Connection, JSON, Target},
        failure::{Failure as LoadFailure, Kind},
        sampler::Sampler,
        writer,
    },
    numbers::server::runtime,
};

/// Clients that write at the same time.
pub(super) const WRITERS: usize = 64;

/// Bytes of an object's data.
pub(super) const DATA_BYTES: usize = 1_000;

const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";

/// Least rate of creations with `--data-dir`; less is met if the disk does not allow it.
const DURABLE_RATE_MIN: f64 = 5_000.0;

/// Share of the rate that the disk allows which is enough.
const DISK_SHARE_MIN: f64 = 0.8;

/// The writes of one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WriteRow {
    pub(super) server: String,
    pub(super) creations: Option<WriteCosts>,
    pub(super) changes: Option<WriteCosts>,
    /// Reason why there are no numbers.
    pub(super) problem: Option<String>,
}

/// Rate, latency and costs of writes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct WriteCosts {
    pub(super) per_second: f64,
    pub(super) p50_millis: f64,
    pub(super) p99_millis: f64,
    /// CPU seconds of the server's process for 1,000 writes.
    pub(super) cpu_server: f64,
    /// CPU seconds of its etcd for 1,000 writes.
    pub(super) cpu_etcd: Option<f64>,
}

impl WriteRow {
    pub(super) fn of(server: String, measured: Result<[WriteCosts; 2], String>) -> Self {
        let (creations, changes, problem) = match measured {
            Ok([creations, changes]) => (Some(creations), Some(changes), None),
            Err(problem) => (None, None, Some(problem)),
        };
        Self { server, creations, changes, problem }
    }

    /// True if its target is met: durable writes have one.
    pub(super) fn holds(&self, disk: &DiskSpeed) -> bool {
        let least = DURABLE_RATE_MIN.min(DISK_SHARE_MIN * disk.writes_per_second);
        let is_durable = self.server == MeasuredStorage::DataDir.name();
        let rate = self.creations.map_or(0.0, |creations| creations.per_second);
        self.problem.is_none() && (!is_durable || least <= rate)
    }
}

/// Measures creations, and then changes.
pub(super) fn measure(
    storage: MeasuredStorage,
    programs: &Path,
    sizes: StorageSizes,
) -> Result<[WriteCosts; 2], Failure> {
    let running = storage.serve(storage.empty(programs)?, None)?;
    let target = running.endpoint().target()?;
    let server = Sampler::without_sockets(running.endpoint().pid)?;
    let etcd = running.etcd().map(Sampler::without_sockets).transpose()?;
    let runtime = runtime()?;
    let (mut connections, mut costs) = (runtime.block_on(connect(&target))?, Vec::new());
    for operation in [WriteOperation::Create, WriteOperation::Change] {
        let before = (server.cpu()?, etcd.as_ref().map(Sampler::cpu).transpose()?);
        let begun = Instant::now();
        let written = runtime.block_on(operation.run(&mut connections, sizes.time))?;
        let seconds = begun.elapsed().as_secs_f64();
        let count = float(written.len());
        let cpu = |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64() / count * 1_000.0;
        let cpu_etcd = match (before.1, &etcd) {
            (Some(before), Some(etcd)) => Some(cpu(before, etcd.cpu()?)),
            _ => None,
        };
        let millis = |quantile| float(written.value_at_quantile(quantile)) / 1e3;
        costs.push(WriteCosts {
            per_second: count / seconds,
            p50_millis: millis(0.5),
            p99_millis: millis(0.99),
            cpu_server: cpu(before.0, server.cpu()?),
            cpu_etcd,
        });
    }
    costs.try_into().map_err(|_| Failure::Load("there are two operations".to_owned()))
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
const fn float(value: u64) -> f64 {
    value as f64
}

/// A client: its connection, and the number of objects that it created.
struct WritingClient {
    number: usize,
    connection: Connection,
    created: usize,
}

async fn connect(target: &Target) -> Result<Vec<WritingClient>, LoadFailure> {
    let mut clients = Vec::new();
    for number in 0..WRITERS {
        clients.push(WritingClient { number, connection: target.connect().await?, created: 0 });
    }
    let namespace = r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default"}}"#;
    writer::create(&mut clients[0].connection, "/api/v1/namespaces", namespace.to_owned()).await?;
    Ok(clients)
}

#[derive(Clone, Copy)]
enum WriteOperation {
    Create,
    Change,
}

impl WriteOperation {
    /// Lets all clients write for a time. Returns the latencies in microseconds.
    async fn run(self, clients: &mut Vec<WritingClient>, time: Duration) -> Result<Histogram<u64>, LoadFailure> {
        let (until, data) = (Instant::now() + time, Arc::<str>::from("x".repeat(DATA_BYTES)));
        let mut tasks = JoinSet::new();
        for mut client in clients.drain(..) {
            let data = Arc::clone(&data);
            tasks.spawn(async move {
                let (mut latency, mut number) = (histogram(), 0);
                while Instant::now() < until {
                    let sent = Instant::now();
                    self.write(&mut client, number, &data).await?;
                    let micros = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
                    latency.saturating_record(micros);
                    number += 1;
                }
                Ok::<_, LoadFailure>((client, latency))
            });
        }
        let mut all = histogram();
        while let Some(ended) = tasks.join_next().await {
            let (client, latency) = ended.map_err(|error| LoadFailure::new(Kind::Client, error))??;
            clients.push(client);
            // Cannot fail: the histograms have equal bounds.
            let _ = all.add(latency);
        }
        Ok(all)
    }

    async fn write(self, client: &mut WritingClient, number: usize, data: &str) -> Result<(), LoadFailure> {
        let WritingClient { number: writer, connection, created } = client;
        let (method, object) = match self {
            Self::Create => (Method::POST, number),
            Self::Change => (Method::PUT, number % (*created).max(1)),
        };
        let name = format!("w{writer}-{object}");
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"default"}},"data":{{"n":"{number}","text":"{data}"}}}}"#
        );
        let path = if method == Method::POST { COLLECTION.to_owned() } else { format!("{COLLECTION}/{name}") };
        if method == Method::POST {
            *created += 1;
        }
        writer::send(connection, method, &path, Some((JSON, body))).await.map(drop)
    }
}

fn histogram() -> Histogram<u64> {
    // Three significant digits, up to a minute.
    Histogram::new_with_max(60_000_000, 3).expect("constant bounds are valid")
}
