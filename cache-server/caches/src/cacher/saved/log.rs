//! The log of one type: a base, which is a whole state, and the changes after it.
//!
//! INVARIANT: the file is a prefix of one history at any time. Changes are appended only to a log that ends where they
//! begin; after any failure only a whole state can be saved, in a new file.
//!
//! The base is the state at the oldest position of the cache's window when it is written, so that the window comes back
//! with the changes and their previous objects. Appended changes are not synced: a killed process loses none that were
//! written, and after a power cut the state is an older one. A base is synced before it replaces the log.

use std::{
    fs::File,
    io::{self, BufReader, Seek as _, SeekFrom},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use informer_core::{KeyedObject as _, Objects, Time};
use watch_cache::{Change, ChangeKind, Draft, Entry, Event, Reader, Schema, Writer};

use super::{
    StateOwner,
    files::StateFiles,
    record::{FORMAT, HEAD_BYTES, LongRecord, StateChecksum, StateRecord, StateRecords, fill, format_of, head},
};
use crate::limits::SAVED_GROWTH_MIN;

/// Reason why a saved state is not used. The state is then listed, and saved in a new file.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnusableState {
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    #[error("the file is no saved state")]
    Foreign,
    #[error("its format {0} is not known")]
    Format(u32),
    #[error("it is of another cluster, scope or version of the type")]
    Owner,
    #[error("its base is damaged")]
    Damaged,
}

/// A state that was loaded into a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoadedState {
    /// Changes after the base.
    pub(super) changes: usize,
    /// Bytes at the end of the file that are not used: an interrupted write, or damage.
    pub(super) cut_bytes: u64,
    /// Every change at or below it is in the state. Later ones may be in part: a revision can have several changes.
    pub(super) complete: u64,
    /// Time of the last save whose mark is in the file.
    pub(super) saved_at: SystemTime,
}

/// The log of one type.
#[derive(Debug)]
pub(super) struct StateLog {
    files: StateFiles,
    owner: StateOwner,
    /// `None` if no file can be continued: the next save writes a whole state.
    open: Option<OpenLog>,
}

/// A log whose end is known.
#[derive(Debug)]
struct OpenLog {
    file: File,
    chain: StateChecksum,
    /// Its size.
    bytes: u64,
    /// Its size when it was written as a whole, or that of its base.
    whole_bytes: u64,
    /// Revision of its newest change, which may have further changes.
    revision: u64,
    /// Every change at or below it is in the log.
    complete: u64,
}

impl StateLog {
    pub(super) const fn new(files: StateFiles, owner: StateOwner) -> Self {
        Self { files, owner, open: None }
    }

    /// True if changes can be appended.
    pub(super) const fn can_append(&self) -> bool {
        self.open.is_some()
    }

