//! The seam between caches and storages: a [`Source`] is followed, and a [`Store`] can also be written to.
//!
//! INVARIANT: one commit order. A write gets a revision, becomes durable if the storage is, enters its type's change
//! stream, and is then acknowledged. A stream yields its changes in that order and without a gap.

pub mod folder;

use std::{collections::HashMap, fs::File, io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _, TryStreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use informer_core::{KeyedObject as _, Objects};
use tokio::time::Instant;
use watch_cache::{Change, Draft, Entry, Filter, Reader};

use crate::{limits::FRESH_WAIT, registry::ResourceType};

/// The origin of the state and history of a type, for its cache. Shared by all tasks.
pub trait Source: Send + Sync + 'static {
    /// Streams one type: its state and everything after it, or, after a position, only the changes. Dropping the
    /// stream frees the source's state for the reader. The stream fills `cache`, whose objects prove to a source of
    /// several servers which history it holds.
    ///
    /// # Errors
    /// [`SourceError`]; [`SourceError::Compacted`] if the position is not in the known history any more.
    fn follow(
        &self,
        ty: &Arc<ResourceType>,
        from: FollowFrom,
        cache: Reader,
    ) -> BoxFuture<'_, Result<Updates, SourceError>>;

    /// The cacher could not decode an object of this type's stream, so the cache lacks that version of it until it gets another
    /// whole state.
    fn skipped(&self, ty: &ResourceType) {
        let _ = ty;
    }

    /// Returns the newest committed revision, and promises an update at or above it in every stream of the type.
    ///
    /// # Errors
    /// [`SourceError`] if the source does not respond.
    fn current(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>>;

    /// Returns a revision at which the type's state contains everything committed before the call. May be lower than
    /// [`current`](Self::current), if nothing of the type has changed since; then it is cheaper.
    ///
    /// # Errors
    /// [`SourceError`] if the source does not respond.
    fn confirmed(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, SourceError>> {
        self.current(ty)
    }

    /// Like [`confirmed`](Self::confirmed), but accepts a confirmation whose question was sent at most `max_age` ago. The
    /// state then lacks at most the commits of that time, and a source that kept such a confirmation sends no request.
    ///
    /// # Errors
    /// [`SourceError`] if the source does not respond.
    fn recently_confirmed(
        &self,
        ty: &Arc<ResourceType>,
        _max_age: Duration,
    ) -> BoxFuture<'_, Result<Confirmation, SourceError>> {
        let (sent, confirmed) = (Instant::now(), self.confirmed(ty));
        confirmed.map(move |revision| revision.map(|revision| Confirmation { revision, sent })).boxed()
    }

    /// Returns true if the type's history may be another one now, or was found to be since `time`: a confirmation whose
    /// question was sent then proves nothing. Cost: a few locks.
    fn is_doubted_since(&self, ty: &ResourceType, time: Instant) -> bool {
        let _ = (ty, time);
        false
    }

    /// Time that a read without a position waits for [`confirmed`](Self::confirmed), and for the cache to get there.
    fn confirmed_within(&self) -> Duration {
        FRESH_WAIT
    }

    /// Reads objects of the state at a position that the cache does not know any more. Costs the source as much as the
    /// part of the state that the read visits.
    ///
    /// # Errors
    /// [`SourceError::Compacted`] if the source does not know the position either, or if the result is too large.
    fn read_at(&self, ty: &Arc<ResourceType>, read: StateRead) -> BoxFuture<'_, Result<StoredState, SourceError>> {
        let _ = ty;
        std::future::ready(Err(SourceError::Compacted { after: read.position })).boxed()
    }

    /// Returns true if the last known state still decides while the source is away, also that of an earlier process. If
    /// false, a controller works only on states that the source has confirmed: a stream may begin with an old one.
    fn counts_while_away(&self) -> bool {
        false
    }

    /// Returns false if the position lies below the newest one of this history and was never part of it: it belongs to
    /// another history.
    fn is_known(&self, position: u64) -> bool {
        let _ = position;
        true
    }

    /// Returns the newest position of this history if this process alone assigns its positions: every position above it
    /// belongs to another history. `None` if others may be ahead. Cost: one lock.
    fn newest(&self) -> Option<u64> {
        None
    }

    /// Returns the id of this history, constant over restarts: no other history has it, however similar its positions
    /// are. `None` if the source has none.
    fn history(&self) -> Option<u64> {
        None
    }
}

