//! Where the truth is: four verbs that every storage speaks: list, follow, write, progress.
//!
//! INVARIANT: one commit order. A revision is assigned, durable where the storage is, handed to its type's change
//! stream, then acknowledged; what a stream yields is in that order and misses nothing.

pub mod embedded;
#[cfg(test)]
pub(crate) mod faulty;

use std::sync::Arc;

use futures::{future::BoxFuture, stream::BoxStream};
use watch_cache::{Draft, Entry};

use crate::registry::ResourceType;

pub use watch_cache::Change;

/// The truth. Shared by all tasks.
pub trait Storage: Send + Sync + 'static {
    /// All objects of one type as of one revision, perhaps as entries of an earlier schema. The storage keeps nothing for
    /// the reader.
    ///
    /// # Errors
    /// [`StorageError`], also within the stream.
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<Listed, StorageError>>;

    /// All objects of one type as entries of its schema, and every change after them, in commit order, without a gap.
    /// Dropping the changes gives back what the storage keeps for the reader.
    ///
    /// # Errors
    /// [`StorageError`], also within both streams. The changes end with it: follow again.
    fn follow(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<Followed, StorageError>>;

    /// Writes one object. Cancel safe: once committed it is on its way to the change stream, whether or not the future
    /// is polled again.
    ///
    /// # Errors
    /// [`WriteError`] when the expectation does not hold; nothing is written.
    fn write(&self, txn: Txn) -> BoxFuture<'_, Result<Written, WriteError>>;

    /// The storage's revision now; promises a [`Change::Progress`] or a change at or above it in the type's stream.
    ///
    /// # Errors
    /// [`StorageError`] when the storage does not answer.
    fn progress(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, StorageError>>;
}

/// Changes in commit order.
pub type Changes = BoxStream<'static, Result<Change, StorageError>>;

/// All objects of one type as of one revision.
pub struct Listed {
    /// The revision. Never zero.
    pub resource_version: u64,
    /// The objects in any order.
    pub entries: BoxStream<'static, Result<Arc<Entry>, StorageError>>,
}

/// A state, and what happens to it from then on.
pub struct Followed {
    /// The state.
    pub listed: Listed,
    /// The changes after [`Listed::resource_version`].
    pub changes: Changes,
}

/// What a write expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No object of that key.
    Absent,
    /// The object at exactly this resourceVersion.
    At(u64),
}

/// One write of one object.
#[derive(Debug)]
pub struct Txn {
    /// The object's type.
    pub ty: Arc<ResourceType>,
    /// `namespace/name` or `name`; that of the draft.
    pub key: String,
    /// What must be there.
    pub expect: Expect,
    /// What is there afterwards; `None` deletes.
    pub put: Option<Draft>,
}

/// What a write did.
#[derive(Clone, Debug)]
pub struct Written {
    /// The revision of the write.
    pub resource_version: u64,
    /// The object as stored, or the last one for a deletion.
    pub entry: Arc<Entry>,
}

/// Why nothing was written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// Expected none, found one.
    #[error("the object exists")]
    Exists,
    /// Expected one, found none.
    #[error("the object does not exist")]
    NotFound,
    /// Expected another version.
    #[error("the object is at {current}")]
    Conflict {
        /// Where the object is now.
        current: u64,
    },
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The storage failed; the text is for operators.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StorageError {
    /// The changes after the revision are not known any more.
    #[error("changes after {after} are not available")]
    Compacted {
        /// What was asked for.
        after: u64,
    },
    /// The storage is not there.
    #[error("storage is not available: {0}")]
    Unavailable(String),
}
