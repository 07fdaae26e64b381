//! Clients that write pods, and clients that check what they read of them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use serde_json::{Value, json};
use tests::http::{Client, LINE_WAIT, MERGE_PATCH, Step, key, resource_version, watch_list, with_query};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::contract::CONTENT;

const PATH: &str = "/api/v1/pods";

/// Clients that write at the same time, each its own pods.
const LANES: u32 = 8;

/// Pause before a read that the server is not ready for is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Objects of a page.
const PAGE: &str = "500";

/// The pods, with the writes that were acknowledged.
pub(super) struct Pods {
    /// Keys, in order.
    keys: Vec<String>,
    /// Position before all writes.
    position: u64,
    /// Number of the newest acknowledged write of each pod that was written.
    written: Mutex<BTreeMap<String, u64>>,
    acknowledged: AtomicU64,
    /// True once the watch is open.
    is_watched: AtomicBool,
    watched: Notify,
}

impl Pods {
    /// Lists the pods of the server that takes the writes.
    pub(super) async fn new(source: Client, count: usize) -> Self {
        let mut page = page_of(source, None).await;
        let (mut keys, position) = (Vec::new(), page.position);
        loop {
            keys.extend(page.items.iter().map(key));
            let Some(token) = page.token else { break };
            page = page_of(source, Some(&token)).await;
        }
        assert_eq!(keys.len(), count);
        Self {
            keys,
            position,
            written: Mutex::default(),
            acknowledged: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            watched: Notify::new(),
        }
    }

    fn written(&self) -> BTreeMap<String, u64> {
        self.written.lock().unwrap().clone()
    }

    /// Asserts that a state has all pods, each at least as new as the acknowledged writes before it was requested.
    fn check(&self, state: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) {
        assert_eq!(state.len(), self.keys.len(), "a list has all pods");
        for (key, number) in before {
            assert!(number <= &state[key], "{key} is at {} in a list that was requested after {number}", state[key]);
        }
    }
}

/// Returns the number of the write that made an object; zero before the first.
fn number(object: &Value) -> u64 {
    object["metadata"]["annotations"][CONTENT].as_str().map_or(0, |number| number.parse().expect("a number"))
}

/// Writes at a fixed pace.
pub(super) struct Writes {
    pods: Arc<Pods>,
    client: Client,
}

impl Writes {
    pub(super) fn new(pods: &Arc<Pods>, client: Client) -> Self {
        Self { pods: Arc::clone(pods), client }
    }

    /// Writes once the watch is open, and prints the rate that was reached.
    pub(super) async fn run(self, writes: u64, per_second: u32) {
        if !self.pods.is_watched.load(Ordering::SeqCst) {
            self.pods.watched.notified().await;
        }
        let begun = Instant::now();
        let mut lanes = JoinSet::new();
        for lane in 0..u64::from(LANES) {
            let (pods, client) = (Arc::clone(&self.pods), self.client);
            lanes.spawn(async move {
                for write in (0..writes).filter(|write| write % u64::from(LANES) == lane) {
                    sleep_until(begun + Duration::from_secs(write) / per_second).await;
                    pods.write(client, write).await;
                }
            });
        }
        while let Some(ended) = lanes.join_next().await {
            ended.unwrap();
        }
        #[expect(clippy::cast_precision_loss, reason = "some thousands")]
        let writes = writes as f64;
        eprintln!("{:.0} writes/s", writes / begun.elapsed().as_secs_f64());
    }
}

impl Pods {
    /// Writes the pod of a write, which is one of its lane.
    async fn write(&self, client: Client, write: u64) {
        let pods = self.keys.len() as u64 / u64::from(LANES) * u64::from(LANES);
        let (at, number) = (write % pods, write / pods + 1);
        let key = &self.keys[usize::try_from(at).unwrap()];
        let (namespace, name) = key.split_once('/').unwrap();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let patch = json!({"metadata": {"annotations": {CONTENT: number.to_string()}}});
        client.patch(&path, MERGE_PATCH, &patch).await.with_code(200);
        self.written.lock().unwrap().insert(key.clone(), number);
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
    }
}

