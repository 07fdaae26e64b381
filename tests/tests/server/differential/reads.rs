//! Random reads of one API server, directly and through the server in front of it. Both answers must be equal.
//!
//! INVARIANT: no client writes meanwhile, and a read at any freshness follows a consistent one, so that the API server's
//! own cache and this server's hold the same state.

use std::collections::BTreeMap;

use fastrand::Rng;
use futures::{future::join_all, join};
use kube::Client;
use serde_json::Value;
use tests::http::{self, Event, LINE_WAIT, briefs, with_query};

use super::{
    Answer,
    allowed::row_of_cached,
    compare::{self, Difference},
    script::{self, Kind},
    send,
};

/// Positions of each type that are read again.
const POSITIONS_MAX: usize = 32;
/// Pages of a list that are followed.
const PAGES_MAX: usize = 4;
/// Duration of the watches that repeat a round's events. All of them lie in the past.
const WATCH_SECONDS: &str = "2";

/// Accept headers, with those that most clients send more often.
const ACCEPTED: [&str; 10] = [
    "",
    "",
    "application/json",
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v9;g=meta.k8s.io",
    "text/html",
];

/// The rest of a query of a list; `{at}` is a position of the type.
const LISTS: [&str; 22] = [
    "",
    "",
    "resourceVersion=0",
    "resourceVersion=0&limit=1",
    "resourceVersion={at}",
    "resourceVersion={at}&resourceVersionMatch=NotOlderThan",
    "resourceVersion={at}&resourceVersionMatch=Exact",
    "resourceVersion={at}&resourceVersionMatch=Exact&limit=1",
    "resourceVersion={at}&limit=1",
    "resourceVersion={at}&resourceVersionMatch=Nearly",
    "resourceVersionMatch=Exact",
    "resourceVersion=abc",
    "resourceVersion=-1",
    "limit=1",
    "limit=2",
    "limit=-1",
    "limit=2&continue=zz",
    "includeObject=Object",
    "includeObject=None",
    "includeObject=Sometimes",
    "sendInitialEvents=true",
    "timeoutSeconds=x",
];

/// The query of a single object.
const GETS: [&str; 5] =
    ["", "resourceVersion=0", "resourceVersion={at}", "resourceVersion=abc", "includeObject=Object"];

/// One API server on both ways.
pub(crate) struct BothWays {
    pub(crate) direct: Client,
    pub(crate) cached: Client,
    /// For watches.
    pub(crate) direct_watches: http::Client,
    pub(crate) cached_watches: http::Client,
    /// The newest positions of each type.
    positions: Vec<Vec<String>>,
    /// Positions at which the round began, by type.
    begun: Vec<String>,
    /// Allowed differences.
    pub(crate) rows: BTreeMap<&'static str, usize>,
    pub(crate) reads: usize,
    /// Descriptions of differences that no row allows.
    pub(crate) wrong: Vec<String>,
}

/// A read.
#[derive(Debug)]
struct RandomRead {
    path: String,
    accept: &'static str,
}

impl BothWays {
    pub(crate) fn new(
        [direct, cached]: [Client; 2],
        [direct_watches, cached_watches]: [http::Client; 2],
        kinds: &[Kind],
    ) -> Self {
        let positions = vec![Vec::new(); kinds.len()];
        let (begun, rows, reads, wrong) = (Vec::new(), BTreeMap::new(), 0, Vec::new());
        Self { direct, cached, direct_watches, cached_watches, positions, begun, rows, reads, wrong }
    }

    /// Remembers the position of an answer about an object.
    pub(crate) fn note(&mut self, kind: usize, answer: &Answer) {
        let metadata = &answer.body["metadata"];
        // A list has the position of the newest write of any type, for which a cache would wait.
        let Some(position) = metadata["resourceVersion"].as_str().filter(|_| metadata["uid"].is_string()) else {
            return;
        };
        let positions = &mut self.positions[kind];
        if positions.len() == POSITIONS_MAX {
            positions.remove(0);
        }
        positions.push(position.to_owned());
    }

    /// Sends a random read of a type on both ways.
    pub(crate) async fn read_any(&mut self, rng: &mut Rng, kind: usize, of: &Kind) {
        let read = self.next(rng, kind, of);
        if read.path.contains("resourceVersion=0") {
            self.read(of.collection, "").await;
        }
        self.read(&read.path, read.accept).await;
    }

    fn next(&self, rng: &mut Rng, kind: usize, of: &Kind) -> RandomRead {
        let at = rng.choice(&self.positions[kind]).map_or("1", String::as_str);
        let (path, query) = match rng.u8(..10) {
            0..3 => (format!("{}/{}", of.collection, rng.choice(script::NAMES).unwrap()), *rng.choice(&GETS).unwrap()),
            3..5 => (of.collection.replace("/namespaces/team", ""), *rng.choice(&LISTS).unwrap()),
            _ => (of.collection.to_owned(), *rng.choice(&LISTS).unwrap()),
        };
        let is_list = path == of.collection;
        let selector = if is_list && rng.bool() { script::selector(rng) } else { "" };
        let path = format!("{path}?{selector}&{}", query.replace("{at}", at));
        RandomRead { path, accept: rng.choice(&ACCEPTED).unwrap() }
    }

