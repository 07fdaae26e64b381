//! A stream that is read as a cache reads it. Each update is checked against those before it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cache_server::storage::{FollowFrom, Source, SourceChange, SourceError, SourceRecord, Update, Updates};
use futures::StreamExt as _;
use informer_core::{KeyedObject as _, Objects, Time};
use serde_json::Value;
use tokio::time::timeout;
use watch_cache::{BucketWaker, Change, Draft, Entry, Limits, Writer};

use super::{
    Breach, CONTENT, Held, Kind, Scene, ensure,
    history::{History, ObjectChange, State, Version},
};

/// A reader of one type.
pub(crate) struct Follower {
    kind: Kind,
    /// Objects of other namespaces are not of the row.
    namespace: String,
    patience: Duration,
    updates: Updates,
    cache: FilledCache,
    /// The state that is being listed.
    staged: Option<(State, Objects<Entry>)>,
    /// True once a state was complete, or if the stream began after a position.
    is_listed: bool,
    /// Position of the last complete state, or after which the stream began; and the objects there.
    begun: u64,
    initial: State,
    state: State,
    changes: Vec<ObjectChange>,
    position: u64,
    /// Errors that the stream reported.
    pub(crate) troubles: usize,
}

/// The cache that a stream fills: sources read it.
struct FilledCache {
    writer: Writer,
    _waker: BucketWaker,
}

impl FilledCache {
    fn new(kind: Kind) -> Self {
        let (writer, waker, _) = watch_cache::cache(Arc::clone(&kind.ty().schema), Limits::default());
        Self { writer, _waker: waker }
    }

    fn entry(&self, kind: Kind, record: SourceRecord) -> Result<Arc<Entry>, Breach> {
        let (json, revision) = match record {
            SourceRecord::Entry(entry) => return Ok(entry),
            SourceRecord::Json { json, revision } => (json, revision),
        };
        let draft = Draft::new(&kind.ty().schema, &json).map_err(|error| Breach(format!("no object: {error}")))?;
        let exists = self.writer.get(draft.key()).is_some();
        Ok(if exists { draft.commit_update(revision) } else { draft.commit(revision) })
    }

    /// Applies the changes of one revision.
    fn apply(&mut self, changes: Vec<Change>) -> Held {
        let applied = self.writer.apply_batch(changes, Time::default());
        applied.map(drop).map_err(|error| Breach(format!("a cache refuses an update: {error}")))
    }
}

/// Outcome of a read of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progressed {
    /// An update was applied.
    Updated,
    /// The stream reported an error.
    Troubled,
    /// The stream has ended.
    Ended,
    /// The source has another history than the one that was read.
    Lost,
}

impl Follower {
    /// Opens a stream from the start.
    pub(crate) async fn open(scene: &Scene, source: &dyn Source, kind: Kind) -> Result<Self, Breach> {
        let (cache, namespace, patience) = (FilledCache::new(kind), scene.namespace.clone(), scene.features.patience);
        let opening = source.follow(&kind.ty(), FollowFrom::Start, cache.writer.reader());
        let opened = timeout(patience, opening).await.map_err(|_| Breach(format!("{kind}: no stream in time")))?;
        Ok(Self {
            kind,
            namespace,
            patience,
            updates: opened?,
            cache,
            staged: None,
            is_listed: false,
            begun: 0,
            initial: State::new(),
            state: State::new(),
            changes: Vec::new(),
            position: 0,
            troubles: 0,
        })
    }

    /// Opens another stream after the position of this one, for the cache of this one.
    pub(crate) async fn resume(&mut self, source: &dyn Source) -> Result<Result<(), SourceError>, Breach> {
        let from = FollowFrom::After(self.position);
        // A cache has at most one stream.
        self.close();
        let opening = source.follow(&self.kind.ty(), from, self.cache.writer.reader());
        let opened = timeout(self.patience, opening).await.map_err(|_| Breach("no stream in time".to_owned()))?;
        Ok(opened.map(|updates| self.updates = updates))
    }

    /// Like [`resume`](Self::resume), from a position that the cache has not reached.
    pub(crate) async fn resume_at(
        &mut self,
        source: &dyn Source,
        position: u64,
    ) -> Result<Result<(), SourceError>, Breach> {
        let before = std::mem::replace(&mut self.position, position);
        let resumed = self.resume(source).await;
        self.position = before;
        resumed
    }

    /// Ends the stream.
    pub(crate) fn close(&mut self) {
        self.updates = futures::stream::pending().boxed();
    }

    /// True if a state has begun and is not complete.
    pub(crate) const fn is_listing(&self) -> bool {
        self.staged.is_some()
    }

    pub(crate) const fn position(&self) -> u64 {
        self.position
    }

    pub(crate) const fn state(&self) -> &State {
        &self.state
    }

    pub(crate) fn changes(&self) -> &[ObjectChange] {
        &self.changes
    }

