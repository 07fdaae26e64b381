//! Replays a log from its beginning to its last commit.
//!
//! Memory: one object, and for each live object its key and its offset. Reads the log twice: once to find the live
//! records, once to return them.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader, Seek, SeekFrom},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use informer_core::ResourceVersion;

use super::{
    IgnoreReason,
    record::{LogChecksum, LogRecord, RecordedObject, Records, fill},
};

/// First bytes of every checkpoint.
const MAGIC: [u8; 8] = *b"informer";

/// Version of the format. Other versions are not read.
const VERSION: u32 = 2;

pub(super) const HEAD_BYTES: usize = MAGIC.len() + size_of::<u32>();

/// Header of a log of this version.
pub(super) fn head() -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let (magic, version) = head.split_at_mut(MAGIC.len());
    magic.copy_from_slice(&MAGIC);
    version.copy_from_slice(&VERSION.to_le_bytes());
    head
}

/// State of a log's last commit: the offsets of its objects, not the objects.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) position: ResourceVersion,
    pub(super) confirmed_at: SystemTime,
    /// Offset of each object's record, by key.
    live: HashMap<Box<str>, RecordLocation>,
    /// Total size of those records, in bytes.
    pub(super) live_bytes: u64,
    /// End of the commit; bytes after it are ignored.
    pub(super) end: u64,
    pub(super) chain: LogChecksum,
}

/// Location of a record in the log.
#[derive(Clone, Copy, Debug)]
struct RecordLocation {
    at: u64,
    bytes: u64,
}

impl Replay {
    /// Reads a log that must belong to `identity`.
    pub(super) fn read(file: &File, identity: &str) -> Result<Self, IgnoreReason> {
        let end = file.metadata().map_err(READ)?.len();
        let mut records = records(file, end)?;
        match records.next().map_err(READ)? {
            Some(LogRecord::Identity(found)) if found == identity => {}
            Some(LogRecord::Identity(found)) => return Err(IgnoreReason::Foreign { found: found.to_owned() }),
            Some(LogRecord::Put(_) | LogRecord::Delete { .. } | LogRecord::Commit { .. }) | None => {
                return Err(IgnoreReason::Damaged);
            }
        }
        let mut state = None;
        let mut live = HashMap::new();
        let mut live_bytes = 0;
        // Changes since the last commit; `None` for a deleted key.
        let mut open: Vec<(Box<str>, Option<RecordLocation>)> = Vec::new();
        loop {
            let at = records.at();
            let commit = match records.next().map_err(READ)? {
                None | Some(LogRecord::Identity(_)) => break,
                Some(LogRecord::Put(object)) => {
                    open.push((object.key(), Some(RecordLocation { at, bytes: object.record_bytes() })));
                    continue;
                }
                Some(LogRecord::Delete { key }) => {
                    open.push((key.into(), None));
                    continue;
                }
                Some(LogRecord::Commit { position, confirmed_unix_ms }) => {
                    let confirmed_at = UNIX_EPOCH.checked_add(Duration::from_millis(confirmed_unix_ms));
                    let (Ok(position), Some(confirmed_at)) = (ResourceVersion::parse(position), confirmed_at) else {
                        break;
                    };
                    (position, confirmed_at)
                }
            };
            for (key, place) in open.drain(..) {
                let before = match place {
                    Some(place) => live.insert(key, place),
                    None => live.remove(&key),
                };
                live_bytes += place.map_or(0, |place| place.bytes);
                live_bytes -= before.map_or(0, |place| place.bytes);
            }
            state = Some((commit, records.at(), records.chain()));
        }
        let ((position, confirmed_at), end, chain) = state.ok_or(IgnoreReason::Damaged)?;
        Ok(Self { position, confirmed_at, live, live_bytes, end, chain })
    }

    /// Number of objects of the state.
    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// Passes each object of the state to `take`, in the order they were written.
    pub(super) fn each(&self, file: &File, mut take: impl FnMut(RecordedObject<'_>)) -> Result<(), IgnoreReason> {
        let mut records = records(file, self.end)?;
        loop {
            let at = records.at();
            match records.next().map_err(READ)? {
                Some(LogRecord::Put(object)) => {
                    if self.live.get(&object.key()).is_some_and(|place| place.at == at) {
                        take(object);
                    }
                }
                Some(LogRecord::Identity(_) | LogRecord::Delete { .. } | LogRecord::Commit { .. }) => {}
                None => break,
            }
        }
        // The first pass could read up to the end, so a shorter read now is damage.
        if records.at() == self.end { Ok(()) } else { Err(IgnoreReason::Damaged) }
    }
}

/// The records of a log of this version, from the first one.
fn records(mut file: &File, end: u64) -> Result<Records<BufReader<&File>>, IgnoreReason> {
    file.seek(SeekFrom::Start(0)).map_err(READ)?;
    let mut file = BufReader::with_capacity(READ_BYTES, file);
    let mut found = [0; HEAD_BYTES];
    if !fill(&mut file, &mut found).map_err(READ)? {
        return Err(IgnoreReason::NotACheckpoint);
    }
    let (magic, version) = found.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(IgnoreReason::NotACheckpoint);
    }
    let version = u32::from_le_bytes(version.try_into().expect("four bytes follow the magic"));
    if version != VERSION {
        return Err(IgnoreReason::Version { found: version });
    }
    Ok(Records::new(file, HEAD_BYTES as u64, end, LogChecksum::begin(&found)))
}

/// Read buffer, in bytes.
const READ_BYTES: usize = 64 << 10;

const READ: fn(io::Error) -> IgnoreReason = |source| IgnoreReason::Io { doing: "read", source };
