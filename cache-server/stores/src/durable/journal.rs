//! The data file's content: every change of the history, and the objects at its base, in one table by revision.
//!
//! INVARIANT: the file has all of a batch or no part of it, and keeps it once `append` returned. INVARIANT: after a failed
//! append, the file is opened again and searched for the batch before the next append. INVARIANT: room that was reserved
//! for removals is used by nothing else.
//!
//! Table `changes`: revision to [`JournalRecord`]. Table `meta`: `format`, `history` (a random number for this file),
//! `revision` (the newest that was ever given out), `base` (the oldest position of the history) and `gaps`
//! ([`PositionGap`]).

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use redb::{
    Database, ReadTransaction, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _, TableDefinition,
    WriteTransaction,
};

use super::{
    disk::{self, DataDisk, DiskError},
    ledger::{HistoryBounds, HistoryLedger, HistoryTrim, RetainedChange},
    record::{JournalRecord, RecordContent},
};
use crate::limits::{HISTORY_TRIMS_WHEN_FULL, POSITION_GAPS_MAX};

/// Version of the format. Older ones are read.
pub(super) const FORMAT: u32 = 1;

const CHANGES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("changes");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// Random bits of the step from the newest revision of the file to the first one of the next process.
const STEP_BITS: u32 = 19;

/// The newest revision with which a file is opened: clients read resourceVersions as signed numbers, and the process has
/// to go on from there.
const POSITION_MAX: u64 = (1 << 63) - (1 << 40);

/// Positions between two processes that used the file: no object of this history was ever at one of them. If the file is
/// a copy of an older one, the history that went on without it may have used them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PositionGap {
    /// The newest revision of the earlier process.
    pub(super) after: u64,
    /// The first revision of the later one.
    pub(super) before: u64,
}

impl PositionGap {
    pub(super) const fn contains(self, position: u64) -> bool {
        self.after < position && position < self.before
    }
}

/// One record, as it is in the file.
#[derive(Clone, Debug)]
pub(super) struct RawChange {
    pub(super) revision: u64,
    pub(super) bytes: Bytes,
}

/// The content of a file when it was opened.
#[derive(Debug)]
pub(super) struct JournalContent {
    /// Id of the history.
    pub(super) history: u64,
    /// The oldest position of the history.
    pub(super) base: u64,
    /// The revision that this process begins at.
    pub(super) revision: u64,
    pub(super) gaps: Vec<PositionGap>,
    /// In order of revisions: the objects at the base, then the changes.
    pub(super) changes: Vec<RawChange>,
}

impl JournalContent {
    fn new(meta: JournalMeta, changes: Vec<RawChange>) -> Self {
        let JournalMeta { history, base, revision, gaps } = meta;
        Self { history, base, revision, gaps, changes }
    }

    /// Reads what [`copy`] wrote. Returns the changes after the base, too.
    pub(super) fn read_copy(from: &mut impl Read) -> Result<(Self, HistoryLedger), DiskError> {
        let [history, base, revision, count] = read_numbers(from)?;
        let (mut changes, mut ledger) = (Vec::new(), HistoryLedger::new(base));
        for _ in 0..count {
            let [revision, len] = read_numbers(from)?;
            let mut bytes = Vec::new();
            from.by_ref().take(len).read_to_end(&mut bytes)?;
            changes.push(noted(&mut ledger, base, revision, bytes.into())?);
        }
        Ok((Self { history, base, revision, gaps: Vec::new(), changes }, ledger))
    }
}

fn read_numbers<const N: usize>(from: &mut impl Read) -> io::Result<[u64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        *number = u64::from_le_bytes(bytes);
    }
    Ok(numbers)
}

fn write_numbers(to: &mut impl Write, numbers: &[u64]) -> io::Result<()> {
    numbers.iter().try_for_each(|number| to.write_all(&number.to_le_bytes()))
}

/// Copies everything that a file has: the numbers of its description, then the records, each after its revision and its
/// length.
pub(super) fn copy(transaction: &ReadTransaction, to: &mut impl Write) -> Result<(), DiskError> {
    let JournalMeta { history, base, revision, .. } = meta_of(transaction)?;
    let table = transaction.open_table(CHANGES).map_err(redb::Error::from)?;
    write_numbers(to, &[history, base, revision, table.len().map_err(redb::Error::from)?])?;
    for item in table.iter().map_err(redb::Error::from)? {
        let (revision, bytes) = item.map_err(redb::Error::from)?;
        let bytes = bytes.value();
        write_numbers(to, &[revision.value(), bytes.len() as u64])?;
        to.write_all(bytes)?;
    }
    Ok(())
}

