//! The writers and watchers of a soak.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fastrand::Rng;
use http::Method;
use informer_core::wire::watch_event::EventKind;
use tests::{
    http::{Client, Connection, Step, watch_list, with_query},
    objects::configmap,
};
use tokio::time::{interval, sleep};

use super::{Plan, users::Users};

/// Namespaces, and objects of a writer in each.
const NAMESPACES: usize = 100;
const OBJECTS: usize = 2;
/// One of as many followers sees all namespaces.
const FOLLOWERS_OF_ALL: usize = 50;
/// Bytes of each object's data.
const DATA_BYTES: usize = 300;
/// Longest wait for a line; then a follower checks whether its time is over.
const STEP_WAIT: Duration = Duration::from_secs(1);
const RETRY_AFTER: Duration = Duration::from_millis(200);
const MAPS: &str = "/api/v1/configmaps";
/// Codes with which a server may refuse a follower: for an old token, an old position, or too many requests.
const REFUSALS: [u16; 3] = [401, 410, 429];
/// The counts of a long run are at least the expected ones divided by this, and one request of as many may be refused.
const MARGIN: u64 = 2;

/// Number of times that something happened.
#[derive(Default)]
pub(crate) struct Counts {
    writes: AtomicU64,
    events: AtomicU64,
    watches: AtomicU64,
    lists: AtomicU64,
    /// Watches that the server ended before their time, as after a replacement of tokens.
    ended: AtomicU64,
    /// Requests of followers, and those of them that ended with one of [`REFUSALS`].
    asked: AtomicU64,
    refused: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counts {
    fn now(&self) -> [u64; 7] {
        [&self.writes, &self.events, &self.watches, &self.lists, &self.ended, &self.asked, &self.refused]
            .map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Counts a refusal. Panics if its code is not one of [`REFUSALS`].
    fn refuse(&self, asked: &str, code: u16) {
        assert!(REFUSALS.contains(&code), "{asked}: {code}");
        count(&self.refused);
    }

    /// A line about all of it.
    pub(crate) fn line(&self, elapsed: Duration) -> String {
        let [writes, events, watches, lists, ended, asked, refused] = self.now();
        let rate = |count: u64| count as f64 / elapsed.as_secs_f64();
        format!(
            "{writes} writes ({:.0}/s), {events} events ({:.0}/s), {watches} watches, {lists} lists, {ended} watches ended, \
             {refused} of {asked} refused",
            rate(writes),
            rate(events)
        )
    }

    /// Asserts that a run of any length had all of it, and that few requests were refused.
    pub(crate) fn assert_everything_happened(&self) {
        let [writes, events, watches, lists, _, asked, refused] = self.now();
        assert!([writes, events, watches, lists].iter().all(|&count| count > 0), "{:?}", self.now());
        assert!(refused * MARGIN <= asked, "{refused} of {asked} requests were refused");
    }

    /// Asserts that a long run had as much of it as planned, by a margin, and that the servers ended watches.
    pub(crate) fn assert_rates(&self, plan: &Plan, elapsed: Duration) {
        let [writes, events, watches, lists, ended, ..] = self.now();
        let followers = plan.followers as u64;
        let expected = [
            ("writes", writes, plan.rate as u64 * elapsed.as_secs()),
            // Those that see one namespace are not counted.
            ("events", events, writes * followers / FOLLOWERS_OF_ALL as u64),
            ("watches", watches, followers * elapsed.as_secs() / plan.watches_last.as_secs()),
            // Before one of four watches the position is dropped, and half of them begin with a list instead.
            ("lists", lists, watches / 8),
            ("ended watches", ended, 1),
        ];
        for (name, count, expected) in expected {
            assert!(count * MARGIN >= expected, "{count} {name}, and {expected} were planned");
        }
    }
}

/// A client that changes its own objects, each tenth time by a deletion and a creation.
pub(crate) struct Writer {
    pub(crate) number: usize,
    pub(crate) server: Client,
    pub(crate) users: Arc<Users>,
    pub(crate) counts: Arc<Counts>,
}

impl Writer {
    pub(crate) async fn run(self, pause: Duration, stop: Arc<AtomicBool>) {
        let mut connection = Connection::open(self.server).await;
        // Late ticks follow at once, so that the rate is the plan's.
        let mut ticks = interval(pause);
        for round in 0_usize.. {
            for place in 0..NAMESPACES * OBJECTS {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let is_first = round == 0;
                let is_replaced = (round + place).is_multiple_of(10);
                if is_replaced && !is_first {
                    ticks.tick().await;
                    self.send(&mut connection, Method::DELETE, place, round).await;
                }
                ticks.tick().await;
                let method = if is_first || is_replaced { Method::POST } else { Method::PUT };
                self.send(&mut connection, method, place, round).await;
            }
        }
    }

    async fn send(&self, connection: &mut Connection, method: Method, place: usize, round: usize) {
        let name = format!("w{}-{}", self.number, place / NAMESPACES);
        let data = format!("{round:0>DATA_BYTES$}");
        let object = configmap(&name).namespace(&format!("ns{}", place % NAMESPACES)).data(&data);
        let path = if method == Method::POST { object.collection() } else { object.path() };
        let body = if method == Method::DELETE { String::new() } else { object.body().to_string() };
        let bearer = format!("Bearer {}", self.users.token_of(self.number));
        let headers = [("content-type", "application/json"), ("authorization", &*bearer)];
        let answer = connection.send(Client::request(method, &path, &headers, body.into())).await;
        assert!(answer.code.is_success(), "{}: {} {}", answer.asked, answer.code, answer.text());
        count(&self.counts.writes);
    }
}

/// A client that lists, watches for some time, and comes back.
pub(crate) struct Follower {
    pub(crate) number: usize,
    pub(crate) server: Client,
    pub(crate) users: Arc<Users>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) rng: Rng,
}

impl Follower {
    pub(crate) async fn run(mut self, longest: Duration, stop: Arc<AtomicBool>) {
        let path = match self.number % FOLLOWERS_OF_ALL {
            0 => MAPS.to_owned(),
            _ => format!("/api/v1/namespaces/ns{}/configmaps", self.number % NAMESPACES),
        };
        let mut position = None;
        while !stop.load(Ordering::Relaxed) {
            let client = self.server.patient().with_token(&self.users.token_of(self.number));
            let client = if self.number.is_multiple_of(4) { client.over_http2() } else { client };
            let from = position.filter(|_| self.rng.u8(0..4) > 0);
            let from = if from.is_none() && self.rng.bool() { self.list(&client, &path).await } else { from };
            let time = Duration::from_millis(self.rng.u64(100..longest.as_millis().try_into().unwrap()));
            position = self.watch(&client, &path, from, time, &stop).await;
            if position.is_none() {
                sleep(RETRY_AFTER).await;
            }
        }
    }

