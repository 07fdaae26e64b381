//! States of caches saved on disk, so that a restart resumes: clients keep their positions, and no state is listed.
//!
//! INVARIANT: whatever is on disk, and wherever a write was interrupted, loading returns a state that the cache had,
//! with every change between the oldest position it offers and its newest, or no state and the reason.
//! INVARIANT: one process at a time uses the folder, and in it one cache at a time the file of a type.
//!
//! The source proves that a loaded state belongs to its history, as before any other resume. See
//! `docs/adr/0030-save-caches-as-logs-of-changes.md`.

mod files;
mod log;
mod saver;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use informer_core::Time;
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{self, OwnedMutexGuard, watch},
    task::spawn_blocking,
    time::{Instant, timeout},
};
use watch_cache::{Reader, Writer};

pub(super) use self::saver::Saver;
use self::{
    log::{LoadedState, StateLog},
    saver::SaveTask,
};
use crate::{
    limits::SAVED_FILE_WAIT,
    registry::ResourceType,
    storage::folder::{FolderError, FolderLock},
};

/// A folder of saved states, locked by this process.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    /// Source of the states.
    origin: SharedOrigin,
    /// True once the cluster of the origin is known, as far as it can be.
    is_settled: watch::Sender<bool>,
    saves_secrets: bool,
    /// By type id: held by the cache that uses the type's file. One entry per type that was ever cached.
    turns: Mutex<HashMap<String, Arc<sync::Mutex<()>>>>,
    _lock: FolderLock,
}

/// Source of saved states. A state of another one is not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateOrigin {
    /// URL of the API server.
    pub server: String,
    /// Uid of the cluster, which counts in place of the URL if it is known.
    pub cluster: Option<String>,
    /// Field selectors of types of which only a part is cached, by type id.
    pub scopes: HashMap<String, String>,
}

/// The origin, which changes with the cluster at the addresses.
type SharedOrigin = Arc<RwLock<StateOrigin>>;

/// Owner of a file: equal for a version of a type of one cluster in one scope.
#[derive(Clone, Debug)]
struct StateOwner {
    origin: SharedOrigin,
    /// The type's id.
    id: String,
    api_version: String,
    kind: String,
}

impl StateOwner {
    fn new(origin: &SharedOrigin, ty: &ResourceType) -> Self {
        let (id, api_version, kind) = (ty.id().to_owned(), ty.api_version().to_owned(), ty.kind.clone());
        Self { origin: Arc::clone(origin), id, api_version, kind }
    }

    /// Returns the text that the file begins with.
    fn text(&self) -> String {
        let origin = &*self.origin.read();
        let scope = origin.scopes.get(&self.id).map_or("", String::as_str);
        [&self.id, &self.api_version, &self.kind, &*origin.source(), scope].join("\n")
    }
}

/// Age and position of a state that was saved.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadedCache {
    /// Time since it was saved.
    pub(super) age: Duration,
    /// Every change at or below it is in the state; the newest revision may be there in part.
    pub(super) complete: u64,
}

/// A cache with the state that was saved, if there was one, and its saver.
pub(super) struct SavedCache {
    pub(super) writer: Writer,
    pub(super) saver: Saver,
    /// The state that was saved; `None` if there was none.
    pub(super) loaded: Option<LoadedCache>,
}

