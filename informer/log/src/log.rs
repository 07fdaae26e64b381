//! The log: found on disk, continued, replaced.
//!
//! INVARIANT: after any failure, the last commit that a [`DiskLog`] knows is the last one on disk that counts.

use std::{
    fs::File,
    io::{self, BufReader, Seek as _, SeekFrom, Write as _},
    mem,
    path::Path,
};

use crate::{
    UnusableLog,
    files::LogFiles,
    record::{COMMIT, IDENTITY, LogPosition, LogRecords, head, write},
};

/// Bytes gathered before a write. Memory: this much during a save, plus one record.
const BUFFER_BYTES: usize = 1 << 20;

/// Bytes read at once. Memory: this much while a log is read, plus one record.
const READ_BYTES: usize = 64 << 10;

/// A log of one process.
#[derive(Debug)]
pub struct DiskLog {
    files: LogFiles,
    slack_bytes: u64,
    /// `None` if no file can be continued: only [`Self::replace`] writes.
    open: Option<OpenLog>,
}

/// A file whose last commit is known.
#[derive(Debug)]
struct OpenLog {
    file: File,
    /// End of the last commit.
    end: LogPosition,
    /// Size when it was written as a whole; after a restart, the size of its first batch.
    whole_bytes: u64,
    /// Records up to it.
    records: u64,
    /// True if bytes may follow the last commit: a torn batch of an earlier run, or of a failed write.
    has_tail: bool,
    /// No replacement up to this size, after a failed attempt.
    replace_above: u64,
}

/// A log on disk, whose records were read up to the last commit.
#[derive(Debug)]
pub struct FoundLog {
    file: File,
    end: LogPosition,
    records: u64,
    first_batch_bytes: u64,
    commit: Vec<u8>,
    cut_bytes: u64,
}

impl DiskLog {
    /// Creates a log without a file. `slack_bytes` are the least that a file grows by before it is replaced.
    pub const fn new(files: LogFiles, slack_bytes: u64) -> Self {
        Self { files, slack_bytes, open: None }
    }

    /// Reads the file, which must belong to `identity`; returns `None` if there is none. Removes the remains of an
    /// interrupted replacement. [`Self::resume`] continues the file.
    ///
    /// Blocks. Cost: reads the file once. Memory: one record.
    ///
    /// # Errors
    /// [`UnusableLog`].
    pub fn find(&self, identity: &str) -> Result<Option<FoundLog>, UnusableLog> {
        self.files.remove_beside();
        let file = self.files.open().map_err(UnusableLog::Io)?;
        file.map(|file| FoundLog::read(file, identity)).transpose()
    }

    /// Continues a file behind its last commit.
    pub fn resume(&mut self, found: FoundLog) {
        let FoundLog { file, end, records, first_batch_bytes, cut_bytes, .. } = found;
        let has_tail = cut_bytes > 0;
        self.open = Some(OpenLog { file, end, whole_bytes: first_batch_bytes, records, has_tail, replace_above: 0 });
    }

