//! Writes what changed behind what is there, and now and then everything anew.
//!
//! INVARIANT: what the last commit on disk says, and what the writer believes it says, are the same, whatever failed
//! in between.
//!
//! A batch is one write where it fits into a buffer, and it counts once its commit is there. It is not synced: a
//! process that is killed loses nothing that was written, a machine that goes down loses what the kernel had not yet
//! written, and the state is then an older one. A log that is written anew is synced before it takes the old one's
//! place.

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
    place::Place,
    record::{Chain, Kept, Record, TooLarge},
    replay::{Replay, head},
};

/// Bytes of a batch that are gathered before they are written. Memory: as much while a save is under way, and one
/// object more.
const BUFFER_BYTES: usize = 1 << 20;

/// Bytes that a log may have beyond twice those of its objects before it is written anew. Positions alone, one every
/// two seconds, take about half a day to fill it.
pub(crate) const SLACK_BYTES: u64 = 1 << 20;

/// Saves the states of one informer. The place is its own as long as it lives.
#[derive(Debug)]
pub(crate) struct Writer {
    place: Place,
    identity: String,
    /// `None`: nothing on disk can be continued, the next save writes everything.
    log: Option<Log>,
    /// A log that was found with as many objects, until somebody says what was made of it.
    found: Option<(Log, usize)>,
}

/// What a call of [`Writer::save`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wrote {
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Whether the log was written anew.
    pub(crate) rewritten: bool,
}

/// A log whose last commit is known.
#[derive(Debug)]
struct Log {
    file: File,
    /// Up to the end of the last commit.
    bytes: u64,
    chain: Chain,
    /// Bytes of the records that a log written now would have.
    live_bytes: u64,
    /// Something may stand behind the last commit: a torn batch of an earlier run, or of a write that failed.
    has_tail: bool,
    /// What the last commit says. Shares its entries with the store, apart from what has changed since.
    objects: Objects<Entry>,
    position: ResourceVersion,
    confirmed_unix_ms: u64,
    /// Not written anew below this size, after an attempt that failed.
    rewrite_above: u64,
}

impl Writer {
    /// A writer that begins with nothing.
    pub(super) const fn new(place: Place, identity: String) -> Self {
        Self { place, identity, log: None, found: None }
    }

