//! Encoding of a log's records.
//!
//! INVARIANT: each record's checksum covers the record before it, so every readable prefix is a prefix of what was
//! written: no record is missing in the middle or comes from another log. No input causes a panic or an allocation
//! larger than the file.
//!
//! Format: `length u32, checksum u32, payload`, little-endian. A payload is a kind byte, then its fields; the last
//! field extends to the payload's end.

use std::io::{self, Read};

use informer_core::object::Meta;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogRecord<'a> {
    /// Identity of the informer. First record of a log.
    Identity(&'a str),
    /// Inserts an object, or replaces the object of its key.
    Put(RecordedObject<'a>),
    /// Removes the object of this key.
    Delete { key: &'a str },
    /// Commits all records before it. Records after the last commit are ignored.
    Commit { position: &'a str, confirmed_unix_ms: u64 },
}

/// A stored object. Its names are separate from its JSON, because the stored form may lack them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedObject<'a> {
    /// Empty for cluster-scoped types.
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) resource_version: &'a str,
    /// The labels as a JSON object; empty if they are in the JSON, or there are none.
    pub(super) labels: &'a str,
    pub(super) json: &'a [u8],
    /// True if only the names are known.
    pub(super) is_skipped: bool,
}

impl<'a> RecordedObject<'a> {
    pub(super) fn key(&self) -> Box<str> {
        self.meta().key().into()
    }

    /// The metadata a store needs.
    pub(super) fn meta(&self) -> Meta<'a> {
        Meta {
            namespace: self.namespace.into(),
            name: self.name.into(),
            uid: self.uid.into(),
            resource_version: self.resource_version.into(),
            ..Meta::default()
        }
    }

    const fn texts(&self) -> [&'a str; 5] {
        [self.namespace, self.name, self.uid, self.resource_version, self.labels]
    }

    /// Size of the object's record in a log, in bytes.
    pub(super) fn record_bytes(&self) -> u64 {
        (FRAME_BYTES + LogRecord::Put(*self).payload_bytes()) as u64
    }

    /// Decodes the fields after the kind byte.
    fn read(bytes: &'a [u8], is_skipped: bool) -> Option<Self> {
        let (lengths, mut rest) = bytes.split_first_chunk::<LENGTHS_BYTES>()?;
        let mut texts = [""; 5];
        for (into, length) in texts.iter_mut().zip(lengths.as_chunks().0) {
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (found, after) = rest.split_at_checked(length)?;
            rest = after;
            *into = text(found)?;
        }
        let [namespace, name, uid, resource_version, labels] = texts;
        Some(Self { namespace, name, uid, resource_version, labels, json: rest, is_skipped })
    }
}

/// Size of the five text lengths of an object.
const LENGTHS_BYTES: usize = 5 * size_of::<u32>();

/// Size of a record's header: length and checksum.
const FRAME_BYTES: usize = 8;

/// The largest payload, in bytes; a larger length means damage. Sixteen times the default `object_bytes_max`.
const PAYLOAD_BYTES_MAX: usize = 256 << 20;

const IDENTITY: u8 = 1;
const PUT: u8 = 2;
const DELETE: u8 = 3;
const COMMIT: u8 = 4;
const PUT_SKIPPED: u8 = 5;

/// Running checksum of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogChecksum(u32);

impl LogChecksum {
    /// The checksum of a log's header.
    pub(super) fn begin(head: &[u8]) -> Self {
        Self(crc32fast::hash(head))
    }

    fn extend(self, length: [u8; 4], payload: &[u8]) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.0.to_le_bytes());
        hasher.update(&length);
        hasher.update(payload);
        Self(hasher.finalize())
    }
}

/// A record that cannot be written: its payload or one of its texts is longer than the format allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an object of {bytes} bytes is more than a checkpoint can hold")]
pub(super) struct TooLarge {
    bytes: usize,
}

