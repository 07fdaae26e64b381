//! Encoding of the records of a saved state.
//!
//! INVARIANT: each record's checksum covers the record before it, so every readable prefix is a prefix of what was
//! written: no record is missing in the middle or comes from another file. No input causes a panic or an allocation
//! larger than the file.
//!
//! Format: `length u32, checksum u32, payload`, little-endian. A payload is a kind byte, then its fields; the last
//! field extends to the payload's end.

use std::io::{self, Read};

use informer_core::limits::OBJECT_BYTES_MAX;

/// First bytes of every saved state.
const MAGIC: [u8; 8] = *b"k8scache";

/// Version of the format. Other versions are not read.
pub(super) const FORMAT: u32 = 1;

pub(super) const HEAD_BYTES: usize = MAGIC.len() + size_of::<u32>();

/// Returns the header of a file of this version.
pub(super) fn head() -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let (magic, format) = head.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    format.copy_from_slice(&FORMAT.to_le_bytes());
    head
}

/// Returns the format of the file that begins with `head`; `None` if it is no saved state.
pub(super) fn format_of(head: [u8; HEAD_BYTES]) -> Option<u32> {
    let (magic, format) = head.split_at(MAGIC.len());
    (*magic == MAGIC).then_some(u32::from_le_bytes(format.try_into().ok()?))
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateRecord<'a> {
    /// Owner of the file: its type, API server and scope. First record.
    Owner(&'a str),
    /// An object of the base.
    Object { revision: u64, json: &'a [u8] },
    /// The base is complete: it is the state at this revision.
    Base { revision: u64, objects: u64 },
    /// An object was created or changed after the base.
    Put { revision: u64, json: &'a [u8] },
    /// An object was deleted after the base.
    Deleted { revision: u64, key: &'a str },
    /// All changes at or below this revision precede it. The time at which they were saved.
    Mark { revision: u64, unix_ms: u64 },
}

const OWNER: u8 = 1;
const OBJECT: u8 = 2;
const BASE: u8 = 3;
const PUT: u8 = 4;
const DELETED: u8 = 5;
const MARK: u8 = 6;

/// Size of a record's header: length and checksum.
const FRAME_BYTES: usize = 8;

/// The largest payload, in bytes; a larger length means damage. Twice the largest object that a cache takes.
const PAYLOAD_BYTES_MAX: usize = 2 * OBJECT_BYTES_MAX;

/// Running checksum of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateChecksum(u32);

impl StateChecksum {
    /// The checksum of a file's header.
    pub(super) fn begin() -> Self {
        Self(crc32fast::hash(&head()))
    }

    fn extend(self, length: [u8; 4], payload: &[u8]) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.0.to_le_bytes());
        hasher.update(&length);
        hasher.update(payload);
        Self(hasher.finalize())
    }
}

/// A record is larger than the format allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of {bytes} bytes is more than a saved state can hold")]
pub(super) struct LongRecord {
    bytes: usize,
}

impl StateRecord<'_> {
    /// Appends the record to `out` and to `chain`. On failure both are unchanged.
    pub(super) fn write(self, chain: &mut StateChecksum, out: &mut Vec<u8>) -> Result<(), LongRecord> {
        let (kind, numbers, rest): (u8, [Option<u64>; 2], &[u8]) = match self {
            Self::Owner(text) => (OWNER, [None, None], text.as_bytes()),
            Self::Object { revision, json } => (OBJECT, [Some(revision), None], json),
            Self::Base { revision, objects } => (BASE, [Some(revision), Some(objects)], b""),
            Self::Put { revision, json } => (PUT, [Some(revision), None], json),
            Self::Deleted { revision, key } => (DELETED, [Some(revision), None], key.as_bytes()),
            Self::Mark { revision, unix_ms } => (MARK, [Some(revision), Some(unix_ms)], b""),
        };
        let bytes = 1 + numbers.iter().flatten().count() * size_of::<u64>() + rest.len();
        let length = u32::try_from(bytes).ok().filter(|_| bytes <= PAYLOAD_BYTES_MAX).ok_or(LongRecord { bytes })?;
        let length = length.to_le_bytes();
        out.reserve(FRAME_BYTES + bytes);
        out.extend(length);
        let checksum_at = out.len();
        out.extend([0; 4]);
        let payload_at = out.len();
        out.push(kind);
        numbers.iter().flatten().for_each(|number| out.extend(number.to_le_bytes()));
        out.extend_from_slice(rest);
        *chain = chain.extend(length, &out[payload_at..]);
        out[checksum_at..payload_at].copy_from_slice(&chain.0.to_le_bytes());
        Ok(())
    }

    /// Decodes a payload. `None` if no version of this format could have written it.
    fn read(payload: &[u8]) -> Option<StateRecord<'_>> {
        let (&kind, rest) = payload.split_first()?;
        let number = |rest| <[u8]>::split_first_chunk(rest).map(|(number, rest)| (u64::from_le_bytes(*number), rest));
        if kind == OWNER {
            return std::str::from_utf8(rest).ok().map(StateRecord::Owner);
        }
        let (revision, rest) = number(rest)?;
        match kind {
            OBJECT => Some(StateRecord::Object { revision, json: rest }),
            PUT => Some(StateRecord::Put { revision, json: rest }),
            DELETED => Some(StateRecord::Deleted { revision, key: std::str::from_utf8(rest).ok()? }),
            BASE => Some(StateRecord::Base { revision, objects: number(rest)?.0 }),
            MARK => Some(StateRecord::Mark { revision, unix_ms: number(rest)?.0 }),
            _ => None,
        }
    }
}

