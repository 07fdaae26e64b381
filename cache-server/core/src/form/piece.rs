//! A list's item as a piece of a compressed list, and how many of them are kept.
//!
//! INVARIANT: what is kept of all objects together stays within [`PIECES_BYTES_MAX`].

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::limits::PIECES_BYTES_MAX;

/// One item, compressed so that it can stand anywhere in a deflate stream: whole blocks that refer to nothing outside
/// and end on a whole byte. Shared by all lists that have the object.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Deflate blocks, none of them marked as the last.
    pub deflated: Bytes,
    /// CRC-32 of the item as it was.
    pub sum: u32,
    /// Its length as it was, in bytes.
    pub len: u32,
}

/// Bytes of all pieces that are kept in this process.
pub(crate) static PIECES: Room = Room::new(PIECES_BYTES_MAX);

/// Bytes of compressed objects that are kept for lists, of all caches of this process.
#[must_use]
pub fn pieces_bytes() -> usize {
    PIECES.taken()
}

/// Room for pieces.
#[derive(Debug)]
pub(crate) struct Room {
    taken: AtomicUsize,
    max: usize,
}

/// A piece that is kept with its object.
#[derive(Debug)]
pub(crate) struct Kept {
    piece: Piece,
    /// Its bytes, of the room.
    bytes: usize,
    room: &'static Room,
}

impl Room {
    const fn new(max: usize) -> Self {
        Self { taken: AtomicUsize::new(0), max }
    }

    /// How much of it is taken, in bytes.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether it takes `bytes` more, which are then taken.
    fn take(&self, bytes: usize) -> bool {
        let sum = self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if sum > self.max {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
        sum <= self.max
    }

    /// Keeps `piece`, if there is room.
    pub(crate) fn keep(&'static self, piece: &Piece) -> Option<Kept> {
        let bytes = size_of::<Kept>() + piece.deflated.len();
        self.take(bytes).then(|| Kept { piece: piece.clone(), bytes, room: self })
    }
}

impl Kept {
    pub(crate) const fn piece(&self) -> &Piece {
        &self.piece
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.room.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_kept_while_there_is_room() {
        static ROOM: Room = Room::new(1_000);
        let piece = |bytes: usize| Piece { deflated: vec![0; bytes].into(), sum: 0, len: 0 };
        let first = ROOM.keep(&piece(700)).expect("room");
        assert!(ROOM.keep(&piece(700)).is_none());
        let small = ROOM.keep(&piece(10)).expect("there is still room for less");
        drop(first);
        assert_eq!(ROOM.taken(), size_of::<Kept>() + 10);
        assert!(ROOM.keep(&piece(700)).is_some());
        drop(small);
        assert_eq!(ROOM.taken(), 0);
    }
}
