//! Gzip encoding of lists from compressed groups of objects that all clients share, without a compressor per client.
//!
//! The text of a group is deflate blocks without references outside of it that end on a byte boundary, so groups can
//! follow each other in any order. The two ends of the list are stored blocks. The checksum of the whole is combined from
//! the checksums of its parts. The result is a single member, which any gzip reader understands.
//!
//! The cache of compressed groups is bounded. Beyond the bound a group is stored uncompressed: shared slices, without a
//! copy, so a client never costs more than its batch.
//!
//! Source: RFC 1951 and 1952.

mod stream;

use std::{cell::RefCell, sync::Arc};

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use watch_cache::{Entry, Form, ObjectGroup, Page, Piece, Slices};

pub(crate) use self::stream::GzipStream;

/// Header of a gzip member: deflate, no name, no time, fastest compression, unknown system.
const HEADER: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// An empty block with the flag of the last block.
const LAST_BLOCK: &[u8] = &[0x03, 0x00];
/// Longest contents of a stored block, in bytes.
const STORED_MAX: usize = 0xffff;
/// Compression level: most of the gain for little time.
const LEVEL: u32 = 2;
/// Bytes for block headers, beyond the length of incompressible data.
const BLOCKS_ROOM: usize = 64;

/// A gzip member that is being written.
#[derive(Debug, Default)]
struct GzipMember {
    sum: crc32fast::Hasher,
    len: u64,
}

/// The text of a group of objects, as it is sent.
enum GroupContent {
    Compressed(Piece),
    /// For want of room in the cache. False if it ends before an object that cannot be encoded.
    Stored(Slices, bool),
}

impl GroupContent {
    /// Encodes a group. Sets `has_compressed` unless its piece is cached or has no room.
    fn of(group: &ObjectGroup, has_compressed: &mut bool) -> Self {
        let piece = group.piece(|text| {
            *has_compressed = true;
            deflate(text)
        });
        piece.map_or_else(
            || {
                let mut text = Slices::new();
                let is_whole = group.text(&mut text);
                Self::Stored(text, is_whole)
            },
            Self::Compressed,
        )
    }
}

/// Encoder of one compressed list.
#[derive(Debug)]
pub(crate) struct Gzip {
    member: GzipMember,
    /// Objects that were read ahead, to learn if the list is long.
    waiting: std::vec::IntoIter<Arc<Entry>>,
    group: ObjectGroup,
    /// True if the last step compressed objects.
    has_compressed: bool,
}

impl Gzip {
    /// Creates an encoder; `None` for rows, whose text depends on the time.
    pub(crate) fn new(form: &Form) -> Option<Self> {
        let (member, group, waiting) = (GzipMember::default(), ObjectGroup::of_items(form)?, Vec::new().into_iter());
        Some(Self { member, waiting, group, has_compressed: false })
    }

    /// True if items are protobuf, not JSON.
    pub(crate) const fn is_protobuf(&self) -> bool {
        self.group.form().is_protobuf()
    }

    /// Pushes an item uncompressed.
    pub(crate) fn item(&self, entry: &Entry, first: bool, out: &mut Slices) {
        entry.item_as(self.group.form(), first, 0, out);
    }

    /// Sets the items that were read ahead of the page.
    pub(crate) fn precede(&mut self, waiting: Vec<Arc<Entry>>) {
        self.waiting = waiting.into_iter();
    }

    /// Writes the next group of objects, like [`Page::step`].
    pub(crate) fn step(&mut self, page: &mut Page, out: &mut Slices) -> bool {
        self.has_compressed = false;
        let is_deferred = self.group.is_complete();
        let mut is_full = is_deferred || self.waiting.by_ref().any(|entry| self.group.push(&entry));
        let more = is_full
            || page.visit(|entry, _| {
                is_full = self.group.push(entry);
                !is_full
            });
        if !is_deferred && (is_full || !more) && self.group.is_slow() {
            self.group.complete();
            return true;
        }
        if is_full || !more {
            self.write_group(out);
        }
        more
    }

    /// True if the next step compresses a long object.
    pub(crate) const fn is_slow(&self) -> bool {
        self.group.is_complete()
    }

    /// True if the last step compressed objects, which takes about half a millisecond.
    pub(crate) const fn has_compressed(&self) -> bool {
        self.has_compressed
    }

    fn write_group(&mut self, out: &mut Slices) {
        let Self { member, group, has_compressed, .. } = self;
        if group.objects().is_empty() {
            return;
        }
        member.group(GroupContent::of(group, has_compressed), out);
        group.clear();
    }

    /// Writes the start of the member, and `head` uncompressed.
    pub(crate) fn head(&mut self, head: Bytes, out: &mut Slices) {
        GzipMember::start(out);
        self.member.stored(&Slices::from(head), out);
    }

    /// Writes `tail` uncompressed, and the end of the member.
    pub(crate) fn tail(&mut self, tail: Bytes, out: &mut Slices) {
        self.member.stored(&Slices::from(tail), out);
        self.member.end(out);
    }
}

impl GzipMember {
    fn start(out: &mut Slices) {
        out.push_static(HEADER);
    }

    /// Writes the text of a group.
    fn group(&mut self, content: GroupContent, out: &mut Slices) {
        match content {
            GroupContent::Compressed(Piece { deflated, sum, len }) => {
                out.push(deflated);
                self.sum.combine(&crc32fast::Hasher::new_with_initial_len(sum, u64::from(len)));
                self.len += u64::from(len);
            }
            GroupContent::Stored(text, _) => self.stored(&text, out),
        }
    }

