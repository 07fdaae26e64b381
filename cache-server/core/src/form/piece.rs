//! A list item as a piece of a compressed list, and the process-wide bound on cached pieces.
//!
//! INVARIANT: cached pieces of all objects together stay within [`PIECES_BYTES_MAX`], and cached long cells within
//! [`LONG_CELLS_BYTES_MAX`].

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::limits::{LONG_CELLS_BYTES_MAX, PIECES_BYTES_MAX};

/// One item, compressed so that it is valid anywhere in a deflate stream: whole blocks without references to earlier
/// data that end on a byte boundary. Shared by all lists that contain the object.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Deflate blocks, none of them marked as the last.
    pub deflated: Bytes,
    /// CRC-32 of the uncompressed item.
    pub sum: u32,
    /// Length of the uncompressed item, in bytes.
    pub len: u32,
}

/// Bytes of all pieces that are cached in this process.
pub(crate) static PIECES: ByteBudget = ByteBudget::new(PIECES_BYTES_MAX);

/// Returns the bytes of compressed objects that are cached for lists, in all caches of this process.
#[must_use]
pub fn pieces_bytes() -> usize {
    PIECES.taken()
}

/// Bytes of all long cells that are cached in this process.
pub(crate) static LONG_CELLS: ByteBudget = ByteBudget::new(LONG_CELLS_BYTES_MAX);

/// A byte budget for data cached with objects.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    taken: AtomicUsize,
    max: usize,
}

/// A piece that is cached with its object.
#[derive(Debug)]
pub(crate) struct CachedPiece {
    piece: Piece,
    _share: Share,
}

/// Bytes taken from a budget. Dropping it returns them.
#[derive(Debug)]
pub(crate) struct Share {
    bytes: usize,
    room: &'static ByteBudget,
}

impl ByteBudget {
    pub(super) const fn new(max: usize) -> Self {
        Self { taken: AtomicUsize::new(0), max }
    }

    /// Returns the bytes taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes `bytes`. Returns false, and takes none, if the budget is exceeded.
    fn take(&self, bytes: usize) -> bool {
        let sum = self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if sum > self.max {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
        sum <= self.max
    }

    /// Caches `piece`, if the budget allows it.
    pub(crate) fn keep(&'static self, piece: &Piece) -> Option<CachedPiece> {
        let share = self.share(size_of::<CachedPiece>() + piece.deflated.len())?;
        Some(CachedPiece { piece: piece.clone(), _share: share })
    }

    /// Takes `bytes`, if the budget allows it.
    pub(crate) fn share(&'static self, bytes: usize) -> Option<Share> {
        // Created lazily: dropping a share returns bytes, which must have been taken.
        self.take(bytes).then(|| Share { bytes, room: self })
    }
}

impl CachedPiece {
    pub(crate) const fn piece(&self) -> &Piece {
        &self.piece
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_kept_while_there_is_room() {
        static ROOM: ByteBudget = ByteBudget::new(1_000);
        let piece = |bytes: usize| Piece { deflated: vec![0; bytes].into(), sum: 0, len: 0 };
        let first = ROOM.keep(&piece(700)).expect("room");
        assert!(ROOM.keep(&piece(700)).is_none());
        let small = ROOM.keep(&piece(10)).expect("there is still room for less");
        drop(first);
        assert_eq!(ROOM.taken(), size_of::<CachedPiece>() + 10);
        assert!(ROOM.keep(&piece(700)).is_some());
        drop(small);
        assert_eq!(ROOM.taken(), 0);
    }
}
