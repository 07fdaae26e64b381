//! Memory of a real server process: its cost per client, and what it frees after bursts. The program's own pages are
//! not counted: each new code path loads some, and a debug build has many.
//!
//! INVARIANT: no measurement of time. The tests wait for memory to be freed and fail only if that never happens.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::{io::Read as _, time::Duration};

use flate2::read::GzDecoder;
use futures::future::join_all;
use tests::{
    http::{Client, watch_list},
    objects::{pod, secret},
    process::Server,
    slow::{End, Slow},
};
use tokio::time::{sleep, timeout};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const PODS: &str = "/api/v1/pods";
const POPULATE: &str = "pods=1000,nodes=20,namespaces=10,seed=1";

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Allowance above the floor after a burst, in bytes.
const SLACK: u64 = 4 * MIB;

/// Number of clients in a burst of whole responses.
const BURST: usize = 32;

/// Maximum memory cost of a reading client, in bytes.
const CLIENT: u64 = 64 * KIB;

const CLIENTS: usize = 64;

/// Timeout for freeing the memory of a burst. The server checks every second, and twice before it frees memory.
const GIVEN_BACK: Duration = Duration::from_secs(60);

struct World {
    server: Server,
    client: Client,
}

impl World {
    async fn new() -> Self {
        let arguments = ["--populate", POPULATE, "--window-bytes", "1MiB"];
        let server = Server::start(BINARY, &arguments).await;
        let client = server.client();
        Self { server, client }
    }

    async fn metric(&self, name: &str) -> u64 {
        let answer = self.client.get("/metrics").await.with_code(200);
        let value = answer.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
        value.parse().unwrap()
    }

    /// Returns the size once it has been stable for 2.5 s.
    async fn settled(&self) -> u64 {
        let mut last = self.server.private_bytes();
        let mut same = 0;
        while same < 10 {
            sleep(Duration::from_millis(250)).await;
            let now = self.server.private_bytes();
            same = if now.abs_diff(last) < 64 * KIB { same + 1 } else { 0 };
            last = now;
        }
        last
    }

    async fn open(&self, count: usize, path: &str, headers: &[(&str, &str)]) -> Vec<Slow> {
        join_all((0..count).map(|_| Slow::get(self.server.address(), path, headers))).await
    }

    /// Reads `count` responses to their end concurrently, without keeping their bodies.
    async fn read(&self, count: usize, path: &str, headers: &[(&str, &str)]) {
        let mut readers = self.open(count, path, headers).await;
        let ends = join_all(readers.iter_mut().map(async |reader| {
            while reader.end().is_none() {
                reader.take(1 << 20).await;
                reader.forget();
            }
            reader.end()
        }));
        assert!(ends.await.iter().all(|end| *end == Some(End::Clean)), "{path}");
    }

    async fn is_given_back(&self, floor: u64, after: &str) {
        let mut last = 0;
        let reached = timeout(GIVEN_BACK, async {
            loop {
                last = self.server.private_bytes();
                if last <= floor + SLACK {
                    return;
                }
                sleep(Duration::from_millis(100)).await;
            }
        });
        let reached = reached.await.is_ok();
        eprintln!("{after}: floor {} KiB, now {} KiB", floor >> 10, last >> 10);
        assert!(reached, "{after}: {} KiB stay above the floor of {} KiB", (last - floor) >> 10, floor >> 10);
    }
}