    /// True if it has grown enough to be replaced by a whole state. Disk: at most twice a whole state and
    /// [`SAVED_GROWTH_MIN`], and one more whole state while it is replaced.
    pub(super) fn is_wasteful(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.whole_bytes.max(GROWTH_MIN) < open.bytes - open.whole_bytes)
    }

    /// Fills the empty cache of `writer`; returns `None` if no state was saved.
    ///
    /// Blocks. Cost: reads the file once and decodes each object version in it. Memory: that of the cache.
    ///
    /// # Errors
    /// [`UnusableState`]; the cache is still empty.
    pub(super) fn load(
        &mut self,
        schema: &Schema,
        writer: &mut Writer,
        now: Time,
    ) -> Result<Option<LoadedState>, UnusableState> {
        let Some(file) = self.files.open()? else { return Ok(None) };
        let end = file.metadata()?.len();
        let mut from = BufReader::with_capacity(BUFFER_BYTES, &file);
        let mut head = [0; HEAD_BYTES];
        let format = fill(&mut from, &mut head)?.then(|| format_of(head)).flatten().ok_or(UnusableState::Foreign)?;
        if format != FORMAT {
            return Err(UnusableState::Format(format));
        }
        let mut records = StateRecords::new(from, end);
        if records.next()? != Some(StateRecord::Owner(&self.owner.text())) {
            return Err(UnusableState::Owner);
        }
        let base = Base::read(&mut records, schema)?;
        let whole_bytes = records.at();
        let base_revision = base.revision;
        writer.reset(base.objects, base_revision, now);
        let tail = Tail::replay(&mut records, schema, writer, now);
        drop(records);
        let cut_bytes = end.saturating_sub(tail.at);
        let (revision, complete) = (writer.applied(), tail.complete.max(base_revision));
        let open = OpenLog { file, chain: tail.chain, bytes: tail.at, whole_bytes, revision, complete };
        // Without it the next save writes a whole state.
        self.open = if tail.is_applied && open.cut().is_ok() { Some(open) } else { None };
        Ok(Some(LoadedState { changes: tail.changes, cut_bytes, complete, saved_at: from_unix_ms(tail.saved_ms) }))
    }

    /// Appends changes, which follow the last ones without a gap. Changes that the log has already are left out, but for
    /// those at its newest revision, of which it may have a part: a repeated one has no effect.
    ///
    /// Blocks.
    ///
    /// # Errors
    /// An error of the file system; only a whole state can be saved then.
    pub(super) fn append(&mut self, changes: &[Change], now: SystemTime) -> io::Result<()> {
        let Some(mut open) = self.open.take() else { return Err(io::Error::other("no file to continue")) };
        let mut out = LogAppender { files: &self.files, open: &mut open, out: Vec::new() };
        let before = out.open.revision;
        for change in changes {
            match change {
                Change::Put(entry) if before <= entry.resource_version() => out.put(entry)?,
                Change::Deleted { key, resource_version } if before <= *resource_version => {
                    out.push(StateRecord::Deleted { revision: *resource_version, key }, *resource_version)?;
                }
                Change::Put(_) | Change::Deleted { .. } => {}
                Change::Progress(revision) => {
                    out.open.revision = out.open.revision.max(*revision);
                    out.open.complete = out.open.complete.max(*revision);
                }
            }
        }
        out.mark(now)?;
        self.open = Some(open);
        Ok(())
    }

    /// Replaces the file by `state`.
    ///
    /// Blocks.
    ///
    /// # Errors
    /// An error of the file system. The file before stays as it is, and only a whole state can be saved next.
    pub(super) fn replace(&mut self, state: &WholeState, now: SystemTime) -> io::Result<()> {
        self.open = None;
        let written = self.write_beside(state, now).and_then(|open| self.files.replace(&open.file).map(|()| open));
        self.open = Some(written.inspect_err(|_| self.files.remove_beside())?);
        Ok(())
    }

    /// Removes the file: its history has ended.
    ///
    /// # Errors
    /// An error of the file system.
    pub(super) fn discard(&mut self) -> io::Result<()> {
        self.open = None;
        self.files.remove()
    }

    fn write_beside(&self, state: &WholeState, now: SystemTime) -> io::Result<OpenLog> {
        let file = self.files.create_beside()?;
        let chain = StateChecksum::begin();
        let mut open = OpenLog { file, chain, bytes: 0, whole_bytes: 0, revision: state.revision, complete: 0 };
        let mut out = LogAppender { files: &self.files, open: &mut open, out: head().into() };
        out.push(StateRecord::Owner(&self.owner.text()), 0)?;
        let mut objects = 0;
        for entry in state.objects.iter() {
            out.push(StateRecord::Object { revision: entry.resource_version(), json: &entry.object() }, 0)?;
            objects += 1;
        }
        out.push(StateRecord::Base { revision: state.revision, objects }, 0)?;
        for event in &state.events {
            match event.kind {
                ChangeKind::Created | ChangeKind::Updated => out.put(&event.object)?,
                ChangeKind::Deleted => {
                    let (revision, key) = (event.resource_version, event.object.key());
                    out.push(StateRecord::Deleted { revision, key }, revision)?;
                }
            }
        }
        (out.open.revision, out.open.complete) = (state.applied, state.complete);
        out.mark(now)?;
        open.whole_bytes = open.bytes;
        Ok(open)
    }
}

impl OpenLog {
    /// Cuts the file at its known end and moves there.
    fn cut(&self) -> io::Result<()> {
        self.file.set_len(self.bytes)?;
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.bytes)).map(drop)
    }
}

/// Records on their way to a log's end.
struct LogAppender<'a> {
    files: &'a StateFiles,
    open: &'a mut OpenLog,
    out: Vec<u8>,
}

impl LogAppender<'_> {
    fn put(&mut self, entry: &Entry) -> io::Result<()> {
        let revision = entry.resource_version();
        self.push(StateRecord::Put { revision, json: &entry.object() }, revision)
    }

    fn push(&mut self, record: StateRecord<'_>, revision: u64) -> io::Result<()> {
        record.write(&mut self.open.chain, &mut self.out).map_err(|error: LongRecord| io::Error::other(error))?;
        self.open.revision = self.open.revision.max(revision);
        // More changes of this revision may follow.
        self.open.complete = self.open.complete.max(revision.saturating_sub(1));
        if self.out.len() < BUFFER_BYTES { Ok(()) } else { self.flush() }
    }

    /// Ends the batch with its position and time.
    fn mark(&mut self, now: SystemTime) -> io::Result<()> {
        let revision = self.open.complete;
        self.push(StateRecord::Mark { revision, unix_ms: unix_ms(now) }, 0)?;
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.files.write(&self.open.file, &self.out)?;
        self.open.bytes += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }
}

