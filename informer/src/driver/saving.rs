//! Checkpointing of one informer: loads the saved state before the first request, saves it while the informer runs.
//!
//! INVARIANT: no error here is final, and nothing here stops the informer; each kind of error is logged once, and a
//! panic ends saving with a log line. Blocking calls run on blocking threads.

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use informer_core::{ResourceVersion, store};
use tokio::{
    sync::watch,
    task::{JoinError, JoinHandle, spawn_blocking},
    time::{Instant, sleep, sleep_until},
};

use super::StoreSink;
use crate::{
    checkpoint::{self, CheckpointWriter, Identity, IgnoreReason, OpenedCheckpoint},
    cluster::InformerRegistration,
    error::Chain,
    progress::{ConfirmedTime, Outlet, Progress},
};

/// Minimum interval between two saves, and so the longest delay before a change is on disk.
const SAVE_EVERY: Duration = Duration::from_secs(2);

/// Longest pause after failures to open the checkpoint or to save. Each failure doubles the pause, because a save
/// without a usable log writes everything.
const SAVE_AGAIN_MAX: Duration = Duration::from_secs(5 * 60);

/// Longest time that a start waits for the lock of an informer just dropped. After that it starts without the saved
/// state and takes the checkpoint over later, without reading it.
const LOCKED_FOR_MAX: Duration = Duration::from_secs(2);

/// Starting point of an informer with a checkpoint.
pub(super) struct LoadedCheckpoint {
    pub(super) sink: StoreSink,
    /// Position of the saved state; `None` without one.
    pub(super) position: Option<ResourceVersion>,
    /// `None` if another informer holds the checkpoint, or the file system refuses access.
    pub(super) writer: Option<CheckpointWriter>,
}

/// Loads the state saved in `directory` into the sink's store.
pub(super) async fn load(
    directory: PathBuf,
    identity: Identity,
    mut sink: StoreSink,
    progress: &Outlet,
    resource: &str,
) -> LoadedCheckpoint {
    let locked_until = Instant::now() + LOCKED_FOR_MAX;
    loop {
        let (directory, identity, name) = (directory.clone(), identity.clone(), resource.to_owned());
        let read = spawn_blocking(move || {
            let opened = checkpoint::open(&directory, &identity);
            fill(opened, sink, &name)
        });
        let (loaded, ignored, confirmed) = match read.await {
            Ok(read) => read,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down and cancelled the blocking task; this task is dropped soon.
                Err(_) => return std::future::pending().await,
            },
        };
        if matches!(ignored, Some(IgnoreReason::Locked)) && Instant::now() < locked_until {
            sink = loaded.sink;
            sleep(Duration::from_millis(50)).await;
            continue;
        }
        if let Some(ignored) = ignored {
            tracing::warn!(resource, reason = %Chain(&ignored), "checkpoint ignored");
        }
        if loaded.position.is_some() {
            progress.send_modify(|progress| progress.restored = confirmed);
        }
        return loaded;
    }
}

/// Restores the saved state into the sink's store. Blocks.
fn fill(
    opened: OpenedCheckpoint,
    mut sink: StoreSink,
    resource: &str,
) -> (LoadedCheckpoint, Option<IgnoreReason>, Option<ConfirmedTime>) {
    let OpenedCheckpoint { saved, mut ignored, mut writer } = opened;
    let Some(saved) = saved else {
        return (LoadedCheckpoint { sink, position: None, writer }, ignored, None);
    };
    let (position, confirmed_at) = (saved.position.clone(), saved.confirmed_at);
    if saved.cut_bytes() > 0 {
        tracing::info!(resource, bytes = saved.cut_bytes(), "checkpoint tail discarded");
    }
    let log = match saved.restore(sink.store()) {
        Ok(log) => log,
        Err(error) => {
            ignored = Some(error.into());
            // Objects read so far may stay: they are not published, and initial state replaces them.
            return (LoadedCheckpoint { sink, position: None, writer }, ignored, None);
        }
    };
    let state = sink.filled();
    if let (Some(writer), Some(log)) = (&mut writer, log) {
        writer.restored(log, &state);
    }
    // If the clock went backwards, use age zero.
    let age = SystemTime::now().duration_since(confirmed_at).unwrap_or_default();
    (LoadedCheckpoint { sink, position: Some(position), writer }, ignored, Some(ConfirmedTime::ago(age)))
}

