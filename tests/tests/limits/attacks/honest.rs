//! The honest client beside an attack: it reads continuously, writes every fourth time, and records latencies.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tests::{http::Client, objects::configmap};
use tokio::{task::JoinHandle, time::sleep};

/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(20);

/// One request of this many is a write.
const READS_A_WRITE: usize = 4;

/// A running honest client.
pub(crate) struct Honest {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<Duration>>,
}

/// Latencies of the requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) requests: usize,
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
    pub(crate) most: Duration,
}

impl Honest {
    pub(crate) async fn start(client: Client) -> Self {
        Self::start_every(client, PAUSE).await
    }

    /// Starts the client with another pause between two requests.
    pub(crate) async fn start_every(client: Client, pause: Duration) -> Self {
        let own = configmap("honest").data("0");
        if client.get(&own.path()).await.code == 404 {
            client.create(&own).await;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(work(client, pause, Arc::clone(&stop)));
        Self { stop, task }
    }

    /// Stops the client.
    pub(crate) async fn stop(self) -> Took {
        self.stop.store(true, Ordering::Relaxed);
        let mut took = self.task.await.expect("every answer is 200");
        took.sort_unstable();
        let at = |share: usize| took[(took.len() * share / 100).min(took.len() - 1)];
        Took { requests: took.len(), median: at(50), p99: at(99), most: at(100) }
    }
}

async fn work(client: Client, pause: Duration, stop: Arc<AtomicBool>) -> Vec<Duration> {
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) || took.is_empty() {
        let begun = Instant::now();
        let own = configmap("honest").data(&took.len().to_string());
        if took.len() % READS_A_WRITE == 0 {
            client.update(&own).await;
        } else {
            client.get(&own.path()).await.with_code(200);
        }
        took.push(begun.elapsed());
        sleep(pause).await;
    }
    took
}