/// The whole state at the beginning of a log.
struct Base {
    objects: Objects<Entry>,
    revision: u64,
}

impl Base {
    fn read(records: &mut StateRecords<BufReader<&File>>, schema: &Schema) -> Result<Self, UnusableState> {
        let mut objects = Objects::new();
        let mut count = 0;
        loop {
            match records.next()? {
                Some(StateRecord::Object { revision, json }) => {
                    let draft = Draft::new(schema, json).map_err(|_| UnusableState::Damaged)?;
                    objects.put(draft.commit(revision));
                    count += 1;
                }
                Some(StateRecord::Base { revision, objects: all }) if count == all && 0 < revision => {
                    return Ok(Self { objects, revision });
                }
                Some(
                    StateRecord::Owner(_)
                    | StateRecord::Base { .. }
                    | StateRecord::Put { .. }
                    | StateRecord::Deleted { .. }
                    | StateRecord::Mark { .. },
                )
                | None => return Err(UnusableState::Damaged),
            }
        }
    }
}

/// The usable part of a log after its base.
struct Tail {
    /// Its end.
    at: u64,
    chain: StateChecksum,
    changes: usize,
    /// Revision of the last mark; zero without one.
    complete: u64,
    /// Time of the last mark, in milliseconds since 1970; zero without one.
    saved_ms: u64,
    /// False if a change did not follow the one before it: the cache is ahead of this end.
    is_applied: bool,
}

impl Tail {
    /// Applies changes up to the last mark before the first record that is damaged, or that no cache could have written:
    /// a revision may have several changes, and only a mark follows them all.
    fn replay(records: &mut StateRecords<BufReader<&File>>, schema: &Schema, writer: &mut Writer, now: Time) -> Self {
        let (at, chain) = (records.at(), records.chain());
        let mut tail = Self { at, chain, changes: 0, complete: 0, saved_ms: 0, is_applied: true };
        let mut unmarked = Vec::new();
        // An error of the file system ends the usable part as well.
        while let Ok(Some(record)) = records.next() {
            let (revision, unix_ms) = match record {
                StateRecord::Put { revision, json } => {
                    unmarked.push(SavedChange::Put(revision, json.into()));
                    continue;
                }
                StateRecord::Deleted { revision, key } => {
                    unmarked.push(SavedChange::Deleted(revision, key.to_owned()));
                    continue;
                }
                StateRecord::Mark { revision, unix_ms } => (revision, unix_ms),
                StateRecord::Owner(_) | StateRecord::Object { .. } | StateRecord::Base { .. } => break,
            };
            for change in unmarked.drain(..).chain([SavedChange::Progress(revision)]) {
                let event = change.read(schema, writer).and_then(|change| writer.apply(change, now).ok());
                let Some(event) = event else {
                    tail.is_applied = false;
                    return tail;
                };
                tail.changes += usize::from(event.is_some());
            }
            (tail.complete, tail.saved_ms) = (revision, unix_ms);
            (tail.at, tail.chain) = (records.at(), records.chain());
        }
        tail
    }
}

/// A change that waits for its mark.
enum SavedChange {
    Put(u64, Box<[u8]>),
    Deleted(u64, String),
    Progress(u64),
}

impl SavedChange {
    /// Decodes it; `None` if it is no object.
    fn read(self, schema: &Schema, writer: &Writer) -> Option<Change> {
        Some(match self {
            Self::Put(revision, json) => {
                let draft = Draft::new(schema, &json).ok()?;
                let exists = writer.get(draft.key()).is_some();
                Change::Put(if exists { draft.commit_update(revision) } else { draft.commit(revision) })
            }
            Self::Deleted(revision, key) => Change::Deleted { key, resource_version: revision },
            Self::Progress(revision) => Change::Progress(revision.max(writer.applied())),
        })
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
}

/// [`SAVED_GROWTH_MIN`]; less in tests, whose logs are short.
const GROWTH_MIN: u64 = if cfg!(test) { 1 << 10 } else { SAVED_GROWTH_MIN };

/// Attempts to read the oldest position of a window that moves.
const ATTEMPTS: usize = 8;

/// Time for which the window is kept, while its state is read.
const HOLD: Duration = Duration::from_secs(5);

/// Bytes gathered before a write, and read at once. Memory: this much during a save, plus one object.
const BUFFER_BYTES: usize = 1 << 20;

/// Milliseconds since 1970; zero for earlier times.
fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn from_unix_ms(unix_ms: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms)).unwrap_or(UNIX_EPOCH)
}

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