    /// Lists whole or in pages. Returns the position.
    async fn list(&mut self, client: &Client, path: &str) -> Option<u64> {
        let limit = self.rng.choice(["0", "7", "500"]).unwrap();
        let mut asked = with_query(path, &[("limit", limit)]);
        loop {
            count(&self.counts.asked);
            let answer = client.get(&asked).await;
            if answer.code != 200 {
                self.counts.refuse(&asked, answer.code.as_u16());
                return None;
            }
            let Some(token) = answer.token() else {
                count(&self.counts.lists);
                return Some(answer.resource_version());
            };
            asked = with_query(path, &[("limit", limit), ("continue", &token)]);
        }
    }

    /// Watches for some time, from a position or with the initial state. Returns the position that it reached.
    async fn watch(
        &self,
        client: &Client,
        path: &str,
        from: Option<u64>,
        time: Duration,
        stop: &AtomicBool,
    ) -> Option<u64> {
        let asked = match from.map(|at| at.to_string()) {
            None => watch_list(path),
            Some(at) => with_query(path, &[("watch", "1"), ("allowWatchBookmarks", "true"), ("resourceVersion", &*at)]),
        };
        let (begun, mut position) = (Instant::now(), from);
        count(&self.counts.asked);
        let mut watch = client.watch(&asked).await;
        if watch.code() != 200 {
            self.counts.refuse(&asked, watch.code().as_u16());
            return None;
        }
        count(&self.counts.watches);
        while begun.elapsed() < time && !stop.load(Ordering::Relaxed) {
            match watch.step(STEP_WAIT.min(time)).await {
                Step::Silence => {}
                Step::Event(event) if event.kind == EventKind::Error => {
                    let code = event.object["code"].as_u64().and_then(|code| code.try_into().ok());
                    self.counts.refuse(&asked, code.unwrap_or_default());
                    return None;
                }
                Step::Event(event) => {
                    count(&self.counts.events);
                    let at = event.resource_version();
                    // Events of the initial state are in the order of names.
                    if position.is_some() || event.ends_initial_state() {
                        assert!(position.is_none_or(|before| before <= at), "{asked}: {event:?} after {position:?}");
                        position = Some(at);
                    }
                }
                Step::End | Step::Cut(_) => {
                    count(&self.counts.ended);
                    break;
                }
            }
        }
        position
    }
}
