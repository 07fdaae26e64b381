//! Encoding of one change in the data file.
//!
//! INVARIANT: no bytes cause a panic. Bytes that are no record give `None`: the file is damaged then.
//!
//! Format, little-endian: `kind u8, unix_ms u64, superseded u64, freed u32, type length u16, type`, then the object as
//! JSON, or the key of a deleted one.

/// One change of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalRecord<'a> {
    /// When it was written, in Unix milliseconds.
    pub(super) unix_ms: u64,
    /// Revision of the version that it replaced or deleted; zero if the object is new.
    pub(super) superseded: u64,
    /// Bytes in the file of that version.
    pub(super) freed: u32,
    /// The type's id.
    pub(super) ty: &'a str,
    pub(super) content: RecordContent<'a>,
}

/// The effect of a change on its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordContent<'a> {
    /// A new version.
    Put {
        json: &'a [u8],
        /// See `Entry::is_normal`.
        is_normal: bool,
    },
    /// The deletion of an object.
    Deleted { key: &'a str },
}

const PUT: u8 = 1;
const PUT_NORMAL: u8 = 2;
const DELETED: u8 = 3;

/// Bytes of a record before its type.
const HEAD_BYTES: usize = 1 + 8 + 8 + 4 + 2;

impl<'a> JournalRecord<'a> {
    /// Returns the bytes of the record. Type ids longer than 65,535 bytes do not exist: names of definitions have 253.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, payload) = match self.content {
            RecordContent::Put { json, is_normal: false } => (PUT, json),
            RecordContent::Put { json, is_normal: true } => (PUT_NORMAL, json),
            RecordContent::Deleted { key } => (DELETED, key.as_bytes()),
        };
        let ty = u16::try_from(self.ty.len()).expect("type ids are short");
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.ty.len() + payload.len());
        bytes.push(kind);
        bytes.extend_from_slice(&self.unix_ms.to_le_bytes());
        bytes.extend_from_slice(&self.superseded.to_le_bytes());
        bytes.extend_from_slice(&self.freed.to_le_bytes());
        bytes.extend_from_slice(&ty.to_le_bytes());
        bytes.extend_from_slice(self.ty.as_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    /// Reads the bytes of a record.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (&[kind], rest) = bytes.split_first_chunk()?;
        let (unix_ms, rest) = rest.split_first_chunk()?;
        let (superseded, rest) = rest.split_first_chunk()?;
        let (freed, rest) = rest.split_first_chunk()?;
        let (ty_len, rest) = rest.split_first_chunk()?;
        let (ty, payload) = rest.split_at_checked(u16::from_le_bytes(*ty_len).into())?;
        let content = match kind {
            PUT | PUT_NORMAL => RecordContent::Put { json: payload, is_normal: kind == PUT_NORMAL },
            DELETED => RecordContent::Deleted { key: std::str::from_utf8(payload).ok()? },
            _ => return None,
        };
        Some(Self {
            unix_ms: u64::from_le_bytes(*unix_ms),
            superseded: u64::from_le_bytes(*superseded),
            freed: u32::from_le_bytes(*freed),
            ty: std::str::from_utf8(ty).ok()?,
            content,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written_and_cut_ones_are_refused() {
        let put = RecordContent::Put { json: b"{}", is_normal: true };
        for content in
            [put, RecordContent::Put { json: b"{}", is_normal: false }, RecordContent::Deleted { key: "a/b" }]
        {
            let record = JournalRecord { unix_ms: 1, superseded: 1 << 60, freed: 7, ty: "pods", content };
            let bytes = record.encode();
            assert_eq!(JournalRecord::decode(&bytes), Some(record));
            for cut in 0..HEAD_BYTES + "pods".len() {
                assert_eq!(JournalRecord::decode(&bytes[..cut]), None, "cut at {cut}");
            }
        }
        assert_eq!(JournalRecord::decode(&[9; 100]), None, "no such kind");
    }
}
