//! The log of one type: a base, which is a whole state, and the changes after it.
//!
//! INVARIANT: the file is a prefix of one history at any time. Changes are appended only to a log that ends where they
//! begin; after any failure only a whole state can be saved, in a new file.
//!
//! The base is the first batch of the log. It is the state at the oldest position of the cache's window when it is
//! written, so that the window comes back with the changes and their previous objects. `informer-log` owns the format,
//! recovery and files; see `docs/adr/0053-keep-checkpoints-and-saved-states-in-one-log.md`.

use std::{
    fs::File,
    io::{self, BufReader},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use informer_core::{KeyedObject as _, Objects, Time};
use informer_log::{COMMIT, DiskLog, FoundLog, LogBatch, LogFiles, LogRecord, LogRecords, UnusableLog, write_log};
use watch_cache::{Change, ChangeKind, Draft, Entry, Event, Reader, Schema, Writer};

use super::StateOwner;
use crate::limits::SAVED_GROWTH_MIN;

/// Kind of the records of an object, of the base or created or changed after it: its revision and JSON.
const PUT: u8 = 2;

/// Kind of the records of a deletion: its revision and the object's key.
const DELETED: u8 = 3;

/// A state that was loaded into a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoadedState {
    /// Changes after the base.
    pub(super) changes: usize,
    /// Bytes at the end of the file that are not used: an interrupted write, or damage.
    pub(super) cut_bytes: u64,
    /// Every change at or below it is in the state. Later ones may be in part: a revision can have several changes.
    pub(super) complete: u64,
    /// Time of the last save.
    pub(super) saved_at: SystemTime,
}

/// The log of one type.
#[derive(Debug)]
pub(super) struct StateLog {
    log: DiskLog,
    owner: StateOwner,
    /// `None` if no file can be continued: the next save writes a whole state.
    end: Option<HistoryEnd>,
}

/// End of the history in a log.
#[derive(Clone, Copy, Debug)]
struct HistoryEnd {
    /// Revision of the newest change, which may have further changes.
    revision: u64,
    /// Every change at or below it is in the log.
    complete: u64,
}

impl StateLog {
    pub(super) const fn new(files: LogFiles, owner: StateOwner) -> Self {
        Self { log: DiskLog::new(files, GROWTH_MIN), owner, end: None }
    }

    /// True if changes can be appended.
    pub(super) const fn can_append(&self) -> bool {
        self.end.is_some()
    }

    /// True if it has grown enough to be replaced by a whole state.
    pub(super) fn is_wasteful(&self) -> bool {
        self.log.is_wasteful(u64::MAX)
    }

    /// Fills the empty cache of `writer`; returns `None` if no state was saved.
    ///
    /// Blocks. Cost: reads the file twice and decodes each object version in it. Memory: the cache.
    ///
    /// # Errors
    /// [`UnusableLog`]; the cache is still empty.
    pub(super) fn load(
        &mut self,
        schema: &Schema,
        writer: &mut Writer,
        now: Time,
    ) -> Result<Option<LoadedState>, UnusableLog> {
        let Some(found) = self.log.find(&self.owner.text())? else { return Ok(None) };
        let (loaded, is_applied) = fill(&found, schema, writer, now)?;
        if is_applied {
            self.log.resume(found);
            self.end = Some(HistoryEnd { revision: writer.applied(), complete: loaded.complete });
        }
        Ok(Some(loaded))
    }

    /// Appends changes, which follow the last ones without a gap. Changes that the log has already are left out, but for
    /// those at its newest revision, of which it may have a part: a repeated one has no effect.
    ///
    /// Blocks.
    ///
    /// # Errors
    /// An error of the file system; only a whole state can be saved then.
    pub(super) fn append(&mut self, changes: &[Change], now: SystemTime) -> io::Result<()> {
        let Some(before) = self.end.take() else { return Err(io::Error::other("no file to continue")) };
        let mut end = before;
        self.log.append(|batch| {
            for change in changes {
                match change {
                    Change::Put(entry) if before.revision <= entry.resource_version() => end.put(batch, entry)?,
                    Change::Deleted { key, resource_version } if before.revision <= *resource_version => {
                        end.delete(batch, key, *resource_version)?;
                    }
                    Change::Put(_) | Change::Deleted { .. } => {}
                    Change::Progress(revision) => {
                        end.revision = end.revision.max(*revision);
                        end.complete = end.complete.max(*revision);
                    }
                }
            }
            commit(batch, end.complete, now)
        })?;
        self.end = Some(end);
        Ok(())
    }

