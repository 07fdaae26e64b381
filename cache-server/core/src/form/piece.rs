//! A list's item as a piece of a compressed list.

use bytes::Bytes;

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
