//! Disks in memory: one that may be full, and one whose syncs fail and whose power is cut.

use std::{
    collections::{BTreeSet, VecDeque},
    io, iter,
    sync::Arc,
};

use parking_lot::Mutex;
use redb::StorageBackend;

use crate::durable::disk::{DataDisk, DiskError};

/// A disk that never forgets. Clones share its bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct FakeDisk {
    image: Arc<Mutex<DiskImage>>,
}

#[derive(Clone, Debug, Default)]
struct DiskImage {
    bytes: Vec<u8>,
    /// Blocks that were written once, and may be written again whatever room there is.
    backed: BTreeSet<usize>,
    /// Blocks that may still become backed; `None`: any number.
    room: Option<usize>,
    /// Blocks of room that are reserved for removals.
    reserved: Option<usize>,
}

/// Bytes of a block of a [`FakeDisk`], as of most file systems.
const BLOCK: usize = 4_096;

/// Blocks of its reserve, and the least number that counts as one.
const RESERVED: usize = 512;
const RESERVED_MIN: usize = 64;

impl FakeDisk {
    pub(super) fn set_room(&self, room: Option<usize>) {
        self.image.lock().room = room;
    }

    /// Returns another disk with the same bytes.
    pub(super) fn copy(&self) -> Self {
        let image = self.image.lock().clone();
        Self { image: Arc::new(Mutex::new(image)) }
    }
}

impl DataDisk for FakeDisk {
    fn file(&self) -> Result<Box<dyn StorageBackend>, DiskError> {
        Ok(Box::new(self.clone()))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.image.lock().bytes.len() as u64)
    }

    fn check_place(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn is_unsynced(&self) -> bool {
        false
    }

    fn set_unsynced(&self, _: bool) {}

    fn take_reserve(&self, takes_all: bool) -> bool {
        let DiskImage { room, reserved, .. } = &mut *self.image.lock();
        if reserved.is_none() {
            let free = room.unwrap_or(usize::MAX);
            let taken = if takes_all { free } else { free / 2 }.min(RESERVED);
            *reserved = (RESERVED_MIN <= taken).then_some(taken);
            *room = room.map(|room| room - reserved.unwrap_or_default());
        }
        reserved.is_some()
    }

    fn give_reserve(&self) -> bool {
        let DiskImage { room, reserved, .. } = &mut *self.image.lock();
        let given = reserved.take();
        *room = room.map(|room| room + given.unwrap_or_default());
        given.is_some()
    }
}