/// Goal: a burst leaves no memory behind. Method: each kind of burst against one server. The floor is its size after it
/// has served each kind of request once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_given_back_after_every_kind_of_burst() {
    let world = World::new().await;
    let until = format!("{}&timeoutSeconds=10", watch_list(PODS));
    world.read(1, PODS, &[]).await;
    world.read(1, PODS, &[("accept-encoding", "gzip")]).await;
    world.read(1, &until, &[]).await;
    // Indented lists and large writes run on separate threads, whose stacks and arenas persist: warm them up.
    world.read(1, &format!("{PODS}?pretty=1"), &[]).await;
    // This text is valid base64.
    let big = "x".repeat(1 << 20);
    let first = secret("first").with("data", serde_json::json!({"k": big}));
    world.client.create(&first).await;
    world.client.delete(&first.path()).await.with_code(200);
    let floor = world.settled().await;

    world.read(BURST, PODS, &[]).await;
    world.is_given_back(floor, "LISTs").await;
    world.read(BURST, &until, &[]).await;
    world.is_given_back(floor, "watch-lists").await;
    world.read(BURST, PODS, &[("accept-encoding", "gzip")]).await;
    world.is_given_back(floor, "compressed LISTs").await;
    world.read(8, &format!("{PODS}?pretty=1"), &[]).await;
    world.is_given_back(floor, "indented LISTs").await;
    world.read(8, PODS, &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")]).await;
    let floor = floor + world.metric("cache_objects{resource=\"pods\"}").await * KIB;
    world.is_given_back(floor, "tables, whose cells are kept").await;

    for round in 0..2 {
        let secrets: Vec<_> = (0..16)
            .map(|index| secret(&format!("s{round}-{index}")).with("data", serde_json::json!({"k": big})))
            .collect();
        join_all(secrets.iter().map(|secret| world.client.create(secret))).await;
        world.read(8, "/api/v1/secrets", &[]).await;
        join_all(secrets.iter().map(async |secret| world.client.delete(&secret.path()).await.with_code(200))).await;
    }
    world.is_given_back(floor + 2 * MIB, "Secrets of 1 MB, with one in the window").await;

    for round in 0..1_000 {
        let churning = pod(&format!("churn{}", round % 50)).label("round", &round.to_string());
        if round < 50 {
            world.client.create(&churning).await;
        } else {
            world.client.update(&churning).await;
        }
    }
    world.is_given_back(floor + 2 * MIB, "churn, with its window").await;

    // Each watch is a connection of this process, which has tests beside this one and often 1,024 open files.
    rlimit::increase_nofile_limit(4_096).unwrap();
    let head = world.client.get(PODS).await.with_code(200).resource_version();
    let nodes = (0..1_000).map(async |index| {
        let path = format!("{PODS}?watch=1&resourceVersion={head}&fieldSelector=spec.nodeName%3Dn{index}");
        Slow::get(world.server.address(), &path, &[]).await
    });
    let watches = join_all(nodes).await;
    drop(watches);
    world.is_given_back(floor + 2 * MIB, "watches of a thousand nodes").await;
}

/// Goal: a slow consumer has a small cost for every kind of response. Method: as many clients of each kind as are
/// served at once, all in the middle of their response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_costs_at_most_64_kib() {
    let world = World::new().await;
    for (what, path, gzip) in [
        ("LIST", PODS.to_owned(), false),
        ("compressed LIST", PODS.to_owned(), true),
        ("watch-list", watch_list(PODS), false),
        ("compressed watch-list", watch_list(PODS), true),
    ] {
        let headers = if gzip { &[("accept-encoding", "gzip")][..] } else { &[] };
        // Warm up state that is created once and kept.
        let mut first = Slow::get(world.server.address(), &path, headers).await;
        first.take(300_000).await;
        drop(first);
        let before = world.settled().await;
        let mut readers = world.open(CLIENTS, &path, headers).await;
        join_all(readers.iter_mut().map(|reader| reader.take(100_000))).await;
        let after = world.settled().await;
        let each = after.saturating_sub(before) / CLIENTS as u64;
        eprintln!("{what}: {} bytes for each of {CLIENTS} clients", each);
        assert!(each <= CLIENT, "{what}: {each} bytes for each client");
        assert!(readers.iter().all(|reader| reader.end().is_none()), "{what}: in the middle of the answer");
    }
}

#[tokio::test]
async fn a_compressed_list_is_the_list() {
    let world = World::new().await;
    let plain = world.client.get(PODS).await.with_code(200);
    let packed = world.client.get_with(PODS, &[("accept-encoding", "gzip")]).await.with_code(200);
    assert_eq!(packed.header("content-encoding"), "gzip");
    let mut text = Vec::new();
    GzDecoder::new(&*packed.body).read_to_end(&mut text).unwrap();
    assert!(text == plain.body, "the same bytes");
    let kept = world.metric("cache_compressed_bytes").await;
    assert!(0 < kept && kept < plain.body.len() as u64, "{kept}");
    world.client.get_with(PODS, &[("accept-encoding", "gzip")]).await.with_code(200);
    assert_eq!(world.metric("cache_compressed_bytes").await, kept, "the second list shares the first one's blocks");
}