/// A source that this server may also write to.
pub trait Store: Source {
    /// Lists all objects of one type at one revision, possibly as entries of an earlier schema. The store keeps no
    /// state for the reader.
    ///
    /// # Errors
    /// [`SourceError`], also within the stream.
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListSnapshot, SourceError>>;

    /// Writes one object. Cancel safe: a committed write reaches the streams even if the future is not polled again.
    ///
    /// # Errors
    /// [`WriteError`] if the expectation does not hold, or the cause has changed; no object is written then.
    fn write(&self, txn: Txn) -> BoxFuture<'_, Result<WriteResult, WriteError>>;

    /// Returns the answer to writes while the store refuses them; `None` otherwise. [`SourceError::Full`]: removals are
    /// written.
    fn refuses(&self) -> Option<SourceError> {
        None
    }

    /// Returns a store of its own with the objects and the revision of this one; `None` if its objects are not in memory
    /// only. Cost: a few reference counts for each type, however many objects it has.
    fn fork(&self) -> Option<StoreFork> {
        None
    }
}

/// The file of a store, of which one process at a time is the writer. The next one gets a copy of it first, and then only
/// what was written since.
pub trait StoreFile: Send + Sync + 'static {
    /// Copies the file into one that only memory has. Blocks. Cost: reads the file; writes continue.
    ///
    /// # Errors
    /// The disk or the system fails.
    fn copy(&self) -> io::Result<File>;

    /// Refuses all writes from now on, and all reads of the newest state. Closes the file once the writes in the queue
    /// are in it. Blocks.
    fn release(&self);

    /// Opens the file again, or for the first time over a copy: what another process wrote meanwhile is applied, in order.
    /// Waits for at most `wait` until that process has left it.
    ///
    /// # Errors
    /// The reason, in one line. It may be called again.
    fn take(&self, wait: Duration) -> BoxFuture<'_, Result<(), String>>;

    /// Returns the ids of the types that had objects whose deletion was begun when the file was opened.
    fn terminating(&self) -> Vec<String>;
}

/// A store that began with the state of another one. Writes to either are not seen in the other.
pub struct StoreFork {
    /// The new store.
    pub store: Arc<dyn Store>,
    /// Revision of the state.
    pub revision: u64,
    /// The state, by [`ResourceType::id`].
    pub objects: HashMap<String, Objects<Entry>>,
}

/// A read of a part of an earlier state.
#[derive(Clone, Debug)]
pub struct StateRead {
    /// Position of the state.
    pub position: u64,
    /// Selects objects.
    pub filter: Arc<Filter>,
    /// First key; `None` for the first of all.
    pub start: Option<String>,
    /// Number of objects that are needed; one more is read if there is one.
    pub limit: Option<usize>,
}

/// A part of an earlier state.
#[derive(Debug, Default)]
pub struct StoredState {
    /// The selected objects, in their keys' order.
    pub objects: Objects<Entry>,
    /// Number of objects from the start on, if the filter selects all of its namespace.
    pub following: Option<u64>,
}

/// A source's answer about a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// Revision at which the type's state contains everything that was committed before `sent`.
    pub revision: u64,
    /// Time at which the question was sent to the source.
    pub sent: Instant,
}

/// Start of a stream of updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowFrom {
    /// The state, then everything after it.
    Start,
    /// Everything after a revision that this source delivered earlier.
    After(u64),
}

/// Updates in commit order and without a gap. An error reports trouble and does not end the stream; after the end,
/// [`Source::follow`] must be called again.
pub type Updates = BoxStream<'static, Result<Update, SourceError>>;

