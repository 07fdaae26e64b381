//! Writers of ConfigMaps that go on through faults: a write without an answer of success goes to the next server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http::Method;
use tests::{
    http::Client,
    objects::{Object, configmap},
};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

use super::{PATIENCE, follower::History};

/// Objects of each writer.
const NAMES: usize = 20;
/// Namespaces that the writers share.
pub(crate) const NAMESPACES: usize = 4;
/// Pause before a write is sent again.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Revision and key of an acknowledged write that created or changed an object.
type Acknowledged = Vec<(u64, String)>;

/// Running writers.
pub(crate) struct Writers {
    tasks: JoinSet<Acknowledged>,
    is_over: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
}

/// State that the writers share.
#[derive(Clone)]
struct Shared {
    servers: Vec<Client>,
    is_over: Arc<AtomicBool>,
    written: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
}

/// Name of a namespace of the writers.
pub(crate) fn team(number: usize) -> String {
    format!("team-{}", number % NAMESPACES)
}

impl Writers {
    /// Starts `count` writers, each with a pause between two writes. Their namespaces must exist.
    pub(crate) fn start(servers: &[Client], count: usize, pause: Duration) -> Self {
        let (is_over, written, failed) = (Arc::default(), Arc::default(), Arc::default());
        let shared = Shared { servers: servers.to_vec(), is_over, written, failed };
        let mut tasks = JoinSet::new();
        for writer in 0..count {
            tasks.spawn(write(writer, shared.clone(), pause));
        }
        let Shared { is_over, written, failed, .. } = shared;
        Self { tasks, is_over, written, failed }
    }

    /// Number of acknowledged writes so far.
    pub(crate) fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// Number of requests so far that were not answered with success.
    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::Relaxed)
    }

    /// Waits until as many more writes are acknowledged.
    pub(crate) async fn wrote(&self, more: usize) {
        let enough = self.written() + more;
        super::until("writes are acknowledged", async || self.written() >= enough).await;
    }

    /// Stops them.
    pub(crate) async fn stop(self) -> WriterLog {
        self.is_over.store(true, Ordering::Relaxed);
        WriterLog(self.tasks.join_all().await.concat())
    }
}

/// The acknowledged writes of all writers.
pub(crate) struct WriterLog(Acknowledged);

impl WriterLog {
    /// Asserts that each acknowledged write is in etcd's history, at its revision.
    pub(crate) fn assert_within(mut self, history: &History) {
        self.0.sort_unstable();
        let mut puts = history.puts();
        for (at, key) in &self.0 {
            let found = puts.find(|(revision, _)| at <= revision);
            assert_eq!(found, Some((*at, &**key)), "an acknowledged write is lost");
        }
    }
}

/// Creates, changes and deletes the objects of one writer, in turn.
async fn write(writer: usize, shared: Shared, pause: Duration) -> Acknowledged {
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut acknowledged, mut server) = (Vec::new(), writer);
    for number in 0.. {
        ticks.tick().await;
        if shared.is_over.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("w{writer}-{}", number % NAMES);
        let object = configmap(&name).namespace(&team(writer)).data(&format!("{number}"));
        let step = number / NAMES % 4;
        let at = shared.carry_out(&object, step, &mut server).await;
        acknowledged.extend(at.map(|at| (at, format!("{}/{name}", team(writer)))));
    }
    acknowledged
}

impl Shared {
    /// Sends a write until it is carried out. Returns its revision if an answer has it: that of an attempt whose answer
    /// was lost is unknown, and a deletion has none.
    async fn carry_out(&self, object: &Object, step: usize, server: &mut usize) -> Option<u64> {
        let json = [("content-type", "application/json")];
        let (method, path, body) = match step {
            0 => (Method::POST, object.collection(), object.body().to_string()),
            3 => (Method::DELETE, object.path(), String::new()),
            _ => (Method::PUT, object.path(), object.body().to_string()),
        };
        let (begun, mut attempts) = (Instant::now(), 0);
        loop {
            attempts += 1;
            let request = Client::request(method.clone(), &path, &json, body.clone().into());
            let answer = self.servers[*server % self.servers.len()].try_send(request).await;
            let code = answer.as_ref().map_or(0, |answer| answer.code.as_u16());
            let is_done = match (code, step) {
                (200 | 201, _) => true,
                // An earlier attempt was carried out.
                (409, 0) | (404, 3) if attempts > 1 => true,
                (0 | 429 | 500.., _) => false,
                _ => panic!("{method} {path}: {answer:?}"),
            };
            if is_done {
                self.written.fetch_add(1, Ordering::Relaxed);
                let stored = answer.ok().filter(|answer| answer.code.is_success() && step != 3);
                return stored.map(|answer| answer.resource_version());
            }
            self.failed.fetch_add(1, Ordering::Relaxed);
            assert!(begun.elapsed() < PATIENCE, "{method} {path}: {answer:?}");
            *server += 1;
            sleep(RETRY_AFTER).await;
        }
    }
}