/// Saves published states.
pub(super) struct CheckpointSaver {
    // Name of the type, for logs.
    resource: String,
    directory: PathBuf,
    identity: Identity,
    state: SavingState,
    now: watch::Receiver<store::Snapshot>,
    progress: watch::Receiver<Progress>,
    not_before: Instant,
    // Failed attempts to open or save since the last success.
    failures: u32,
    reported: BTreeSet<io::ErrorKind>,
}

/// A finished save: the writer and the bytes written.
type SaveResult = (CheckpointWriter, io::Result<u64>);

enum SavingState {
    /// No writer: another informer holds the checkpoint, or the file system refuses access.
    Closed,
    Opening(JoinHandle<OpenedCheckpoint>),
    /// No unsaved change.
    Idle(CheckpointWriter),
    /// The state has changed since the last save.
    Due(CheckpointWriter),
    Writing(JoinHandle<SaveResult>),
    /// The runtime shut down; no further save is possible.
    Over,
}

impl CheckpointSaver {
    pub(super) fn new(
        directory: PathBuf,
        identity: Identity,
        writer: Option<CheckpointWriter>,
        running: &InformerRegistration,
    ) -> Self {
        let mut now = running.now.clone();
        // The current state is empty or was just loaded: it needs no save.
        now.mark_unchanged();
        let is_closed = writer.is_none();
        let mut saving = Self {
            resource: running.resource().to_owned(),
            directory,
            identity,
            state: writer.map_or(SavingState::Closed, SavingState::Idle),
            now,
            progress: running.progress.clone(),
            not_before: Instant::now(),
            failures: 0,
            reported: BTreeSet::new(),
        };
        if is_closed {
            saving.pause();
        }
        saving
    }

    /// Waits for one step: a change, the time to open or to save, or the end of either. Returns true if it failed.
    /// Cancel safe.
    pub(super) async fn turn(&mut self) -> bool {
        match &mut self.state {
            SavingState::Closed => {
                sleep_until(self.not_before).await;
                self.open();
                false
            }
            SavingState::Opening(opening) => {
                let opened = opening.await;
                self.opened(survived(&self.resource, opened))
            }
            SavingState::Idle(_) => {
                if self.now.changed().await.is_err() {
                    return std::future::pending().await;
                }
                self.advance(|state| match state {
                    SavingState::Idle(writer) => SavingState::Due(writer),
                    other @ (SavingState::Closed
                    | SavingState::Opening(_)
                    | SavingState::Due(_)
                    | SavingState::Writing(_)
                    | SavingState::Over) => other,
                });
                false
            }
            SavingState::Due(_) => {
                sleep_until(self.not_before).await;
                self.begin();
                false
            }
            SavingState::Writing(writing) => {
                let done = writing.await;
                self.done(survived(&self.resource, done))
            }
            SavingState::Over => std::future::pending().await,
        }
    }

    /// Makes the last save, after the informer has stopped.
    pub(super) async fn finish(mut self) {
        // The lock's holder may have ended meanwhile, as in a rolling update.
        if matches!(self.state, SavingState::Closed) {
            self.open();
        }
        if let SavingState::Opening(opening) = &mut self.state {
            let opened = opening.await;
            self.opened(survived(&self.resource, opened));
        }
        if let SavingState::Writing(writing) = &mut self.state {
            let done = writing.await;
            self.done(survived(&self.resource, done));
        }
        if self.now.has_changed().unwrap_or(true) || matches!(self.state, SavingState::Due(_)) {
            self.begin();
            if let SavingState::Writing(writing) = &mut self.state {
                let done = writing.await;
                self.done(survived(&self.resource, done));
            }
        }
    }

