//! A queue of slices over shared bytes on their way to a socket, and the budget of one step.

use bytes::{Buf, Bytes};

/// Bounds on the output of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Slices in `out` at which a step stops. An event takes up to four, which may exceed it.
    pub slices: usize,
    /// Bytes in `out` at which a step stops. The object that reaches it is still pushed.
    pub bytes: usize,
}

/// Slices in sending order. They keep their objects alive, so drop them once sent.
///
/// Implements [`Buf`], whose `chunks_vectored` yields one I/O vector per slice.
#[derive(Debug, Default)]
pub struct Slices {
    list: Vec<Bytes>,
    /// Slices of `list` before this index are sent, and empty.
    first: usize,
    bytes: usize,
}

impl Slices {
    /// Returns an empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { list: Vec::new(), first: 0, bytes: 0 }
    }

    /// Reserves capacity for exactly this many more slices.
    pub fn reserve(&mut self, count: usize) {
        self.list.reserve_exact(count);
    }

    /// Appends a slice; ignores an empty one.
    pub fn push(&mut self, slice: Bytes) {
        if !slice.is_empty() {
            self.bytes += slice.len();
            self.list.push(slice);
        }
    }

    /// Appends a static slice.
    pub fn push_static(&mut self, slice: &'static [u8]) {
        self.push(Bytes::from_static(slice));
    }

    /// Returns the bytes still to send.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of slices still to send.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.list.len() - self.first
    }

    /// Returns true if no bytes are left to send.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns true if a step should stop.
    #[must_use]
    pub const fn reached(&self, budget: Budget) -> bool {
        self.len() >= budget.slices || self.bytes >= budget.bytes
    }

    /// Returns the slices still to send.
    pub fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.list[self.first..].iter()
    }

    /// Appends all of `other`.
    pub fn append(&mut self, mut other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        self.bytes += other.bytes;
        // Removes the sent slots: a queue that never becomes empty would keep all of them.
        self.list.drain(..std::mem::take(&mut self.first));
        self.list.extend(other.list.drain(other.first..));
    }

    /// Returns the number of slices that the first `bytes` bytes span.
    #[must_use]
    pub fn len_within(&self, bytes: usize) -> usize {
        let mut before = 0;
        let begins_within = |slice: &&Bytes| {
            let begins = before;
            before += slice.len();
            begins < bytes
        };
        self.iter().take_while(begins_within).count()
    }

    /// Splits off the first `bytes` bytes, without a copy.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn split_to(&mut self, bytes: usize) -> Self {
        if bytes == self.bytes {
            return std::mem::take(self);
        }
        assert!(bytes < self.bytes, "split behind the end");
        let mut head = Self { list: Vec::with_capacity(self.len_within(bytes)), first: 0, bytes: 0 };
        while head.bytes < bytes {
            let (slice, room) = (&mut self.list[self.first], bytes - head.bytes);
            if slice.len() <= room {
                head.push(std::mem::take(slice));
                self.first += 1;
            } else {
                head.push(slice.split_to(room));
            }
        }
        self.bytes -= bytes;
        head
    }

    /// Removes all slices and keeps the capacity.
    pub fn clear(&mut self) {
        self.list.clear();
        (self.first, self.bytes) = (0, 0);
    }
}

impl From<Bytes> for Slices {
    fn from(slice: Bytes) -> Self {
        let mut slices = Self::new();
        slices.push(slice);
        slices
    }
}

impl IntoIterator for Slices {
    type Item = Bytes;
    type IntoIter = std::iter::Skip<std::vec::IntoIter<Bytes>>;

    /// Returns the slices still to send, by value.
    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter().skip(self.first)
    }
}

impl Buf for Slices {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.list.get(self.first).map_or(&[], |slice| slice)
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [std::io::IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (place, slice) in into.iter_mut().zip(self.iter()) {
            *place = std::io::IoSlice::new(slice);
            count += 1;
        }
        count
    }

    /// # Panics
    /// If fewer bytes are left.
    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "advanced past the end");
        self.bytes -= count;
        while count > 0 {
            let slice = &mut self.list[self.first];
            if count < slice.len() {
                slice.advance(count);
                return;
            }
            count -= slice.len();
            // Drop the slice right away: it may be the last reference to its object.
            *slice = Bytes::new();
            self.first += 1;
        }
        if self.first == self.list.len() {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the bytes read equal the bytes pushed, wherever a write stops. Method: advance by every step width.
    #[test]
    fn a_partial_write_continues_where_it_stopped() {
        for width in 1..12 {
            let mut slices = Slices::new();
            for part in ["ab", "", "cdefg", "h", "ij"] {
                slices.push(Bytes::from(part));
            }
            assert_eq!((slices.bytes(), slices.len()), (10, 4));
            let mut read = Vec::new();
            while slices.has_remaining() {
                let mut vectors = [std::io::IoSlice::new(&[]); 3];
                let filled = slices.chunks_vectored(&mut vectors);
                let all: Vec<u8> = vectors[..filled].iter().flat_map(|vector| vector.iter().copied()).collect();
                let taken = width.min(all.len());
                read.extend_from_slice(&all[..taken]);
                slices.advance(taken);
            }
            assert_eq!(read, b"abcdefghij", "width {width}");
            assert_eq!((slices.is_empty(), slices.len()), (true, 0));
        }
    }

    #[test]
    fn what_is_split_off_and_put_together_again_is_the_same() {
        for width in 0..=10 {
            let mut slices = Slices::new();
            for part in ["-", "ab", "cdefg", "h", "ij"] {
                slices.push(Bytes::from(part));
            }
            slices.advance(1);
            let within = [0, 1, 1, 2, 2, 2, 2, 2, 3, 4, 4][width];
            assert_eq!(slices.len_within(width), within);
            let mut head = slices.split_to(width);
            assert_eq!((head.bytes(), head.len(), slices.bytes()), (width, within, 10 - width));
            head.append(slices);
            assert_eq!(head.copy_to_bytes(10), "abcdefghij", "width {width}");
            assert!(head.is_empty());
        }
    }

    /// Goal: a queue that never becomes empty has no capacity beyond its contents. Method: a thousand rounds that
    /// append before the queue is empty.
    #[test]
    fn what_was_taken_off_leaves_no_room_behind() {
        let more = || {
            let mut more = Slices::new();
            more.push(Bytes::from_static(b"abcdefghij"));
            more
        };
        let mut rest = more();
        for round in 0..1_000 {
            rest.append(more());
            if round % 2 == 0 {
                assert_eq!(rest.split_to(10).remaining(), 10);
            } else {
                rest.advance(10);
            }
        }
        assert_eq!((rest.bytes(), rest.len()), (10, 1));
        assert!(rest.list.capacity() < 16, "room for {} slices", rest.list.capacity());
    }

    #[test]
    fn a_budget_is_reached_by_slices_or_by_bytes() {
        let mut slices = Slices::new();
        slices.push(Bytes::from_static(b"0123456789"));
        let reached = |slices: &Slices, count, bytes| slices.reached(Budget { slices: count, bytes });
        assert!(reached(&slices, 1, 99) && reached(&slices, 9, 10) && !reached(&slices, 2, 11));
    }
}