/// The part of a file that its next writer knows from a copy.
pub(super) struct KnownHistory {
    /// Id of the history.
    pub(super) history: u64,
    /// The newest revision of the copy.
    pub(super) revision: u64,
    pub(super) ledger: HistoryLedger,
}

/// Returns the time in Unix milliseconds.
pub(super) type JournalClock = Box<dyn Fn() -> u64 + Send>;

/// The open data file.
pub(super) struct Journal {
    /// `None` after a failure.
    database: Option<Database>,
    disk: Arc<dyn DataDisk>,
    /// True once removals have used the reserved room, until it is reserved again.
    is_short: bool,
    /// Bytes freed in the file since it was compacted; those of earlier processes are unknown, so it begins at its length.
    freed: u64,
    clock: JournalClock,
    ledger: HistoryLedger,
    bounds: HistoryBounds,
    /// The newest revision in the file.
    newest: u64,
    /// The batch of a failed append, which the file may have.
    undecided: Option<AppendPlan>,
}

/// The effect of a batch on the ledger.
struct AppendPlan {
    newest: u64,
    trim: HistoryTrim,
    added: Vec<RetainedChange>,
}

/// One change to append.
pub(super) struct NewChange<'a> {
    pub(super) revision: u64,
    pub(super) superseded: u64,
    /// Bytes of the superseded version.
    pub(super) freed: usize,
    pub(super) ty: &'a str,
    pub(super) content: RecordContent<'a>,
}

impl Journal {
    /// Opens the file and reads it whole, or only the changes after those that are known. Its revisions go on above all that
    /// it has given out, at `first` at least.
    ///
    /// Blocks. Cost: reads the file twice, once for its checksums; a file that is known and was closed, hardly at all.
    pub(super) fn open(
        disk: Arc<dyn DataDisk>,
        first: u64,
        bounds: HistoryBounds,
        clock: JournalClock,
        mut known: Option<KnownHistory>,
    ) -> Result<(Self, JournalContent), DiskError> {
        let (opened, is_short) = with_reserve(&*disk, || open(&disk, first, known.take()));
        let (database, meta, changes, ledger) = opened?;
        if !is_short && !disk.take_reserve(false) {
            tracing::warn!("no room reserved: removals may fail once the disk is full");
        }
        let newest = meta.revision;
        let content = JournalContent::new(meta, changes);
        let (database, freed) = (Some(database), disk.len()?);
        Ok((Self { database, disk, is_short, freed, clock, ledger, bounds, newest, undecided: None }, content))
    }

    /// Reads the file whole, and leaves it as it is.
    ///
    /// Blocks. Cost: as [`Self::open`].
    pub(super) fn read(disk: &Arc<dyn DataDisk>) -> Result<JournalContent, DiskError> {
        let database = disk::open(disk)?;
        let meta = read_meta(&database)?;
        let (changes, _) = read_changes(&database, meta.base)?;
        Ok(JournalContent::new(meta, changes))
    }

    /// Begins to read the file as it is now.
    pub(super) fn begin_read(&self) -> Result<ReadTransaction, DiskError> {
        let database = self.database.as_ref().ok_or_else(closed)?;
        Ok(database.begin_read().map_err(redb::Error::from)?)
    }

