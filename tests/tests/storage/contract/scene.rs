//! A row's storage, with the history of its writes.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use cache_server::storage::{Expect, Source, Store, WriteError};
use futures::{
    FutureExt as _, TryStreamExt as _,
    future::{select_all, try_join_all},
};
use tokio::{task::JoinSet, time::timeout};

use super::{
    Breach, Features, Held, Kind, ObjectWrite, Storage,
    follower::{self, Follower},
    history::{History, ObjectChange, State},
};

/// A storage under test and what was written to it.
pub(crate) struct Scene {
    storage: Box<dyn Storage>,
    pub(crate) features: Features,
    /// Namespace of the row's objects.
    pub(crate) namespace: String,
    pub(crate) history: History,
    /// Counts writes, which go through the writers in turn.
    turn: AtomicUsize,
}

/// Streams of one type from one source.
pub(crate) struct Streams {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) followers: Vec<Follower>,
}

impl Scene {
    pub(crate) fn new(storage: Box<dyn Storage>, namespace: String) -> Self {
        let features = storage.features();
        Self { storage, features, namespace, history: History::default(), turn: AtomicUsize::new(0) }
    }

    pub(crate) fn source(&self) -> Arc<dyn Source> {
        self.storage.source()
    }

    /// Returns the storage of a row about stores.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        self.storage.store().expect("a row about stores")
    }

    pub(crate) async fn reopen(&self) {
        self.storage.reopen().await;
    }

    pub(crate) fn part(&self, is_parted: bool) {
        self.storage.part(is_parted);
    }

    /// Number of clients through which writes come.
    pub(crate) fn writers(&self) -> usize {
        self.storage.writers().len()
    }

    /// Writes through one of the clients, counted from zero.
    pub(crate) async fn write_by(
        &self,
        writer: usize,
        kind: Kind,
        name: &str,
        expect: Expect,
        content: Option<u64>,
    ) -> Result<Result<u64, WriteError>, Breach> {
        let write = ObjectWrite { kind, namespace: self.namespace.clone(), name: name.to_owned(), expect, content };
        let writer = Arc::clone(&self.storage.writers()[writer]);
        let written = timeout(self.features.patience, writer.write(write)).await;
        written.map_err(|_| Breach(format!("the write of {kind} {name} has no outcome in time")))
    }

    /// Writes through the next client.
    pub(crate) async fn attempt(
        &self,
        kind: Kind,
        name: &str,
        expect: Expect,
        content: Option<u64>,
    ) -> Result<Result<u64, WriteError>, Breach> {
        let writer = self.turn.fetch_add(1, Ordering::Relaxed) % self.writers();
        self.write_by(writer, kind, name, expect, content).await
    }

    /// Returns the expectation that holds for an object.
    pub(crate) fn expectation(&self, kind: Kind, name: &str) -> Expect {
        self.history.current(kind, name).map_or(Expect::Absent, |version| Expect::At(version.revision))
    }

    /// Writes an object, or deletes it, and records that.
    pub(crate) async fn write(&self, kind: Kind, name: &str, content: Option<u64>) -> Result<u64, Breach> {
        let revision = self.attempt(kind, name, self.expectation(kind, name), content).await??;
        self.history.record(kind, ObjectChange { revision, name: name.to_owned(), content })?;
        Ok(revision)
    }

    /// Lets writers work at the same time: each on objects of its own, of both types, and deletes some.
    pub(crate) fn crowd(self: &Arc<Self>, prefix: &'static str, writers: usize, writes: u64) -> JoinSet<Held> {
        let mut crowd = JoinSet::new();
        for writer in 0..writers {
            let scene = Arc::clone(self);
            crowd.spawn(async move {
                let (kind, name) = (Kind::ALL[writer % 2], format!("{prefix}{writer}"));
                for number in 0..writes {
                    let content = (number % 4 != 3).then_some(number);
                    scene.write(kind, &name, content).await?;
                }
                Ok(())
            });
        }
        crowd
    }

    /// Opens as many streams of a type as one source may have.
    pub(crate) async fn follow(&self, kind: Kind) -> Result<Streams, Breach> {
        let source = self.source();
        let opening = (0..self.features.streams).map(|_| Follower::open(self, &*source, kind));
        let followers = try_join_all(opening).await?;
        Ok(Streams { source, followers })
    }

    /// Lists the objects of a type: the revision and the state at it.
    pub(crate) async fn list(&self, store: &dyn Store, kind: Kind) -> Result<(u64, State), Breach> {
        let listing = async {
            let listed = store.list(&kind.ty()).await?;
            let (mut state, mut entries) = (BTreeMap::new(), listed.entries);
            while let Some(entry) = entries.try_next().await? {
                if let Some((name, version)) = follower::read(&entry, &self.namespace)? {
                    super::ensure!(state.insert(name.clone(), version).is_none(), "{name} is in the list twice");
                }
            }
            Ok((listed.resource_version, state))
        };
        timeout(self.features.patience, listing).await.map_err(|_| Breach("no list in time".to_owned()))?
    }
}

/// Waits for tasks that write.
pub(crate) async fn joined(mut crowd: JoinSet<Held>) -> Held {
    while let Some(ended) = crowd.join_next().await {
        ended.map_err(|error| Breach(format!("a task of the row failed: {error}")))??;
    }
    Ok(())
}

impl Streams {
    /// Asks the source while its streams are read, as a cache does.
    pub(crate) async fn ask<T>(&mut self, question: impl Future<Output = T>) -> Result<T, Breach> {
        let mut question = pin!(question);
        loop {
            let steps = self.followers.iter_mut().map(|follower| follower.step().boxed());
            tokio::select! {
                answer = &mut question => return Ok(answer),
                (stepped, ..) = select_all(steps) => stepped?,
            }
        }
    }

    /// Reads until all streams have reached a revision.
    pub(crate) async fn reach(&mut self, revision: u64) -> Held {
        try_join_all(self.followers.iter_mut().map(|follower| follower.reach(revision))).await.map(drop)
    }

    /// Compares what was read with the writes.
    pub(crate) fn check(&self, history: &History) -> Held {
        self.followers.iter().try_for_each(|follower| follower.check(history))
    }
}
