//! Gzip encoding of lists from compressed pieces that all clients share, without a compressor per client.
//!
//! A piece is one object's bytes as deflate blocks without references outside of it that end on a byte boundary, so
//! pieces can follow each other in any order. Commas and the two ends of the list are stored blocks between them. The
//! checksum of the whole is combined from the checksums of its parts. The result is a single member, which any gzip
//! reader understands.
//!
//! The price is compression: 5 KB of JSON alone shrink to a third, a whole list would shrink to a tenth. It saves each
//! client a compressor's 256 KiB and its time.
//!
//! The cache of pieces is bounded. Beyond the bound an object is compressed again for each list, and a long object is
//! stored uncompressed, so that a client never costs more than its batch.
//!
//! Source: RFC 1951 and 1952.

use std::cell::RefCell;

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use watch_cache::{Entry, Piece, Slices};

/// Header of a gzip member: deflate, no name, no time, fastest compression, unknown system.
const HEADER: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
/// An empty block with the flag of the last block.
const LAST_BLOCK: &[u8] = &[0x03, 0x00];
/// A stored block that holds a comma.
const COMMA: &[u8] = &[0, 1, 0, 0xfe, 0xff, b','];
/// Longest contents of a stored block, in bytes.
const STORED_MAX: usize = 0xffff;
/// Compression level, as in kube-apiserver: most of the gain for little time.
const LEVEL: u32 = 1;
/// Bytes for block headers, beyond the length of incompressible data.
const BLOCKS_ROOM: usize = 64;

/// State of one compressed list.
#[derive(Debug, Default)]
pub(crate) struct Gzip {
    sum: crc32fast::Hasher,
    len: u64,
}

impl Gzip {
    /// Writes the header of the member.
    pub(crate) fn start(out: &mut Slices) {
        out.push_static(HEADER);
    }

    /// Writes `text` uncompressed.
    pub(crate) fn stored(&mut self, text: &[u8], out: &mut Slices) {
        for part in text.chunks(STORED_MAX) {
            out.push([&*stored_header(part.len()), part].concat().into());
        }
        self.sum.update(text);
        self.len += text.len() as u64;
    }

    /// Writes one object, and the comma before it.
    pub(crate) fn item(&mut self, entry: &Entry, first: bool, out: &mut Slices) {
        if !first {
            out.push_static(COMMA);
            self.sum.update(b",");
            self.len += 1;
        }
        let Some(piece) = entry.piece(deflate) else { return self.as_it_is(entry, out) };
        out.push(piece.deflated);
        self.sum.combine(&crc32fast::Hasher::new_with_initial_len(piece.sum, u64::from(piece.len)));
        self.len += u64::from(piece.len);
    }

    /// Writes one object uncompressed: slices of the shared bytes, without a copy.
    fn as_it_is(&mut self, entry: &Entry, out: &mut Slices) {
        let mut item = Slices::new();
        entry.item(true, &mut item);
        for slice in item.iter() {
            for at in (0..slice.len()).step_by(STORED_MAX) {
                let part = slice.slice(at..slice.len().min(at + STORED_MAX));
                out.push(stored_header(part.len()));
                self.sum.update(&part);
                self.len += part.len() as u64;
                out.push(part);
            }
        }
    }

