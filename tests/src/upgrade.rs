//! A server that another process takes over from, under watches and writes: what its clients notice of it.

use std::{
    env,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::join_all;
use informer_core::wire::watch_event::EventKind;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    http::{Client, MERGE_PATCH, Step, resource_version},
    objects::configmap,
    process::Server,
    tls::{Authority, Files, Trust},
};

/// Watches of a usual run. `UPGRADE_WATCHES=10000` measures.
const WATCHES: usize = 100;
/// Objects that are written in turn.
const OBJECTS: u64 = 20;
/// Writes before and after the change of processes.
const WRITES: u64 = 50;
/// Timeout of every step, with a margin for busy machines.
const PATIENCE: Duration = Duration::from_secs(120);

/// The servers before and after, with equal flags.
pub struct Upgraded {
    binary: &'static str,
    flags: Vec<String>,
    folder: TempDir,
    files: Files,
    trust: Trust,
    token: Option<&'static str>,
    /// The server that runs now.
    pub server: Server,
}

/// Observations of the clients.
#[derive(Debug)]
pub struct ClientReport {
    /// Longest time for a write.
    pub pause: Duration,
    /// Writes.
    pub writes: usize,
    /// Watches that were opened again.
    pub resumed: usize,
}

impl Upgraded {
    /// Starts the first server over TLS, with these flags. `token` is that of its clients.
    pub async fn start(binary: &'static str, flags: &[&str], token: Option<&'static str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let (files, trust) = (authority.issue(folder.path()), authority.trust());
        let flags: Vec<_> = flags.iter().map(|&flag| flag.to_owned()).collect();
        let server = serve(binary, folder.path(), &files, &flags).await;
        Self { binary, flags, folder, files, trust, token, server }
    }

    /// A client of the running server, and of the one after it.
    pub fn client(&self) -> Client {
        let client = Client::new(self.server.address()).over_tls(self.trust.clone()).patient();
        self.token.map_or(client, |token| client.with_token(token))
    }

    /// Starts the next process, and waits until the one before has ended by itself.
    pub async fn upgrade(&mut self) {
        let next = serve(self.binary, self.folder.path(), &self.files, &self.flags).await;
        assert_eq!(next.address(), self.server.address());
        let before = std::mem::replace(&mut self.server, next);
        let ended = timeout(PATIENCE, before.ended()).await.expect("it ends");
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }

    /// Asserts that the server got the state of a type from the process before, and did not list it.
    pub async fn assert_not_listed(&self, resource: &str) {
        self.server.logged("saved state loaded").await;
        let log = self.server.log();
        let has = |text: &str| log.lines().any(|line| line.contains(text) && line.contains(resource));
        assert!(has("saved state loaded") && !has("relist completed"), "{log}");
    }

    /// Changes the process under load. Panics if a connection is refused or breaks, a watch is refused, or an event is
    /// missing or repeated.
    pub async fn upgrade_under_load(&mut self) -> ClientReport {
        let watches = env::var("UPGRADE_WATCHES").map_or(WATCHES, |count| count.parse().unwrap());
        let client = self.client();
        for number in 0..OBJECTS {
            client.create(&configmap(&format!("o{number}"))).await;
        }
        let from = client.get("/api/v1/configmaps").await.with_code(200).resource_version();
        let goal = Arc::<AtomicU64>::default();
        let watching = (0..watches).map(|number| {
            let client = if number % 2 == 0 { client.over_http2() } else { client };
            let goal = Arc::clone(&goal);
            tokio::spawn(
                async move { LoadWatch { client, position: from, resumed: 0, seen: Vec::new() }.run(&goal).await },
            )
        });
        let watching: Vec<_> = watching.collect();
        let writing = Writing::start(client);
        writing.reach(WRITES).await;
        self.upgrade().await;
        writing.reach(writing.count() + WRITES).await;
        let (expected, pause) = writing.stop().await;
        goal.store(*expected.last().unwrap(), Ordering::SeqCst);
        let seen = timeout(PATIENCE, join_all(watching)).await.expect("all events arrive");
        let seen: Vec<LoadWatch> = seen.into_iter().map(|watch| watch.unwrap()).collect();
        for watch in &seen {
            assert_eq!(watch.seen, expected, "each write is seen once, in order");
        }
        ClientReport { pause, writes: expected.len(), resumed: seen.iter().map(|watch| watch.resumed).sum() }
    }
}

async fn serve(binary: &str, folder: &Path, files: &Files, flags: &[String]) -> Server {
    let socket = folder.join("upgrade").display().to_string();
    let own = ["--upgrade-socket", &socket, "--log", "info"];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    Server::start(binary, &[&own[..], &files.flags(), &flags].concat()).await
}

/// A task that writes one object after the other.
struct Writing {
    count: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    task: JoinHandle<(Vec<u64>, Duration)>,
}

impl Writing {
    fn start(client: Client) -> Self {
        let (count, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counted, over) = (Arc::clone(&count), Arc::clone(&is_over));
        let task = tokio::spawn(async move {
            let (mut written, mut longest) = (Vec::new(), Duration::ZERO);
            while !over.load(Ordering::SeqCst) {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let path = configmap(&format!("o{}", number % OBJECTS)).path();
                // A connection of its own, that is not refused at any time.
                let change = json!({"data": {"number": number.to_string()}});
                let answer = client.patch(&path, MERGE_PATCH, &change).await.with_code(200);
                longest = longest.max(answer.took);
                written.push(resource_version(&answer.json()));
            }
            (written, longest)
        });
        Self { count, is_over, task }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    async fn reach(&self, count: u64) {
        let begun = Instant::now();
        while self.count() < count && !self.task.is_finished() {
            assert!(begun.elapsed() < PATIENCE, "{count} writes");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Returns the resourceVersions of all writes, and the longest time for one.
    async fn stop(self) -> (Vec<u64>, Duration) {
        self.is_over.store(true, Ordering::SeqCst);
        self.task.await.unwrap()
    }
}

/// A watch that resumes where it ended.
#[derive(Debug)]
struct LoadWatch {
    client: Client,
    position: u64,
    resumed: usize,
    /// The resourceVersions of its events.
    seen: Vec<u64>,
}

impl LoadWatch {
    /// Reads until the position is at `goal`, once that is known.
    async fn run(mut self, goal: &AtomicU64) -> Self {
        let is_complete = |position| (1..=position).contains(&goal.load(Ordering::SeqCst));
        loop {
            let path = format!("/api/v1/configmaps?watch=1&allowWatchBookmarks=true&resourceVersion={}", self.position);
            let mut watch = self.client.watch(&path).await;
            assert_eq!(watch.code(), 200);
            loop {
                match watch.step(Duration::from_millis(500)).await {
                    Step::Event(event) => {
                        assert_ne!(event.kind, EventKind::Error, "{:?}", event.object);
                        self.position = event.resource_version();
                        if event.kind != EventKind::Bookmark {
                            self.seen.push(self.position);
                        }
                    }
                    Step::Silence => {}
                    Step::End => break,
                    Step::Cut(reason) => panic!("a watch broke off: {reason}"),
                }
                if is_complete(self.position) {
                    return self;
                }
            }
            self.resumed += 1;
        }
    }
}