/// One step of a type's history.
#[derive(Clone, Debug)]
pub enum Update {
    /// A whole state at a revision, whose map cache and source share: in place of the next five kinds.
    State {
        /// All objects.
        objects: Objects<Entry>,
        /// Objects that are not among them do not exist at this revision.
        revision: u64,
    },
    /// A state begins. Comes first in a stream from the start, and again whenever the source lost its position.
    StateBegins,
    /// An object of the state.
    Object(SourceRecord),
    /// The object with this key left the state before it was complete.
    Removed(String),
    /// The state is complete at this revision: objects that are not in it do not exist.
    StateComplete(u64),
    /// The state broke off: its objects so far are void, and the state before it remains.
    StateAbandoned,
    /// The source has another history than before: nothing of the state so far may be read any more. A whole state follows.
    HistoryLost,
    /// An object was created or changed.
    Put(SourceRecord),
    /// An object was deleted.
    Deleted {
        /// `namespace/name` or `name`.
        key: String,
        /// Revision of the deletion.
        revision: u64,
    },
    /// Several changes of one revision, of different objects: at least two.
    Batch(Vec<SourceChange>),
    /// All changes at or below this revision were delivered.
    Progress(u64),
}

impl From<Change> for Update {
    fn from(change: Change) -> Self {
        match change {
            Change::Put(entry) => Self::Put(SourceRecord::Entry(entry)),
            Change::Deleted { key, resource_version } => Self::Deleted { key, revision: resource_version },
            Change::Progress(revision) => Self::Progress(revision),
        }
    }
}

/// One of several changes of one revision.
#[derive(Clone, Debug)]
pub enum SourceChange {
    /// Like [`Update::Put`].
    Put(SourceRecord),
    /// Like [`Update::Deleted`].
    Deleted {
        /// `namespace/name` or `name`.
        key: String,
        /// Revision of the deletion.
        revision: u64,
    },
}

impl From<SourceChange> for Update {
    fn from(change: SourceChange) -> Self {
        match change {
            SourceChange::Put(record) => Self::Put(record),
            SourceChange::Deleted { key, revision } => Self::Deleted { key, revision },
        }
    }
}

/// One version of one object, as a source has it.
#[derive(Clone, Debug)]
pub enum SourceRecord {
    /// An entry that cache and source share.
    Entry(Arc<Entry>),
    /// JSON, which the cacher decodes.
    Json {
        /// The object, with kind and apiVersion.
        json: Bytes,
        /// Its revision.
        revision: u64,
    },
}

/// All objects of one type at one revision.
pub struct ListSnapshot {
    /// The revision. Never zero.
    pub resource_version: u64,
    /// The objects in any order.
    pub entries: BoxStream<'static, Result<Arc<Entry>, SourceError>>,
}

/// A listing and the changes after it, from a source that knows no earlier position.
pub struct ListAndWatch {
    /// The listing.
    pub listed: ListSnapshot,
    /// The changes after [`ListSnapshot::resource_version`].
    pub changes: BoxStream<'static, Result<Change, SourceError>>,
}

impl ListAndWatch {
    /// Returns both as one stream, which ends after the first error.
    pub fn into_updates(self) -> Updates {
        let Self { listed: ListSnapshot { resource_version, entries }, changes } = self;
        let objects = entries.map_ok(|entry| Update::Object(SourceRecord::Entry(entry)));
        let changes = changes.map_ok(Update::from);
        let one = |update| stream::iter([Ok(update)]);
        let all = one(Update::StateBegins).chain(objects).chain(one(Update::StateComplete(resource_version)));
        let ends = |over: &mut bool, update: Result<Update, SourceError>| {
            let is_over = std::mem::replace(over, update.is_err());
            std::future::ready((!is_over).then_some(update))
        };
        all.chain(changes).scan(false, ends).boxed()
    }
}

/// The precondition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No object with that key.
    Absent,
    /// An object at exactly this resourceVersion.
    At(u64),
}

