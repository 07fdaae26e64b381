//! Starts of servers lose nothing: a new server replays what happened to definitions and namespaces, and acts only on what
//! is so now.
//!
//! The gate runs one shape per storage. `ETCD_LOAD=all` runs all of them: 300 starts over etcd, and as many over
//! `--data-dir`.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::{etcd::EtcdCluster, http::Client, objects::configmap, process::Server};
use tokio::time::timeout;

use super::{BINARY, is_long, until};

/// Objects of each definition and namespace.
const OBJECTS: usize = 3;
/// Definitions and namespaces that are deleted and created again between two starts.
const CHANGED: usize = 2;
/// Latest time after which a start is aborted, in each third round.
const ABORT_MS: u64 = 600;
/// Prefixes of the keys that are compared.
const COMPARED: [&str; 2] = ["example.com/", "configmaps/"];

/// Size of a run.
#[derive(Clone, Copy)]
struct RestartLoad {
    definitions: usize,
    /// Bytes of each definition's schema.
    schema_bytes: usize,
    namespaces: usize,
    starts: usize,
}

/// Storage of the servers.
enum Backing {
    Etcd(Box<EtcdCluster>),
    Folder(TempDir),
}

impl Backing {
    fn flags(&self) -> [String; 2] {
        match self {
            Self::Etcd(etcd) => ["--etcd-endpoints".to_owned(), etcd.endpoints()],
            Self::Folder(folder) => ["--data-dir".to_owned(), folder.path().to_str().unwrap().to_owned()],
        }
    }

    /// Starts a server; `None` if it does not listen after `within`, and is killed then.
    async fn start_within(&self, within: Duration) -> Option<Server> {
        let [flag, value] = self.flags();
        timeout(within, Server::start(BINARY, &[&flag, &value])).await.ok()
    }

    async fn start(&self) -> Server {
        self.start_within(Duration::MAX).await.expect("starts, however long that takes")
    }
}

/// A storage under restarts, with the keys that it must have.
struct RestartScene {
    load: RestartLoad,
    backing: Backing,
    /// `None` only while it is replaced.
    server: Option<Server>,
    expected: BTreeSet<String>,
    /// Creations so far, so that each creation has objects of new names.
    created: usize,
    starts: usize,
    missing: BTreeSet<String>,
}

impl RestartScene {
    async fn set(backing: Backing, load: RestartLoad) -> Self {
        let server = Some(backing.start().await);
        let (expected, missing) = Default::default();
        let mut scene = Self { load, backing, server, expected, created: 0, starts: 1, missing };
        for number in 0..load.definitions {
            scene.create_definition(number).await;
        }
        for number in 0..load.namespaces {
            scene.create_namespace(number).await;
        }
        scene
    }

    fn client(&self) -> Client {
        self.server.as_ref().expect("runs").client()
    }