    /// True if [`Self::append`] continues a file. After a failed [`Self::replace`], too: the file before, or the new one
    /// of which only the last sync failed.
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Appends the records that `write` pushes; the last one must be a commit. Returns the bytes written.
    ///
    /// Blocks.
    ///
    /// # Errors
    /// An error of the file system, or of `write`. The last commit is then the one before.
    pub fn append(&mut self, write: impl FnOnce(&mut LogBatch<'_>) -> io::Result<()>) -> io::Result<u64> {
        let open = self.open.as_mut().ok_or_else(|| io::Error::other("no log to continue"))?;
        // Until its commit is written, this batch is such a tail.
        if mem::replace(&mut open.has_tail, true) {
            open.file.set_len(open.end.bytes)?;
        }
        (&open.file).seek(SeekFrom::Start(open.end.bytes))?;
        let mut batch = LogBatch::new(&open.file, Some(&self.files), open.end);
        write(&mut batch)?;
        open.records += batch.records;
        let before = mem::replace(&mut open.end, batch.committed());
        open.has_tail = false;
        Ok(open.end.bytes - before.bytes)
    }

    /// True if the file has grown enough to be replaced by a whole state: by the size of the whole state that it begins
    /// with, and by the slack; or if it has more than `records_max` records. Disk: at most twice a whole state, the
    /// slack and one batch; and one more whole state during a replacement.
    pub fn is_wasteful(&self, records_max: u64) -> bool {
        self.open.as_ref().is_some_and(|open| {
            let grown = open.end.bytes - open.whole_bytes;
            let is_large = open.whole_bytes.max(self.slack_bytes) < grown || records_max < open.records;
            is_large && open.replace_above < open.end.bytes
        })
    }

    /// Replaces the file by a new one of `identity`, with the records that `write` pushes: a whole state, and any
    /// changes after it. Returns the bytes written.
    ///
    /// Blocks.
    ///
    /// # Errors
    /// An error of the file system, or of `write`. The file before stays, unless only the last sync failed.
    pub fn replace(
        &mut self,
        identity: &str,
        write: impl FnOnce(&mut LogBatch<'_>) -> io::Result<()>,
    ) -> io::Result<u64> {
        if let Some(open) = &mut self.open {
            // Set first: after a failure the file grows before the next attempt, or every save would write all.
            open.replace_above = open.end.bytes + self.slack_bytes;
        }
        let written = self.write_beside(identity, write).and_then(|open| self.files.replace(&open.file).map(|()| open));
        let open = written.inspect_err(|_| self.files.remove_beside())?;
        let bytes = open.end.bytes;
        // Before the sync: the rename has happened, even if the sync fails.
        self.open = Some(open);
        self.files.sync()?;
        Ok(bytes)
    }

    /// Removes the file: its state is of no use.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn discard(&mut self) -> io::Result<()> {
        self.open = None;
        self.files.remove()
    }

    fn write_beside(
        &self,
        identity: &str,
        write: impl FnOnce(&mut LogBatch<'_>) -> io::Result<()>,
    ) -> io::Result<OpenLog> {
        let file = self.files.create_beside()?;
        let (end, records) =
            write_whole(LogBatch::new(&file, Some(&self.files), LogPosition::first()), identity, write)?;
        Ok(OpenLog { file, end, whole_bytes: end.bytes, records, has_tail: false, replace_above: 0 })
    }
}

/// Writes a log of `identity` into an empty file of no folder, such as one in memory; [`FoundLog::read`] reads it.
///
/// Blocks.
///
/// # Errors
/// An error of the file, or of `write`.
pub fn write_log(
    file: &File,
    identity: &str,
    write: impl FnOnce(&mut LogBatch<'_>) -> io::Result<()>,
) -> io::Result<()> {
    write_whole(LogBatch::new(file, None, LogPosition::first()), identity, write).map(drop)
}

/// Writes a whole log. Returns its end, and the number of its records.
fn write_whole(
    mut batch: LogBatch<'_>,
    identity: &str,
    write: impl FnOnce(&mut LogBatch<'_>) -> io::Result<()>,
) -> io::Result<(LogPosition, u64)> {
    batch.out.extend(head());
    batch.write(IDENTITY, &[identity.as_bytes()])?;
    write(&mut batch)?;
    let records = batch.records;
    Ok((batch.committed(), records))
}

impl FoundLog {
    /// Reads a log, which must belong to `identity`, from its beginning.
    ///
    /// Blocks. Cost: reads the file once. Memory: one record.
    ///
    /// # Errors
    /// [`UnusableLog`].
    pub fn read(mut file: File, identity: &str) -> Result<Self, UnusableLog> {
        file.rewind().map_err(UnusableLog::Io)?;
        let size = file.metadata().map_err(UnusableLog::Io)?.len();
        let mut records = LogRecords::begin(BufReader::with_capacity(READ_BYTES, &file), size)?;
        match owner(&mut records)? {
            found if found == identity => {}
            found => return Err(UnusableLog::Foreign { found }),
        }
        let (mut end, mut first_batch_bytes, mut commit) = (None, None, Vec::new());
        let (mut count, mut committed) = (1, 0);
        while let Some(record) = records.try_next()? {
            count += 1;
            if record.kind == COMMIT {
                committed = count;
                commit.clear();
                commit.extend_from_slice(record.body);
                let at = records.at();
                end = Some(at);
                first_batch_bytes.get_or_insert(at.bytes);
            }
        }
        drop(records);
        let (end, first_batch_bytes) = end.zip(first_batch_bytes).ok_or(UnusableLog::Damaged)?;
        let cut_bytes = size.saturating_sub(end.bytes);
        Ok(Self { file, end, records: committed, first_batch_bytes, commit, cut_bytes })
    }

    /// Body of the last commit.
    pub fn commit(&self) -> &[u8] {
        &self.commit
    }

    /// Bytes after the last commit, which do not count: an interrupted write, or damage.
    pub const fn cut_bytes(&self) -> u64 {
        self.cut_bytes
    }

    /// Reads the records again, from the first one to the last commit.
    ///
    /// # Errors
    /// [`UnusableLog`].
    pub fn records(&self) -> Result<LogRecords<BufReader<&File>>, UnusableLog> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0)).map_err(UnusableLog::Io)?;
        let mut records = LogRecords::begin(BufReader::with_capacity(READ_BYTES, file), self.end.bytes)?;
        owner(&mut records)?;
        Ok(records)
    }
}

/// Returns the identity in the log at `path`; `None` if the file cannot be read so far.
pub fn identity_of(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let end = file.metadata().ok()?.len();
    owner(&mut LogRecords::begin(BufReader::with_capacity(READ_BYTES, &file), end).ok()?).ok()
}

/// Reads the first record.
fn owner(records: &mut LogRecords<impl io::Read>) -> Result<String, UnusableLog> {
    let first = records.try_next()?.filter(|first| first.kind == IDENTITY).ok_or(UnusableLog::Damaged)?;
    String::from_utf8(first.body.to_vec()).map_err(|_| UnusableLog::Damaged)
}

/// Records on their way to the end of a file.
#[derive(Debug)]
pub struct LogBatch<'a> {
    file: &'a File,
    /// `None` for a file of no folder.
    files: Option<&'a LogFiles>,
    end: LogPosition,
    records: u64,
    /// End of the last commit.
    committed: Option<LogPosition>,
    out: Vec<u8>,
}