    /// Replaces the file by `state`.
    ///
    /// Blocks.
    ///
    /// # Errors
    /// An error of the file system. The file before stays as it is, and only a whole state can be saved next.
    pub(super) fn replace(&mut self, state: &WholeState, now: SystemTime) -> io::Result<()> {
        self.end = None;
        self.log.replace(&self.owner.text(), |batch| state.write(batch, now))?;
        self.end = Some(HistoryEnd { revision: state.applied, complete: state.complete });
        Ok(())
    }

    /// Removes the file: its history has ended.
    ///
    /// # Errors
    /// An error of the file system.
    pub(super) fn discard(&mut self) -> io::Result<()> {
        self.end = None;
        self.log.discard()
    }
}

impl HistoryEnd {
    fn put(&mut self, batch: &mut LogBatch<'_>, entry: &Entry) -> io::Result<()> {
        let revision = entry.resource_version();
        self.passes(revision);
        batch.push(PUT, &[&revision.to_le_bytes(), &entry.object()])
    }

    fn delete(&mut self, batch: &mut LogBatch<'_>, key: &str, revision: u64) -> io::Result<()> {
        self.passes(revision);
        batch.push(DELETED, &[&revision.to_le_bytes(), key.as_bytes()])
    }

    fn passes(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
        // More changes of this revision may follow.
        self.complete = self.complete.max(revision.saturating_sub(1));
    }
}

/// Fills the empty cache of `writer` from a log. Returns true if all changes are applied.
///
/// # Errors
/// [`UnusableLog`]; the cache is still empty.
fn fill(found: &FoundLog, schema: &Schema, writer: &mut Writer, now: Time) -> Result<(LoadedState, bool), UnusableLog> {
    let mut records = found.records()?;
    let (objects, mut tail) = read_base(&mut records, schema)?;
    writer.reset(objects, tail.complete, now);
    let is_applied = tail.replay(&mut records, schema, writer, now);
    let (Tail { changes, complete, saved_at }, cut_bytes) = (tail, found.cut_bytes());
    Ok((LoadedState { changes, cut_bytes, complete, saved_at }, is_applied))
}

/// Fills the empty cache of `writer` with the state that another process wrote for `owner` into `file`.
///
/// Blocks. Cost: as of [`StateLog::load`].
///
/// # Errors
/// [`UnusableLog`]; the cache is still empty.
pub(super) fn load_handed(
    file: File,
    owner: &StateOwner,
    schema: &Schema,
    writer: &mut Writer,
    now: Time,
) -> Result<LoadedState, UnusableLog> {
    fill(&FoundLog::read(file, &owner.text())?, schema, writer, now).map(|(loaded, _)| loaded)
}

/// Commits the changes up to this revision, of which all were written.
fn commit(batch: &mut LogBatch<'_>, complete: u64, now: SystemTime) -> io::Result<()> {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    batch.commit(&[&complete.to_le_bytes(), &unix_ms.to_le_bytes()])
}

/// Decodes the body of a commit: the complete revision and the time.
fn read_commit(body: &[u8]) -> Option<(u64, SystemTime)> {
    let (complete, unix_ms) = read_number(body)?;
    let saved_at = UNIX_EPOCH.checked_add(Duration::from_millis(read_number(unix_ms)?.0))?;
    Some((complete, saved_at))
}

fn read_number(body: &[u8]) -> Option<(u64, &[u8])> {
    body.split_first_chunk().map(|(number, rest)| (u64::from_le_bytes(*number), rest))
}