impl LogRecord<'_> {
    /// Appends the record to `out` and to `chain`. On failure both are unchanged.
    pub(super) fn write(self, chain: &mut LogChecksum, out: &mut Vec<u8>) -> Result<(), TooLarge> {
        let bytes = self.payload_bytes();
        let length = u32::try_from(bytes).ok().filter(|_| bytes <= PAYLOAD_BYTES_MAX).ok_or(TooLarge { bytes })?;
        let length = length.to_le_bytes();
        let mut lengths = [0; LENGTHS_BYTES];
        if let Self::Put(object) = self {
            for (into, text) in lengths.chunks_exact_mut(size_of::<u32>()).zip(object.texts()) {
                let length = u32::try_from(text.len()).map_err(|_| TooLarge { bytes })?;
                into.copy_from_slice(&length.to_le_bytes());
            }
        }
        out.reserve(FRAME_BYTES + bytes);
        out.extend(length);
        let checksum_at = out.len();
        out.extend([0; 4]);
        let payload_at = out.len();
        match self {
            Self::Identity(text) => put(out, IDENTITY, &[text.as_bytes()]),
            Self::Put(object) => {
                let [namespace, name, uid, version, labels] = object.texts().map(str::as_bytes);
                let kind = if object.is_skipped { PUT_SKIPPED } else { PUT };
                put(out, kind, &[&lengths, namespace, name, uid, version, labels, object.json]);
            }
            Self::Delete { key } => put(out, DELETE, &[key.as_bytes()]),
            Self::Commit { position, confirmed_unix_ms } => {
                put(out, COMMIT, &[&confirmed_unix_ms.to_le_bytes(), position.as_bytes()]);
            }
        }
        debug_assert_eq!(out.len() - payload_at, bytes, "the length told is the length written");
        *chain = chain.extend(length, &out[payload_at..]);
        out[checksum_at..payload_at].copy_from_slice(&chain.0.to_le_bytes());
        Ok(())
    }

    fn payload_bytes(self) -> usize {
        1 + match self {
            Self::Identity(text) => text.len(),
            Self::Put(object) => LENGTHS_BYTES + object.texts().map(str::len).iter().sum::<usize>() + object.json.len(),
            Self::Delete { key } => key.len(),
            Self::Commit { position, .. } => 8 + position.len(),
        }
    }

    /// Decodes a payload. `None` if no version of this format could have written it.
    fn read(payload: &[u8]) -> Option<LogRecord<'_>> {
        let (&kind, rest) = payload.split_first()?;
        match kind {
            IDENTITY => text(rest).map(LogRecord::Identity),
            PUT | PUT_SKIPPED => RecordedObject::read(rest, kind == PUT_SKIPPED).map(LogRecord::Put),
            DELETE => text(rest).map(|key| LogRecord::Delete { key }),
            COMMIT => {
                let (time, position) = rest.split_first_chunk()?;
                Some(LogRecord::Commit { position: text(position)?, confirmed_unix_ms: u64::from_le_bytes(*time) })
            }
            _ => None,
        }
    }
}

