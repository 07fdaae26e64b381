//! Many objects are listed while 500 writes/s come in, through a server as a process: each list is whole and as new as its
//! start, a watch has each write once, and the server needs little more memory than afterwards.
//!
//! `STORAGE_OBJECTS=100000` is the long form; it needs a release build.

mod clients;
mod servers;

use std::{env, sync::Arc, time::Duration};

use futures::FutureExt as _;
use tests::process::Server;
use tokio::{sync::Mutex, task::JoinSet, time::sleep};

use self::{
    clients::{Pods, Writes},
    servers::MeasuredServer,
};

/// Pods in the short form.
const OBJECTS: usize = 2_000;

/// Writes in the short form, and their pace, which a debug build does not keep.
const WRITES: u64 = 500;
const WRITES_PER_SECOND: u32 = 500;

/// Seconds of writes in the long form.
const LONG_SECONDS: u64 = 30;

/// Lists of each kind that are read while writes come in, in the short form and in the long one.
const LISTS: [usize; 2] = [1, 3];

/// One server is measured at a time.
static MEASURED: Mutex<()> = Mutex::const_new(());

/// Largest ratio of the peak to the size afterwards.
const PEAK_RATIO: f64 = 1.2;

/// Bytes that a server with few objects may need beside that: its code is read from the disk at the first use, and a debug
/// build has much.
const PEAK_SLACK: f64 = (48 << 20) as f64;

/// Pause between two looks at the size, and looks without a smaller one until it is steady.
const SIZE_EVERY: Duration = Duration::from_millis(250);
const SIZES_STEADY: usize = 4;

/// Number of pods: that of the long form is in the environment.
fn objects() -> usize {
    env::var("STORAGE_OBJECTS").map_or(OBJECTS, |objects| objects.parse().expect("a number of objects"))
}

/// Flag for the server that makes the pods.
fn populate() -> String {
    let objects = objects();
    format!("--populate=pods={objects},nodes={},namespaces=10,seed=1", objects.div_ceil(100))
}

/// Goal: see the head of the file. Method: lanes of clients write at a fixed pace; beside them one client pages through
/// lists, one reads watch-lists, and one watches, which all check what they read.
async fn holds(starting: impl Future<Output = Option<MeasuredServer>>) {
    let _alone = MEASURED.lock().await;
    let Some(measured) = starting.await else { return };
    let (server, source) = (&measured.server, measured.written());
    let (writes, lists) = match objects() {
        OBJECTS => (WRITES, LISTS[0]),
        _ => (LONG_SECONDS * u64::from(WRITES_PER_SECOND), LISTS[1]),
    };
    let pods = Arc::new(Pods::new(source, objects()).await);
    let mut clients = JoinSet::new();
    clients.spawn(Writes::new(&pods, source).run(writes, WRITES_PER_SECOND));
    clients.spawn(clients::page(Arc::clone(&pods), server.client(), lists));
    clients.spawn(clients::watch_lists(Arc::clone(&pods), server.client(), lists));
    clients.spawn(clients::watch(Arc::clone(&pods), server.client(), writes));
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    let peak = server.peak_bytes();
    let steady = steady(server).await;
    let mib = |bytes: u64| bytes >> 20;
    let name = measured.name;
    eprintln!("{name}: {} pods, peak {} MiB, then {} MiB", objects(), mib(peak), mib(steady));
    #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
    let (peak, steady) = (peak as f64, steady as f64);
    let slack = if objects() == OBJECTS { PEAK_SLACK } else { 0.0 };
    assert!(peak <= PEAK_RATIO * steady + slack, "{name}: peak {peak}, steady {steady}");
}

/// Waits until the server has returned the memory that it does not need, and returns its size.
async fn steady(server: &Server) -> u64 {
    let (mut least, mut since) = (server.forget_peak(), 0);
    while since < SIZES_STEADY {
        sleep(SIZE_EVERY).await;
        let now = server.forget_peak();
        since = if now < least { 0 } else { since + 1 };
        least = least.min(now);
    }
    least
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_lists_many_objects_under_writes() {
    holds(servers::memory().map(Some)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redb_lists_many_objects_under_writes() {
    holds(servers::durable().map(Some)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstream_lists_many_objects_under_writes() {
    holds(servers::upstream().map(Some)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_lists_many_objects_under_writes() {
    holds(servers::etcd()).await;
}