/// Reads records in sequence. Holds one at a time.
pub(super) struct StateRecords<R> {
    from: R,
    /// Offset of the next record.
    at: u64,
    /// End of the file: bounds the allocation.
    end: u64,
    chain: StateChecksum,
    payload: Vec<u8>,
}

impl<R: Read> StateRecords<R> {
    /// Reads from behind the header to offset `end` at most.
    pub(super) fn new(from: R, end: u64) -> Self {
        Self { from, at: HEAD_BYTES as u64, end, chain: StateChecksum::begin(), payload: Vec::new() }
    }

    /// Offset of the next record.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// The running checksum at that offset.
    pub(super) const fn chain(&self) -> StateChecksum {
        self.chain
    }

    /// The next record; `None` at the end, and at bytes that are no valid record.
    ///
    /// # Errors
    /// An error of the file system.
    pub(super) fn next(&mut self) -> io::Result<Option<StateRecord<'_>>> {
        let left = self.end.saturating_sub(self.at);
        let mut frame = [0; FRAME_BYTES];
        if left < frame.len() as u64 || !fill(&mut self.from, &mut frame)? {
            return Ok(None);
        }
        let [a, b, c, d, checksum @ ..] = frame;
        let length = [a, b, c, d];
        let bytes = u32::from_le_bytes(length) as usize;
        if bytes == 0 || bytes > PAYLOAD_BYTES_MAX || bytes as u64 > left - frame.len() as u64 {
            return Ok(None);
        }
        self.payload.resize(bytes, 0);
        if !fill(&mut self.from, &mut self.payload)? {
            return Ok(None);
        }
        let chain = self.chain.extend(length, &self.payload);
        if chain.0.to_le_bytes() != checksum {
            return Ok(None);
        }
        let Some(record) = StateRecord::read(&self.payload) else { return Ok(None) };
        self.chain = chain;
        self.at += (FRAME_BYTES + bytes) as u64;
        Ok(Some(record))
    }
}

/// Fills `into`. Returns false if the file ends before that.
pub(super) fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let written = [
            StateRecord::Owner("pods\n"),
            StateRecord::Object { revision: 7, json: b"{}" },
            StateRecord::Base { revision: 9, objects: 1 },
            StateRecord::Put { revision: u64::MAX, json: b"" },
            StateRecord::Deleted { revision: 12, key: "a/b" },
            StateRecord::Mark { revision: 12, unix_ms: 1_700_000_000_000 },
        ];
        let (mut chain, mut out) = (StateChecksum::begin(), Vec::new());
        written.iter().for_each(|record| record.write(&mut chain, &mut out).unwrap());
        let end = (HEAD_BYTES + out.len()) as u64;
        let mut records = StateRecords::new(&out[..], end);
        for record in written {
            assert_eq!(records.next().unwrap(), Some(record));
        }
        assert_eq!((records.at(), records.next().unwrap()), (end, None));
        assert_eq!(records.chain(), chain);
    }

    /// Goal: a length read from disk never allocates more than the file has. Method: lengths without their bytes.
    #[test]
    fn a_length_from_disk_allocates_nothing_that_is_not_there() {
        for length in [0, 100, u32::MAX, u32::MAX >> 1] {
            let frame = [&length.to_le_bytes()[..], &[0; 40]].concat();
            let mut records = StateRecords::new(&frame[..], (HEAD_BYTES + frame.len()) as u64);
            assert_eq!(records.next().unwrap(), None, "{length}");
            assert!(records.payload.capacity() <= frame.len(), "{length}");
        }
    }

    #[test]
    fn a_record_that_could_not_be_read_again_is_not_written() {
        // Zeroed pages that are never touched.
        let json = vec![0; PAYLOAD_BYTES_MAX];
        let (mut chain, mut out) = (StateChecksum::begin(), b"before".to_vec());
        StateRecord::Put { revision: 1, json: &json }.write(&mut chain, &mut out).unwrap_err();
        assert_eq!((chain, &out[..]), (StateChecksum::begin(), &b"before"[..]));
    }
}
