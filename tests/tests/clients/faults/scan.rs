//! Scans a response in transit for the end of its initial state, that state's position, and the byte at which to cut.

use informer_core::wire::watch_event::INITIAL_EVENTS_ANNOTATION;

use super::asked::Read;

/// Maximum bytes kept of one line.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Result of scanning one piece of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Bytes of the piece to forward.
    pub(super) pass: usize,
    /// Position of the initial state, if it ends in this piece.
    pub(super) position: Option<u64>,
    /// True to cut the connection after these bytes.
    pub(super) cut: bool,
}

/// The scanner of one response.
pub(super) struct Scan {
    body: Body,
    read: Read,
    /// Head of the response so far, in lower case.
    head: Vec<u8>,
    /// True if the content is protobuf, not lines of JSON.
    is_protobuf: bool,
    /// The line so far, or the event of a protobuf watch with its length.
    line: Vec<u8>,
    /// True once the initial state has passed, or if there is none.
    is_live: bool,
    /// Bytes until the cut, counted from the end of the first whole live event.
    cut_after: Option<usize>,
    counting: bool,
}

impl Scan {
    pub(super) fn new(read: Read, cut_after: Option<usize>) -> Self {
        let is_live = matches!(read, Read::Watch);
        let (body, head, line) = (Body::new(), Vec::new(), Vec::new());
        Self { body, read, head, is_protobuf: false, line, is_live, cut_after, counting: false }
    }

    /// True once the server has ended the response: by its last chunk, or by the close frame of a WebSocket.
    pub(super) const fn is_closed(&self) -> bool {
        matches!(self.body, Body::Closed)
    }

    pub(super) fn feed(&mut self, piece: &[u8]) -> Found {
        let mut found = Found { pass: piece.len(), position: None, cut: false };
        if self.read == Read::Other || self.read == Read::Page {
            return found;
        }
        for (at, &byte) in piece.iter().enumerate() {
            if self.counting {
                match &mut self.cut_after {
                    Some(0) => return Found { pass: at, cut: true, ..found },
                    Some(left) => *left -= 1,
                    None => return found,
                }
                continue;
            }
            let is_head = matches!(self.body, Body::Head { .. });
            let is_content = self.body.is_content(byte);
            if is_head {
                self.head.push(byte.to_ascii_lowercase());
                let protobuf = b"content-type: application/vnd.kubernetes.protobuf";
                self.is_protobuf = self.head.windows(protobuf.len()).any(|part| part == protobuf);
            }
            if is_content {
                if self.line.len() < LINE_BYTES_MAX {
                    self.line.push(byte);
                }
                if let Some(position) = self.content(byte) {
                    found.position = Some(position);
                }
            }
        }
        found
    }

    /// Scans a body byte. Returns the position of the initial state if it ends here.
    fn content(&mut self, byte: u8) -> Option<u64> {
        if self.read == Read::List {
            // The first resourceVersion is the list's own: its metadata precedes the items.
            let position = if self.is_live {
                None
            } else if self.is_protobuf {
                field_of_digits(LIST_VERSION, &self.line)
            } else {
                (byte == b'}').then(|| version_in(&self.line)).flatten()
            };
            self.is_live |= position.is_some();
            return position;
        }
        let is_whole = match self.line.split_first_chunk::<4>() {
            Some((length, event)) if self.is_protobuf => event.len() == u32::from_be_bytes(*length) as usize,
            Some(_) | None => !self.is_protobuf && byte == b'\n',
        };
        if !is_whole {
            return None;
        }
        let line = std::mem::take(&mut self.line);
        if self.is_live {
            self.counting = self.cut_after.is_some();
            return None;
        }
        let ends =
            line.windows(INITIAL_EVENTS_ANNOTATION.len()).any(|part| part == INITIAL_EVENTS_ANNOTATION.as_bytes());
        self.is_live = ends;
        let version = if self.is_protobuf { field_of_digits(OBJECT_VERSION, &line) } else { version_in(&line) };
        version.filter(|_| ends)
    }
}

/// Tags of the resourceVersion in protobuf's ListMeta and ObjectMeta.
const LIST_VERSION: u8 = 0x12;
const OBJECT_VERSION: u8 = 0x32;

/// Returns the first number in a field of that tag.
fn field_of_digits(tag: u8, message: &[u8]) -> Option<u64> {
    (0..message.len()).find_map(|at| {
        let [found, length, after @ ..] = message.get(at..)? else { return None };
        let digits = after.get(..usize::from(*length)).filter(|_| *found == tag)?;
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        if is_number { std::str::from_utf8(digits).ok()?.parse().ok() } else { None }
    })
}

fn version_in(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (_, after) = text.split_once("\"resourceVersion\":\"")?;
    after.split_once('"')?.0.parse().ok()
}

/// Separates body content from framing: head, chunk sizes, line ends, frame heads.
enum Body {
    /// In the head; holds its text so far, in lower case.
    Head { text: Vec<u8> },
    /// Content up to the end of the connection.
    Plain,
    /// In a chunk size.
    Size(usize),
    /// In a chunk, with this many bytes left.
    Chunk(usize),
    /// After a chunk, with this many bytes left before the next size.
    Gap(usize),
    /// In the head of a WebSocket frame.
    FrameHead(Vec<u8>),
    /// In a frame, with this many bytes left; true if it holds text.
    Frame(u64, bool),
    /// After the size of the last chunk, or the head of a close frame.
    Closed,
}

