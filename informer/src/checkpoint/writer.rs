//! Appends changes to the log, and compacts it when it has grown too large.
//!
//! INVARIANT: after any failure, the writer's idea of the last commit is equal to the last commit on disk.
//!
//! A batch that fits into the buffer is one write, and is valid once its commit is written. It is not synced: a killed
//! process loses no written batch, and a crashed machine loses what the kernel had not yet written, so that the state
//! is an older one. A compacted log is synced before it replaces the old one.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write as _},
    time::{SystemTime, UNIX_EPOCH},
};

use informer_core::{
    ResourceVersion,
    objects::{Difference, Objects},
    store::{Body, Entry, Snapshot},
};

use super::{
    place::CheckpointFiles,
    record::{LogChecksum, LogRecord, RecordedObject, TooLarge},
    replay::{Replay, head},
};

/// Bytes of a batch gathered before a write. Memory: this much during a save, plus one object.
const BUFFER_BYTES: usize = 1 << 20;

/// Bytes a log may exceed twice its objects by, before it is compacted. Commits without changes, one every two seconds,
/// fill it in about half a day.
pub(crate) const SLACK_BYTES: u64 = 1 << 20;

/// Saves the states of one informer. Holds the checkpoint's lock as long as it lives.
#[derive(Debug)]
pub(crate) struct CheckpointWriter {
    place: CheckpointFiles,
    identity: String,
    /// `None` if no log on disk can be continued; the next save writes everything.
    log: Option<CommittedLog>,
    /// A log found on disk and its number of objects, until [`restored`](Self::restored) is called.
    found: Option<(CommittedLog, usize)>,
}

/// Result of [`CheckpointWriter::save`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SaveStats {
    /// Bytes written.
    pub(crate) bytes: u64,
    /// True if the log was compacted.
    pub(crate) rewritten: bool,
}

/// A log whose last commit is known.
#[derive(Debug)]
struct CommittedLog {
    file: File,
    /// Size up to the end of the last commit.
    bytes: u64,
    chain: LogChecksum,
    /// Size of the records that a compacted log would have.
    live_bytes: u64,
    /// True if bytes may follow the last commit: a torn batch of an earlier run, or of a failed write.
    has_tail: bool,
    /// State of the last commit. Shares its unchanged entries with the store.
    objects: Objects<Entry>,
    position: ResourceVersion,
    confirmed_unix_ms: u64,
    /// No compaction below this size, after a failed attempt.
    rewrite_above: u64,
}

impl CheckpointWriter {
    /// Creates a writer without a log to continue.
    pub(super) const fn new(place: CheckpointFiles, identity: String) -> Self {
        Self { place, identity, log: None, found: None }
    }

    /// Offers `file` as the log to continue, once [`restored`](Self::restored) confirms its state.
    pub(super) fn continues(&mut self, file: File, replay: &Replay) {
        let log = CommittedLog {
            file,
            bytes: replay.end,
            chain: replay.chain,
            live_bytes: replay.live_bytes,
            has_tail: true,
            objects: Objects::new(),
            position: replay.position.clone(),
            confirmed_unix_ms: unix_ms(replay.confirmed_at),
            rewrite_above: 0,
        };
        self.found = Some((log, replay.len()));
    }

    /// Confirms that `snapshot` is the state [`SavedState::restore`](super::SavedState::restore) loaded, so that saves
    /// continue the log. Without this call, or if no state was restored, the first save writes everything.
    pub(crate) fn restored(&mut self, snapshot: &Snapshot) {
        // A different count means the store rejected objects: it and the log differ, so the log must not be continued.
        let found = self.found.take().filter(|(_, objects)| *objects == snapshot.objects.len());
        self.log = found.map(|(log, _)| CommittedLog { objects: snapshot.objects.clone(), ..log });
    }

    /// Saves a state that the server confirmed at `confirmed_at`. Ignores a state before the first sync.
    ///
    /// Blocks. Cost: writes the changes since the last save; during compaction, the whole state.
    ///
    /// # Errors
    /// An error of the file system. The last save stays usable, and the next call retries.
    pub(crate) fn save(&mut self, snapshot: &Snapshot, confirmed_at: SystemTime) -> io::Result<SaveStats> {
        let Some(state) = UnsavedState::of(snapshot, confirmed_at) else { return Ok(SaveStats::default()) };
        let Some(log) = &mut self.log else { return self.rewrite(&state) };
        if log.says(&state) {
            return Ok(SaveStats::default());
        }
        let bytes = log.append(&state)?;
        if !log.is_wasteful() {
            return Ok(SaveStats { bytes, rewritten: false });
        }
        // Set first: after a failure the log grows by `SLACK_BYTES` before the next attempt, or every save would
        // rewrite all.
        log.rewrite_above = log.bytes + SLACK_BYTES;
        let wrote = self.rewrite(&state)?;
        Ok(SaveStats { bytes: bytes + wrote.bytes, ..wrote })
    }

