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
mod record;
mod saver;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use informer_core::Time;
use parking_lot::Mutex;
use tokio::{
    sync::{self, OwnedMutexGuard},
    task::spawn_blocking,
    time::{Instant, timeout},
};
use watch_cache::{Reader, Writer};

pub(super) use self::saver::Saver;
use self::{
    files::{DiskRoom, StateFiles},
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
pub(crate) struct StateFolder {
    path: PathBuf,
    /// Source of the states.
    origin: StateOrigin,
    saves_secrets: bool,
    /// By type id: held by the cache that uses the type's file. One entry per type that was ever cached.
    turns: Mutex<HashMap<String, Arc<sync::Mutex<()>>>>,
    room: DiskRoom,
    _lock: FolderLock,
}

/// Source of saved states. A state of another one is not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateOrigin {
    /// URL of the API server.
    pub(crate) server: String,
    /// Field selectors of types of which only a part is cached, by type id.
    pub(crate) scopes: HashMap<String, String>,
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
    pub(crate) fn open(path: &Path, origin: StateOrigin, saves_secrets: bool) -> Result<Self, FolderError> {
        let lock = FolderLock::take(path)?;
        let (path, turns, room) = (path.to_owned(), Mutex::default(), DiskRoom::default());
        let folder = Self { path, origin, saves_secrets, turns, room, _lock: lock };
        if !saves_secrets && let Some(files) = StateFiles::new(&folder.path, SECRETS, folder.room.clone()) {
            files.remove().map_err(FolderError::of(&folder.path))?;
        }
        Ok(folder)
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
        let files = StateFiles::new(&self.path, ty.id(), self.room.clone())?;
        let turn = Arc::clone(self.turns.lock().entry(ty.id().to_owned()).or_default());
        let Ok(turn) = timeout(SAVED_FILE_WAIT, turn.lock_owned()).await else {
            tracing::warn!(resource = ty.id(), error = "an earlier save has not ended", "state save failed");
            return None;
        };
        Some((StateLog::new(files, self.origin.owner(ty)), turn))
    }
}

impl StateOrigin {
    /// Returns the text that the file of the type begins with.
    fn owner(&self, ty: &ResourceType) -> String {
        let scope = self.scopes.get(ty.id()).map_or("", String::as_str);
        [ty.id(), ty.api_version(), &ty.kind, &self.server, scope].join("\n")
    }
}

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