impl Body {
    const fn new() -> Self {
        Self::Head { text: Vec::new() }
    }

    fn is_content(&mut self, byte: u8) -> bool {
        match self {
            Self::Head { text } => {
                text.push(byte.to_ascii_lowercase());
                if text.ends_with(b"\r\n\r\n") {
                    let chunked = b"transfer-encoding: chunked";
                    let is_chunked = text.windows(chunked.len()).any(|part| part == chunked);
                    *self = if text.starts_with(b"http/1.1 101 ") {
                        Self::FrameHead(Vec::new())
                    } else if is_chunked {
                        Self::Size(0)
                    } else {
                        Self::Plain
                    };
                }
                false
            }
            Self::Plain => true,
            Self::Size(size) => {
                match char::from(byte).to_digit(16) {
                    Some(digit) => *size = *size * 16 + digit as usize,
                    None if byte == b'\n' => *self = if *size > 0 { Self::Chunk(*size) } else { Self::Closed },
                    None => {}
                }
                false
            }
            Self::Chunk(left) => {
                *left -= 1;
                if *left == 0 {
                    *self = Self::Gap(2);
                }
                true
            }
            Self::Gap(left) => {
                *left -= 1;
                if *left == 0 {
                    *self = Self::Size(0);
                }
                false
            }
            Self::FrameHead(head) => {
                head.push(byte);
                if let Some(next) = frame(head) {
                    *self = next;
                }
                false
            }
            Self::Frame(left, is_text) => {
                let is_text = *is_text;
                *left -= 1;
                if *left == 0 {
                    *self = Self::FrameHead(Vec::new());
                }
                is_text
            }
            Self::Closed => false,
        }
    }
}

/// The state after the head of a server's frame, once the head is complete.
fn frame(head: &[u8]) -> Option<Body> {
    let [first, length, rest @ ..] = head else { return None };
    let due = match length {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    if rest.len() < due {
        return None;
    }
    let length =
        if due == 0 { u64::from(*length) } else { rest.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)) };
    Some(match (first & 0x0f, length) {
        (8, _) => Body::Closed,
        (_, 0) => Body::FrameHead(Vec::new()),
        (kind, _) => Body::Frame(length, kind == 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

    fn chunks(lines: &[&str]) -> String {
        let chunks = lines.iter().map(|line| format!("{:x}\r\n{line}\r\n", line.len()));
        HEAD.to_owned() + &chunks.collect::<String>()
    }

    #[test]
    fn a_cut_is_so_many_bytes_after_the_first_whole_event() {
        let answer = chunks(&["{\"type\":\"ADDED\"}\n", "{\"type\":\"ADDED\"}\n"]);
        let first = answer.find("}\n").unwrap() + 2;
        for after in [0, 1, 3, 9] {
            let found = Scan::new(Read::Watch, Some(after)).feed(answer.as_bytes());
            assert_eq!(found, Found { pass: first + after, position: None, cut: true });
        }
    }

    #[test]
    fn a_websocket_is_read_like_a_stream() {
        let lines = ["{\"type\":\"ADDED\"}\n".to_owned(), format!("{{\"type\":\"{}\"}}\n", "x".repeat(300))];
        let mut answer = b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x8a\x01p\x81\x11".to_vec();
        answer.extend(lines[0].as_bytes());
        let first = answer.len();
        answer.extend(b"\x81\x7e\x01\x38");
        answer.extend(lines[1].as_bytes());
        let mut scan = Scan::new(Read::Watch, Some(7));
        assert_eq!(scan.feed(&answer), Found { pass: first + 7, position: None, cut: true });
        let mut scan = Scan::new(Read::Watch, None);
        assert!(!scan.feed(&answer[..first]).cut && !scan.is_closed());
        scan.feed(&[&answer[first..], b"\x88\x02\x03\xe8"].concat());
        assert!(scan.is_closed());
    }

    #[test]
    fn the_last_chunk_ends_a_stream() {
        let mut scan = Scan::new(Read::Watch, None);
        scan.feed(chunks(&["{\"type\":\"ADDED\"}\n", "{\"type\":\"ADDED\"}\n"]).as_bytes());
        assert!(!scan.is_closed());
        scan.feed(b"0\r\n\r\n");
        assert!(scan.is_closed());
    }

    #[test]
    fn the_position_of_a_state_is_read_however_it_is_cut_into_pieces() {
        let list = "{\"kind\":\"L\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[{\"metadata\":{\"resourceVersion\":\"5\"}}]}";
        let end = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\",\"annotations\":\
                   {\"k8s.io/initial-events-end\":\"true\"}}}}\n";
        let item = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"5\"}}}\n";
        let (before, after) = end.split_at(30);
        for (read, answer) in [
            (Read::List, chunks(&[list])),
            (Read::List, format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{list}")),
            (Read::InitialWatch, chunks(&[item, before, after])),
        ] {
            let mut scan = Scan::new(read, None);
            let found: Vec<u64> = answer.bytes().filter_map(|byte| scan.feed(&[byte]).position).collect();
            assert_eq!(found, [7], "{answer}");
            let found = Scan::new(read, None).feed(answer.as_bytes());
            assert_eq!((found.position, found.cut), (Some(7), false));
        }
    }
}