    fn rewrite(&mut self, state: &UnsavedState<'_>) -> io::Result<SaveStats> {
        let written = self.write_beside(state).and_then(|log| self.place.replace(&log.file).map(|()| log));
        let log = written.inspect_err(|_| self.place.remove_beside())?;
        let bytes = log.bytes;
        // Before the sync: the rename has happened, even if the sync fails.
        self.log = Some(log);
        self.found = None;
        self.place.sync()?;
        Ok(SaveStats { bytes, rewritten: true })
    }

    fn write_beside(&self, state: &UnsavedState<'_>) -> io::Result<CommittedLog> {
        let file = self.place.create_beside()?;
        let head = head();
        let mut batch = Batch::new(&file, LogChecksum::begin(&head));
        batch.out.extend(head);
        batch.push(LogRecord::Identity(&self.identity))?;
        let mut live_bytes = 0;
        for entry in state.objects.iter() {
            live_bytes += batch.put(entry)?;
        }
        let (bytes, chain) = batch.commit(state)?;
        Ok(CommittedLog {
            file,
            bytes,
            chain,
            live_bytes,
            has_tail: false,
            objects: state.objects.clone(),
            position: state.position.clone(),
            confirmed_unix_ms: state.confirmed_unix_ms,
            rewrite_above: 0,
        })
    }
}

impl CommittedLog {
    fn says(&self, state: &UnsavedState<'_>) -> bool {
        let is_confirmed = state.confirmed_unix_ms.abs_diff(self.confirmed_unix_ms) < CONFIRMED_AGAIN_MS;
        is_confirmed && self.position == *state.position && self.objects.same(state.objects)
    }

    /// Appends the difference to `state` and returns the bytes written. On failure the last commit is unchanged.
    fn append(&mut self, state: &UnsavedState<'_>) -> io::Result<u64> {
        if self.has_tail {
            self.file.set_len(self.bytes)?;
        }
        // Until its commit is written, this batch is such a tail.
        self.has_tail = true;
        self.file.seek(SeekFrom::Start(self.bytes))?;
        let mut batch = Batch::new(&self.file, self.chain);
        let mut live_bytes = self.live_bytes;
        for difference in self.objects.diff(state.objects) {
            match difference {
                Difference::Added(new) => live_bytes += batch.put(new)?,
                Difference::Updated { old, new } => {
                    live_bytes = (live_bytes + batch.put(new)?).saturating_sub(put_bytes(old))
                }
                Difference::Removed(old) => {
                    batch.push(LogRecord::Delete { key: old.key() })?;
                    live_bytes = live_bytes.saturating_sub(put_bytes(old));
                }
            }
        }
        let (bytes, chain) = batch.commit(state)?;
        self.bytes += bytes;
        self.chain = chain;
        self.live_bytes = live_bytes;
        self.has_tail = false;
        self.objects = state.objects.clone();
        self.position = state.position.clone();
        self.confirmed_unix_ms = state.confirmed_unix_ms;
        Ok(bytes)
    }

    const fn is_wasteful(&self) -> bool {
        self.bytes > 2 * self.live_bytes + SLACK_BYTES && self.bytes > self.rewrite_above
    }
}

/// State to be written.
struct UnsavedState<'a> {
    objects: &'a Objects<Entry>,
    position: &'a ResourceVersion,
    confirmed_unix_ms: u64,
}

impl<'a> UnsavedState<'a> {
    fn of(snapshot: &'a Snapshot, confirmed_at: SystemTime) -> Option<Self> {
        let position = snapshot.resource_version.as_ref().filter(|_| snapshot.synced)?;
        Some(Self { objects: &snapshot.objects, position, confirmed_unix_ms: unix_ms(confirmed_at) })
    }
}

/// Records being written to a file.
struct Batch<'a> {
    file: &'a File,
    chain: LogChecksum,
    out: Vec<u8>,
    flushed: u64,
}

impl<'a> Batch<'a> {
    const fn new(file: &'a File, chain: LogChecksum) -> Self {
        Self { file, chain, out: Vec::new(), flushed: 0 }
    }

    fn put(&mut self, entry: &Entry) -> io::Result<u64> {
        let json = entry.json();
        let recorded = recorded(entry, &json);
        self.push(LogRecord::Put(recorded))?;
        Ok(recorded.record_bytes())
    }

    fn push(&mut self, record: LogRecord<'_>) -> io::Result<()> {
        record.write(&mut self.chain, &mut self.out).map_err(|error: TooLarge| io::Error::other(error))?;
        if self.out.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Commits all records before it. Returns the bytes written and the checksum at the end.
    fn commit(mut self, state: &UnsavedState<'_>) -> io::Result<(u64, LogChecksum)> {
        let (position, confirmed_unix_ms) = (state.position.as_str(), state.confirmed_unix_ms);
        self.push(LogRecord::Commit { position, confirmed_unix_ms })?;
        self.flush()?;
        Ok((self.flushed, self.chain))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.out)?;
        self.flushed += self.out.len() as u64;
        self.out.clear();
        Ok(())
    }
}

/// Size of an object's record, in bytes.
fn put_bytes(entry: &Entry) -> u64 {
    recorded(entry, &entry.json()).record_bytes()
}