    /// Position of its last complete state.
    pub(crate) const fn begun(&self) -> u64 {
        self.begun
    }

    /// Reads one update, however long that takes. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Progressed, Breach> {
        match self.updates.next().await {
            None => {
                self.updates = futures::stream::empty().boxed();
                Ok(Progressed::Ended)
            }
            Some(Err(_)) => {
                self.troubles += 1;
                Ok(Progressed::Troubled)
            }
            Some(Ok(Update::HistoryLost)) if self.is_listed => Ok(Progressed::Lost),
            Some(Ok(update)) => {
                let text = brief(&update);
                self.take(update).map_err(|breach| breach.at(format!("{} at {}, {text}", self.kind, self.position)))?;
                Ok(Progressed::Updated)
            }
        }
    }

    /// Reads until a promise is broken, however the stream does.
    pub(crate) async fn read_on(&mut self) -> Breach {
        loop {
            match self.next().await {
                Ok(Progressed::Ended) => std::future::pending().await,
                Ok(Progressed::Updated | Progressed::Troubled) => {}
                Ok(Progressed::Lost) => return Breach("the source has one history".to_owned()),
                Err(breach) => return breach,
            }
        }
    }

    /// Reads one update of a storage without faults, however long that takes. Cancel safe.
    pub(crate) async fn step(&mut self) -> Held {
        let progressed = self.next().await?;
        ensure!(progressed == Progressed::Updated, "{} at {}: the stream {progressed:?}", self.kind, self.position);
        Ok(())
    }

    /// Reads until a condition holds.
    pub(crate) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Held {
        while !holds(self) {
            let Ok(stepped) = timeout(self.patience, self.step()).await else {
                return Err(Breach(format!("{} at {}: no update, waits until {what}", self.kind, self.position)));
            };
            stepped?;
        }
        Ok(())
    }

    /// Reads until the state is complete and every change at or below a revision was delivered.
    pub(crate) async fn reach(&mut self, revision: u64) -> Held {
        let reached = |this: &Self| this.is_listed && this.staged.is_none() && revision <= this.position;
        self.until(&format!("it is at {revision}"), reached).await
    }

    /// Reads on through errors and ends, as a cache does, until it has reached a revision. A stream that failed comes
    /// back with growing delays.
    pub(crate) async fn reach_through_faults(&mut self, source: &dyn Source, revision: u64) -> Held {
        let (patience, kind) = (2 * self.patience, self.kind);
        let reading = async {
            while self.position < revision || self.staged.is_some() {
                let progressed = self.next().await?;
                ensure!(progressed != Progressed::Lost, "the source has one history");
                if progressed == Progressed::Ended {
                    while self.resume(source).await?.is_err() {
                        tokio::time::sleep(RESUME_PAUSE).await;
                    }
                }
            }
            Ok(())
        };
        timeout(patience, reading).await.map_err(|_| Breach(format!("{kind}: not at {revision} after an outage")))?
    }

    /// Compares what was read with the writes.
    pub(crate) fn check(&self, history: &History) -> Held {
        let Self { kind, begun, position, .. } = *self;
        history.check_state(kind, begun, &self.initial).map_err(|breach| breach.at("the state of a stream"))?;
        history.check_changes(kind, begun, position, &self.changes).map_err(|breach| breach.at("a stream"))?;
        history.check_state(kind, position, &self.state).map_err(|breach| breach.at("a stream's copy"))
    }

    fn take(&mut self, update: Update) -> Held {
        match update {
            Update::State { objects, revision } => {
                self.take(Update::StateBegins)?;
                for entry in &objects {
                    self.take(Update::Object(SourceRecord::Entry(Arc::clone(entry))))?;
                }
                return self.take(Update::StateComplete(revision));
            }
            Update::StateBegins => self.staged = Some((State::new(), Objects::new())),
            Update::StateAbandoned => {
                ensure!(self.staged.take().is_some() && self.is_listed, "no state is before it");
            }
            // Before the first state there is no history to lose.
            Update::HistoryLost => {}
            Update::Object(record) => {
                let entry = self.cache.entry(self.kind, record)?;
                let found = self.read(&entry)?;
                let Some((state, objects)) = &mut self.staged else {
                    return Err(Breach("no state has begun".to_owned()));
                };
                if let Some((name, version)) = found {
                    ensure!(state.insert(name.clone(), version).is_none(), "{name} is in the state twice");
                }
                objects.insert(entry);
            }
            Update::Removed(key) => {
                let name = self.name(&key);
                let Some((state, objects)) = &mut self.staged else {
                    return Err(Breach("no state has begun".to_owned()));
                };
                objects.remove(&key);
                name.map(|name| state.remove(&name));
            }
            Update::StateComplete(revision) => return self.complete(revision),
            Update::Put(record) => return self.take_changes(vec![SourceChange::Put(record)]),
            Update::Deleted { key, revision } => {
                return self.take_changes(vec![SourceChange::Deleted { key, revision }]);
            }
            Update::Batch(changes) => {
                ensure!(1 < changes.len(), "a batch has several changes");
                return self.take_changes(changes);
            }
            Update::Progress(revision) => {
                self.moves_to(revision, true)?;
                self.cache.apply(vec![Change::Progress(revision)])?;
            }
        }
        Ok(())
    }

    /// Takes the changes of one revision.
    fn take_changes(&mut self, changes: Vec<SourceChange>) -> Held {
        let (mut revisions, mut keys, mut applied) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for change in changes {
            let (key, revision, content, change) = match change {
                SourceChange::Put(record) => {
                    let entry = self.cache.entry(self.kind, record)?;
                    let content = self.read(&entry)?.map(|(_, version)| version.content);
                    (entry.key().to_owned(), entry.resource_version(), content, Change::Put(entry))
                }
                SourceChange::Deleted { key, revision } => {
                    let change = Change::Deleted { key: key.clone(), resource_version: revision };
                    (key, revision, None, change)
                }
            };
            if revisions.insert(revision) {
                self.moves_to(revision, false)?;
            }
            ensure!(keys.insert(key.clone()), "{key} is in a batch twice");
            if let Some(name) = self.name(&key) {
                ensure!(content.is_some() || self.state.contains_key(&name), "{name} was not there");
                self.changed(ObjectChange { revision, name, content });
            }
            applied.push(change);
        }
        ensure!(revisions.len() == 1, "a batch has the revisions {revisions:?}");
        self.cache.apply(applied)
    }

    fn complete(&mut self, revision: u64) -> Held {
        let Some((state, objects)) = self.staged.take() else { return Err(Breach("no state has begun".to_owned())) };
        ensure!(0 < revision, "zero is no revision");
        let newer = state.iter().find(|(_, version)| revision < version.revision);
        ensure!(newer.is_none(), "{newer:?} is newer than the state");
        self.cache.writer.reset(objects, revision, Time::default());
        self.changes.clear();
        (self.is_listed, self.begun, self.position) = (true, revision, revision);
        (self.initial, self.state) = (state.clone(), state);
        Ok(())
    }

    /// Moves the position.
    fn moves_to(&mut self, revision: u64, may_stay: bool) -> Result<u64, Breach> {
        ensure!(self.is_listed && self.staged.is_none(), "no state is complete");
        let is_later = self.position < revision || may_stay && self.position == revision;
        ensure!(is_later, "{revision} is not above the position");
        self.position = revision;
        Ok(revision)
    }

    fn changed(&mut self, change: ObjectChange) {
        change.apply(&mut self.state);
        self.changes.push(change);
    }

    /// Returns name and version of an object of the row.
    fn read(&self, entry: &Entry) -> Result<Option<(String, Version)>, Breach> {
        read(entry, &self.namespace)
    }

    fn name(&self, key: &str) -> Option<String> {
        name_of(key, &self.namespace)
    }
}