    /// Lets the writer continue `file`, once it is told what was restored from it.
    pub(super) fn continues(&mut self, file: File, replay: &Replay) {
        let log = Log {
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

    /// Tells that `snapshot` is what [`Saved::restore`](super::Saved::restore) left: saving goes on from there.
    /// Without it, or when nothing was restored, the first save writes everything.
    pub(crate) fn restored(&mut self, snapshot: &Snapshot) {
        // Fewer would be objects that the store did not take: it and the log differ, so the log is not continued.
        let found = self.found.take().filter(|(_, objects)| *objects == snapshot.objects.len());
        self.log = found.map(|(log, _)| Log { objects: snapshot.objects.clone(), ..log });
    }

    /// Saves a state that the server confirmed at this time. One whose initial state was never complete is not saved.
    ///
    /// Cost: what changed since the save before; now and then, as much as there is. Blocks.
    ///
    /// # Errors
    /// What the file system says. What was saved before stays usable, and the next call tries again.
    pub(crate) fn save(&mut self, snapshot: &Snapshot, confirmed_at: SystemTime) -> io::Result<Wrote> {
        let Some(state) = State::of(snapshot, confirmed_at) else { return Ok(Wrote::default()) };
        let Some(log) = &mut self.log else { return self.rewrite(&state) };
        if log.says(&state) {
            return Ok(Wrote::default());
        }
        let bytes = log.append(&state)?;
        if !log.is_wasteful() {
            return Ok(Wrote { bytes, rewritten: false });
        }
        // Should it fail, the log grows on for a while: every save would read and write everything otherwise.
        log.rewrite_above = log.bytes + SLACK_BYTES;
        let wrote = self.rewrite(&state)?;
        Ok(Wrote { bytes: bytes + wrote.bytes, ..wrote })
    }

    fn rewrite(&mut self, state: &State<'_>) -> io::Result<Wrote> {
        let written = self.write_beside(state).and_then(|log| self.place.replace(&log.file).map(|()| log));
        let log = written.inspect_err(|_| self.place.remove_beside())?;
        let bytes = log.bytes;
        self.log = Some(log);
        self.found = None;
        self.place.sync()?;
        Ok(Wrote { bytes, rewritten: true })
    }

    fn write_beside(&self, state: &State<'_>) -> io::Result<Log> {
        let file = self.place.create_beside()?;
        let head = head();
        let mut batch = Batch::new(&file, Chain::begin(&head));
        batch.out.extend(head);
        batch.push(Record::Identity(&self.identity))?;
        let mut live_bytes = 0;
        for entry in state.objects.iter() {
            live_bytes += batch.put(entry)?;
        }
        let (bytes, chain) = batch.commit(state)?;
        Ok(Log {
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

impl Log {
    fn says(&self, state: &State<'_>) -> bool {
        let is_confirmed = state.confirmed_unix_ms.abs_diff(self.confirmed_unix_ms) < CONFIRMED_AGAIN_MS;
        is_confirmed && self.position == *state.position && self.objects.same(state.objects)
    }

    /// Appends the difference to `state`, and returns the bytes written. On failure the last commit is as it was.
    fn append(&mut self, state: &State<'_>) -> io::Result<u64> {
        if self.has_tail {
            self.file.set_len(self.bytes)?;
        }
        // Until it is whole, this batch is such a tail.
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
                    batch.push(Record::Delete { key: old.key() })?;
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

/// What is to be on disk.
struct State<'a> {
    objects: &'a Objects<Entry>,
    position: &'a ResourceVersion,
    confirmed_unix_ms: u64,
}

impl<'a> State<'a> {
    fn of(snapshot: &'a Snapshot, confirmed_at: SystemTime) -> Option<Self> {
        let position = snapshot.resource_version.as_ref().filter(|_| snapshot.synced)?;
        Some(Self { objects: &snapshot.objects, position, confirmed_unix_ms: unix_ms(confirmed_at) })
    }
}

/// Records on their way to a file.
struct Batch<'a> {
    file: &'a File,
    chain: Chain,
    out: Vec<u8>,
    flushed: u64,
}

impl<'a> Batch<'a> {
    const fn new(file: &'a File, chain: Chain) -> Self {
        Self { file, chain, out: Vec::new(), flushed: 0 }
    }

    fn put(&mut self, entry: &Entry) -> io::Result<u64> {
        let json = entry.json();
        let kept = kept(entry, &json);
        self.push(Record::Put(kept))?;
        Ok(kept.record_bytes())
    }

    fn push(&mut self, record: Record<'_>) -> io::Result<()> {
        record.write(&mut self.chain, &mut self.out).map_err(|error: TooLarge| io::Error::other(error))?;
        if self.out.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Makes everything before it count. Returns how much it was, and the chain at its end.
    fn commit(mut self, state: &State<'_>) -> io::Result<(u64, Chain)> {
        let (position, confirmed_unix_ms) = (state.position.as_str(), state.confirmed_unix_ms);
        self.push(Record::Commit { position, confirmed_unix_ms })?;
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

/// Bytes that an object takes in a log.
fn put_bytes(entry: &Entry) -> u64 {
    kept(entry, &entry.json()).record_bytes()
}

fn kept<'a>(entry: &'a Entry, json: &'a [u8]) -> Kept<'a> {
    let labels = match entry.body() {
        Body::Json(_) | Body::Packed(_) => "",
        // What its type knows of an object may be less than its labels.
        Body::Value { .. } => str::from_utf8(entry.labels()).unwrap_or_default(),
    };
    Kept {
        namespace: entry.namespace(),
        name: entry.name(),
        uid: entry.uid(),
        resource_version: entry.resource_version(),
        labels,
        json,
    }
}

/// A state that did not change is saved again when its confirmation is as much younger.
const CONFIRMED_AGAIN_MS: u64 = 10_000;

/// Milliseconds since 1970; zero before.
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

    /// Goal: a disk that is full for a while costs nothing but the saves of that while. Method: the log's file replaced
    /// by one that cannot be written, and half of a batch behind its last commit.
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

    /// Goal: what is taken for live is what a log written anew would have, whatever happened, also after a restart.
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

    /// Goal: a store that did not take everything is never taken for what is on disk: what it lacks would stay there.
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

    /// Goal: a log that cannot be written anew is not tried again by every save. Method: a directory in the way.
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