impl DiskImage {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let found = self.bytes.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn write(&mut self, write: &DiskWrite) {
        match write {
            DiskWrite::Length(len) => self.bytes.resize(*len, 0),
            DiskWrite::Bytes(start, bytes) => {
                if self.bytes.len() < start + bytes.len() {
                    self.bytes.resize(start + bytes.len(), 0);
                }
                self.bytes[*start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

impl StorageBackend for FakeDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.image.lock().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.image.lock().read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let image = &mut *self.image.lock();
        image.write(&DiskWrite::length(len)?);
        let behind = image.backed.split_off(&image.bytes.len().div_ceil(BLOCK));
        image.room = image.room.map(|room| room + behind.len());
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let image = &mut *self.image.lock();
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let blocks = start / BLOCK..(start + data.len()).div_ceil(BLOCK);
        let added = blocks.clone().filter(|block| !image.backed.contains(block)).count();
        if let Some(room) = &mut image.room {
            *room = room.checked_sub(added).ok_or(io::ErrorKind::StorageFull)?;
        }
        image.backed.extend(blocks);
        image.write(&DiskWrite::bytes(offset, data)?);
        Ok(())
    }
}

/// One change of the bytes of a disk.
#[derive(Clone, Debug)]
enum DiskWrite {
    Length(usize),
    Bytes(usize, Vec<u8>),
}

impl DiskWrite {
    fn length(len: u64) -> io::Result<Self> {
        Ok(Self::Length(usize::try_from(len).map_err(io::Error::other)?))
    }

    fn bytes(offset: u64, data: &[u8]) -> io::Result<Self> {
        Ok(Self::Bytes(usize::try_from(offset).map_err(io::Error::other)?, data.to_vec()))
    }

    fn len(&self) -> usize {
        match self {
            Self::Length(_) => 0,
            Self::Bytes(_, bytes) => bytes.len(),
        }
    }
}

/// A disk whose power is cut before its n-th operation: nothing works after that, and writes since the last sync are
/// lost, done, or done in part. Some of its syncs may fail, which loses the writes before them.
#[derive(Clone, Debug)]
pub(super) struct CutDisk {
    state: Arc<Mutex<CutState>>,
}

#[derive(Debug)]
struct CutState {
    /// As programs see it.
    seen: DiskImage,
    /// As it was at the last sync.
    synced: DiskImage,
    unsynced: Vec<DiskWrite>,
    /// Operations until the cut.
    left: usize,
    was_cut: bool,
    /// Failures of the next syncs, `None` for one that succeeds.
    syncs: VecDeque<Option<SyncFailure>>,
    /// Unsynced bytes with which a sync counts as one of those.
    counted_from: usize,
    is_unsynced: bool,
}

/// A failure of a sync.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyncFailure {
    pub(super) kind: io::ErrorKind,
    pub(super) lost: LostWrites,
}

/// Writes that a failed sync has lost, as programs see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LostWrites {
    /// All, as from ext4: the kernel's memory still has them.
    Shown,
    /// None, as from XFS: the kernel reads the disk again.
    Gone,
}

impl CutDisk {
    /// A disk with the bytes of another one.
    pub(super) fn new(begun: &FakeDisk, left: usize) -> Self {
        let seen = begun.image.lock().clone();
        let state = CutState {
            synced: seen.clone(),
            seen,
            unsynced: Vec::new(),
            left,
            was_cut: false,
            syncs: VecDeque::new(),
            counted_from: 0,
            is_unsynced: false,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Lets `failing` syncs fail after so many.
    pub(super) fn failing_syncs(self, after: usize, failing: usize, lost: LostWrites) -> Self {
        let failure = Some(SyncFailure { kind: io::ErrorKind::Other, lost });
        self.next_syncs(iter::repeat_n(None, after).chain(iter::repeat_n(failure, failing)))
    }

    /// Lets the next syncs fail or succeed like these.
    pub(super) fn next_syncs(self, syncs: impl Iterator<Item = Option<SyncFailure>>) -> Self {
        self.state.lock().syncs = syncs.collect();
        self
    }

    /// Lets only syncs count, and fail, that have so many bytes to write.
    pub(super) fn counting_syncs_of(self, bytes: usize) -> Self {
        self.state.lock().counted_from = bytes;
        self
    }

    /// Cuts the power now.
    pub(super) fn cut(&self) {
        self.state.lock().was_cut = true;
    }

    /// True once all syncs that were to fail have failed.
    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().syncs.is_empty()
    }

    pub(super) fn was_cut(&self) -> bool {
        self.state.lock().was_cut
    }

    /// Returns what the disk has when the power is back.
    pub(super) fn after_the_cut(&self, rng: &mut fastrand::Rng) -> FakeDisk {
        let state = self.state.lock();
        let mut image = state.synced.clone();
        for write in &state.unsynced {
            match (rng.u8(0..3), write) {
                (0, _) => {}
                (1, DiskWrite::Bytes(start, bytes)) => {
                    // Sectors are written whole.
                    let sectors = bytes.len().div_ceil(SECTOR);
                    let part = &bytes[..bytes.len().min(SECTOR * rng.usize(0..=sectors))];
                    image.write(&DiskWrite::Bytes(*start, part.to_vec()));
                }
                _ => image.write(write),
            }
        }
        FakeDisk { image: Arc::new(Mutex::new(image)) }
    }

    fn operate<T>(&self, operation: impl FnOnce(&mut CutState) -> io::Result<T>) -> io::Result<T> {
        let state = &mut *self.state.lock();
        if state.was_cut || state.left == 0 {
            state.was_cut = true;
            return Err(io::Error::other("no power"));
        }
        state.left -= 1;
        operation(state)
    }
}

const SECTOR: usize = 512;

impl CutState {
    fn write(&mut self, write: DiskWrite) {
        self.seen.write(&write);
        self.unsynced.push(write);
    }

    fn sync(&mut self) -> io::Result<()> {
        let is_counted = self.counted_from <= self.unsynced.iter().map(DiskWrite::len).sum();
        if is_counted && let Some(Some(SyncFailure { kind, lost })) = self.syncs.pop_front() {
            // The kernel takes them for written.
            self.unsynced.clear();
            if lost == LostWrites::Gone {
                self.seen = self.synced.clone();
            }
            return Err(kind.into());
        }
        for write in self.unsynced.drain(..) {
            self.synced.write(&write);
        }
        Ok(())
    }
}

impl DataDisk for CutDisk {
    fn file(&self) -> Result<Box<dyn StorageBackend>, DiskError> {
        Ok(Box::new(self.clone()))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().seen.bytes.len() as u64)
    }

    fn check_place(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn is_unsynced(&self) -> bool {
        self.state.lock().is_unsynced
    }

    fn set_unsynced(&self, is_unsynced: bool) {
        self.state.lock().is_unsynced = is_unsynced;
    }

    fn take_reserve(&self, _: bool) -> bool {
        true
    }

    fn give_reserve(&self) -> bool {
        false
    }
}

impl StorageBackend for CutDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().seen.bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        if state.was_cut { Err(io::Error::other("no power")) } else { state.seen.read(offset, out) }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let write = DiskWrite::length(len)?;
        self.operate(|state| {
            state.write(write);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.operate(CutState::sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let write = DiskWrite::bytes(offset, data)?;
        self.operate(|state| {
            state.write(write);
            Ok(())
        })
    }
}
