//! The storage interface: list, follow, write and progress.
//!
//! INVARIANT: one commit order. A write gets a revision, becomes durable if the storage is, enters its type's change
//! stream, and is then acknowledged. A stream yields its changes in that order and without a gap.

pub mod embedded;
#[cfg(test)]
pub(crate) mod faulty;

use std::sync::Arc;

use futures::{future::BoxFuture, stream::BoxStream};
use watch_cache::{Draft, Entry};

use crate::registry::ResourceType;

pub use watch_cache::Change;

/// A storage of objects. Shared by all tasks.
pub trait Storage: Send + Sync + 'static {
    /// Lists all objects of one type at one revision, possibly as entries of an earlier schema. The storage keeps no
    /// state for the reader.
    ///
    /// # Errors
    /// [`StorageError`], also within the stream.
    fn list(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListSnapshot, StorageError>>;

    /// Lists all objects of one type as entries of its schema, and streams every change after them, in commit order
    /// and without a gap. Dropping the changes frees the storage's state for the reader.
    ///
    /// # Errors
    /// [`StorageError`], also within both streams. The change stream ends after an error: call `follow` again.
    fn follow(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<ListAndWatch, StorageError>>;

    /// Writes one object. Cancel safe: a committed write reaches the change stream even if the future is not polled
    /// again.
    ///
    /// # Errors
    /// [`WriteError`] if the expectation does not hold; no object is written then.
    fn write(&self, txn: Txn) -> BoxFuture<'_, Result<WriteResult, WriteError>>;

    /// Returns the storage's current revision, and promises a [`Change::Progress`] or a change at or above it in the
    /// type's stream.
    ///
    /// # Errors
    /// [`StorageError`] if the storage does not respond.
    fn progress(&self, ty: &Arc<ResourceType>) -> BoxFuture<'_, Result<u64, StorageError>>;
}

/// Changes in commit order.
pub type Changes = BoxStream<'static, Result<Change, StorageError>>;

/// All objects of one type at one revision.
pub struct ListSnapshot {
    /// The revision. Never zero.
    pub resource_version: u64,
    /// The objects in any order.
    pub entries: BoxStream<'static, Result<Arc<Entry>, StorageError>>,
}

/// A listing and the changes after it.
pub struct ListAndWatch {
    /// The listing.
    pub listed: ListSnapshot,
    /// The changes after [`ListSnapshot::resource_version`].
    pub changes: Changes,
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
    /// The storage failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// The storage failed; the text is for operators.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StorageError {
    /// The changes after the revision were compacted.
    #[error("changes after {after} are not available")]
    Compacted {
        /// The requested revision.
        after: u64,
    },
    /// The storage is not reachable.
    #[error("storage is not available: {0}")]
    Unavailable(String),
}