/// Reads the first batch: a whole state, which no changes follow yet.
fn read_base(
    records: &mut LogRecords<BufReader<&File>>,
    schema: &Schema,
) -> Result<(Objects<Entry>, Tail), UnusableLog> {
    let mut objects = Objects::new();
    loop {
        let LogRecord { kind, body } = records.next_record()?.ok_or(UnusableLog::Damaged)?;
        let (revision, rest) = read_number(body).ok_or(UnusableLog::Damaged)?;
        match kind {
            PUT => objects.put(Draft::new(schema, rest).map_err(|_| UnusableLog::Damaged)?.commit(revision)),
            COMMIT if 0 < revision => {
                let (complete, saved_at) = read_commit(body).ok_or(UnusableLog::Damaged)?;
                return Ok((objects, Tail { changes: 0, complete, saved_at }));
            }
            _ => return Err(UnusableLog::Damaged),
        }
    }
}

/// The changes of a log after its base.
struct Tail {
    changes: usize,
    /// Every change at or below it is applied.
    complete: u64,
    /// Time of the last commit that is applied.
    saved_at: SystemTime,
}

impl Tail {
    /// Applies the changes up to the first one that no cache could have written. An error of the file system ends them
    /// as well. Returns true if all are applied.
    fn replay(
        &mut self,
        records: &mut LogRecords<BufReader<&File>>,
        schema: &Schema,
        writer: &mut Writer,
        now: Time,
    ) -> bool {
        let is_applied = loop {
            let record = match records.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => break true,
                Err(_) => break false,
            };
            let event = read_change(record, schema, writer).and_then(|change| writer.apply(change, now).ok());
            let Some(event) = event else { break false };
            self.changes += usize::from(event.is_some());
            if record.kind == COMMIT {
                let Some((complete, saved_at)) = read_commit(record.body) else { break false };
                (self.complete, self.saved_at) = (self.complete.max(complete), saved_at);
            }
        };
        // Changes are in the order of their revisions, and more of the newest one may follow.
        self.complete = self.complete.max(writer.applied() - 1);
        is_applied
    }
}

/// Decodes a change; `None` if it is none.
fn read_change(record: LogRecord<'_>, schema: &Schema, writer: &Writer) -> Option<Change> {
    let (revision, rest) = read_number(record.body)?;
    match record.kind {
        PUT => {
            let draft = Draft::new(schema, rest).ok()?;
            let exists = writer.get(draft.key()).is_some();
            Some(Change::Put(if exists { draft.commit_update(revision) } else { draft.commit(revision) }))
        }
        DELETED => Some(Change::Deleted { key: str::from_utf8(rest).ok()?.to_owned(), resource_version: revision }),
        COMMIT => Some(Change::Progress(revision.max(writer.applied()))),
        _ => None,
    }
}

/// A cache's state at the oldest position of its window, and the changes since.
pub(super) struct WholeState {
    objects: Objects<Entry>,
    revision: u64,
    events: Vec<Arc<Event>>,
    /// Revision of the newest change.
    applied: u64,
    /// Every change at or below it is in the state.
    complete: u64,
}

impl WholeState {
    /// Reads the cache; `now` is on its clock. `None` if it has no state, or another one began meanwhile.
    ///
    /// Cost: undoes the window's events, about 0.3 µs each. Memory: the window's replaced objects, while it lives.
    pub(super) fn of(reader: &Reader, now: Time) -> Option<Self> {
        let current = reader.snapshot();
        // The window may evict the position before it is held.
        let base = (0..ATTEMPTS).find_map(|_| {
            let oldest = reader.oldest();
            reader.hold(oldest, Time(now.0 + HOLD));
            reader.at(oldest).ok()
        })?;
        if current.resource_version == 0 || base.epoch != current.epoch {
            return None;
        }
        let events = reader.events(&base).ok()?;
        let (applied, complete) = match events.last().map(|last| last.resource_version) {
            // More changes of this revision may follow.
            Some(last) if current.resource_version <= last => (last, last - 1),
            Some(_) | None => (current.resource_version, current.resource_version),
        };
        Some(Self { objects: base.objects.clone(), revision: base.resource_version, events, applied, complete })
    }