    fn open(&mut self) {
        let (directory, identity) = (self.directory.clone(), self.identity.clone());
        self.state = SavingState::Opening(spawn_blocking(move || checkpoint::open(&directory, &identity)));
    }

    /// Handles an opened checkpoint. The state in it is not restored: this informer already has a state, which replaces
    /// it.
    fn opened(&mut self, opened: Option<OpenedCheckpoint>) -> bool {
        let (ignored, writer) = opened.map_or((None, None), |opened| (opened.ignored, opened.writer));
        match (writer, ignored) {
            (Some(writer), _) => {
                tracing::info!(resource = self.resource, "checkpoint taken over");
                self.failures = 0;
                self.not_before = Instant::now();
                self.state = SavingState::Due(writer);
                false
            }
            (None, Some(ignored)) => {
                self.state = SavingState::Closed;
                let delay = self.pause();
                let reason = Chain(&ignored);
                tracing::debug!(resource = self.resource, %reason, ?delay, "checkpoint open failed");
                true
            }
            (None, None) => {
                self.state = SavingState::Over;
                false
            }
        }
    }

    fn begin(&mut self) {
        let state = self.now.borrow_and_update().clone();
        let (age, is_sound) = {
            let progress = self.progress.borrow();
            (progress.age().unwrap_or_default(), progress.is_sound)
        };
        let confirmed_at = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        self.not_before = Instant::now() + SAVE_EVERY;
        self.advance(|before| match before {
            SavingState::Idle(mut writer) | SavingState::Due(mut writer) if state.synced && is_sound => {
                SavingState::Writing(spawn_blocking(move || {
                    let wrote = writer.save(&state, confirmed_at).map(|wrote| wrote.bytes);
                    (writer, wrote)
                }))
            }
            SavingState::Due(writer) => SavingState::Idle(writer),
            other @ (SavingState::Closed
            | SavingState::Opening(_)
            | SavingState::Idle(_)
            | SavingState::Writing(_)
            | SavingState::Over) => other,
        });
    }

    fn done(&mut self, done: Option<SaveResult>) -> bool {
        let Some((writer, wrote)) = done else {
            self.state = SavingState::Over;
            return false;
        };
        self.state = SavingState::Idle(writer);
        match wrote {
            Ok(bytes) => {
                self.failures = 0;
                tracing::debug!(resource = self.resource, bytes, "checkpoint saved");
                false
            }
            Err(error) => {
                let delay = self.pause();
                if self.reported.insert(error.kind()) {
                    let error = Chain(&error);
                    tracing::warn!(resource = self.resource, %error, ?delay, "checkpoint save failed");
                }
                // The unsaved state is due again.
                self.advance(|state| match state {
                    SavingState::Idle(writer) => SavingState::Due(writer),
                    other @ (SavingState::Closed
                    | SavingState::Opening(_)
                    | SavingState::Due(_)
                    | SavingState::Writing(_)
                    | SavingState::Over) => other,
                });
                true
            }
        }
    }

    /// Delays the next attempt, twice as long as the attempt before. Returns the delay.
    fn pause(&mut self) -> Duration {
        let pause = SAVE_EVERY.saturating_mul(1 << self.failures.min(10)).min(SAVE_AGAIN_MAX);
        self.failures += 1;
        self.not_before = Instant::now() + pause;
        pause
    }

    fn advance(&mut self, step: impl FnOnce(SavingState) -> SavingState) {
        self.state = step(std::mem::replace(&mut self.state, SavingState::Over));
    }
}

/// Returns the result of a blocking task; `None` if it panicked, which is logged, or if the runtime is shutting down.
fn survived<T>(resource: &str, joined: Result<T, JoinError>) -> Option<T> {
    joined
        .inspect_err(|error| {
            if error.is_panic() {
                tracing::error!(resource, "checkpoint task panicked, nothing is saved any more");
            }
        })
        .ok()
}
