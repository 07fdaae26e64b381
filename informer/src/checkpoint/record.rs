//! The records of a checkpoint, in the log of `informer-log`.

use std::{
    io,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use informer_core::{
    ResourceVersion,
    object::Meta,
    store::{Body, Entry},
};
use informer_log::LogBatch;

/// Kind of the records that insert an object, or replace the object of its key.
pub(super) const PUT: u8 = 2;

/// Like [`PUT`], of an object of which only the names are known.
pub(super) const PUT_SKIPPED: u8 = 3;

/// Kind of the records that remove the object whose key is their body.
pub(super) const DELETE: u8 = 4;

/// A stored object. Its names are separate from its JSON, because the stored form may lack them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedObject<'a> {
    /// Empty for cluster-scoped types.
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    resource_version: &'a str,
    /// The labels as a JSON object; empty if they are in the JSON, or there are none.
    pub(super) labels: &'a str,
    pub(super) json: &'a [u8],
}

/// Size of the lengths of an object's five texts.
const LENGTHS_BYTES: usize = 5 * size_of::<u32>();

impl<'a> RecordedObject<'a> {
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

    /// Decodes the body of a record; `None` if no version of the format could have written it.
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let (lengths, mut rest) = body.split_first_chunk::<LENGTHS_BYTES>()?;
        let mut texts = [""; 5];
        for (into, length) in texts.iter_mut().zip(lengths.as_chunks().0) {
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            let (found, after) = rest.split_at_checked(length)?;
            rest = after;
            *into = str::from_utf8(found).ok()?;
        }
        let [namespace, name, uid, resource_version, labels] = texts;
        Some(Self { namespace, name, uid, resource_version, labels, json: rest })
    }
}

/// Writes an object: the lengths of its texts, the texts, and its JSON.
pub(super) fn put(batch: &mut LogBatch<'_>, entry: &Entry) -> io::Result<()> {
    let labels = match entry.body() {
        Body::Json(_) | Body::Packed(_) | Body::Skipped(_) => "",
        // The decoded type may not contain the labels.
        Body::Value { .. } => str::from_utf8(entry.labels()).unwrap_or_default(),
    };
    let texts = [entry.namespace(), entry.name(), entry.uid(), entry.resource_version(), labels];
    let mut lengths = [0; LENGTHS_BYTES];
    for (into, text) in lengths.as_chunks_mut().0.iter_mut().zip(texts) {
        *into = u32::try_from(text.len()).map_err(io::Error::other)?.to_le_bytes();
    }
    let [namespace, name, uid, version, labels] = texts.map(str::as_bytes);
    let kind = if entry.is_skipped() { PUT_SKIPPED } else { PUT };
    batch.push(kind, &[&lengths, namespace, name, uid, version, labels, &entry.json()])
}

/// Commits the state at `position`, which the server confirmed at this time.
pub(super) fn commit(batch: &mut LogBatch<'_>, position: &ResourceVersion, confirmed_unix_ms: u64) -> io::Result<()> {
    batch.commit(&[&confirmed_unix_ms.to_le_bytes(), position.as_str().as_bytes()])
}

/// Decodes the body of a commit: position and time of confirmation.
pub(super) fn read_commit(body: &[u8]) -> Option<(ResourceVersion, SystemTime)> {
    let (time, position) = body.split_first_chunk()?;
    let confirmed_at = UNIX_EPOCH.checked_add(Duration::from_millis(u64::from_le_bytes(*time)))?;
    Some((ResourceVersion::parse(str::from_utf8(position).ok()?).ok()?, confirmed_at))
}

/// Milliseconds since 1970; zero for earlier times.
pub(super) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