/// Returns name and version of an object of a namespace.
pub(crate) fn read(entry: &Entry, namespace: &str) -> Result<Option<(String, Version)>, Breach> {
    let object: Value = serde_json::from_slice(&entry.object()).map_err(|error| Breach(format!("no JSON: {error}")))?;
    let metadata = &object["metadata"];
    if metadata["namespace"] != *namespace {
        return Ok(None);
    }
    let revision = entry.resource_version();
    ensure!(metadata["resourceVersion"] == *revision.to_string(), "{metadata} is at {revision}");
    let content = metadata["annotations"][CONTENT].as_str().and_then(|content| content.parse().ok());
    let Some(content) = content else { return Err(Breach(format!("{metadata} was not written by the row"))) };
    Ok(Some((entry.name().to_owned(), Version { revision, content })))
}

fn name_of(key: &str, namespace: &str) -> Option<String> {
    key.strip_prefix(namespace)?.strip_prefix('/').map(str::to_owned)
}

/// An update without its object.
fn brief(update: &Update) -> String {
    match update {
        Update::Object(record) => format!("Object({})", revision_of(record)),
        Update::Put(record) => format!("Put({})", revision_of(record)),
        Update::Batch(changes) => format!("Batch of {}", changes.len()),
        Update::State { objects, revision } => format!("State of {} at {revision}", objects.len()),
        other @ (Update::StateBegins
        | Update::Removed(_)
        | Update::StateComplete(_)
        | Update::StateAbandoned
        | Update::HistoryLost
        | Update::Deleted { .. }
        | Update::Progress(_)) => format!("{other:?}"),
    }
}

fn revision_of(record: &SourceRecord) -> u64 {
    match record {
        SourceRecord::Entry(entry) => entry.resource_version(),
        SourceRecord::Json { revision, .. } => *revision,
    }
}

/// Pause before a stream is opened again.
const RESUME_PAUSE: Duration = Duration::from_millis(20);
