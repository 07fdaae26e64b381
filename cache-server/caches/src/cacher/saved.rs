//! States of caches saved on disk, so that a restart resumes: clients keep their positions, and no state is listed.
//!
//! INVARIANT: whatever is on disk, and wherever a write was interrupted, loading returns a state that the cache had,
//! with every change between the oldest position it offers and its newest, or no state and the reason.
//! INVARIANT: one process at a time uses the folder, and in it one cache at a time the file of a type.
//!
//! A process that takes over from another gets the states of that one's caches in [`handed`] files, in memory, and
//! saves to the folder once the other has left it.
//!
//! The source proves that a loaded state belongs to its history, as before any other resume. See
//! `docs/adr/0030-save-caches-as-logs-of-changes.md`.

mod files;
mod handed;
mod log;
mod saver;

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use informer_core::Time;
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{self, OwnedMutexGuard, watch},
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use watch_cache::{Reader, Writer};

pub use self::handed::{HandedStates, memory_file};
pub(super) use self::saver::Saver;
use self::{
    log::{LoadedState, StateLog, WholeState},
    saver::SaveTask,
};
use crate::{
    limits::{SAVED_FILE_WAIT, SAVED_FOLDER_CHECK_EVERY},
    registry::ResourceType,
    storage::folder::{FolderError, FolderLock},
};

/// The states of caches that outlive a process: in a folder that it locks, or handed from one process to the next.
#[derive(Debug)]
pub struct SavedStates {
    /// `None`: nothing is saved.
    folder: Option<StateFolder>,
    /// Source of the states.
    origin: SharedOrigin,
    /// True once the cluster of the origin is known, as far as it can be.
    is_settled: watch::Sender<bool>,
    /// States of the process before, that no cache has taken yet.
    handed: HandedStates,
    /// By type id: held by the cache that uses the type's file. One entry per type that was ever cached.
    turns: Mutex<HashMap<String, Arc<sync::Mutex<()>>>>,
}

/// A folder of saved states.
#[derive(Debug)]
struct StateFolder {
    path: PathBuf,
    saves_secrets: bool,
    /// `None` while another process has it. Not in the channel, whose receivers would keep it.
    lock: Mutex<Option<FolderLock>>,
    is_locked: watch::Sender<bool>,
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

/// The log of a type, and the right to use its file.
type SaveTurn = (StateLog, OwnedMutexGuard<()>);

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
    /// `None` if the type is not saved.
    pub(super) saver: Option<Saver>,
    /// The state that was saved; `None` if there was none.
    pub(super) loaded: Option<LoadedCache>,
}

impl StateFolder {
    fn new(path: &Path, saves_secrets: bool) -> Self {
        Self { path: path.to_owned(), saves_secrets, lock: Mutex::default(), is_locked: watch::Sender::new(false) }
    }

    /// Locks the folder, which is created with mode 0700 if it is missing. An existing folder keeps its mode. Removes
    /// saved Secrets unless `saves_secrets` is set.
    fn lock(&self) -> Result<(), FolderError> {
        let lock = FolderLock::take(&self.path)?;
        if !self.saves_secrets
            && let Some(files) = files::files_of(&self.path, SECRETS)
        {
            files.remove().map_err(FolderError::of(&self.path))?;
        }
        *self.lock.lock() = Some(lock);
        self.is_locked.send_replace(true);
        Ok(())
    }

    fn is_locked(&self) -> bool {
        *self.is_locked.borrow()
    }

    fn saves(&self, ty: &ResourceType) -> bool {
        self.saves_secrets || ty.id() != SECRETS
    }
}