fn recorded<'a>(entry: &'a Entry, json: &'a [u8]) -> RecordedObject<'a> {
    let labels = match entry.body() {
        Body::Json(_) | Body::Packed(_) | Body::Skipped(_) => "",
        // The decoded type may not contain the labels.
        Body::Value { .. } => str::from_utf8(entry.labels()).unwrap_or_default(),
    };
    RecordedObject {
        namespace: entry.namespace(),
        name: entry.name(),
        uid: entry.uid(),
        resource_version: entry.resource_version(),
        labels,
        json,
        is_skipped: entry.is_skipped(),
    }
}

/// An unchanged state is saved again once its confirmation is this much newer.
const CONFIRMED_AGAIN_MS: u64 = 10_000;

/// Milliseconds since 1970; zero for earlier times.
fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::checkpoint::{
        open,
        tests::fixture::{Source, beside_of, confirmed_at, found, identity, log_of, restart, writer},
    };

    /// Goal: a temporarily full disk costs only the saves of that time. Method: replace the log's file by a read-only
    /// one, and put half of a batch after its last commit.
    #[test]
    fn a_save_that_fails_leaves_what_was_saved_and_the_next_one_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (mut source, mut writer) = (Source::new(), writer(dir.path()));
        source.put("a", 30);
        source.save(&mut writer);
        let before = source.on_disk();
        source.put("b", 30);
        let read_only = File::open(log_of(dir.path())).unwrap();
        let file = std::mem::replace(&mut writer.log.as_mut().unwrap().file, read_only);
        writer.save(&source.snapshot(), confirmed_at(source.position)).unwrap_err();
        let half = [fs::read(log_of(dir.path())).unwrap(), vec![7; 1_000]].concat();
        fs::write(log_of(dir.path()), half).unwrap();
        assert_eq!(writer.log.as_ref().unwrap().objects.len(), before.objects.len(), "believes what is on disk");
        writer.log.as_mut().unwrap().file = file;
        source.delete("a");
        assert!(!source.save(&mut writer).rewritten);
        drop(writer);
        assert_eq!(open(dir.path(), &identity()).saved.unwrap().cut_bytes, 0, "the half is gone");
        assert_eq!(found(dir.path()).unwrap(), Some(source.on_disk()));
    }

    /// Goal: `live_bytes` is always what a compacted log would have, also after a restart.
    #[test]
    fn live_bytes_are_counted_exactly() {
        let dir = tempfile::tempdir().unwrap();
        let (mut source, mut one) = (Source::new(), writer(dir.path()));
        let live = |source: &Source| source.snapshot().objects.iter().map(|entry| put_bytes(entry)).sum::<u64>();
        for round in 0..30_usize {
            source.put(&format!("pod-{}", round % 7), round * 13 % 50);
            if round % 3 == 0 {
                source.delete(&format!("pod-{}", round % 5));
            }
            assert!(source.save(&mut one).rewritten == (round == 0));
            assert_eq!(one.log.as_ref().unwrap().live_bytes, live(&source));
        }
        drop(one);
        let (found, again) = restart(dir.path());
        let (_, source) = found.unwrap().unwrap();
        assert_eq!(again.unwrap().log.unwrap().live_bytes, live(&source));
    }

    /// Goal: a log with more objects than the store took is never continued, or those objects would stay in it.
    #[test]
    fn a_log_of_which_something_was_left_out_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (mut source, mut one) = (Source::new(), writer(dir.path()));
        source.put("a", 30);
        source.save(&mut one);
        drop(one);
        let mut again = open(dir.path(), &identity()).writer.unwrap();
        let mut empty = Source::new();
        again.restored(&empty.snapshot());
        empty.put("b", 30);
        assert!(empty.save(&mut again).rewritten);
        drop(again);
        assert_eq!(found(dir.path()).unwrap(), Some(empty.on_disk()));
    }

    /// Goal: a failed compaction is not retried by every save. Method: a directory in the way.
    #[test]
    fn a_rewrite_that_fails_is_tried_again_only_after_the_log_has_grown() {
        let dir = tempfile::tempdir().unwrap();
        let (mut source, mut writer) = (Source::new(), writer(dir.path()));
        source.put("a", 300_000);
        source.save(&mut writer);
        let beside = beside_of(dir.path());
        fs::create_dir(&beside).unwrap();
        let mut failures = Vec::new();
        for round in 0..12 {
            source.put("a", 300_000);
            if writer.save(&source.snapshot(), confirmed_at(source.position)).is_err() {
                failures.push(round);
            }
        }
        assert_eq!(failures, [4, 8], "once when it is due, then after each {SLACK_BYTES} bytes");
        fs::remove_dir(&beside).unwrap();
        let rewritten = (0..4).any(|_| {
            source.put("a", 300_000);
            source.save(&mut writer).rewritten
        });
        assert!(rewritten);
        drop(writer);
        assert_eq!(found(dir.path()).unwrap(), Some(source.on_disk()));
    }
}
