//! Saves the changes of one cache in the background.
//!
//! INVARIANT: the cacher never waits for the disk. Changes that do not fit into the queue are dropped, and the whole
//! state is saved in their place; until then the file stays what it was, an older state without a gap.

use std::{
    io, mem,
    sync::Arc,
    time::{Duration, SystemTime},
};

use informer_core::Time;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, OwnedMutexGuard, watch},
    task::spawn_blocking,
    time::{Instant, sleep},
};
use watch_cache::{Change, Reader};

use super::log::{StateLog, WholeState};
use crate::limits::{SAVED_EVERY, SAVED_QUEUE_BYTES_MAX, SAVED_QUEUE_MAX, SAVED_RETRY, SAVED_RETRY_MAX};

/// The cacher's end of the queue. Dropped with its cache: what was pushed is still saved.
#[derive(Debug)]
pub(in crate::cacher) struct Saver {
    queue: Arc<SaveQueue>,
}

impl Saver {
    /// Queues a change that the cache has applied. Never blocks on the disk.
    pub(in crate::cacher) fn push(&self, change: Change) {
        let is_first = {
            let waiting = &mut *self.queue.waiting.lock();
            let is_first = waiting.changes.is_empty();
            waiting.push(change);
            is_first
        };
        if is_first {
            self.queue.changed.notify_one();
        }
    }

    /// Drops what waits: its history is about to end. Nothing is saved until [`Self::begin`].
    pub(in crate::cacher) fn end(&self) {
        let waiting = &mut *self.queue.waiting.lock();
        *waiting = QueuedChanges { is_idle: true, ..QueuedChanges::default() };
    }

    /// Removes the saved state, and saves the cache's, which is of a new history.
    pub(in crate::cacher) fn begin(&self) {
        *self.queue.waiting.lock() = QueuedChanges { is_new: true, is_gapped: true, ..QueuedChanges::default() };
        self.queue.changed.notify_one();
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.queue.waiting.lock().is_closed = true;
        self.queue.changed.notify_one();
    }
}

#[derive(Debug, Default)]
struct SaveQueue {
    waiting: Mutex<QueuedChanges>,
    changed: Notify,
}

/// Work of the next save.
#[derive(Debug, Default)]
struct QueuedChanges {
    /// In commit order, without a gap.
    changes: Vec<Change>,
    bytes: usize,
    /// True if changes were lost: only a whole state can be saved.
    is_gapped: bool,
    /// True if the saved state is of another history.
    is_new: bool,
    /// True if the cache has no state to save.
    is_idle: bool,
    /// True once nothing more is pushed.
    is_closed: bool,
}

impl QueuedChanges {
    fn push(&mut self, change: Change) {
        if self.is_gapped || self.is_idle {
            return;
        }
        if let (Change::Progress(_), Some(last @ Change::Progress(_))) = (&change, self.changes.last_mut()) {
            *last = change;
            return;
        }
        self.bytes += match &change {
            Change::Put(entry) => entry.object().len(),
            Change::Deleted { key, .. } => key.len(),
            Change::Progress(_) => 0,
        };
        self.changes.push(change);
        if SAVED_QUEUE_BYTES_MAX < self.bytes || SAVED_QUEUE_MAX < self.changes.len() {
            self.lose();
        }
    }

    fn lose(&mut self) {
        (self.changes, self.bytes, self.is_gapped) = (Vec::new(), 0, true);
    }

    const fn has_work(&self) -> bool {
        !self.is_idle && (self.is_gapped || !self.changes.is_empty())
    }

    /// Takes the work. Changes that are pushed from now on follow it.
    fn take(&mut self) -> Self {
        let next = Self { is_idle: self.is_idle, is_closed: self.is_closed, ..Self::default() };
        mem::replace(self, next)
    }
}