    /// Appends a batch durably, and removes the oldest changes. After an error, [`is_appended`](Self::is_appended) finds
    /// out if the file has the batch. On a full disk the history is shortened for it. A batch that `frees_room` may also use
    /// the reserved room.
    ///
    /// Blocks for as long as the disk needs.
    pub(super) fn append(&mut self, batch: &[NewChange<'_>], frees_room: bool) -> Result<(), DiskError> {
        let full = match self.try_append(batch, frees_room) {
            Err(error) if error.is_full() => error,
            other => return other,
        };
        if frees_room && !self.disk.give_reserve() {
            return Err(full);
        }
        self.is_short |= frees_room;
        if self.is_appended()? == Some(true) {
            return Ok(());
        }
        let is_tried_again = frees_room || self.shorten_history()? && self.reserve();
        if is_tried_again { self.try_append(batch, frees_room) } else { Err(full) }
    }

    fn try_append(&mut self, batch: &[NewChange<'_>], frees_room: bool) -> Result<(), DiskError> {
        if batch.is_empty() && !frees_room {
            return Ok(());
        }
        // Nothing is written to a file that no later start would find.
        self.disk.check_place()?;
        let newest = batch.last().map_or(self.newest, |change| change.revision);
        let unix_ms = (self.clock)();
        let (mut added, mut records) = (Vec::with_capacity(batch.len()), Vec::with_capacity(batch.len()));
        for change in batch {
            let &NewChange { revision, superseded, freed, ty, content } = change;
            let freed = u32::try_from(freed).unwrap_or(u32::MAX);
            let bytes = JournalRecord { unix_ms, superseded, freed, ty, content }.encode();
            added.push(retained_change(
                revision,
                bytes.len(),
                &JournalRecord { unix_ms, superseded, freed, ty, content },
            ));
            records.push((revision, bytes));
        }
        let bounds = if frees_room { HistoryBounds::on_full_disk(batch.len()) } else { self.bounds };
        let plan = AppendPlan { newest, trim: self.ledger.plan(unix_ms, bounds), added };
        if batch.is_empty() && plan.trim.is_empty() {
            return Ok(());
        }
        let database = self.database.as_ref().ok_or_else(closed)?;
        let written = write(database, |transaction| put(transaction, &records, &plan))
            .and_then(|transaction| Ok(transaction.commit().map_err(redb::Error::from)?))
            // The folder may have been deleted meanwhile.
            .and_then(|()| self.disk.check_place());
        match written {
            Ok(()) => self.keep(plan),
            Err(_) => self.undecided = Some(plan),
        }
        written.inspect_err(|_| self.database = None)
    }

    /// Opens the file again after a failed append. Returns true if the file has the batch; `None` if no append has failed.
    ///
    /// Blocks. Cost: reads the file for its checksums.
    pub(super) fn is_appended(&mut self) -> Result<Option<bool>, DiskError> {
        if self.database.is_none() {
            let (opened, was_given) = with_reserve(&*self.disk, || disk::open(&self.disk));
            self.is_short |= was_given;
            self.database = Some(opened?);
        }
        let (Some(database), Some(plan)) = (&self.database, &self.undecided) else { return Ok(None) };
        let is_appended = match read_meta(database) {
            Ok(meta) => (meta.revision, meta.base) == (plan.newest, plan.trim.base),
            Err(error) => {
                self.database = None;
                return Err(error);
            }
        };
        if let Some(plan) = self.undecided.take_if(|_| is_appended) {
            self.keep(plan);
        }
        self.undecided = None;
        Ok(Some(is_appended))
    }

    /// Returns the newest revision in the file, unless an append has failed since.
    pub(super) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Fails if a later start would not find the file.
    pub(super) fn check_place(&self) -> Result<(), DiskError> {
        self.disk.check_place()
    }

    /// True from a failed sync until the file was opened again: the disk may lack what the file shows.
    pub(super) fn is_unsynced(&self) -> bool {
        self.disk.is_unsynced()
    }

    /// True while removals have used the reserved room.
    pub(super) const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Makes room on a full disk. Returns false if only removals may be written.
    ///
    /// Blocks for as long as the disk needs.
    pub(super) fn make_room(&mut self) -> Result<bool, DiskError> {
        self.shorten_history()?;
        Ok(self.reserve())
    }

    /// Removes the oldest part of the history, and compacts the file if much of it was freed. Returns false if there is no
    /// history.
    fn shorten_history(&mut self) -> Result<bool, DiskError> {
        let before = self.freed;
        for _ in 0..HISTORY_TRIMS_WHEN_FULL {
            self.append(&[], true)?;
        }
        let is_shorter = before < self.freed;
        if self.disk.len()? / 8 < self.freed {
            self.compact()?;
        }
        Ok(is_shorter)
    }

    /// Reserves room for removals again, if they have used it. Returns false if there is none.
    fn reserve(&mut self) -> bool {
        let is_reserved = self.disk.take_reserve(self.is_short);
        self.is_short &= !is_reserved;
        !self.is_short
    }

    /// Gives free pages back to the file system. Without this the disk stays full: the file is sparse, and new pages may
    /// come from its holes although others are free.
    fn compact(&mut self) -> Result<(), DiskError> {
        match self.try_compact() {
            Err(error) if error.is_full() && self.disk.give_reserve() => {
                self.is_short = true;
                self.is_appended()?;
                self.try_compact()
            }
            other => other,
        }
    }

    fn try_compact(&mut self) -> Result<(), DiskError> {
        let mut database = self.database.take().ok_or_else(closed)?;
        while database.compact().map_err(redb::Error::from)? {}
        self.database = Some(database);
        self.freed = 0;
        Ok(())
    }

    fn keep(&mut self, plan: AppendPlan) {
        self.newest = plan.newest;
        self.freed += plan.trim.bytes;
        self.ledger.trimmed(&plan.trim);
        plan.added.into_iter().for_each(|change| self.ledger.push(change));
    }
}

/// A database with its description and its changes.
type OpenedDatabase = (Database, JournalMeta, Vec<RawChange>, HistoryLedger);

fn closed() -> io::Error {
    io::Error::other("it is closed")
}

/// Opens the database, and begins a process of it. See [`Journal::open`].
fn open(disk: &Arc<dyn DataDisk>, first: u64, known: Option<KnownHistory>) -> Result<OpenedDatabase, DiskError> {
    let database = if known.is_some() { disk::open_again(disk) } else { disk::open(disk) }?;
    if is_empty(&database)? {
        begin(&database)?;
    }
    let mut meta = read_meta(&database)?;
    let (changes, ledger) = match known {
        None => read_changes(&database, meta.base)?,
        Some(known) if known.history == meta.history && known.revision <= meta.revision => {
            read_changes_after(&database, known.revision, meta.base, known.ledger)?
        }
        Some(_) => return Err(DiskError::Damaged("it is another one than was copied".to_owned())),
    };
    let stored = meta.revision;
    meta.revision = if stored == 0 { first } else { first.max(stored + 1 + fastrand::u64(..1 << STEP_BITS)) };
    if stored == 0 {
        // Nothing was ever at an earlier position.
        meta.base = meta.revision;
    } else {
        meta.gaps.retain(|gap| meta.base < gap.before);
        meta.gaps.push(PositionGap { after: stored, before: meta.revision });
        merge_oldest(&mut meta.gaps);
    }
    let ledger = if stored == 0 { HistoryLedger::new(meta.base) } else { ledger };
    let transaction = write(&database, |transaction| meta.write(transaction))?;
    transaction.commit().map_err(redb::Error::from)?;
    Ok((database, meta, changes, ledger))
}

/// Runs an operation, once more with the reserved room if the disk is full. Returns true beside the result if that room
/// was given back.
fn with_reserve<T>(
    disk: &dyn DataDisk,
    mut operation: impl FnMut() -> Result<T, DiskError>,
) -> (Result<T, DiskError>, bool) {
    match operation() {
        Err(error) if error.is_full() && disk.give_reserve() => (operation(), true),
        other => (other, false),
    }
}

/// Writes the first content of an empty database.
pub(super) fn begin(database: &Database) -> Result<(), DiskError> {
    let transaction = write(database, |transaction| {
        transaction.open_table(CHANGES)?;
        let mut meta = transaction.open_table(META)?;
        meta.insert("format", &FORMAT.to_le_bytes()[..])?;
        meta.insert("history", &fastrand::u128(..).to_le_bytes()[..])?;
        drop(meta);
        JournalMeta { history: 0, base: 0, revision: 0, gaps: Vec::new() }.write(transaction)
    })?;
    Ok(transaction.commit().map_err(redb::Error::from)?)
}

fn is_empty(database: &Database) -> Result<bool, DiskError> {
    let transaction = database.begin_read().map_err(redb::Error::from)?;
    let is_empty = transaction.list_tables().map_err(redb::Error::from)?.next().is_none();
    Ok(is_empty)
}

/// Begins a transaction and fills it.
fn write(
    database: &Database,
    fill: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
) -> Result<WriteTransaction, DiskError> {
    let transaction = database.begin_write().map_err(redb::Error::from)?;
    fill(&transaction)?;
    Ok(transaction)
}

fn put(transaction: &WriteTransaction, records: &[(u64, Vec<u8>)], plan: &AppendPlan) -> Result<(), redb::Error> {
    let mut changes = transaction.open_table(CHANGES)?;
    for (revision, bytes) in records {
        changes.insert(revision, &**bytes)?;
    }
    for revision in &plan.trim.records {
        changes.remove(revision)?;
    }
    let mut meta = transaction.open_table(META)?;
    meta.insert("revision", &plan.newest.to_le_bytes()[..])?;
    meta.insert("base", &plan.trim.base.to_le_bytes()[..])?;
    Ok(())
}

/// The table `meta` without its format.
pub(super) struct JournalMeta {
    /// The first 8 bytes of `history`, which no write changes.
    history: u64,
    pub(super) base: u64,
    pub(super) revision: u64,
    gaps: Vec<PositionGap>,
}

impl JournalMeta {
    fn write(&self, transaction: &WriteTransaction) -> Result<(), redb::Error> {
        let mut meta = transaction.open_table(META)?;
        let gaps: Vec<u8> =
            self.gaps.iter().flat_map(|gap| [gap.after.to_le_bytes(), gap.before.to_le_bytes()]).flatten().collect();
        meta.insert("revision", &self.revision.to_le_bytes()[..])?;
        meta.insert("base", &self.base.to_le_bytes()[..])?;
        meta.insert("gaps", &*gaps)?;
        Ok(())
    }
}

pub(super) fn read_meta(database: &Database) -> Result<JournalMeta, DiskError> {
    meta_of(&database.begin_read().map_err(redb::Error::from)?)
}

fn meta_of(transaction: &ReadTransaction) -> Result<JournalMeta, DiskError> {
    let meta = transaction.open_table(META).map_err(redb::Error::from)?;
    let get = |key: &'static str| -> Result<Vec<u8>, DiskError> {
        let found = meta.get(key).map_err(redb::Error::from)?;
        Ok(found.ok_or(DiskError::Foreign)?.value().to_vec())
    };
    let damaged = |_: Vec<u8>| DiskError::Damaged("its description is too short".to_owned());
    let format = u32::from_le_bytes(get("format")?.try_into().map_err(damaged)?);
    if format != FORMAT {
        return Err(DiskError::Newer(format));
    }
    let number = |key| Ok::<_, DiskError>(u64::from_le_bytes(get(key)?.try_into().map_err(damaged)?));
    let gaps = get("gaps")?;
    let gaps = gaps.as_chunks::<16>().0.iter().map(|gap| {
        let (after, before) = gap.split_at(8);
        let of = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
        PositionGap { after: of(after), before: of(before) }
    });
    let history = get("history")?;
    let history = u64::from_le_bytes(*history.first_chunk().ok_or_else(|| damaged(Vec::new()))?);
    let (base, revision) = (number("base")?, number("revision")?);
    if POSITION_MAX < revision || revision < base {
        return Err(DiskError::Damaged("its positions are out of range".to_owned()));
    }
    Ok(JournalMeta { history, base, revision, gaps: gaps.collect() })
}

/// Returns every record, and the history after `base`.
pub(super) fn read_changes(database: &Database, base: u64) -> Result<(Vec<RawChange>, HistoryLedger), DiskError> {
    read_changes_after(database, 0, base, HistoryLedger::new(base))
}

/// Returns the records after a revision, and adds them to the `ledger` of those before, whose base becomes `base`.
fn read_changes_after(
    database: &Database,
    after: u64,
    base: u64,
    mut ledger: HistoryLedger,
) -> Result<(Vec<RawChange>, HistoryLedger), DiskError> {
    let transaction = database.begin_read().map_err(redb::Error::from)?;
    let table = transaction.open_table(CHANGES).map_err(redb::Error::from)?;
    let mut changes = Vec::new();
    for item in table.range(after + 1..).map_err(redb::Error::from)? {
        let (revision, bytes) = item.map_err(redb::Error::from)?;
        changes.push(noted(&mut ledger, base, revision.value(), Bytes::copy_from_slice(bytes.value()))?);
    }
    ledger.reach(base);
    Ok((changes, ledger))
}

/// Adds a record to the ledger if it belongs to the history after `base`.
fn noted(ledger: &mut HistoryLedger, base: u64, revision: u64, bytes: Bytes) -> Result<RawChange, DiskError> {
    let record = JournalRecord::decode(&bytes);
    let record = record.ok_or_else(|| DiskError::Damaged(format!("change {revision} cannot be read")))?;
    if base < revision {
        ledger.push(retained_change(revision, bytes.len(), &record));
    }
    Ok(RawChange { revision, bytes })
}

fn retained_change(revision: u64, bytes: usize, record: &JournalRecord<'_>) -> RetainedChange {
    let deletes = matches!(record.content, RecordContent::Deleted { .. });
    let own = if deletes { u32::try_from(bytes).unwrap_or(u32::MAX) } else { 0 };
    let (unix_ms, superseded) = (record.unix_ms, record.superseded);
    RetainedChange { revision, unix_ms, superseded, bytes: record.freed.saturating_add(own), deletes }
}

/// Merges the oldest gaps, so that at most [`POSITION_GAPS_MAX`] remain: the positions between them become unknown.
fn merge_oldest(gaps: &mut Vec<PositionGap>) {
    if POSITION_GAPS_MAX < gaps.len() {
        let after = gaps[0].after;
        gaps.drain(..gaps.len() - POSITION_GAPS_MAX);
        gaps[0].after = after;
    }
}

pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
