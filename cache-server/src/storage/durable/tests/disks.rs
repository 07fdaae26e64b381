//! Disks in memory: one that may be full, and one whose power is cut.

use std::{io, sync::Arc};

use parking_lot::Mutex;
use redb::{Database, StorageBackend};

use crate::storage::durable::disk::{DataDisk, DiskError, builder};

/// A disk that never forgets. Clones share its bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct FakeDisk {
    image: Arc<Mutex<DiskImage>>,
}

#[derive(Clone, Debug, Default)]
struct DiskImage {
    bytes: Vec<u8>,
    /// Bytes that may still be written; `None`: any number.
    room: Option<usize>,
}

impl FakeDisk {
    pub(super) fn len(&self) -> usize {
        self.image.lock().bytes.len()
    }

    pub(super) fn set_room(&self, room: Option<usize>) {
        self.image.lock().room = room;
    }

    /// Returns another disk with the same bytes.
    pub(super) fn copy(&self) -> Self {
        let image = self.image.lock().clone();
        Self { image: Arc::new(Mutex::new(image)) }
    }
}

fn database(backend: impl StorageBackend) -> Result<Database, DiskError> {
    Ok(builder().create_with_backend(backend).map_err(redb::Error::from)?)
}

impl DataDisk for FakeDisk {
    fn open(&self) -> Result<Database, DiskError> {
        database(self.clone())
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
        self.image.lock().write(&DiskWrite::length(len)?);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let image = &mut *self.image.lock();
        if let Some(room) = &mut image.room {
            *room = room.checked_sub(data.len()).ok_or(io::ErrorKind::StorageFull)?;
        }
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
}

/// A disk whose power is cut before its n-th operation: nothing works after that, and writes since the last sync are
/// lost, done, or done in part.
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
}

impl CutDisk {
    /// A disk with the bytes of another one.
    pub(super) fn new(begun: &FakeDisk, left: usize) -> Self {
        let seen = begun.image.lock().clone();
        let state = CutState { synced: seen.clone(), seen, unsynced: Vec::new(), left, was_cut: false };
        Self { state: Arc::new(Mutex::new(state)) }
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
}

impl DataDisk for CutDisk {
    fn open(&self) -> Result<Database, DiskError> {
        database(self.clone())
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
        self.operate(|state| {
            state.synced = state.seen.clone();
            state.unsynced.clear();
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let write = DiskWrite::bytes(offset, data)?;
        self.operate(|state| {
            state.write(write);
            Ok(())
        })
    }
}
