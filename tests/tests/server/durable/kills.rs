//! kill -9, again and again, while writers write and watchers watch.
//!
//! Checked: no acknowledged write is lost; no resourceVersion means two writes; no watcher has seen a state that the server
//! lost; and no watcher ever lists.

use std::{
    collections::BTreeMap,
    env,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Method;
use serde_json::Value;
use tests::{
    http::{Client, LINE_WAIT, Step, key, resource_version},
    objects::{Object, configmap},
};
use tokio::task::JoinSet;

use super::{kill, start};

/// Kills in a run, unless the environment variable `KILLS` says otherwise.
const KILLS: usize = 20;

const WRITERS: usize = 16;
const WATCHERS: usize = 3;

/// Acknowledged writes between two kills.
const WRITES: usize = 200;

/// Meaning of a resourceVersion: what the write did to which object.
type Meanings = Mutex<BTreeMap<u64, String>>;

/// The knowledge of one writer about its object.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Version that was acknowledged; `None`: there is none.
    at: Option<u64>,
    /// True if a later write got no answer, so that its outcome is unknown.
    is_unsure: bool,
}

/// Shared by the clients of a run.
#[derive(Default)]
struct Run {
    meanings: Meanings,
    written: AtomicUsize,
}

impl Run {
    fn mean(&self, at: u64, what: String) {
        let before = self.meanings.lock().expect("no writer panics").insert(at, what.clone());
        assert!(before.as_ref().is_none_or(|before| *before == what), "{at} means {before:?} and {what}");
    }

    fn stored(&self, object: &Value) -> u64 {
        let at = resource_version(object);
        self.mean(at, format!("{} = {}", key(object), object["data"]["k"]));
        at
    }
}

/// Writes one object over and over until the connection breaks.
async fn write(client: Client, run: Arc<Run>, writer: usize, round: usize, mut known: Known) -> (usize, Known) {
    for number in 0.. {
        let object = configmap(&format!("w{writer}")).data(&format!("{round}-{number}"));
        let (method, path, body) = match known.at {
            None => (Method::POST, object.collection(), object.body().to_string()),
            Some(_) if number % 5 == 4 => (Method::DELETE, object.path(), String::new()),
            Some(_) => (Method::PUT, object.path(), object.body().to_string()),
        };
        let deletes = method == Method::DELETE;
        let json = [("content-type", "application/json")];
        let request = Client::request(method, &path, &json, body.into());
        let Ok(answer) = client.try_send(request).await else {
            known.is_unsure = true;
            break;
        };
        assert!(answer.code.is_success(), "{}", answer.text());
        known.at = (!deletes).then(|| run.stored(&answer.json()));
        run.written.fetch_add(1, Ordering::Relaxed);
    }
    (writer, known)
}

/// A client that follows all objects, and resumes where it was.
#[derive(Default)]
struct Watcher {
    at: u64,
    state: BTreeMap<String, u64>,
}

impl Watcher {
    /// Applies events until the connection breaks, or until it has seen `until`.
    async fn follow(mut self, client: Client, run: Arc<Run>, until: Option<u64>) -> Self {
        let path = format!("/api/v1/configmaps?watch=1&allowWatchBookmarks=true&resourceVersion={}", self.at);
        let Ok(mut watch) = client.try_watch(&path).await else { return self };
        while until.is_none_or(|until| self.at < until) {
            let event = match watch.step(LINE_WAIT).await {
                Step::Event(event) => event,
                Step::End | Step::Cut(_) if until.is_none() => break,
                other @ (Step::End | Step::Cut(_) | Step::Silence) => panic!("{other:?} at {} of {until:?}", self.at),
            };
            let brief = event.brief();
            assert!(!brief.starts_with("ERROR"), "a watcher must list: {event:?}");
            if brief.starts_with("BOOKMARK") {
                self.at = self.at.max(event.resource_version());
                continue;
            }
            let at = event.resource_version();
            assert!(self.at < at, "{at} after {}", self.at);
            self.at = at;
            if brief.starts_with("DELETED") {
                run.mean(at, format!("{} deleted", key(&event.object)));
                assert!(self.state.remove(&key(&event.object)).is_some(), "{event:?} was never there");
            } else {
                run.stored(&event.object);
                self.state.insert(key(&event.object), at);
            }
        }
        self
    }
}

/// Checks a restarted server, and lets the watchers catch up.
async fn check(client: Client, run: &Arc<Run>, known: &mut [Known], watchers: Vec<Watcher>) -> Vec<Watcher> {
    let marker: Object = configmap("marker");
    client.delete(&marker.path()).await;
    let until = client.create(&marker).await;
    let list = client.get("/api/v1/configmaps").await.with_code(200).json();
    let found: BTreeMap<String, u64> = list["items"]
        .as_array()
        .expect("a list has items")
        .iter()
        .map(|object| (key(object), run.stored(object)))
        .collect();
    for (writer, known) in known.iter_mut().enumerate() {
        let at = found.get(&format!("default/w{writer}")).copied();
        let is_kept = if known.is_unsure { known.at <= at || at.is_none() } else { known.at == at };
        assert!(is_kept, "writer {writer} was told {known:?}, found {at:?}");
        *known = Known { at, is_unsure: false };
    }
    let mut caught_up = Vec::new();
    for watcher in watchers {
        let watcher = watcher.follow(client, Arc::clone(run), Some(until)).await;
        assert_eq!(watcher.state, found, "a watcher's copy is the state");
        caught_up.push(watcher);
    }
    caught_up
}

/// Returns the number of acknowledged writes.
async fn rounds(folder: &Path, kills: usize) -> usize {
    let run = Arc::new(Run::default());
    let mut known = vec![Known::default(); WRITERS];
    let mut watchers: Vec<Watcher> = Vec::new();
    for round in 0..=kills {
        let server = start(folder).await;
        let client = server.client();
        if round == 0 {
            let list = client.get("/api/v1/configmaps").await.with_code(200);
            watchers.extend((0..WATCHERS).map(|_| Watcher { at: list.resource_version(), ..Watcher::default() }));
        }
        watchers = check(client, &run, &mut known, watchers).await;
        if round == kills {
            break;
        }
        let (mut writing, mut watching) = (JoinSet::new(), JoinSet::new());
        for watcher in watchers.drain(..) {
            watching.spawn(watcher.follow(client, Arc::clone(&run), None));
        }
        for (writer, known) in known.iter().enumerate() {
            writing.spawn(write(client, Arc::clone(&run), writer, round, known.clone()));
        }
        let enough = run.written.load(Ordering::Relaxed) + WRITES;
        while run.written.load(Ordering::Relaxed) < enough {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(writing.len() == WRITERS, "a writer has ended");
        }
        kill(server).await;
        for (writer, outcome) in writing.join_all().await {
            known[writer] = outcome;
        }
        watchers = watching.join_all().await;
    }
    run.written.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_lose_no_acknowledged_write_and_no_position() {
    let kills = env::var("KILLS").map_or(KILLS, |kills| kills.parse().expect("a number of kills"));
    let folder = tempfile::tempdir().unwrap();
    let written = rounds(folder.path(), kills).await;
    println!("{kills} kills, {written} acknowledged writes");
}