/// One page of a list.
struct ListPage {
    items: Vec<Value>,
    position: u64,
    token: Option<String>,
}

async fn page_of(client: Client, token: Option<&str>) -> ListPage {
    let mut query = vec![("limit", PAGE)];
    query.extend(token.map(|token| ("continue", token)));
    let path = with_query(PATH, &query);
    let mut answer = client.get(&path).await;
    while answer.code == StatusCode::TOO_MANY_REQUESTS {
        // The cache is being filled.
        sleep(RETRY_PAUSE).await;
        answer = client.get(&path).await;
    }
    let mut list = answer.with_code(200).json();
    let position = resource_version(&list);
    let token = list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()).map(str::to_owned);
    let Value::Array(items) = list["items"].take() else { panic!("a list has items") };
    ListPage { items, position, token }
}

/// Pages through lists.
pub(super) async fn page(pods: Arc<Pods>, client: Client, lists: usize) {
    for _ in 0..lists {
        let before = pods.written();
        let mut page = page_of(client, None).await;
        let (mut state, position) = (BTreeMap::new(), page.position);
        loop {
            assert_eq!(page.position, position, "all pages are of one state");
            for item in &page.items {
                assert!(resource_version(item) <= position, "{} is newer than its list", key(item));
                assert!(state.insert(key(item), number(item)).is_none(), "{} is listed twice", key(item));
            }
            let Some(token) = page.token else { break };
            page = page_of(client, Some(&token)).await;
        }
        pods.check(&state, &before);
    }
}

/// Reads initial states by watches.
pub(super) async fn watch_lists(pods: Arc<Pods>, client: Client, lists: usize) {
    for _ in 0..lists {
        let before = pods.written();
        let mut watch = client.watch(&watch_list(PATH)).await;
        let mut state = BTreeMap::new();
        loop {
            let event = watch.event().await;
            if event.brief() == "INITIAL-END" {
                break;
            }
            assert!(event.brief().starts_with("ADDED"), "{}", event.brief());
            let key = key(&event.object);
            assert!(state.insert(key.clone(), number(&event.object)).is_none(), "{key} is there twice");
        }
        pods.check(&state, &before);
    }
}

/// Watches from before the first write, and asserts that each write comes once.
pub(super) async fn watch(pods: Arc<Pods>, client: Client, writes: u64) {
    // Fills the cache, which may take longer than a request waits.
    page_of(client, None).await;
    let position = pods.position.to_string();
    let query = [("watch", "1"), ("resourceVersion", &*position), ("allowWatchBookmarks", "true")];
    let mut watch = client.watch(&with_query(PATH, &query)).await;
    assert_eq!(watch.code(), 200);
    pods.is_watched.store(true, Ordering::SeqCst);
    pods.watched.notify_one();
    let (mut seen, mut last, mut count) = (BTreeMap::new(), pods.position, 0);
    while count < writes {
        let event = match watch.step(LINE_WAIT).await {
            Step::Event(event) => event,
            other @ (Step::End | Step::Cut(_) | Step::Silence) => panic!("{other:?} after {count} of {writes} writes"),
        };
        if event.brief().starts_with("BOOKMARK") {
            continue;
        }
        assert!(event.brief().starts_with("MODIFIED"), "{}", event.brief());
        let (key, number, revision) = (key(&event.object), number(&event.object), event.resource_version());
        assert!(last < revision, "{revision} after {last}");
        let before = seen.insert(key.clone(), number).unwrap_or_default();
        assert_eq!(number, before + 1, "{key} after {before}");
        (last, count) = (revision, count + 1);
    }
    while pods.acknowledged.load(Ordering::SeqCst) < writes {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(seen, pods.written());
}