impl SaveQueue {
    /// Waits for work; `None` once there will be none.
    async fn next(&self) -> Option<QueuedChanges> {
        loop {
            {
                let waiting = &mut *self.waiting.lock();
                if waiting.has_work() {
                    return Some(waiting.take());
                }
                if waiting.is_closed {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// Sleeps for `pause`, or until the cache ends.
    async fn pause(&self, pause: Duration) {
        let ended = async {
            while !self.waiting.lock().is_closed {
                self.changed.notified().await;
            }
        };
        tokio::select! {
            () = ended => {}
            () = sleep(pause) => {}
        }
    }
}

/// The inputs of a saving task.
pub(super) struct SaveTask {
    pub(super) log: StateLog,
    pub(super) reader: Reader,
    /// The type's id.
    pub(super) resource: String,
    /// Start of the clock of the cache.
    pub(super) started: Instant,
    /// Held until everything is saved, so that no other task uses the file.
    pub(super) _turn: OwnedMutexGuard<()>,
}

impl SaveTask {
    /// Starts the task, which saves nothing before the folder is locked. If the cache has a state, and the log can be
    /// continued, it is that of the log.
    pub(super) fn start(self, is_locked: watch::Receiver<bool>) -> Saver {
        let is_idle = self.reader.applied() == 0;
        let waiting =
            QueuedChanges { is_idle, is_gapped: !is_idle && !self.log.can_append(), ..QueuedChanges::default() };
        let queue = Arc::new(SaveQueue { waiting: Mutex::new(waiting), changed: Notify::new() });
        tokio::spawn(self.run(Arc::clone(&queue), is_locked));
        Saver { queue }
    }

    async fn run(mut self, queue: Arc<SaveQueue>, mut is_locked: watch::Receiver<bool>) {
        // An error means that the server ends.
        if is_locked.wait_for(|&is_locked| is_locked).await.is_err() {
            return;
        }
        drop(is_locked);
        let mut failures = 0_u32;
        while let Some(work) = queue.next().await {
            let now = Time(self.started.elapsed());
            let (is_last, is_new) = (work.is_closed, work.is_new);
            let saved = spawn_blocking(move || {
                let result = self.save(work, failures, now);
                (self, result)
            });
            // A panic is logged by its hook; the type is not saved any more.
            let Ok((saving, result)) = saved.await else { return };
            self = saving;
            let pause = match result {
                Ok(()) => {
                    failures = 0;
                    SAVED_EVERY
                }
                Err(error) => {
                    let delay = (SAVED_RETRY * 2_u32.saturating_pow(failures)).min(SAVED_RETRY_MAX);
                    if failures == 0 {
                        tracing::warn!(resource = self.resource, %error, ?delay, "state save failed");
                    }
                    failures = failures.saturating_add(1).min(16);
                    let waiting = &mut *queue.waiting.lock();
                    waiting.lose();
                    waiting.is_new |= is_new;
                    delay
                }
            };
            if is_last {
                return;
            }
            queue.pause(pause).await;
        }
    }

    /// Saves what waits.
    fn save(&mut self, work: QueuedChanges, failures: u32, now: Time) -> io::Result<()> {
        // After two failures in a row the file is too old to be of use, and its room may be what is missing.
        if work.is_new || 2 <= failures {
            self.log.discard()?;
        }
        if !work.is_gapped {
            self.log.append(&work.changes, SystemTime::now())?;
            if !self.log.is_wasteful() {
                return Ok(());
            }
        }
        let state = WholeState::of(&self.reader, now).ok_or_else(|| io::Error::other("the state changed meanwhile"))?;
        self.log.replace(&state, SystemTime::now())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::cacher::saved::{
        files::files_of,
        tests::fixture::{World, log, log_in, origin, put},
    };

    fn saving(world: &World, log: StateLog) -> SaveTask {
        let turn = Arc::new(tokio::sync::Mutex::new(())).try_lock_owned().expect("a new lock");
        let (reader, resource) = (world.reader.clone(), "pods".to_owned());
        SaveTask { log, reader, resource, started: Instant::now(), _turn: turn }
    }

    /// Saves changes to a disk that is full after `units`, until it gets room again. Returns the units used.
    fn survive(units: usize) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let left = Arc::new(AtomicUsize::new(units));
        let mut world = World::new();
        let files = files_of(folder.path(), "pods").expect("a plain name").with_room(Arc::clone(&left));
        let mut saving = saving(&world, log_in(files, &origin()));
        let mut waiting = QueuedChanges { is_new: true, is_gapped: true, ..QueuedChanges::default() };
        let (mut failures, mut has_failed) = (0, false);
        for round in 0..14 {
            let is_saved = saving.save(waiting.take(), failures, world.now()).is_ok();
            failures = if is_saved { 0 } else { failures + 1 };
            if !is_saved {
                waiting.lose();
            }
            has_failed |= !is_saved;
            if has_failed {
                let found = world.loaded(folder.path()).expect("whole, or none");
                let applied = found.map(|(_, applied)| applied);
                assert!(!is_saved || applied == Some(world.writer.applied()), "round {round} of {units}: {applied:?}");
            }
            world.steps(3).into_iter().for_each(|change| waiting.push(change));
        }
        let used = units - left.swap(usize::MAX, Ordering::SeqCst);
        saving.save(waiting.take(), failures, world.now()).expect("there is room");
        assert_eq!(world.loaded(folder.path()).unwrap().unwrap().1, world.writer.applied());
        used
    }

    /// Goal: a disk that fails never leaves a state with a gap, and saving goes on once it has room again. Method: a
    /// disk that is full after n bytes and operations, anywhere within bases, changes, compactions and renames.
    #[test]
    fn a_full_disk_leaves_an_older_state_or_none() {
        let used = survive(usize::MAX);
        assert!((5_000..100_000).contains(&used), "{used}");
        for units in (0..used).step_by(97) {
            survive(units);
        }
    }

    /// Goal: a log that has grown is replaced by one that is as good. Method: more changes than the window keeps.
    #[test]
    fn a_log_that_has_grown_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World::new();
        let mut saving = saving(&world, log(folder.path(), &origin()));
        let mut waiting = QueuedChanges { is_gapped: true, ..QueuedChanges::default() };
        let (mut before, mut replaced) = (0, 0);
        for _ in 0..100 {
            saving.save(waiting.take(), 0, world.now()).expect("a disk");
            let bytes = std::fs::metadata(folder.path().join("pods.state")).unwrap().len();
            replaced += usize::from(bytes < before);
            before = bytes;
            world.steps(5).into_iter().for_each(|change| waiting.push(change));
        }
        assert!(3 < replaced && replaced < 30, "each one about doubles the log: {replaced}");
        assert!(!folder.path().join("pods.state.new").exists());
        world.loaded(folder.path()).unwrap();
    }

    #[test]
    fn changes_that_do_not_fit_make_the_next_save_a_whole_one() {
        let mut waiting = QueuedChanges::default();
        for revision in 1..=SAVED_QUEUE_MAX as u64 {
            waiting.push(Change::Deleted { key: "n/a".to_owned(), resource_version: revision });
        }
        assert!(!waiting.is_gapped);
        waiting.push(put("a", "x", 1 << 20));
        assert!(waiting.is_gapped && waiting.changes.is_empty());
        waiting.push(put("a", "x", 1 << 21));
        assert!(waiting.changes.is_empty(), "a gap stays a gap");
        assert!(waiting.take().is_gapped && !waiting.is_gapped);
        (5..9).for_each(|revision| waiting.push(Change::Progress(revision)));
        assert_eq!(waiting.changes.len(), 1, "only the newest position counts");
    }
}