    /// Writes the end of the member.
    pub(crate) fn end(&self, out: &mut Slices) {
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

/// Compresses one item. Cost: about 5 ns a byte, and a compressor of 256 KiB per thread that ever compressed.
fn deflate(parts: &[&[u8]]) -> Piece {
    thread_local! {
        static COMPRESS: RefCell<Compress> = RefCell::new(Compress::new(Compression::new(LEVEL), false));
    }
    let item = parts.concat();
    let deflated = COMPRESS.with_borrow_mut(|compress| {
        compress.reset();
        let mut out = Vec::with_capacity(item.len() + item.len() / 1_000 + BLOCKS_ROOM);
        let mut taken = 0;
        loop {
            let before = compress.total_in();
            // A full flush ends on a byte boundary, and later data cannot refer back to this.
            compress
                .compress_vec(&item[taken..], &mut out, FlushCompress::Full)
                .expect("a compressor that was reset takes any bytes");
            taken += usize::try_from(compress.total_in() - before).expect("no more than it was given");
            if taken == item.len() && out.len() < out.capacity() {
                return out;
            }
            out.reserve(BLOCKS_ROOM + out.len() / 2);
        }
    });
    let len = u32::try_from(item.len()).expect("an object is shorter than 4 GiB");
    Piece { deflated: Bytes::from(deflated.into_boxed_slice()), sum: crc32fast::hash(&item), len }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, sync::Arc};

    use flate2::read::GzDecoder;
    use watch_cache::{Draft, Schema};

    use super::*;
    use crate::read::encode::Encoder;

    fn entry(builtin: bool, data: &str) -> Arc<Entry> {
        let (kind, api_version) = ("Foo".to_owned(), "a/v1".to_owned());
        let schema = Schema { kind, api_version, builtin, fields: Vec::new(), node_field: None };
        let object = serde_json::json!({"metadata": {"name": "a"}, "data": data}).to_string();
        Draft::new(&schema, object.as_bytes()).expect("an object").commit(7)
    }

    fn bytes(slices: &Slices) -> Vec<u8> {
        slices.iter().flat_map(|slice| slice.to_vec()).collect()
    }

    /// Goal: any gzip reader can read the list. Method: lists of all kinds, joined and decoded by flate2, which checks
    /// the length and the checksum.
    #[test]
    fn pieces_make_one_member() {
        let random: String = (0..200_000).map(|_| fastrand::alphanumeric()).collect();
        for builtin in [true, false] {
            let entries: Vec<_> =
                ["", "x", &"same ".repeat(50_000), &random].into_iter().map(|data| entry(builtin, data)).collect();
            for count in 0..=entries.len() {
                let (head, tail) = (Bytes::from("h".repeat(70_000) + "["), Bytes::from("]}\n"));
                let mut out = Slices::new();
                let mut list = Encoder::compress(&head, &entries[..count], &mut out);
                list.tail(tail.clone(), &mut out);
                let mut expected = Slices::new();
                expected.push(head);
                for (place, entry) in entries[..count].iter().enumerate() {
                    entry.item(place == 0, &mut expected);
                }
                expected.push(tail);
                let mut read = Vec::new();
                GzDecoder::new(&*bytes(&out)).read_to_end(&mut read).expect("gzip");
                assert!(read == bytes(&expected), "{count} items, built in: {builtin}");
            }
        }
    }

    #[test]
    fn objects_may_stand_in_a_list_as_they_are() {
        for builtin in [true, false] {
            let entry = entry(builtin, &"same ".repeat(50_000));
            let (mut list, mut out) = (Gzip::default(), Slices::new());
            Gzip::start(&mut out);
            list.stored(b"[", &mut out);
            list.as_it_is(&entry, &mut out);
            list.stored(b"]", &mut out);
            list.end(&mut out);
            let mut read = Vec::new();
            GzDecoder::new(&*bytes(&out)).read_to_end(&mut read).expect("gzip");
            let mut item = Slices::new();
            entry.item(true, &mut item);
            assert!(read == [b"[", &*bytes(&item), b"]"].concat(), "built in: {builtin}");
        }
    }

    #[test]
    fn an_object_is_compressed_once() {
        let entry = entry(true, &"same ".repeat(1_000));
        let piece = entry.piece(deflate).expect("there is room").deflated;
        assert!(piece.len() < 200, "{}", piece.len());
        let again = entry.piece(|_| panic!("it is there")).expect("it is kept").deflated;
        assert_eq!(again.as_ptr(), piece.as_ptr());
    }
}
