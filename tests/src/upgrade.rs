//! A server that another process takes over from, under watches and writes: what its clients notice of it.

use std::{
    env,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::join_all;
use informer_core::wire::watch_event::EventKind;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    sync::watch,
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
/// Watches that see all objects. Each other one sees one object, as an agent of a node does.
const WATCHES_OF_ALL: usize = 20;
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
    /// Longest time for a write while all watches were open, before the next process started.
    pub before: Duration,
    /// Longest time for a write since.
    pub pause: Duration,
    /// Writes.
    pub writes: usize,
    /// Writes a second.
    pub rate: u64,
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
        let objects = 20.max(watches / 10);
        let client = self.client();
        for number in 0..objects {
            client.create(&configmap(&format!("o{number}"))).await;
        }
        let from = client.get("/api/v1/configmaps").await.with_code(200).resource_version();
        let opened = Arc::<AtomicUsize>::default();
        let (goals, goal) = watch::channel(None);
        let watching = (0..watches).map(|number| {
            let client = if number % 2 == 0 { client.over_http2() } else { client };
            let object = (number >= WATCHES_OF_ALL).then_some(number % objects);
            let watch = LoadWatch { client, object, position: from, resumed: 0, seen: Vec::new() };
            tokio::spawn(watch.run(Arc::clone(&opened), goal.clone()))
        });
        let watching: Vec<_> = watching.collect();
        until(|| opened.load(Ordering::SeqCst) == watches).await;
        let writing = Writing::start(client, objects);
        let enough = objects + 50;
        until(|| writing.count() >= enough).await;
        let begun = Instant::now();
        self.upgrade().await;
        let count = writing.count();
        until(|| writing.count() >= count + enough).await;
        let written = Arc::new(writing.stop().await);
        goals.send_replace(Some(Arc::clone(&written)));
        let seen = timeout(PATIENCE, join_all(watching)).await.expect("all events arrive");
        let seen: Vec<LoadWatch> = seen.into_iter().map(|watch| watch.unwrap()).collect();
        for watch in &seen {
            assert_eq!(watch.seen, watch.expected(&written), "each write is seen once, in order");
        }
        let longest = |of: fn(&Instant, &Instant) -> bool| {
            written.iter().filter(|write| of(&write.begun, &begun)).map(|write| write.took).max().unwrap_or_default()
        };
        ClientReport {
            before: longest(Instant::lt),
            pause: longest(Instant::ge),
            writes: written.len(),
            rate: written.len() as u64 / written[0].begun.elapsed().as_secs().max(1),
            resumed: seen.iter().map(|watch| watch.resumed).sum(),
        }
    }
}

/// Waits until a condition holds.
async fn until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "the load goes on");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn serve(binary: &str, folder: &Path, files: &Files, flags: &[String]) -> Server {
    let socket = folder.join("upgrade").display().to_string();
    let own = ["--upgrade-socket", &socket, "--log", "info"];
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    Server::start(binary, &[&own[..], &files.flags(), &flags].concat()).await
}

/// One write.
#[derive(Debug)]
struct Write {
    object: usize,
    resource_version: u64,
    begun: Instant,
    took: Duration,
}

/// A task that writes one object after the other.
struct Writing {
    count: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    task: JoinHandle<Vec<Write>>,
}

impl Writing {
    fn start(client: Client, objects: usize) -> Self {
        let (count, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (counted, over) = (Arc::clone(&count), Arc::clone(&is_over));
        let task = tokio::spawn(async move {
            let mut written = Vec::new();
            while !over.load(Ordering::SeqCst) {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let object = number % objects;
                let path = configmap(&format!("o{object}")).path();
                let begun = Instant::now();
                // A connection of its own, that is not refused at any time.
                let change = json!({"data": {"number": number.to_string()}});
                let answer = client.patch(&path, MERGE_PATCH, &change).await.with_code(200);
                let resource_version = resource_version(&answer.json());
                written.push(Write { object, resource_version, begun, took: answer.took });
            }
            written
        });
        Self { count, is_over, task }
    }

    /// Number of writes. Panics if one failed.
    fn count(&self) -> usize {
        assert!(!self.task.is_finished(), "a write failed");
        self.count.load(Ordering::SeqCst)
    }

    /// Returns all writes.
    async fn stop(self) -> Vec<Write> {
        self.is_over.store(true, Ordering::SeqCst);
        self.task.await.unwrap()
    }
}

/// All writes, once the last one is known.
type Goal = watch::Receiver<Option<Arc<Vec<Write>>>>;

/// A watch that resumes where it ended.
#[derive(Debug)]
struct LoadWatch {
    client: Client,
    /// The object that it sees, or all of them.
    object: Option<usize>,
    position: u64,
    resumed: usize,
    /// The resourceVersions of its events.
    seen: Vec<u64>,
}

impl LoadWatch {
    /// Reads until all writes are known and seen. `opened` counts the first stream of each watch.
    async fn run(mut self, opened: Arc<AtomicUsize>, goal: Goal) -> Self {
        let selector = self.object.map(|object| format!("&fieldSelector=metadata.name=o{object}")).unwrap_or_default();
        loop {
            let path = format!(
                "/api/v1/configmaps?watch=1&allowWatchBookmarks=true{selector}&resourceVersion={}",
                self.position
            );
            let mut watch = self.client.watch(&path).await;
            assert_eq!(watch.code(), 200);
            if self.resumed == 0 {
                opened.fetch_add(1, Ordering::SeqCst);
            }
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
                let written = goal.borrow().clone();
                if written.is_some_and(|written| self.seen.len() >= self.expected(&written).len()) {
                    return self;
                }
            }
            self.resumed += 1;
        }
    }

    /// The resourceVersions of the writes that it sees.
    fn expected(&self, written: &[Write]) -> Vec<u64> {
        let sees = |write: &&Write| self.object.is_none_or(|object| object == write.object);
        written.iter().filter(sees).map(|write| write.resource_version).collect()
    }
}
