//! Classifies the lines of a watch stream by their first bytes. A stream that begins with a zero is of protobuf.

use informer_core::wire::{status::Status, watch_event::INITIAL_EVENTS_ANNOTATION};

use super::{messages::MessageScan, string};

/// Bytes after which the type of a line is known: the longest prefix, `{"type":"BOOKMARK"`, and one more byte.
const HEAD_BYTES: usize = 19;

/// Maximum bytes kept of a bookmark or an error.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Prefixes of the lines, by type.
const HEADS: [(&[u8], Line); 5] = [
    (br#"{"type":"ADDED""#, Line::Added),
    (br#"{"type":"MODIFIED""#, Line::Modified),
    (br#"{"type":"DELETED""#, Line::Deleted),
    (br#"{"type":"BOOKMARK""#, Line::Bookmark),
    (br#"{"type":"ERROR""#, Line::Error),
];

/// Type of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Line {
    #[default]
    Unknown,
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// Number of complete lines by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// ADDED events.
    pub added: u64,
    /// MODIFIED events.
    pub modified: u64,
    /// DELETED events.
    pub deleted: u64,
    /// BOOKMARK events, including the one at the end of the initial state.
    pub bookmarks: u64,
    /// Lines of no known type.
    pub unknown: u64,
}

impl Counts {
    /// Number of ADDED, MODIFIED and DELETED events.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.added + self.modified + self.deleted
    }
}

/// Content of a bookmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// `metadata.resourceVersion`.
    pub position: String,
    /// True if the bookmark ends the initial state.
    pub ends_initial_state: bool,
}

/// State of a scanned stream. Owns no heap memory for its lines between bookmarks.
#[derive(Clone, Debug, Default)]
pub struct Events {
    /// Complete lines so far.
    pub counts: Counts,
    /// Number of ADDED events before the end bookmark; `None` until that bookmark.
    pub initial: Option<u64>,
    /// Position of the last bookmark.
    pub position: Option<Box<str>>,
    /// Code and message of the ERROR event that ended the stream.
    pub error: Option<(u16, String)>,
    head: [u8; HEAD_BYTES],
    filled: u8,
    line: Line,
    kept: Vec<u8>,
    /// Scan of a stream in protobuf.
    messages: Option<Box<MessageScan>>,
}

impl Events {
    /// For a stream that begins at a position: its initial state counts as complete and empty.
    #[must_use]
    pub fn without_initial_state() -> Self {
        Self { initial: Some(0), ..Self::default() }
    }

    /// Scans the next bytes of the stream.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        // The first byte of a message's length is zero below 16 MiB, and no line begins with it.
        if bytes.first() == Some(&0) && self.filled == 0 && self.counts == Counts::default() {
            self.messages.get_or_insert_default();
        }
        if let Some(mut messages) = self.messages.take() {
            messages.feed(bytes, |line, kept| self.count_message(line, kept));
            self.messages = Some(messages);
            return;
        }
        while !bytes.is_empty() {
            if usize::from(self.filled) < HEAD_BYTES {
                bytes = self.begin(bytes);
                continue;
            }
            let end = memchr::memchr(b'\n', bytes);
            let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if matches!(self.line, Line::Bookmark | Line::Error) {
                let room = KEPT_BYTES_MAX.saturating_sub(self.kept.len());
                self.kept.extend_from_slice(&line[..line.len().min(room)]);
            }
            bytes = rest;
            if end.is_some() {
                self.end();
                bytes = &rest[1..];
            }
        }
    }

    /// True once the initial state is complete.
    #[must_use]
    pub const fn is_synced(&self) -> bool {
        self.initial.is_some()
    }

    /// Collects the first bytes of a line. Returns the bytes after them.
    fn begin<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let filled = usize::from(self.filled);
        let taken = bytes.len().min(HEAD_BYTES - filled);
        // A line that is not an event may be shorter than the head.
        let newline = memchr::memchr(b'\n', &bytes[..taken]);
        let taken = newline.unwrap_or(taken);
        self.head[filled..filled + taken].copy_from_slice(&bytes[..taken]);
        self.filled += u8::try_from(taken).expect("no more than the head has");
        let head = &self.head[..usize::from(self.filled)];
        if newline.is_some() {
            if !head.is_empty() {
                self.counts.unknown += 1;
            }
            self.filled = 0;
            return &bytes[taken + 1..];
        }
        if head.len() == HEAD_BYTES {
            let line = HEADS.iter().find(|(start, _)| head.starts_with(start));
            self.line = line.map_or(Line::Unknown, |(_, line)| *line);
            if matches!(self.line, Line::Bookmark | Line::Error) {
                self.kept.extend_from_slice(&self.head);
            }
        }
        &bytes[taken..]
    }

    /// Counts a complete line.
    fn end(&mut self) {
        self.filled = 0;
        let kept = std::mem::take(&mut self.kept);
        self.count(self.line);
        match self.line {
            Line::Bookmark => {
                let Bookmark { position, ends_initial_state } = bookmark(&kept);
                self.note_bookmark(ends_initial_state);
                self.position = Some(position.into());
            }
            Line::Error => self.error = Some(error(&kept)),
            Line::Added | Line::Modified | Line::Deleted | Line::Unknown => {}
        }
    }

    /// Counts a message. Positions are not read.
    fn count_message(&mut self, line: Line, kept: &[u8]) {
        self.count(line);
        match line {
            Line::Bookmark => {
                self.note_bookmark(memchr::memmem::find(kept, INITIAL_EVENTS_ANNOTATION.as_bytes()).is_some());
            }
            Line::Error => self.error = Some((0, String::from_utf8_lossy(kept).into_owned())),
            Line::Added | Line::Modified | Line::Deleted | Line::Unknown => {}
        }
    }

    const fn count(&mut self, line: Line) {
        match line {
            Line::Added => self.counts.added += 1,
            Line::Modified => self.counts.modified += 1,
            Line::Deleted => self.counts.deleted += 1,
            Line::Unknown => self.counts.unknown += 1,
            Line::Bookmark => self.counts.bookmarks += 1,
            Line::Error => {}
        }
    }

    const fn note_bookmark(&mut self, ends_initial_state: bool) {
        if ends_initial_state && self.initial.is_none() {
            self.initial = Some(self.counts.added);
        }
    }
}