impl SavedStates {
    /// Uses the folder at `path`, see [`StateFolder::lock`].
    ///
    /// Blocks, shortly.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn open(path: &Path, origin: StateOrigin, saves_secrets: bool) -> Result<Self, FolderError> {
        let folder = StateFolder::new(path, saves_secrets);
        folder.lock()?;
        Ok(Self { folder: Some(folder), ..Self::in_memory(origin, HandedStates::default()) })
    }

    /// Uses no folder: the states are those that were handed over.
    pub fn in_memory(origin: StateOrigin, handed: HandedStates) -> Self {
        let (origin, is_settled) = (Arc::new(RwLock::new(origin)), watch::Sender::new(true));
        Self { folder: None, origin, is_settled, handed, turns: Mutex::default() }
    }

    /// Uses the states that were handed over, and the folder at `path` once the process that handed them leaves it.
    pub fn taken_over(path: &Path, origin: StateOrigin, saves_secrets: bool, handed: HandedStates) -> Self {
        Self { folder: Some(StateFolder::new(path, saves_secrets)), ..Self::in_memory(origin, handed) }
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
        let folder = self.folder.as_ref().filter(|folder| folder.is_locked());
        folder.is_some_and(|folder| files::has_foreign(&folder.path, &format!("{CLUSTER}{cluster}")))
    }

    /// Removes the saved states of clusters other than the named one.
    ///
    /// Blocks, shortly.
    pub fn drop_foreign(&self) {
        let origin = self.origin.read().clone();
        if let Some(cluster) = &origin.cluster
            && let Some(folder) = self.folder.as_ref().filter(|folder| folder.is_locked())
        {
            match files::remove_foreign(&folder.path, &origin.source()) {
                Ok(0) => {}
                Ok(types) => tracing::warn!(types, cluster, "saved states of another cluster dropped"),
                Err(error) => tracing::warn!(%error, cluster, "saved states of another cluster not dropped"),
            }
        }
    }

    /// True while another process has the folder.
    pub(super) fn waits_for_folder(&self) -> bool {
        self.folder.as_ref().is_some_and(|folder| !folder.is_locked())
    }

    /// Locks the folder once the other process has left it, and the file system lets it.
    pub(super) async fn follow_folder(this: Weak<Self>) {
        let mut is_reported = false;
        loop {
            let Some(states) = this.upgrade() else { return };
            let Some(folder) = states.folder.as_ref().filter(|folder| !folder.is_locked()) else { return };
            match folder.lock() {
                Ok(()) => return states.drop_foreign(),
                Err(FolderError::InUse(_)) => {}
                Err(error) if !is_reported => {
                    is_reported = true;
                    tracing::warn!(%error, "state folder not used");
                }
                Err(_) => {}
            }
            drop(states);
            sleep(SAVED_FOLDER_CHECK_EVERY).await;
        }
    }

    /// Fills the empty cache of `writer` with the state that was handed over or saved of the type, and saves its
    /// changes from now on. `None`, and the writer is gone, if there is neither.
    ///
    /// Cost: reads the file, on a blocking thread.
    pub(super) async fn load(
        &self,
        ty: &Arc<ResourceType>,
        started: Instant,
        mut writer: Writer,
    ) -> Option<SavedCache> {
        // An error means that the server ends.
        self.is_settled.subscribe().wait_for(|&is_settled| is_settled).await.ok()?;
        let (file, owner) = (self.handed.take(ty.id()), StateOwner::new(&self.origin, ty));
        // Another process may be writing to the folder.
        let is_readable = self.folder.as_ref().is_some_and(StateFolder::is_locked);
        let mut turn = self.take_turn(ty).await;
        if file.is_none() && turn.is_none() {
            return None;
        }
        let (schema, now, is_handed) = (Arc::clone(&ty.schema), Time(started.elapsed()), file.is_some());
        let loaded = spawn_blocking(move || {
            let loaded = match (file, &mut turn) {
                (Some(file), _) => log::load_handed(file, &owner, &schema, &mut writer, now).map(Some),
                (None, Some((log, _))) if is_readable => log.load(&schema, &mut writer, now),
                (None, _) => Ok(None),
            };
            (turn, writer, loaded)
        });
        let (turn, writer, loaded) = loaded.await.inspect_err(|_| ignored(ty, &"loading it panicked")).ok()?;
        let loaded = match loaded {
            Ok(Some(loaded)) => Some(report(ty, &writer, loaded)),
            Ok(None) => None,
            Err(reason) if is_handed => {
                tracing::warn!(resource = ty.id(), %reason, "handed state ignored");
                None
            }
            Err(reason) => {
                ignored(ty, &reason);
                None
            }
        };
        let saver = turn.and_then(|turn| self.start_saver(ty, turn, started, writer.reader()));
        Some(SavedCache { writer, saver, loaded })
    }

    /// Saves an empty cache from its first state on. `None` if the type is not saved.
    pub(super) async fn save(&self, ty: &Arc<ResourceType>, started: Instant, reader: Reader) -> Option<Saver> {
        let turn = self.take_turn(ty).await?;
        self.start_saver(ty, turn, started, reader)
    }

    fn start_saver(&self, ty: &ResourceType, turn: SaveTurn, started: Instant, reader: Reader) -> Option<Saver> {
        let (folder, (log, turn)) = (self.folder.as_ref()?.is_locked.subscribe(), turn);
        Some(SaveTask { log, reader, resource: ty.id().to_owned(), started, _turn: turn }.start(folder))
    }

    /// Writes the state of a type's cache into a file in memory, for the process that takes over. `None` if the cache
    /// has no state. With `whole_revisions`, the cache shows the changes of one revision together.
    ///
    /// Blocks. Cost: copies the JSON of all objects, and of the events in the window.
    ///
    /// # Errors
    /// The system has no memory for it.
    pub(super) fn hand_over(
        &self,
        ty: &ResourceType,
        reader: &Reader,
        now: Time,
        whole_revisions: bool,
    ) -> io::Result<Option<File>> {
        let Some(state) = WholeState::of(reader, now) else {
            tracing::warn!(resource = ty.id(), reason = "another history began", "state not handed over");
            return Ok(None);
        };
        let state = if whole_revisions { state.with_whole_revisions() } else { state };
        let file = memory_file()?;
        state.write_to(&file, &StateOwner::new(&self.origin, ty), SystemTime::now())?;
        Ok(Some(file))
    }

    /// Frees the states that were handed over and that no cache has taken.
    pub(super) fn drop_handed(&self) {
        self.handed.clear();
    }

    /// Waits until everything is saved that caches, which have ended, have applied. Without the folder nothing is.
    pub(super) async fn idle(&self) {
        if self.waits_for_folder() {
            return;
        }
        let turns: Vec<_> = self.turns.lock().values().cloned().collect();
        for turn in turns {
            drop(turn.lock().await);
        }
    }

    /// Waits until no other cache uses the type's file. `None` if the type is not saved, or its disk does not respond.
    async fn take_turn(&self, ty: &ResourceType) -> Option<SaveTurn> {
        let folder = self.folder.as_ref().filter(|folder| folder.saves(ty))?;
        // An error means that the server ends.
        self.is_settled.subscribe().wait_for(|&is_settled| is_settled).await.ok()?;
        let files = files::files_of(&folder.path, ty.id())?;
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
