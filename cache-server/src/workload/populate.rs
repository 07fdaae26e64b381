//! Realistic synthetic objects, deterministic by seed: equal specifications give equal bytes.
//!
//! Generates what clusters hold: namespaces, nodes, service accounts, workloads, and pods that share their workload's
//! template. A pod is about 5 KB of JSON, about 40 % of it managedFields. Objects are generated one at a time; only the
//! current workload and the names of service accounts are kept.
//!
//! INVARIANT: a stock kube-apiserver with its usual admission accepts every object, in this order
//! (`tests/tests/upstream/populate.rs`).

mod cluster;
mod container;
mod managed_fields;
mod pod;
mod random;
mod template;
mod workload;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use futures::{FutureExt as _, future::try_join_all};
use serde_json::Value;
use tokio::sync::mpsc;
use watch_cache::{Draft, EntryError};

use self::{random::Random, workload::Workload};
pub use crate::config::{PopulateSpec, PopulateSpecError};
use crate::{
    app::App,
    limits::{POPULATE_BATCH, POPULATE_BATCHES},
    registry::ResourceType,
    storage::{Expect, Txn, WriteError},
};

/// An object of the generator that could not be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateError {
    /// The registry does not know a type that the generator makes.
    #[error("the registry has no {group}/{version} {plural}")]
    UnknownType {
        /// API group; empty for core.
        group: &'static str,
        /// API version.
        version: &'static str,
        /// Plural.
        plural: &'static str,
    },
    /// The object is not a valid entry of the store.
    #[error("cannot use a generated object: {0}")]
    Entry(#[from] EntryError),
    /// The storage cannot be read.
    #[error("cannot read what is stored: {0}")]
    Read(String),
    /// The server has no store of its own.
    #[error("this server stores nothing itself")]
    NoStore,
    /// The write failed.
    #[error("cannot store {key}: {source}")]
    Write {
        /// Namespace and name.
        key: String,
        /// The storage's error.
        source: WriteError,
    },
}

/// One generated object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeneratedObject {
    /// API group; empty for core.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural of the resource.
    pub plural: &'static str,
    /// Compact JSON without resourceVersion.
    pub json: Vec<u8>,
}

