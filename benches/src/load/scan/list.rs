//! Counts the objects of a list by a member that each object has exactly once.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::string;
use crate::load::failure::{Failure, Kind};

/// Every stored object has this member exactly once, and nothing else matches: quotes in strings are escaped, and
/// embedded templates have `null` as the value.
const MEMBER: &[u8] = br#""creationTimestamp":""#;

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(MEMBER));

/// Bytes kept of the start and of the end of the body; the metadata of the list is in one of them.
const EDGE_BYTES: usize = 4 << 10;

/// State of a scanned list.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// Objects so far.
    pub objects: u64,
    start: Vec<u8>,
    end: Vec<u8>,
    /// The last bytes of the previous piece, one fewer than the member has.
    carry: Vec<u8>,
}

/// Metadata of a complete list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListEnd {
    /// `metadata.resourceVersion`.
    pub position: String,
    /// `metadata.continue`; `None` on the last page.
    pub token: Option<String>,
}

impl List {
    /// Scans the next bytes of the body.
    pub fn feed(&mut self, bytes: &[u8]) {
        let keep = MEMBER.len() - 1;
        // Search the seam for a member that is split between the pieces.
        self.carry.extend_from_slice(&bytes[..bytes.len().min(keep)]);
        self.objects += count(&self.carry);
        if bytes.len() > keep {
            self.objects += count(bytes);
            self.carry.clear();
            self.carry.extend_from_slice(&bytes[bytes.len() - keep..]);
        } else {
            let gone = self.carry.len().saturating_sub(keep);
            self.carry.drain(..gone);
        }
        let room = EDGE_BYTES - self.start.len();
        self.start.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let new = &bytes[bytes.len().saturating_sub(EDGE_BYTES)..];
        let gone = (self.end.len() + new.len()).saturating_sub(EDGE_BYTES);
        self.end.drain(..gone);
        self.end.extend_from_slice(new);
    }

    /// Metadata of the list, once the body is complete.
    ///
    /// # Errors
    /// [`Kind::Protocol`] if the body is not a list.
    pub fn finish(&self) -> Result<ListEnd, Failure> {
        let bad = || Failure::new(Kind::Protocol, "what came is no list");
        let start = self.start.trim_ascii_start();
        let items = memchr::memmem::find(start, br#""items":"#);
        if !start.starts_with(b"{") || !self.end.trim_ascii_end().ends_with(b"}") {
            return Err(bad());
        }
        // Lists of built-in types have their metadata first; lists with sorted members have it last.
        let first = &start[..items.unwrap_or(start.len())];
        let last = memchr::memmem::rfind(&self.end, b"]").map_or(&self.end[..0], |at| &self.end[at..]);
        let found = |name| string(first, name).or_else(|| string(last, name)).filter(|text| !text.is_empty());
        let position = found(r#""resourceVersion":"#).ok_or_else(bad)?.to_owned();
        Ok(ListEnd { position, token: found(r#""continue":"#).map(str::to_owned) })
    }
}

fn count(bytes: &[u8]) -> u64 {
    FINDER.find_iter(bytes).fold(0, |count, _| count + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(text: &str, size: usize) -> List {
        let mut list = List::default();
        for piece in text.as_bytes().chunks(size) {
            list.feed(piece);
        }
        list
    }

    #[test]
    fn objects_are_counted_however_they_arrive() {
        let item = r#"{"metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"x":"\"creationTimestamp\":\"y\""}},"spec":{"template":{"metadata":{"creationTimestamp":null}}}}"#;
        let body = format!(
            "{{\"kind\":\"PodList\",\"metadata\":{{\"resourceVersion\":\"7\",\"continue\":\"abc\"}},\"items\":[{}]}}\n",
            [item; 40].join(",")
        );
        for size in (1..64).chain([1_000, body.len()]) {
            let list = feed(&body, size);
            let end = ListEnd { position: "7".to_owned(), token: Some("abc".to_owned()) };
            assert_eq!((list.objects, list.finish()), (40, Ok(end)), "by {size}");
        }
    }

    #[test]
    fn metadata_may_follow_the_items() {
        let body = r#"{"apiVersion":"v1","items":[{"metadata":{"resourceVersion":"3","creationTimestamp":"x","continue":"no"}}],"kind":"List","metadata":{"continue":"","resourceVersion":"9"}}"#;
        let list = feed(body, 10);
        let end = ListEnd { position: "9".to_owned(), token: None };
        assert_eq!((list.objects, list.finish()), (1, Ok(end)));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for body in ["", "no", r#"{"kind":"PodList","items":[]}"#, r#"{"metadata":{"resourceVersion":"1"},"items":["#] {
            assert!(feed(body, 5).finish().is_err(), "{body}");
        }
    }
}
