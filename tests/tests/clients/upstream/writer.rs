//! Seeded writes to a cluster, through a cache-server and past it, that continue through outages.
//!
//! INVARIANT: the history is exact. This is the only writer, and each write names the version that it replaces; a write
//! without an answer of success is settled by reading the object from the API server.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use fastrand::Rng;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client as Http, resource_version, with_query},
    objects::{Object, configmap, namespace, node, pod},
};
use tokio::time::sleep;

use super::scene::Scene;
use crate::libraries::history::{History, NAMES, NAMESPACES, filled, key_of};

/// Time in which a write must succeed: longer than the API server's restart.
const PATIENCE: Duration = Duration::from_secs(90);
/// Pause before a write is sent again.
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// Rounds after which a pod is deleted again.
const POD_ROUNDS: usize = 3;

/// Server that a write is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The API server.
    Direct,
    /// The API server for half of the writes, and the cache-server for the others.
    Either,
}

pub(super) struct Writer {
    direct: Http,
    cached: Http,
    random: Rng,
    pub(super) history: History,
    /// For each existing object, true if it matches, and its version.
    there: BTreeMap<String, (bool, u64)>,
    /// Number of writes that were sent to the cache-server.
    pub(super) through: usize,
    /// Number of requests without an answer of success.
    pub(super) failed: usize,
    rounds: usize,
}

/// The state that a write leads to.
struct Intent {
    object: Object,
    /// True if the object matches afterwards; `None` to delete it.
    matches: Option<bool>,
    /// The version to replace; `None` to create.
    before: Option<u64>,
}

impl Writer {
    /// Creates the namespaces.
    pub(super) async fn new(scene: &Scene, seed: u64) -> Self {
        let (direct, cached) = (scene.direct(), scene.cached());
        for number in 0..NAMESPACES {
            direct.create(&namespace(&format!("team-{number}"))).await;
        }
        let (random, history, there) = (Rng::with_seed(seed), History::default(), BTreeMap::new());
        Self { direct, cached, random, history, there, through: 0, failed: 0, rounds: 0 }
    }

    /// Makes `count` random writes of ConfigMaps: objects are created, changed and deleted, and start or stop matching.
    pub(super) async fn write(&mut self, count: usize, way: Way) {
        for _ in 0..count {
            let team = format!("team-{}", self.random.u8(0..NAMESPACES));
            let object = configmap(&format!("map-{}", self.random.u8(0..NAMES))).namespace(&team);
            let known = self.there.get(&key_of(&object)).copied();
            let matches = match known {
                Some(_) if self.random.u8(0..5) == 0 => None,
                Some((matches, _)) => Some(matches != (self.random.u8(0..4) == 0)),
                None => Some(self.random.u8(0..5) < 3),
            };
            let object = match matches {
                Some(matches) => filled(object, matches, &mut self.random),
                None => object,
            };
            self.carry_out(&Intent { object, matches, before: known.map(|(_, version)| version) }, way).await;
        }
    }

    /// Creates a node, a Deployment and a pod, and deletes an older pod.
    pub(super) async fn write_others(&mut self) {
        let round = self.rounds;
        self.rounds += 1;
        self.direct.create(&node(&format!("node-{round}"))).await;
        self.cached.create_manifest(&deployment(&format!("web-{round}"))).await;
        let pod = |round: usize| pod(&format!("pod-{round}")).namespace("team-0");
        self.cached.create(&pod(round)).await;
        if let Some(older) = round.checked_sub(POD_ROUNDS) {
            self.direct.delete(&with_query(&pod(older).path(), &[("gracePeriodSeconds", "0")])).await.with_code(200);
        }
    }

    /// Creates a ConfigMap that matches. Returns its key.
    pub(super) async fn create(&mut self, name: &str) -> String {
        let object = configmap(name).namespace("team-0").label("followed", "yes").data("last");
        let key = key_of(&object);
        self.carry_out(&Intent { object, matches: Some(true), before: None }, Way::Direct).await;
        key
    }

    /// Sends a write until it is carried out, and records it.
    async fn carry_out(&mut self, intent: &Intent, way: Way) {
        let is_through = way == Way::Either && self.random.bool();
        let client = if is_through { self.cached } else { self.direct };
        self.through += usize::from(is_through);
        let (begun, mut attempts) = (Instant::now(), 0);
        let version = loop {
            attempts += 1;
            let answer = client.try_send(intent.request()).await;
            if let Ok(answer) = &answer
                && answer.code.is_success()
            {
                break match intent.matches {
                    Some(_) => answer.resource_version(),
                    None => self.position().await,
                };
            }
            self.failed += 1;
            assert!(begun.elapsed() < PATIENCE && intent.may_fail(&answer, attempts), "{answer:?}");
            if let Some(version) = self.settled(intent).await {
                break version;
            }
            sleep(RETRY_AFTER).await;
        };
        let key = key_of(&intent.object);
        self.history.wrote(&key, intent.matches, version);
        match intent.matches {
            Some(matches) => self.there.insert(key, (matches, version)),
            None => self.there.remove(&key),
        };
    }

    /// Reads the object from the API server. Returns its version if the write was carried out; for a deletion, a
    /// position after it.
    async fn settled(&self, intent: &Intent) -> Option<u64> {
        let answer = self.read(&intent.object.path(), &[200, 404]).await;
        let found = (answer.code == 200).then(|| answer.json());
        let version = found.as_ref().map(resource_version);
        match (&found, intent.matches) {
            (None, None) => return Some(self.position().await),
            (Some(found), Some(_)) if found["data"] == intent.object.body()["data"] => return version,
            _ => {}
        }
        assert_eq!(version, intent.before, "another writer changed {}", intent.object.path());
        None
    }

    /// The position of the API server.
    async fn position(&self) -> u64 {
        self.read("/api/v1/configmaps?limit=1", &[200]).await.resource_version()
    }

    /// Reads from the API server until it answers with one of these codes.
    async fn read(&self, path: &str, codes: &[u16]) -> Answer {
        let begun = Instant::now();
        loop {
            match self.direct.try_get(path).await {
                Ok(answer) if codes.contains(&answer.code.as_u16()) => return answer,
                other => assert!(begun.elapsed() < PATIENCE, "{path}: {other:?}"),
            }
            sleep(RETRY_AFTER).await;
        }
    }
}

impl Intent {
    fn request(&self) -> Request<Full<Bytes>> {
        let path = self.object.path();
        let mut body = self.object.body().clone();
        let version = self.before.map(|version| version.to_string());
        let (method, path, body) = match (self.matches, version) {
            (None, version) => (Method::DELETE, path, json!({"preconditions": {"resourceVersion": version}})),
            (Some(_), None) => (Method::POST, self.object.collection(), body),
            (Some(_), Some(version)) => {
                body["metadata"]["resourceVersion"] = version.into();
                (Method::PUT, path, body)
            }
        };
        Http::request(method, &path, &[("content-type", "application/json")], body.to_string().into())
    }

    /// True for a code that is expected: the servers are away, or an earlier attempt was carried out.
    fn may_fail(&self, answer: &Result<Answer, String>, attempts: usize) -> bool {
        let Ok(answer) = answer else { return true };
        match answer.code.as_u16() {
            404 => attempts > 1 && self.matches.is_none(),
            409 => attempts > 1,
            // A kube-apiserver that has just started may not know the roles yet.
            403 | 429 | 500.. => true,
            _ => false,
        }
    }
}

/// A Deployment's manifest.
fn deployment(name: &str) -> Value {
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "team-1"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    })
}