impl GeneratedObject {
    /// Resource with its group, such as `pods` or `deployments.apps`.
    #[must_use]
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

/// Difference between the seeds of service accounts and of all other objects.
const ACCOUNTS_SEED: u64 = 0x5e71_acc0;

/// The objects of `spec`, one at a time: namespaces, nodes, then each workload after its service account and followed by
/// its pods.
///
/// Cost: about 10 µs per pod. Holds one workload in memory, and at most 128 names of service accounts per namespace.
#[must_use]
pub fn objects(spec: &PopulateSpec) -> GeneratedObjects {
    let random = Random::new(spec.seed);
    let pods = if spec.nodes == 0 || spec.namespaces == 0 { 0 } else { spec.pods };
    GeneratedObjects {
        spec: PopulateSpec { pods, ..spec.clone() },
        random,
        random_accounts: Random::new(spec.seed ^ ACCOUNTS_SEED),
        accounts: BTreeSet::new(),
        namespaces: 0,
        nodes: 0,
        pods: 0,
        workloads: 0,
        current: None,
        ready: VecDeque::new(),
    }
}

/// Like [`objects`], but decoded: the resource's id and the object. For tests and tools; decoding costs more than
/// generating.
pub fn generate(spec: &PopulateSpec) -> impl Iterator<Item = (String, Value)> + use<> {
    objects(spec).map(|object| {
        let value = serde_json::from_slice(&object.json).expect("the generator makes JSON");
        (object.resource(), value)
    })
}

/// Returns true if an earlier start has created the objects of `spec`, or the storage is in use otherwise: objects that were
/// deleted since must not come back. The sign is the first object, which is stored last: the namespace `default`, which
/// clients cannot delete. False for objects in memory.
///
/// # Errors
/// [`PopulateError`] if the storage cannot be read.
pub(crate) async fn is_done(app: &App, spec: &PopulateSpec) -> Result<bool, PopulateError> {
    let Some(first) = objects(spec).next().filter(|_| app.config.objects_last()) else { return Ok(false) };
    let ty = TypeCache { app, known: Vec::new() }.find(&first)?;
    let key = Draft::new(&ty.schema, &first.json)?.key().to_owned();
    let reader = app.caches.fresh(&ty).await.map_err(|error| PopulateError::Read(error.to_string()))?;
    Ok(reader.get(&key).is_some())
}

/// Creates the objects of `spec` in the server's storage, in order except that the first one is last, and returns their
/// number. A thread generates them while this task stores them; at most [`POPULATE_BATCHES`] batches are queued in between.
///
/// # Errors
/// [`PopulateError`] at the first object that cannot be stored; those before it stay.
pub async fn into_storage(app: &App, spec: &PopulateSpec) -> Result<usize, PopulateError> {
    let store = app.local().ok_or(PopulateError::NoStore)?.store;
    let (made, mut to_store) = mpsc::channel(POPULATE_BATCHES);
    let mut objects = objects(spec);
    let making = tokio::task::spawn_blocking(move || {
        let Some(first) = objects.next() else { return };
        let mut objects = objects.peekable();
        while objects.peek().is_some() {
            let batch: Vec<GeneratedObject> = objects.by_ref().take(POPULATE_BATCH).collect();
            if made.blocking_send(batch).is_err() {
                return;
            }
        }
        // Alone, once all others are stored, so that a start that was interrupted is repeated.
        let _ = made.blocking_send(vec![first]);
    });
    let mut types = TypeCache { app, known: Vec::new() };
    let mut stored = 0;
    while let Some(batch) = to_store.recv().await {
        let mut writes = Vec::with_capacity(batch.len());
        for object in batch {
            let ty = types.find(&object)?;
            let draft = Draft::new(&ty.schema, &object.json)?;
            if draft.len() > app.config.object_bytes_max {
                return Err(EntryError::TooLarge { bytes: draft.len() }.into());
            }
            let key = draft.key().to_owned();
            let txn = Txn { ty, key: key.clone(), expect: Expect::Absent, put: Some(draft), cause: None };
            writes.push(store.write(txn).map(|written| match written {
                // Another process has stored it in the same folder.
                Err(WriteError::Exists) if app.config.objects_last() => Ok(0),
                written => written.map(|_| 1).map_err(|source| PopulateError::Write { key, source }),
            }));
        }
        // At once: a store on a disk makes them durable together.
        stored += try_join_all(writes).await?.iter().sum::<usize>();
    }
    making.await.expect("the generator does not panic");
    Ok(stored)
}

/// Cache of types by plural, so that each of the few generated types is looked up once.
struct TypeCache<'a> {
    app: &'a App,
    known: Vec<(&'static str, Arc<ResourceType>)>,
}

impl TypeCache<'_> {
    fn find(&mut self, object: &GeneratedObject) -> Result<Arc<ResourceType>, PopulateError> {
        let &GeneratedObject { group, version, plural, .. } = object;
        if let Some((_, ty)) = self.known.iter().find(|(known, _)| *known == plural) {
            return Ok(Arc::clone(ty));
        }
        let ty = self.app.registry.now().find(group, version, plural);
        let ty = ty.ok_or(PopulateError::UnknownType { group, version, plural })?;
        self.known.push((plural, Arc::clone(&ty)));
        Ok(ty)
    }
}

/// Iterator of [`objects`].
pub struct GeneratedObjects {
    spec: PopulateSpec,
    random: Random,
    random_accounts: Random,
    /// Namespaces and names of the service accounts so far: workloads share them.
    accounts: BTreeSet<(String, String)>,
    namespaces: u32,
    nodes: u32,
    pods: u32,
    workloads: u32,
    current: Option<Workload>,
    /// The current workload's own objects.
    ready: VecDeque<GeneratedObject>,
}

impl Iterator for GeneratedObjects {
    type Item = GeneratedObject;

    fn next(&mut self) -> Option<GeneratedObject> {
        if self.namespaces < self.spec.namespaces {
            self.namespaces += 1;
            let namespace = cluster::namespace(self.namespaces - 1, &mut self.random);
            return Some(core("namespaces", &namespace));
        }
        if self.nodes < self.spec.nodes {
            self.nodes += 1;
            let node = cluster::node(self.nodes - 1, &mut self.random);
            return Some(core("nodes", &node));
        }
        loop {
            if let Some(object) = self.ready.pop_front() {
                return Some(object);
            }
            // Round robin: as even as a scheduler's placement, and a daemon set covers each node once.
            let node = self.pods.checked_rem(self.spec.nodes)?;
            if let Some(pod) = self.current.as_mut().and_then(|workload| workload.next_pod(node, &mut self.random)) {
                self.pods += 1;
                return Some(pod);
            }
            let left = self.spec.pods - self.pods;
            if left == 0 {
                return None;
            }
            let PopulateSpec { nodes, namespaces, .. } = self.spec;
            let (workload, objects) = Workload::plan(self.workloads, left, nodes, namespaces, &mut self.random);
            self.workloads += 1;
            if self.accounts.insert(workload.account_key()) {
                self.ready.push_back(core("serviceaccounts", &workload.account(&mut self.random_accounts)));
            }
            self.current = Some(workload);
            self.ready.extend(objects);
        }
    }
}

fn core(plural: &'static str, value: &Value) -> GeneratedObject {
    GeneratedObject { group: "", version: "v1", plural, json: value.to_string().into_bytes() }
}

#[cfg(test)]
mod tests;