    /// Reads a path on both ways, and the pages after it. Returns the API server's own answer.
    pub(crate) async fn read(&mut self, path: &str, accept: &str) -> Answer {
        let mut answers = self.compare(path, path, accept).await;
        let first = answers.0.clone();
        for _ in 0..PAGES_MAX {
            let token = |answer: &Answer| answer.body["metadata"]["continue"].as_str().map(str::to_owned);
            let tokens = (token(&answers.0), token(&answers.1));
            let (Some(direct), Some(cached)) = tokens else { break };
            if direct.is_empty() || cached.is_empty() {
                break;
            }
            let base = path.split("resourceVersion=").next().unwrap();
            let next = |token: &str| with_query(base, &[("limit", "1"), ("continue", token)]);
            // A client may continue the list at the API server.
            self.compare(&next(&cached), &next(&cached), accept).await;
            answers = self.compare(&next(&direct), &next(&cached), accept).await;
        }
        first
    }

    async fn compare(&mut self, path: &str, cached_path: &str, accept: &str) -> (Answer, Answer) {
        self.reads += 1;
        let headers: &[_] = if accept.is_empty() { &[] } else { &[("accept", accept)] };
        let [direct, cached] = [(&self.direct, path), (&self.cached, cached_path)].map(|(client, path)| async move {
            let answer = send(client, "GET", path, headers, "").await;
            answer.unwrap_or_else(|| panic!("no answer to GET {path}"))
        });
        let (direct, cached) = (direct.await, cached.await);
        let differences = compare::differences_of_same(&without_position(&direct), &without_position(&cached));
        let unknown: Vec<_> = differences.into_iter().filter(|difference| !self.is_allowed(difference)).collect();
        if !unknown.is_empty() {
            let mut story = format!("GET {cached_path} accept {accept:?}\n");
            for Difference { path, stock, ours } in unknown {
                let text = |value: Option<Value>| value.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
                story.push_str(&format!("  {path}: API server {} cache {}\n", text(stock), text(ours)));
            }
            for (name, answer) in [("API server", &direct), ("cache", &cached)] {
                story.push_str(&format!("  {name}: {} {}\n", answer.code, answer.body["message"]));
            }
            self.wrong.push(story);
        }
        (direct, cached)
    }

    fn is_allowed(&mut self, difference: &Difference) -> bool {
        let row = row_of_cached(difference);
        if let Some(row) = row {
            *self.rows.entry(row).or_default() += 1;
        }
        row.is_some()
    }

    /// Begins a round: the next [`end_round`](Self::end_round) reads the events from here on.
    pub(crate) async fn begin_round(&mut self, kinds: &[Kind]) {
        self.begun.clear();
        for kind in kinds {
            let list = self.read(kind.collection, "").await;
            let position = list.body["metadata"]["resourceVersion"].as_str().expect("a list has a position");
            self.begun.push(position.to_owned());
        }
    }

    /// Watches every type from the begin of the round on both ways, whole and by a label, and compares the events.
    pub(crate) async fn end_round(&mut self, kinds: &[Kind]) {
        for kind in kinds {
            // From now on both caches hold all changes of the round.
            self.read(kind.collection, "").await;
        }
        let watches = kinds.iter().zip(&self.begun).flat_map(|(kind, begun)| {
            ["", "l=v"].map(|labels| {
                let query = [("watch", "1"), ("timeoutSeconds", WATCH_SECONDS), ("resourceVersion", begun.as_str())];
                with_query(&with_query(kind.collection, &query), &[("labelSelector", labels)])
            })
        });
        let (direct, cached) = (self.direct_watches, self.cached_watches);
        let compared = watches.map(|path| async move {
            let (direct, cached) = join!(events(direct, &path), events(cached, &path));
            let same = direct.iter().map(|event| &event.object).eq(cached.iter().map(|event| &event.object));
            let (direct, cached) = (briefs(&direct), briefs(&cached));
            (!same || direct != cached)
                .then(|| format!("GET {path}, events\n  API server: {direct:?}\n  cache: {cached:?}"))
        });
        let wrong: Vec<String> = join_all(compared).await.into_iter().flatten().collect();
        self.wrong.extend(wrong);
    }
}

/// All events of a watch until it times out.
async fn events(client: http::Client, path: &str) -> Vec<Event> {
    client.watch(path).await.rest(LINE_WAIT).await
}

/// The answer without the position of a list: any write advances it at the API server at once, and at this server only
/// with a later bookmark or read.
fn without_position(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    let kind = answer.body["kind"].as_str().unwrap_or_default();
    if kind.ends_with("List") || kind == "Table" {
        answer.body["metadata"]["resourceVersion"] = Value::Null;
    }
    answer
}