/// One write of one object.
#[derive(Debug)]
pub struct Txn {
    /// The object's type.
    pub ty: Arc<ResourceType>,
    /// `namespace/name` or `name`; equal to the draft's key.
    pub key: String,
    /// The precondition.
    pub expect: Expect,
    /// The new object; `None` deletes.
    pub put: Option<Draft>,
    /// The object for whose sake this one is written; `None` if it is written for its own.
    pub cause: Option<WriteCause>,
}

/// Another object that must still be at a version when a write is committed: a terminating namespace, for the deletion of
/// an object in it.
#[derive(Clone, Debug)]
pub struct WriteCause {
    /// Its type.
    pub ty: Arc<ResourceType>,
    /// `namespace/name` or `name`.
    pub key: String,
    /// Its resourceVersion.
    pub revision: u64,
}

impl WriteCause {
    /// The object at the version that was read.
    #[must_use]
    pub fn new(ty: &Arc<ResourceType>, read: &Entry) -> Self {
        Self { ty: Arc::clone(ty), key: read.key().to_owned(), revision: read.resource_version() }
    }

    /// Checks the cause against its current version.
    ///
    /// # Errors
    /// [`WriteError::CauseChanged`].
    pub fn check(&self, current: Option<&Arc<Entry>>) -> Result<(), WriteError> {
        let stands = current.is_some_and(|entry| entry.resource_version() == self.revision);
        if stands { Ok(()) } else { Err(WriteError::CauseChanged) }
    }
}

/// Result of a write.
#[derive(Clone, Debug)]
pub struct WriteResult {
    /// The revision of the write.
    pub resource_version: u64,
    /// The object as stored, or the last one for a deletion.
    pub entry: Arc<Entry>,
}

/// Reason why a write was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// Expected no object, found one.
    #[error("the object exists")]
    Exists,
    /// Expected an object, found none.
    #[error("the object does not exist")]
    NotFound,
    /// Expected another version.
    #[error("the object is at {current}")]
    Conflict {
        /// Current resourceVersion of the object.
        current: u64,
    },
    /// The object that caused the write is not at the expected version any more.
    #[error("the cause of the write has changed")]
    CauseChanged,
    /// The storage failed.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Trouble at the source; texts are for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The changes after the revision were compacted.
    #[error("changes after {after} are not available")]
    Compacted {
        /// The requested revision.
        after: u64,
    },
    /// The source is not reachable.
    #[error("storage is not available: {0}")]
    Unavailable(String),
    /// The source has another history than the cache, whose state is no current one until it is read anew.
    #[error("storage was restored to revision {newest}")]
    Restored {
        /// The newest revision of the other history.
        newest: u64,
    },
    /// The disk has no room; nothing was written.
    #[error("storage is full: {0}")]
    Full(String),
    /// The folder of the objects was deleted, moved or replaced under the server; nothing was written.
    #[error("storage is not available: {0}")]
    Displaced(String),
    /// The storage does not take an object of this size; nothing was written.
    #[error("the object is too large for the storage: {0}")]
    TooLarge(String),
    /// This server may only read the storage; nothing was written.
    #[error("the storage is read only")]
    ReadOnly,
    /// The storage failed during a write, whose outcome is unknown.
    #[error("the outcome of a write is not known: {0}")]
    Undecided(String),
    /// The source refuses to serve this type to us.
    #[error("storage refuses access: {0}")]
    Forbidden(String),
    /// A webhook did not convert objects, for the reason: in Kubernetes' words, for clients. It may repeat the webhook's
    /// answer, and with it objects, so that no log shows it.
    #[error("a conversion webhook failed")]
    Conversion(String),
    /// Too many writes wait for webhooks; nothing was written.
    #[error("too many writes wait for webhooks")]
    Crowded,
    /// The type cannot be cached: it is not served, cannot be watched, or has no numeric resourceVersions.
    #[error("the type cannot be cached: {0}")]
    Unsupported(String),
}
