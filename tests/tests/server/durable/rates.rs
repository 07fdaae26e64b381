//! Durable writes per second, beside the syncs per second of the same disk.
//!
//! `RATE_SECONDS=10 cargo test --release -p tests --test server rates -- --nocapture` prints the table of
//! `docs/storage.md`. `RATE_FOLDER` names a folder on the disk to measure; without it, that of temporary files.

#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::{
    env, fs,
    io::{Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use http::{Method, header};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use tests::{http::Client, objects::configmap, process::Server};
use tokio::{net::TcpStream, task::JoinSet};

use super::BINARY;

/// Bytes of an object.
const OBJECT_BYTES: usize = 600;

/// Bytes of the file that is synced: its blocks exist, as most of a data file's do.
const SYNCED_BYTES: u64 = 32 << 20;

/// One measurement.
struct WriteRate {
    writers: usize,
    per_second: f64,
    /// Latencies in order.
    latencies: Vec<Duration>,
    /// Bytes that the server wrote to the disk, per object.
    disk_bytes: usize,
}

/// Creates objects over one connection until the time has passed. Returns the latencies.
async fn create(server: std::net::SocketAddr, writer: String, until: Instant) -> Vec<Duration> {
    let stream = TcpStream::connect(server).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut latencies = Vec::new();
    while Instant::now() < until {
        let object = configmap(&format!("{writer}-{}", latencies.len())).data(&"x".repeat(OBJECT_BYTES - 150));
        let headers = [("content-type", "application/json")];
        let mut request =
            Client::request(Method::POST, &object.collection(), &headers, object.body().to_string().into());
        request.headers_mut().insert(header::HOST, "localhost".parse().unwrap());
        let begun = Instant::now();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 201);
        answer.into_body().collect().await.unwrap();
        latencies.push(begun.elapsed());
    }
    latencies
}

/// Bytes that the process caused to be written to disks.
fn disk_bytes(server: &Server) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", server.id())).unwrap_or_default();
    let bytes = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or_default()
}

async fn measure(server: &Server, writers: usize, time: Duration) -> WriteRate {
    let (begun, before) = (Instant::now(), disk_bytes(server));
    let mut running = JoinSet::new();
    for writer in 0..writers {
        running.spawn(create(server.address(), format!("w{writers}-{writer}"), begun + time));
    }
    let mut latencies = running.join_all().await.concat();
    let per_second = latencies.len() as f64 / begun.elapsed().as_secs_f64();
    latencies.sort();
    let disk_bytes = usize::try_from(disk_bytes(server) - before).unwrap() / latencies.len();
    WriteRate { writers, per_second, latencies, disk_bytes }
}

/// Returns how often a second the disk syncs `bytes` that were written to blocks of a file.
fn syncs_per_second(folder: &Path, bytes: usize, time: Duration) -> f64 {
    let path = folder.join("synced");
    let mut file = fs::File::create(&path).unwrap();
    let chunk = vec![0x5a; bytes];
    for _ in 0..=SYNCED_BYTES / bytes as u64 {
        file.write_all(&chunk).unwrap();
    }
    file.sync_all().unwrap();
    let (begun, mut syncs, mut at) = (Instant::now(), 0_u32, 0);
    while begun.elapsed() < time {
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&chunk).unwrap();
        file.sync_data().unwrap();
        syncs += 1;
        at = (at + bytes as u64) % SYNCED_BYTES;
    }
    fs::remove_file(path).unwrap();
    f64::from(syncs) / begun.elapsed().as_secs_f64()
}

/// Goal: durable writes are acknowledged at a rate that an operator can compare with the disk's. Method: writers with one
/// connection each, then syncs of as many bytes as one write of each of them needs, in one run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn durable_writes_beside_the_syncs_of_their_disk() {
    let seconds = env::var("RATE_SECONDS").map_or(0.2, |seconds| seconds.parse().unwrap());
    let time = Duration::from_secs_f64(seconds);
    let place = env::var_os("RATE_FOLDER").map_or_else(env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(place).unwrap();
    let data = folder.path().join("data");
    let server = Server::start(BINARY, &["--data-dir", data.to_str().unwrap()]).await;
    let mut created = 0;
    for writers in [64, 16, 1] {
        let rate = measure(&server, writers, time).await;
        created += rate.latencies.len();
        let at = |percent: usize| rate.latencies[(rate.latencies.len() - 1) * percent / 100].as_secs_f64() * 1e3;
        let batch = (rate.disk_bytes.max(1) * rate.writers).next_multiple_of(4_096);
        let (folder, a_while) = (folder.path().to_owned(), time.min(Duration::from_secs(3)));
        let syncs = tokio::task::spawn_blocking(move || syncs_per_second(&folder, batch, a_while)).await.unwrap();
        println!(
            "{} writers: {:.0} writes/s, p50 {:.1} ms, p99 {:.1} ms, {} bytes to disk each; the disk syncs {batch} bytes \
             {syncs:.0} times/s, so one sync for {} writes allows {:.0} writes/s",
            rate.writers,
            rate.per_second,
            at(50),
            at(99),
            rate.disk_bytes,
            rate.writers,
            syncs * rate.writers as f64
        );
    }
    let found = server.client().get("/api/v1/configmaps?limit=1").await.with_code(200);
    assert_eq!(found.remaining(), Some(created as u64 - 1), "every acknowledged write is there");
}