    /// Writes `text` uncompressed, without a copy.
    fn stored(&mut self, text: &Slices, out: &mut Slices) {
        let (mut left, mut room) = (text.bytes(), 0);
        for slice in text.iter() {
            self.sum.update(slice);
            let mut at = 0;
            while at < slice.len() {
                if room == 0 {
                    room = left.min(STORED_MAX);
                    left -= room;
                    out.push(stored_header(room));
                }
                let part = slice.slice(at..slice.len().min(at + room));
                at += part.len();
                room -= part.len();
                out.push(part);
            }
        }
        self.len += text.bytes() as u64;
    }

    /// Lets a reader decode what was written: some wait for an empty block.
    fn flush(out: &mut Slices) {
        out.push_static(&[0, 0, 0, 0xff, 0xff]);
    }

    fn end(&self, out: &mut Slices) {
        let mut end = LAST_BLOCK.to_vec();
        end.extend_from_slice(&self.sum.clone().finalize().to_le_bytes());
        // The format stores the length modulo 2^32.
        end.extend_from_slice(&self.len.to_le_bytes()[..4]);
        out.push(end.into());
    }
}

/// Returns the header of a stored block of `len` bytes, at most [`STORED_MAX`]: not the last block, the length and its
/// complement.
fn stored_header(len: usize) -> Bytes {
    let [low, high] = u16::try_from(len).expect("a block is that short").to_le_bytes();
    Bytes::copy_from_slice(&[0, low, high, !low, !high])
}

/// Compresses a text. Cost: about 10 ns a byte, and a compressor of 256 KiB per thread that ever compressed.
fn deflate(text: &Slices) -> Piece {
    thread_local! {
        static COMPRESS: RefCell<Compress> = RefCell::new(Compress::new(Compression::new(LEVEL), false));
    }
    let mut sum = crc32fast::Hasher::new();
    let mut out = Vec::with_capacity(text.bytes() / 4 + BLOCKS_ROOM);
    COMPRESS.with_borrow_mut(|compress| {
        compress.reset();
        for slice in text.iter() {
            sum.update(slice);
            add(compress, slice, FlushCompress::None, &mut out);
        }
        // Ends on a byte boundary.
        add(compress, &[], FlushCompress::Sync, &mut out);
    });
    let len = u32::try_from(text.bytes()).expect("an object is shorter than 4 GiB");
    Piece { deflated: Bytes::from(out.into_boxed_slice()), sum: sum.finalize(), len }
}

/// Compresses all of `text` behind what the compressor was given before.
fn add(compress: &mut Compress, text: &[u8], flush: FlushCompress, out: &mut Vec<u8>) {
    let mut taken = 0;
    loop {
        let before = compress.total_in();
        compress.compress_vec(&text[taken..], out, flush).expect("a compressor that was reset takes any bytes");
        taken += usize::try_from(compress.total_in() - before).expect("no more than it was given");
        if taken == text.len() && out.len() < out.capacity() {
            return;
        }
        out.reserve(BLOCKS_ROOM + out.len() / 2);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use watch_cache::{Draft, Schema};

    use super::*;

    fn entries(builtin: bool, data: &[&str]) -> Vec<Arc<Entry>> {
        let (kind, api_version) = ("Foo".to_owned(), "a/v1".to_owned());
        let schema = Schema { kind, api_version, builtin, fields: Vec::new(), node_field: None };
        let entry = |data: &&str| {
            let object = serde_json::json!({"metadata": {"name": "a"}, "data": data}).to_string();
            Draft::new(&schema, object.as_bytes()).expect("an object").commit(7)
        };
        data.iter().map(entry).collect()
    }

    fn bytes(slices: &Slices) -> Vec<u8> {
        slices.iter().flat_map(|slice| slice.to_vec()).collect()
    }

    /// Goal: any gzip reader can read the list. Method: lists of all kinds, joined and decoded by flate2, which checks
    /// the length and the checksum; compressed, cached and stored.
    #[test]
    fn groups_make_one_member() {
        let random: String = (0..200_000).map(|_| fastrand::alphanumeric()).collect();
        let form = Form::whole();
        for builtin in [true, false] {
            let entries = entries(builtin, &["", "x", &"same ".repeat(50_000), &random, "y", &random, "z"]);
            for count in 0..=entries.len() {
                let (head, tail) = (Bytes::from("h".repeat(70_000) + "["), Bytes::from("]}\n"));
                let mut out = Slices::new();
                let mut list = Gzip::new(&form).expect("a form without time");
                list.head(head.clone(), &mut out);
                for (place, entry) in entries[..count].iter().enumerate() {
                    if list.group.push(entry) || place + 1 == count {
                        list.write_group(&mut out);
                    }
                }
                list.tail(tail.clone(), &mut out);
                let mut expected = Slices::new();
                expected.push(head);
                entries[..count].iter().enumerate().for_each(|(place, entry)| entry.item(place == 0, &mut expected));
                expected.push(tail);
                let mut read = Vec::new();
                GzDecoder::new(&*bytes(&out)).read_to_end(&mut read).expect("gzip");
                assert!(read == bytes(&expected), "{count} items, built in: {builtin}");
            }
        }
    }

    #[test]
    fn long_text_is_stored_in_blocks() {
        let mut list = Gzip::new(&Form::whole()).expect("a form without time");
        let (text, mut out, mut read) = (Bytes::from("stored ".repeat(30_000)), Slices::new(), Vec::new());
        list.head(text.clone(), &mut out);
        list.tail(text.clone(), &mut out);
        GzDecoder::new(&*bytes(&out)).read_to_end(&mut read).expect("gzip");
        assert!(read == [text.as_ref(), text.as_ref()].concat());
    }
}