    /// Notes that the cache shows the changes of one revision together: none of its newest one is missing.
    pub(super) fn with_whole_revisions(self) -> Self {
        Self { complete: self.applied, ..self }
    }

    /// Writes the state for `owner` into an empty file.
    ///
    /// Blocks.
    ///
    /// # Errors
    /// An error of the file.
    pub(super) fn write_to(&self, file: &File, owner: &StateOwner, now: SystemTime) -> io::Result<()> {
        write_log(file, &owner.text(), |batch| self.write(batch, now))
    }

    fn write(&self, batch: &mut LogBatch<'_>, now: SystemTime) -> io::Result<()> {
        let mut end = HistoryEnd { revision: 0, complete: 0 };
        for entry in self.objects.iter() {
            end.put(batch, entry)?;
        }
        commit(batch, self.revision, now)?;
        for event in &self.events {
            match event.kind {
                ChangeKind::Created | ChangeKind::Updated => end.put(batch, &event.object)?,
                ChangeKind::Deleted => end.delete(batch, event.object.key(), event.resource_version)?,
            }
        }
        commit(batch, self.complete, now)
    }
}

/// [`SAVED_GROWTH_MIN`]; less in tests, whose logs are short.
const GROWTH_MIN: u64 = if cfg!(test) { 1 << 10 } else { SAVED_GROWTH_MIN };

/// Attempts to read the oldest position of a window that moves.
const ATTEMPTS: usize = 8;

/// Time for which the window is kept, while its state is read.
const HOLD: Duration = Duration::from_secs(5);

#[cfg(test)]
impl WholeState {
    /// The changes after the base.
    pub(super) fn changes(&self) -> Vec<Change> {
        let change = |event: &Arc<Event>| match event.kind {
            ChangeKind::Created | ChangeKind::Updated => Change::Put(Arc::clone(&event.object)),
            ChangeKind::Deleted => {
                let key = event.object.key().to_owned();
                Change::Deleted { key, resource_version: event.resource_version }
            }
        };
        self.events.iter().map(change).chain([Change::Progress(self.applied)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use watch_cache::{Limits, cache};

    use super::*;
    use crate::cacher::saved::tests::fixture::{NOW, pods, put};

    /// Goal: a whole state can be read while changes arrive, and has no gap. Method: a thread that applies changes to a
    /// full window, so that each of them evicts one.
    #[test]
    fn a_state_is_read_whole_while_its_window_moves() {
        let limits = Limits { window_events_max: 300, ..Limits::default() };
        let (mut writer, _, reader) = cache(Arc::clone(&pods().schema), limits);
        writer.reset(Objects::new(), 1, NOW);
        let mut revision = 1;
        let mut apply = move |writer: &mut Writer| {
            revision += 1;
            for name in ["o", "p"].iter().take(1 + usize::from(revision % 10 == 0)) {
                writer.apply(put(&format!("{name}{}", revision % 50), "x", revision), NOW).expect("it follows");
            }
        };
        (0..400).for_each(|_| apply(&mut writer));
        let (stop, is_stopped) = std::sync::mpsc::channel::<()>();
        let applying = std::thread::spawn(move || {
            while is_stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                apply(&mut writer);
            }
        });
        for _ in 0..200 {
            let state = WholeState::of(&reader, NOW).expect("the history goes on");
            let found: Vec<u64> = state.events.iter().map(|event| event.resource_version).collect();
            // One change each, and two at every tenth revision.
            let expected = (state.revision + 1..=state.applied)
                .flat_map(|at| [at, at].into_iter().take(1 + usize::from(at % 10 == 0)));
            assert!(found.iter().copied().eq(expected.take(found.len())), "{found:?}");
            // One less while the first change of a revision with two has left the window.
            assert!(found.len() >= 299, "{}", found.len());
            assert!(state.objects.iter().all(|entry| !entry.key().is_empty()));
        }
        drop(stop);
        applying.join().expect("no panic");
    }
}