impl StateFolder {
    /// Creates the folder with mode 0700 if it is missing, and locks it. An existing folder keeps its mode. Removes
    /// saved Secrets unless `saves_secrets` is set.
    ///
    /// Blocks, shortly.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn open(path: &Path, origin: StateOrigin, saves_secrets: bool) -> Result<Self, FolderError> {
        let lock = FolderLock::take(path)?;
        if !saves_secrets && let Some(files) = files::files_of(path, SECRETS) {
            files.remove().map_err(FolderError::of(path))?;
        }
        let (path, turns) = (path.to_owned(), Mutex::default());
        let (origin, is_settled) = (Arc::new(RwLock::new(origin)), watch::Sender::new(true));
        Ok(Self { path, origin, is_settled, saves_secrets, turns, _lock: lock })
    }

    /// Loads and saves nothing before [`settle`](Self::settle).
    pub fn awaiting_cluster(self) -> Self {
        self.is_settled.send_replace(false);
        self
    }

    /// Sets the cluster of the states that are saved from now on, by its uid; `None` if it cannot be known. Removes the
    /// saved states of other clusters.
    ///
    /// Blocks, shortly.
    pub fn settle(&self, cluster: Option<&str>) {
        self.name_cluster(cluster);
        self.drop_foreign();
        self.is_settled.send_replace(true);
    }

    /// Sets the cluster of the states that are saved from now on.
    pub fn name_cluster(&self, cluster: Option<&str>) {
        self.origin.write().cluster = cluster.map(str::to_owned);
    }

    /// True if there are saved states of clusters other than this one.
    ///
    /// Blocks, shortly.
    pub fn has_others(&self, cluster: &str) -> bool {
        files::has_foreign(&self.path, &format!("{CLUSTER}{cluster}"))
    }

    /// Removes the saved states of clusters other than the named one.
    ///
    /// Blocks, shortly.
    pub fn drop_foreign(&self) {
        let origin = self.origin.read().clone();
        if let Some(cluster) = &origin.cluster {
            match files::remove_foreign(&self.path, &origin.source()) {
                Ok(0) => {}
                Ok(types) => tracing::warn!(types, cluster, "saved states of another cluster dropped"),
                Err(error) => tracing::warn!(%error, cluster, "saved states of another cluster not dropped"),
            }
        }
    }

    /// Fills the empty cache of `writer` with the state that was saved of the type, and saves its changes from now on.
    /// `None`, and the writer is gone, if the type is not saved.
    ///
    /// Cost: reads the file, on a blocking thread.
    pub(super) async fn load(
        &self,
        ty: &Arc<ResourceType>,
        started: Instant,
        mut writer: Writer,
    ) -> Option<SavedCache> {
        let (mut log, turn) = self.take_turn(ty).await?;
        let (schema, now) = (Arc::clone(&ty.schema), Time(started.elapsed()));
        let loaded = spawn_blocking(move || {
            let loaded = log.load(&schema, &mut writer, now);
            (log, writer, loaded)
        });
        let (log, writer, loaded) = loaded.await.inspect_err(|_| ignored(ty, &"loading it panicked")).ok()?;
        let loaded = match loaded {
            Ok(Some(loaded)) => Some(report(ty, &writer, loaded)),
            Ok(None) => None,
            Err(reason) => {
                ignored(ty, &reason);
                None
            }
        };
        let saver =
            SaveTask { log, reader: writer.reader(), resource: ty.id().to_owned(), started, _turn: turn }.start();
        Some(SavedCache { writer, saver, loaded })
    }

    /// Saves an empty cache from its first state on. `None` if the type is not saved.
    pub(super) async fn save(&self, ty: &Arc<ResourceType>, started: Instant, reader: Reader) -> Option<Saver> {
        let (log, turn) = self.take_turn(ty).await?;
        Some(SaveTask { log, reader, resource: ty.id().to_owned(), started, _turn: turn }.start())
    }

    /// Waits until everything is saved that caches, which have ended, have applied.
    pub(super) async fn idle(&self) {
        let turns: Vec<_> = self.turns.lock().values().cloned().collect();
        for turn in turns {
            drop(turn.lock().await);
        }
    }

    /// Waits until no other cache uses the type's file. `None` if the type is not saved, or its disk does not respond.
    async fn take_turn(&self, ty: &ResourceType) -> Option<(StateLog, OwnedMutexGuard<()>)> {
        if ty.id() == SECRETS && !self.saves_secrets {
            return None;
        }
        // An error means that the server ends.
        self.is_settled.subscribe().wait_for(|&is_settled| is_settled).await.ok()?;
        let files = files::files_of(&self.path, ty.id())?;
        let turn = Arc::clone(self.turns.lock().entry(ty.id().to_owned()).or_default());
        let Ok(turn) = timeout(SAVED_FILE_WAIT, turn.lock_owned()).await else {
            tracing::warn!(resource = ty.id(), error = "an earlier save has not ended", "state save failed");
            return None;
        };
        Some((StateLog::new(files, StateOwner::new(&self.origin, ty)), turn))
    }
}

impl StateOrigin {
    /// Names the cluster: by its uid, or by its URL.
    fn source(&self) -> String {
        self.cluster.as_ref().map_or_else(|| self.server.clone(), |uid| format!("{CLUSTER}{uid}"))
    }
}

/// Removes the saved states of a folder that no server uses: of all types, or of one. Returns their number.
///
/// Blocks, shortly.
///
/// # Errors
/// [`FolderError`] if a server uses the folder, or the file system refuses it.
pub fn drop_states(path: &Path, ty: Option<&str>) -> Result<usize, FolderError> {
    let _lock = FolderLock::take(path)?;
    files::remove_states(path, ty).map_err(FolderError::of(path))
}

/// Prefix of a source that is a uid.
const CLUSTER: &str = "cluster ";

/// Id of the type that is saved only on request.
const SECRETS: &str = "secrets";

/// Reports a loaded state.
fn report(ty: &ResourceType, writer: &Writer, loaded: LoadedState) -> LoadedCache {
    let LoadedState { changes, cut_bytes, complete, saved_at } = loaded;
    let (age, resource_version) = (SystemTime::now().duration_since(saved_at).unwrap_or_default(), writer.applied());
    tracing::info!(resource = ty.id(), resource_version, changes, ?age, "saved state loaded");
    if 0 < cut_bytes {
        tracing::info!(resource = ty.id(), bytes = cut_bytes, "saved state tail discarded");
    }
    LoadedCache { age, complete }
}

fn ignored(ty: &ResourceType, reason: &dyn std::fmt::Display) {
    tracing::warn!(resource = ty.id(), %reason, "saved state ignored");
}

#[cfg(test)]
mod tests;
