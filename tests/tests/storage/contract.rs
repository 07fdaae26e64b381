//! The inputs of a row: a storage, its writers, and streams that are checked while they are read.

mod follower;
mod history;
pub(crate) mod rows;
mod scene;

use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use cache_server::{
    registry::{Registry, ResourceType},
    storage::{Expect, Source, SourceError, Store, Txn, WriteError},
};
use futures::future::BoxFuture;
use watch_cache::Draft;

pub(crate) use history::Version;
pub(crate) use scene::Scene;

/// Reason why a row does not hold: the promise that the storage broke.
#[derive(Debug)]
pub(crate) struct Breach(pub(crate) String);

/// Outcome of a row.
pub(crate) type Held = Result<(), Breach>;

/// A row of the contract.
pub(crate) type Row = fn(Arc<Scene>) -> BoxFuture<'static, Held>;

/// Returns a [`Breach`] unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::contract::Breach(format!($($text)+)));
        }
    };
}
pub(crate) use ensure;

impl From<SourceError> for Breach {
    fn from(error: SourceError) -> Self {
        Self(format!("a storage without faults fails: {error}"))
    }
}

impl From<WriteError> for Breach {
    fn from(error: WriteError) -> Self {
        Self(format!("a write whose expectation holds fails: {error}"))
    }
}

/// A storage under test. Opened anew for each row.
pub(crate) trait Storage: Send + Sync {
    fn features(&self) -> Features;

    /// Returns a source for the streams of one cache: at most [`Features::streams`] of each type.
    fn source(&self) -> Arc<dyn Source>;

    /// Returns the storage for writes; `None` if it is only followed.
    fn store(&self) -> Option<Arc<dyn Store>>;

    /// Returns all clients through which writes may come, this process's first.
    fn writers(&self) -> Vec<Arc<dyn ObjectWriter>>;

    /// Ends the process and starts another one: with the objects of the first one if [`Features::lasts`]. No stream and
    /// no source of before is used after it.
    fn reopen(&self) -> BoxFuture<'_, ()>;

    /// Parts the storage from its readers and its first writer, or joins them again. Only with [`Features::parts`].
    fn part(&self, _is_parted: bool) {}
}

/// Properties of a storage that the contract leaves open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    /// Streams of one type that a source may have at the same time.
    pub(crate) streams: usize,
    /// True if a stream can begin after a position.
    pub(crate) resumes: bool,
    /// State of the next process.
    pub(crate) lasts: Lasting,
    /// True if it can be parted from its readers.
    pub(crate) parts: bool,
    /// Writes that are more than the storage queues for a reader.
    pub(crate) flood: u64,
    /// Longest wait for something that happens by itself.
    pub(crate) patience: Duration,
}

impl Features {
    /// A store of this process that lasts no longer than it.
    pub(crate) const fn of_memory() -> Self {
        let (lasts, patience) = (Lasting::Nothing, Duration::from_secs(20));
        Self { streams: 3, resumes: false, lasts, parts: false, flood: 1_536, patience }
    }
}

/// State of the next process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasting {
    Nothing,
    Objects,
    /// The first stream of the next process begins before all changes of the row.
    ObjectsAndHistory,
}

/// A client that writes one object.
pub(crate) trait ObjectWriter: Send + Sync {
    /// Returns the revision of the write.
    fn write(&self, write: ObjectWrite) -> BoxFuture<'_, Result<u64, WriteError>>;
}

/// One write of one object.
#[derive(Clone, Debug)]
pub(crate) struct ObjectWrite {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) expect: Expect,
    /// The new content; `None` deletes.
    pub(crate) content: Option<u64>,
}

impl ObjectWrite {
    /// Returns the object as JSON, with more metadata.
    pub(crate) fn json(&self, metadata: &str) -> String {
        let Self { kind, namespace, name, content, .. } = self;
        let content = content.unwrap_or_default();
        let (version, kind) = ("v1", kind.ty().kind.clone());
        format!(
            r#"{{"apiVersion":"{version}","kind":"{kind}","metadata":{{"name":"{name}","namespace":"{namespace}",{metadata}"annotations":{{"{CONTENT}":"{content}"}}}}}}"#
        )
    }

    /// Returns it as a write of a [`Store`].
    pub(crate) fn txn(&self) -> Txn {
        let ty = self.kind.ty();
        let put = self.content.map(|_| Draft::new(&ty.schema, self.json("").as_bytes()).expect("an object"));
        Txn { ty, key: format!("{}/{}", self.namespace, self.name), expect: self.expect, put, cause: None }
    }
}

/// A writer of a [`Store`].
pub(crate) struct StoreWriter(pub(crate) Arc<dyn Store>);

impl ObjectWriter for StoreWriter {
    fn write(&self, write: ObjectWrite) -> BoxFuture<'_, Result<u64, WriteError>> {
        Box::pin(async move { Ok(self.0.write(write.txn()).await?.resource_version) })
    }
}

/// A type of the rows: each storage has it, and any writer may write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Maps,
    Secrets,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Maps, Self::Secrets];

    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::Maps => "configmaps",
            Self::Secrets => "secrets",
        }
    }

    pub(crate) fn ty(self) -> Arc<ResourceType> {
        static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::builtin);
        REGISTRY.find("", "v1", self.plural()).expect("a built-in type")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.plural())
    }
}

/// Annotation with the content of an object, a number.
pub(crate) const CONTENT: &str = "content";

/// Holds a storage to a row.
pub(crate) async fn hold<R: Future<Output = Held>>(storage: Box<dyn Storage>, row: impl FnOnce(Arc<Scene>) -> R) {
    let scene = Arc::new(Scene::new(storage, "n".to_owned()));
    if let Err(Breach(breach)) = row(scene).await {
        panic!("{breach}");
    }
}
