//! Classifies the events of a watch stream in protobuf by their first bytes.
//!
//! Source: apimachinery `runtime/serializer/protobuf` (frames of four bytes of length, then a `WatchEvent` whose first
//! field is the type).

use super::events::Line;

/// Bytes after which the type of an event is known: tag and length of its first field, and `BOOKMARK`.
const HEAD_BYTES: usize = 10;
/// Maximum bytes kept of a bookmark or an error.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Begins of the events, by type.
const HEADS: [(&[u8], Line); 5] = [
    (b"\x0a\x05ADDED", Line::Added),
    (b"\x0a\x08MODIFIED", Line::Modified),
    (b"\x0a\x07DELETED", Line::Deleted),
    (b"\x0a\x08BOOKMARK", Line::Bookmark),
    (b"\x0a\x05ERROR", Line::Error),
];

/// State of a scanned stream.
#[derive(Clone, Debug, Default)]
pub(super) struct MessageScan {
    length: [u8; 4],
    /// Known bytes of the length.
    filled: usize,
    /// Bytes of the event that have not arrived.
    rest: usize,
    /// Type of the event; `None` until its first bytes have arrived.
    line: Option<Line>,
    /// First bytes of the event, or all of a bookmark or an error.
    kept: Vec<u8>,
}

impl MessageScan {
    /// Scans the next bytes. Passes the type of each complete event, and the bytes of bookmarks and errors.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut take: impl FnMut(Line, &[u8])) {
        while !bytes.is_empty() {
            if self.filled < self.length.len() {
                let (part, after) = bytes.split_at(bytes.len().min(self.length.len() - self.filled));
                self.length[self.filled..self.filled + part.len()].copy_from_slice(part);
                self.filled += part.len();
                bytes = after;
                if self.filled == self.length.len() {
                    self.rest = u32::from_be_bytes(self.length) as usize;
                    self.line = None;
                    self.kept.clear();
                }
                continue;
            }
            let (part, after) = bytes.split_at(bytes.len().min(self.rest));
            bytes = after;
            self.rest -= part.len();
            if matches!(self.line, None | Some(Line::Bookmark | Line::Error)) {
                self.keep(part);
            }
            if self.rest == 0 {
                self.filled = 0;
                take(self.line.unwrap_or(Line::Unknown), &self.kept);
            }
        }
    }

    /// Keeps bytes until the type of the event is known, and all of a bookmark or an error.
    fn keep(&mut self, part: &[u8]) {
        let room = if self.line.is_some() { KEPT_BYTES_MAX } else { HEAD_BYTES };
        let (now, later) = part.split_at(part.len().min(room.saturating_sub(self.kept.len())));
        self.kept.extend_from_slice(now);
        if self.line.is_none() && (self.kept.len() == HEAD_BYTES || self.rest == 0) {
            let line = HEADS.iter().find(|(start, _)| self.kept.starts_with(start));
            self.line = Some(line.map_or(Line::Unknown, |(_, line)| *line));
            if matches!(self.line, Some(Line::Bookmark | Line::Error)) {
                self.kept.extend_from_slice(&later[..later.len().min(KEPT_BYTES_MAX)]);
            }
        }
    }
}