impl<'a> LogBatch<'a> {
    const fn new(file: &'a File, files: Option<&'a LogFiles>, end: LogPosition) -> Self {
        Self { file, files, end, records: 0, committed: None, out: Vec::new() }
    }

    /// Writes a record of a kind of the user, 2 or more, whose body is `fields`.
    ///
    /// # Errors
    /// An error of the file system; or the record is too long.
    pub fn push(&mut self, kind: u8, fields: &[&[u8]]) -> io::Result<()> {
        assert!(IDENTITY < kind, "kind {kind} belongs to the log");
        self.write(kind, fields)
    }

    /// Commits all records before it.
    ///
    /// # Errors
    /// An error of the file system; or the record is too long.
    pub fn commit(&mut self, fields: &[&[u8]]) -> io::Result<()> {
        self.write(COMMIT, fields)?;
        self.flush()?;
        self.committed = Some(self.end);
        Ok(())
    }

    fn write(&mut self, kind: u8, fields: &[&[u8]]) -> io::Result<()> {
        write(kind, fields, &mut self.end, &mut self.out).map_err(io::Error::other)?;
        self.records += 1;
        if self.out.len() < BUFFER_BYTES { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.files {
            Some(files) => files.write(self.file, &self.out)?,
            None => { self.file }.write_all(&self.out)?,
        }
        self.out.clear();
        Ok(())
    }

    fn committed(self) -> LogPosition {
        assert_eq!(self.committed, Some(self.end), "a batch ends with a commit");
        self.end
    }
}