fn bookmark(line: &[u8]) -> Bookmark {
    let position = string(line, r#""resourceVersion":"#).unwrap_or_default().to_owned();
    Bookmark {
        position,
        ends_initial_state: string(line, &format!("\"{INITIAL_EVENTS_ANNOTATION}\":")) == Some("true"),
    }
}

fn error(line: &[u8]) -> (u16, String) {
    let object = memchr::memmem::find(line, br#""object":"#).map_or(&line[..0], |at| &line[at + 9..]);
    let status = Status::read(object.trim_ascii_end().strip_suffix(b"}").unwrap_or(object));
    status.map_or_else(|| (0, "an error that is no Status".to_owned()), |status| (status.code, status.message))
}

#[cfg(test)]
mod tests {
    use informer_serving::watch_event;

    use super::*;

    fn feed(wire: &[u8], size: usize) -> Events {
        let mut events = Events::default();
        for piece in wire.chunks(size) {
            events.feed(piece);
        }
        events
    }

    #[test]
    fn lines_are_counted_by_their_type_however_they_arrive() {
        let mut wire = Vec::new();
        for kind in ["ADDED", "ADDED", "MODIFIED", "DELETED"] {
            wire.extend(format!("{{\"type\":\"{kind}\",\"object\":{{\"a\":\"\\n\"}}}}\n").bytes());
        }
        wire.extend(watch_event::bookmark("Pod", "v1", 41, true));
        wire.extend(br#"{"type":"ADDED","object":{}}"#);
        wire.extend(b"\n\n{}\n");
        wire.extend(watch_event::bookmark("Pod", "v1", 42, false));
        for size in 1..=wire.len() {
            let events = feed(&wire, size);
            let counts = Counts { added: 3, modified: 1, deleted: 1, bookmarks: 2, unknown: 1 };
            assert_eq!(events.counts, counts, "by {size}");
            assert_eq!((events.initial, events.position.as_deref()), (Some(2), Some("42")), "by {size}");
            assert_eq!((events.counts.events(), events.error), (5, None));
        }
    }

    #[test]
    fn messages_are_counted_by_their_type_however_they_arrive() {
        let annotation = format!("\x0a\x08BOOKMARK\x12\x30{INITIAL_EVENTS_ANNOTATION}");
        let messages: [&[u8]; 6] = [
            b"\x0a\x05ADDED\x12\x00",
            b"\x0a\x05ADDED\x12\x05\x0a\x03abc",
            b"\x0a\x08MODIFIED\x12\x00",
            annotation.as_bytes(),
            b"\x0a\x05ADDED",
            b"\x0a\x08BOOKMARK",
        ];
        let framed = |message: &[u8]| [&u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat();
        let wire = messages.map(framed).concat();
        for size in 1..=wire.len() {
            let events = feed(&wire, size);
            let counts = Counts { added: 3, modified: 1, bookmarks: 2, ..Counts::default() };
            assert_eq!((events.counts, events.initial, events.error), (counts, Some(2), None), "by {size}");
        }
        let error = feed(&framed(b"\x0a\x05ERROR\x12\x07expired"), 3).error.unwrap();
        assert!(error.1.contains("expired"), "{error:?}");
    }

    #[test]
    fn a_line_that_is_cut_does_not_count() {
        let wire = br#"{"type":"ADDED","object":{"metadata":{}}}"#;
        assert_eq!(feed(wire, 7).counts, Counts::default());
    }

    #[test]
    fn errors_keep_code_and_message() {
        let wire = br#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;
        let events = feed(&[wire.as_slice(), b"\n"].concat(), 11);
        assert_eq!(events.error, Some((410, "too old resource version".to_owned())));
    }
}