fn put(out: &mut Vec<u8>, kind: u8, fields: &[&[u8]]) {
    out.push(kind);
    fields.iter().for_each(|field| out.extend_from_slice(field));
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// Reads records in sequence. Holds one at a time.
pub(super) struct Records<R> {
    from: R,
    /// Offset of the next record.
    at: u64,
    /// End of the file: bounds the allocation.
    end: u64,
    chain: LogChecksum,
    payload: Vec<u8>,
}

impl<R: Read> Records<R> {
    /// Reads from offset `at`, where the running checksum is `chain`, to offset `end` at most.
    pub(super) const fn new(from: R, at: u64, end: u64, chain: LogChecksum) -> Self {
        Self { from, at, end, chain, payload: Vec::new() }
    }

    /// Offset of the next record.
    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    /// The running checksum at that offset.
    pub(super) const fn chain(&self) -> LogChecksum {
        self.chain
    }

    /// The next record; `None` at the end, and at bytes that are no valid record.
    ///
    /// # Errors
    /// An error of the file system.
    pub(super) fn next(&mut self) -> io::Result<Option<LogRecord<'_>>> {
        let left = self.end.saturating_sub(self.at);
        let mut frame = [0; FRAME_BYTES];
        if left < frame.len() as u64 || !fill(&mut self.from, &mut frame)? {
            return Ok(None);
        }
        let (length, checksum) = frame.split_at(4);
        let length: [u8; 4] = length.try_into().expect("half of eight bytes");
        let bytes = u32::from_le_bytes(length) as usize;
        if bytes == 0 || bytes > PAYLOAD_BYTES_MAX || bytes as u64 > left - frame.len() as u64 {
            return Ok(None);
        }
        self.payload.resize(bytes, 0);
        if !fill(&mut self.from, &mut self.payload)? {
            return Ok(None);
        }
        let chain = self.chain.extend(length, &self.payload);
        if chain.0.to_le_bytes() != *checksum {
            return Ok(None);
        }
        let Some(record) = LogRecord::read(&self.payload) else { return Ok(None) };
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

    fn log(records: &[LogRecord<'_>]) -> Vec<u8> {
        let (mut chain, mut out) = (LogChecksum::begin(b""), Vec::new());
        for record in records {
            record.write(&mut chain, &mut out).unwrap();
        }
        out
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let pod = RecordedObject {
            namespace: "d",
            name: "a",
            uid: "u",
            resource_version: "7",
            labels: "",
            json: b"{\"kept\":1}",
            is_skipped: false,
        };
        let written = [
            LogRecord::Identity("server x\n"),
            LogRecord::Put(pod),
            LogRecord::Put(RecordedObject { namespace: "", uid: "", json: b"", ..pod }),
            LogRecord::Put(RecordedObject { labels: "{\"app\":\"web\"}", ..pod }),
            LogRecord::Put(RecordedObject { is_skipped: true, ..pod }),
            LogRecord::Delete { key: "d/b" },
            LogRecord::Commit { position: "9", confirmed_unix_ms: 1_700_000_000_000 },
        ];
        let out = log(&written);
        let mut records = Records::new(&out[..], 0, out.len() as u64, LogChecksum::begin(b""));
        for record in written {
            assert_eq!(records.next().unwrap(), Some(record));
        }
        assert_eq!((records.at(), records.next().unwrap()), (out.len() as u64, None));
        let bytes: usize = written.iter().map(|record| FRAME_BYTES + record.payload_bytes()).sum();
        assert_eq!((bytes, pod.record_bytes()), (out.len(), log(&[LogRecord::Put(pod)]).len() as u64));
    }

    /// Goal: a length read from disk never allocates more than the file has. Method: lengths without their bytes.
    #[test]
    fn a_length_from_disk_allocates_nothing_that_is_not_there() {
        for length in [0, 100, u32::MAX, u32::MAX >> 1] {
            let frame = [&length.to_le_bytes()[..], &[0; 40]].concat();
            let mut records = Records::new(&frame[..], 0, frame.len() as u64, LogChecksum::begin(b""));
            assert_eq!(records.next().unwrap(), None, "{length}");
            assert!(records.payload.capacity() <= frame.len(), "{length}");
        }
    }

    #[test]
    fn what_the_format_cannot_hold_is_an_error_and_leaves_no_trace() {
        // Zeroed pages that are never touched.
        let json = vec![0; PAYLOAD_BYTES_MAX];
        let (mut chain, mut out) = (LogChecksum::begin(b""), b"before".to_vec());
        let object = RecordedObject {
            namespace: "",
            name: "a",
            uid: "",
            resource_version: "1",
            labels: "",
            json: &json,
            is_skipped: false,
        };
        assert!(LogRecord::Put(object).write(&mut chain, &mut out).is_err());
        assert_eq!((chain, &out[..]), (LogChecksum::begin(b""), &b"before"[..]));
    }
}