    async fn create_definition(&mut self, number: usize) {
        let (client, plural, kind) = (self.client(), format!("things{number}"), format!("Thing{number}"));
        let schema = json!({"type": "object", "description": "x".repeat(self.load.schema_bytes)});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com")}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}}]}});
        client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.with_code(201);
        let collection = format!("/apis/example.com/v1/namespaces/default/{plural}");
        self.created += 1;
        for object in 0..OBJECTS {
            let name = format!("o{}-{object}", self.created);
            let thing = json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name}});
            let thing = self.accepted(&collection, &thing).await;
            self.expected
                .insert(format!("example.com/{plural}/default/{}", thing["metadata"]["name"].as_str().unwrap()));
        }
    }

    /// Creates an object, as soon as its type is served.
    async fn accepted(&self, collection: &str, object: &Value) -> Value {
        let mut created = Value::Null;
        until("an object is created", async || {
            let answer = self.client().post(collection, object).await;
            created = answer.json();
            answer.code == 201
        })
        .await;
        created
    }

    async fn create_namespace(&mut self, number: usize) {
        let name = format!("team{number}");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.accepted("/api/v1/namespaces", &namespace).await;
        self.created += 1;
        for object in 0..OBJECTS {
            let map = configmap(&format!("o{}-{object}", self.created)).namespace(&name);
            self.accepted(&map.collection(), map.body()).await;
            self.expected.insert(format!("configmaps/{name}/o{}-{object}", self.created));
        }
    }

    /// Deletes a definition or a namespace, and waits until it is gone with its objects.
    async fn delete(&mut self, path: &str, keys: &str) {
        self.client().delete(path).await.with_code(200);
        until("a deletion ends", async || self.client().get(path).await.code == 404).await;
        self.expected.retain(|key| !key.starts_with(keys));
    }

    /// Deletes some definitions and namespaces, and creates them again.
    async fn change(&mut self, round: usize) {
        for at in 0..CHANGED.min(self.load.definitions) {
            let number = (round * CHANGED + at) % self.load.definitions;
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things{number}.example.com");
            self.delete(&path, &format!("example.com/things{number}/")).await;
            self.create_definition(number).await;
        }
        for at in 0..CHANGED.min(self.load.namespaces) {
            let number = (round * CHANGED + at) % self.load.namespaces;
            self.delete(&format!("/api/v1/namespaces/team{number}"), &format!("configmaps/team{number}/")).await;
            self.create_namespace(number).await;
        }
    }

    /// Replaces the server by a new one: after a kill, after SIGTERM, or started beside it.
    async fn restart(&mut self, round: usize) {
        let is_third = round.is_multiple_of(3);
        let is_shared = matches!(self.backing, Backing::Etcd(_));
        let before = self.server.take().expect("runs");
        if round % 3 == 2 && is_shared {
            self.server = Some(self.backing.start().await);
            before.signal("KILL");
        } else {
            before.signal(if is_third { "KILL" } else { "TERM" });
            if !is_shared {
                // The next server needs the folder.
                before.ended().await;
            } else if is_third {
                let within = Duration::from_millis(fastrand::u64(0..ABORT_MS));
                self.starts += usize::from(self.backing.start_within(within).await.is_none());
            }
            self.server = Some(self.backing.start().await);
        }
        self.starts += 1;
        until("the server is ready", async || self.client().get("/readyz").await.code == 200).await;
        let (found, starts) = (self.found().await, self.starts);
        let missing: Vec<_> = self.expected.difference(&found).cloned().collect();
        for key in missing {
            eprintln!("start {starts}: {key} is missing");
            self.expected.remove(&key);
            self.missing.insert(key);
        }
    }

    /// The keys that are stored.
    async fn found(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        match &self.backing {
            Backing::Etcd(etcd) => {
                for prefix in COMPARED {
                    let pairs = etcd.keys().range(&format!("/registry/{prefix}")).await;
                    found.extend(pairs.iter().map(|pair| pair.key["/registry/".len()..].to_owned()));
                }
            }
            Backing::Folder(_) => {
                let maps = self.client().get("/api/v1/configmaps").await.with_code(200);
                found.extend(maps.keys().iter().map(|key| format!("configmaps/{key}")));
                for number in 0..self.load.definitions {
                    let things =
                        self.client().get(&format!("/apis/example.com/v1/things{number}")).await.with_code(200);
                    found.extend(things.keys().iter().map(|key| format!("example.com/things{number}/{key}")));
                }
            }
        }
        found
    }

    async fn run(mut self) {
        let mut round = 0;
        while self.starts < self.load.starts {
            self.change(round).await;
            self.restart(round).await;
            round += 1;
        }
        // The deletion of everything ends as well, and takes nothing else along.
        self.change(round).await;
        let (found, objects) = (self.found().await, self.expected.len());
        eprintln!("{} starts, {objects} objects at the end, {} lost", self.starts, self.missing.len());
        assert_eq!(self.missing, BTreeSet::new(), "lost over {} starts", self.starts);
        assert_eq!(found, self.expected);
    }
}

/// Defines a test of each storage.
macro_rules! loads {
    ($($name:ident $is_short:literal $load:expr;)*) => {
        /// Goal: a server that starts over etcd deletes nothing. Method: definitions and namespaces that are deleted and
        /// created again between the starts; servers are killed, ended, aborted while they start, and started beside
        /// each other.
        mod etcd { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if $is_short || super::is_long() {
                    let Some(etcd) = super::EtcdCluster::start("etcd restarts").await else { return };
                    super::RestartScene::set(super::Backing::Etcd(Box::new(etcd)), $load).await.run().await;
                }
            }
        )* }

        /// Like `etcd`, over `--data-dir`.
        mod folder { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if $is_short || super::is_long() {
                    let folder = super::TempDir::new().unwrap();
                    super::RestartScene::set(super::Backing::Folder(folder), $load).await.run().await;
                }
            }
        )* }
    };
}

loads! {
    few_large_definitions true
        super::RestartLoad { definitions: 12, schema_bytes: 200_000, namespaces: 6, starts: 14 };
    one_definition false
        super::RestartLoad { definitions: 1, schema_bytes: 0, namespaces: 1, starts: 120 };
    more_definitions false
        super::RestartLoad { definitions: 30, schema_bytes: 100_000, namespaces: 24, starts: 80 };
    many_definitions false
        super::RestartLoad { definitions: 300, schema_bytes: 1_000, namespaces: 100, starts: 60 };
    very_many_definitions false
        super::RestartLoad { definitions: 1_500, schema_bytes: 100, namespaces: 10, starts: 30 };
}
