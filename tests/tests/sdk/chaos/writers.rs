//! Writers that go on through faults, and read what they wrote at another server.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use http::Method;
use tests::http::{Answer, Client, MERGE_PATCH, with_query};
use tokio::time::sleep;

use super::history::{
    named,
    truth::Content,
    watchers::{APPS, NAMES, NAMESPACES},
};

/// The position, key and content of an acknowledged write.
pub(crate) struct Acknowledged {
    pub(crate) at: u64,
    pub(crate) key: String,
    pub(crate) content: Content,
}

/// A consistent read of one object: the version that it found, and a position that was acknowledged before.
#[derive(Debug)]
pub(crate) struct SingleRead {
    pub(crate) key: String,
    pub(crate) floor: u64,
    pub(crate) found: Option<u64>,
}

/// Observations of all writers since it was last taken.
#[derive(Default)]
pub(crate) struct WriterLog {
    pub(crate) acknowledged: Vec<Acknowledged>,
    /// Uids of objects whose deletion was acknowledged.
    pub(crate) deleted: Vec<String>,
    pub(crate) reads: Vec<SingleRead>,
    /// Consistent lists, whose positions were checked at once.
    pub(crate) lists: usize,
    /// Writes without an answer of success or conflict.
    pub(crate) unknown: usize,
}

/// State that the writers share.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) log: Mutex<WriterLog>,
    /// Highest acknowledged position.
    highest: AtomicU64,
    pub(crate) is_over: AtomicBool,
}

/// A client that writes through one server after the other.
pub(crate) struct Writer {
    /// Part of each content that it writes, unique in a run.
    pub(crate) name: String,
    pub(crate) rng: Rng,
    pub(crate) writing: Vec<Client>,
    pub(crate) reading: Vec<Client>,
    pub(crate) shared: Arc<Shared>,
    /// Longest pause after a write.
    pub(crate) pause: Duration,
}

impl Writer {
    pub(crate) async fn run(mut self) {
        for count in 0.. {
            if self.shared.is_over.load(Ordering::Relaxed) {
                return;
            }
            let content =
                Content { app: format!("a{}", self.rng.usize(0..APPS)), value: format!("{}-{count}", self.name) };
            self.write(content).await;
            if self.rng.bool() {
                self.read().await;
            }
            sleep(self.pause.mul_f64(self.rng.f64())).await;
        }
    }

    async fn write(&mut self, content: Content) {
        let (namespace, object) = (self.rng.usize(0..NAMESPACES), self.rng.usize(0..NAMES));
        let wanted = named(namespace, object, &content);
        let client = self.writing[self.rng.usize(0..self.writing.len())];
        let kind = self.rng.u8(0..10);
        let (method, path, content_type) = match kind {
            0..4 => (Method::PUT, wanted.path(), Some("application/json")),
            4..7 => (Method::POST, wanted.collection(), Some("application/json")),
            7..9 => (Method::PATCH, wanted.path(), Some(MERGE_PATCH)),
            _ => (Method::DELETE, wanted.path(), None),
        };
        let headers: Vec<_> = content_type.map(|of| ("content-type", of)).into_iter().collect();
        let body = content_type.map_or_else(String::new, |_| wanted.body().to_string());
        let answer = client.try_send(Client::request(method, &path, &headers, body.into())).await;
        match answer {
            Ok(answer) if answer.code.is_success() && kind < 9 => {
                let at = answer.resource_version();
                self.shared.highest.fetch_max(at, Ordering::SeqCst);
                let key = format!("ns{namespace}/n{object}");
                self.shared.log.lock().unwrap().acknowledged.push(Acknowledged { at, key, content });
            }
            Ok(answer) if answer.code.is_success() => {
                let uid = answer.json()["details"]["uid"].as_str().expect("the uid of a deleted object").to_owned();
                self.shared.log.lock().unwrap().deleted.push(uid);
            }
            Ok(answer) if matches!(answer.code.as_u16(), 404 | 409) => {}
            Ok(answer) => {
                assert_failure(&answer);
                self.failed().await;
            }
            Err(_) => self.failed().await,
        }
    }

    async fn failed(&mut self) {
        self.shared.log.lock().unwrap().unknown += 1;
        sleep(Duration::from_millis(self.rng.u64(10..200))).await;
    }

    /// Reads at any server what any writer has acknowledged before.
    async fn read(&mut self) {
        let client = self.reading[self.rng.usize(0..self.reading.len())];
        let floor = self.shared.highest.load(Ordering::SeqCst);
        if self.rng.bool() {
            let limit = self.rng.choice(["1", "0"]).unwrap();
            let Ok(answer) = client.try_get(&with_query("/api/v1/configmaps", &[("limit", limit)])).await else {
                return;
            };
            if answer.code == 200 {
                let at = answer.resource_version();
                assert!(at >= floor, "{}: a consistent list at {at}, after a write at {floor}", answer.asked);
                self.shared.log.lock().unwrap().lists += 1;
            } else {
                assert_failure(&answer);
            }
            return;
        }
        let (namespace, object) = (self.rng.usize(0..NAMESPACES), self.rng.usize(0..NAMES));
        let path = format!("/api/v1/namespaces/ns{namespace}/configmaps/n{object}");
        let Ok(answer) = client.try_get(&path).await else { return };
        let found = match answer.code.as_u16() {
            200 => Some(answer.resource_version()),
            404 => None,
            _ => return assert_failure(&answer),
        };
        let read = SingleRead { key: format!("ns{namespace}/n{object}"), floor, found };
        self.shared.log.lock().unwrap().reads.push(read);
    }
}

/// Asserts that an answer is one that a server may give while it, or what it stands on, is away.
fn assert_failure(answer: &Answer) {
    let code = answer.code.as_u16();
    assert!(matches!(code, 429 | 500 | 502..=504), "{}: {code} {}", answer.asked, answer.text());
}
