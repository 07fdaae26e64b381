//! Encoding of records, and of the head of a file.
//!
//! INVARIANT: each record's checksum covers the record before it, so every readable prefix is a prefix of what was
//! written: no record is missing in the middle or comes from another log.
//!
//! Format: `magic, version u32`, then records: `length u32, checksum u32, kind u8, body`, little-endian. The length
//! counts kind and body.

use std::io::{self, Read};

use crate::UnusableLog;

/// First bytes of every log.
const MAGIC: [u8; 8] = *b"informer";

/// Version of the format and of all users' records. Other versions are not read.
const VERSION: u32 = 3;

const HEAD_BYTES: usize = MAGIC.len() + size_of::<u32>();

/// Size of a record's length and checksum.
const FRAME_BYTES: usize = 8;

/// The largest kind and body, in bytes; a larger length means damage. Sixteen times the default `object_bytes_max`.
pub(crate) const RECORD_BYTES_MAX: usize = 256 << 20;

/// Kind of the records that commit all records before them. Their body belongs to the user.
pub const COMMIT: u8 = 0;

/// Kind of the first record, whose body names the owner. Users' kinds are larger.
pub(crate) const IDENTITY: u8 = 1;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// [`COMMIT`], or a kind of the user: 2 or more.
    pub kind: u8,
    /// The fields, without separators.
    pub body: &'a [u8],
}

/// Returns the head of a log of this version.
pub(crate) fn head() -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let (magic, version) = head.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    version.copy_from_slice(&VERSION.to_le_bytes());
    head
}

/// An offset in a log, and the running checksum there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub(crate) bytes: u64,
    chain: u32,
}

impl LogPosition {
    /// The end of the head.
    pub(crate) fn first() -> Self {
        Self { bytes: HEAD_BYTES as u64, chain: crc32fast::hash(&head()) }
    }

    /// The end of the record with this length and payload.
    fn after(self, length: [u8; 4], payload: &[u8]) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.chain.to_le_bytes());
        hasher.update(&length);
        hasher.update(payload);
        Self { bytes: self.bytes + (FRAME_BYTES + payload.len()) as u64, chain: hasher.finalize() }
    }
}

/// A record is larger than the format allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of {bytes} bytes is more than a log can hold")]
pub(crate) struct LongRecord {
    bytes: usize,
}

/// Appends a record to `out`, and moves `end` behind it. On failure both are unchanged.
pub(crate) fn write(kind: u8, fields: &[&[u8]], end: &mut LogPosition, out: &mut Vec<u8>) -> Result<(), LongRecord> {
    let bytes = 1 + fields.iter().map(|field| field.len()).sum::<usize>();
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= RECORD_BYTES_MAX).ok_or(LongRecord { bytes })?;
    let length = length.to_le_bytes();
    out.reserve(FRAME_BYTES + bytes);
    out.extend(length);
    let checksum_at = out.len();
    out.extend([0; 4]);
    let payload_at = out.len();
    out.push(kind);
    fields.iter().for_each(|field| out.extend_from_slice(field));
    *end = end.after(length, &out[payload_at..]);
    out[checksum_at..payload_at].copy_from_slice(&end.chain.to_le_bytes());
    Ok(())
}

/// Reads records in sequence. Holds one at a time.
#[derive(Debug)]
pub struct LogRecords<R> {
    from: R,
    /// Position of the next record.
    at: LogPosition,
    /// Offset at which reading ends: bounds the allocation.
    end: u64,
    payload: Vec<u8>,
}

impl<R: Read> LogRecords<R> {
    /// Reads the head of a log, whose records are read to offset `end` at most.
    pub(crate) fn begin(mut from: R, end: u64) -> Result<Self, UnusableLog> {
        let mut found = [0; HEAD_BYTES];
        if !fill(&mut from, &mut found).map_err(UnusableLog::Io)? || !found.starts_with(&MAGIC) {
            return Err(UnusableLog::NotALog);
        }
        if found != head() {
            let [.., a, b, c, d] = found;
            return Err(UnusableLog::Format(u32::from_le_bytes([a, b, c, d])));
        }
        Ok(Self { from, at: LogPosition::first(), end, payload: Vec::new() })
    }

    pub(crate) const fn at(&self) -> LogPosition {
        self.at
    }

    /// Returns the next record; `None` at the end.
    ///
    /// # Errors
    /// [`UnusableLog`] if the file no longer has what [`DiskLog::find`](crate::DiskLog::find) read.
    pub fn next_record(&mut self) -> Result<Option<LogRecord<'_>>, UnusableLog> {
        if self.at.bytes == self.end {
            return Ok(None);
        }
        self.try_next()?.map(Some).ok_or(UnusableLog::Damaged)
    }

    /// Returns the next record; `None` at the end, and at bytes that are no valid record.
    pub(crate) fn try_next(&mut self) -> Result<Option<LogRecord<'_>>, UnusableLog> {
        let left = self.end.saturating_sub(self.at.bytes);
        let mut frame = [0; FRAME_BYTES];
        if left < FRAME_BYTES as u64 || !fill(&mut self.from, &mut frame).map_err(UnusableLog::Io)? {
            return Ok(None);
        }
        let [a, b, c, d, checksum @ ..] = frame;
        let length = [a, b, c, d];
        let bytes = u32::from_le_bytes(length) as usize;
        if bytes == 0 || RECORD_BYTES_MAX < bytes || left - (FRAME_BYTES as u64) < bytes as u64 {
            return Ok(None);
        }
        self.payload.resize(bytes, 0);
        if !fill(&mut self.from, &mut self.payload).map_err(UnusableLog::Io)? {
            return Ok(None);
        }
        let after = self.at.after(length, &self.payload);
        if after.chain.to_le_bytes() != checksum {
            return Ok(None);
        }
        self.at = after;
        Ok(self.payload.split_first().map(|(&kind, body)| LogRecord { kind, body }))
    }
}

/// Fills `into`. Returns false if the file ends before that.
fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(into) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a length read from disk never allocates more than the file has. Method: lengths without their bytes.
    #[test]
    fn a_length_from_disk_allocates_nothing_that_is_not_there() {
        for length in [0, 100, u32::MAX, u32::MAX >> 1] {
            let file = [&head()[..], &length.to_le_bytes(), &[0; 40]].concat();
            let mut records = LogRecords::begin(&file[..], file.len() as u64).unwrap();
            assert_eq!(records.try_next().unwrap(), None, "{length}");
            assert!(records.payload.capacity() <= file.len(), "{length}");
        }
    }

    #[test]
    fn a_record_that_could_not_be_read_again_is_not_written() {
        // Zeroed pages that are never touched.
        let body = vec![0; RECORD_BYTES_MAX];
        let (mut end, mut out) = (LogPosition::first(), b"before".to_vec());
        write(2, &[&body], &mut end, &mut out).unwrap_err();
        assert_eq!((end, &out[..]), (LogPosition::first(), &b"before"[..]));
    }
}
