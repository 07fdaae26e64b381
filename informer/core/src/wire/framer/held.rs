//! The one object that is being framed, buffered without its cut members.
//!
//! INVARIANT: the buffer is always the beginning of a valid object; a cut member's separating comma is removed with it.
//! INVARIANT: the buffer never exceeds the limit, and the limit counts bytes as sent, so that cuts do not hide them. An
//! object that exceeds the limit, or is too deep, is skipped from there on.

use std::ops::Range;

use super::{
    FrameError, TypeMeta,
    cut::{CutPaths, CutVerdict},
    skip::{Skip, SkipReason},
};
use crate::{
    limits::{DEPTH_MAX, FRAMER_KEEP_BYTES},
    wire::json::{
        self, Key,
        structure::{Stop, Stops, Structure},
    },
};

/// Type to put in front of an item that lacks it, as JSON text.
#[derive(Debug)]
pub(super) struct Head {
    kind: String,
    api_version: String,
}

/// The object being framed.
#[derive(Debug)]
pub(super) struct FramedObject {
    // Room for a head, then the object from its opening brace.
    bytes: Vec<u8>,
    // Start of the result in `bytes`: at the head, if one was inserted.
    from: usize,
    // Position of the object's own opening brace.
    brace: usize,
    cuts: CutPaths,
    cutting: CutTarget,
    // Depth of the container of the object.
    depth: usize,
    // True if the keys of the object itself are inspected; then those found.
    wants_type: bool,
    has_kind: bool,
    has_api_version: bool,
    // Bytes of the object as sent.
    sent: usize,
    sent_max: usize,
    // Position of the object in the body.
    at: u64,
    // Set if the object is skipped.
    skip: Option<Skip>,
}

/// Destination of the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutTarget {
    /// The object.
    No,
    /// A member that is cut. `first` if it directly follows an opening brace.
    Value { first: bool },
    /// After a first member that was cut: the comma that follows is cut with it.
    Comma,
}

impl Head {
    pub(super) fn new(meta: &TypeMeta) -> Self {
        Self { kind: json::quote(&meta.kind), api_version: json::quote(&meta.api_version) }
    }

    /// Returns the text in front of the members of an object that lacks `kind` or `apiVersion`, without its last comma.
    fn text(&self, kind: bool, api_version: bool) -> String {
        match (kind, api_version) {
            (true, true) => format!("{{\"kind\":{},\"apiVersion\":{}", self.kind, self.api_version),
            (true, false) => format!("{{\"kind\":{}", self.kind),
            (false, true) => format!("{{\"apiVersion\":{}", self.api_version),
            (false, false) => String::new(),
        }
    }

    /// Length of the longest such text.
    fn len(&self) -> usize {
        "{\"kind\":,\"apiVersion\":".len() + self.kind.len() + self.api_version.len()
    }
}

impl FramedObject {
    pub(super) fn new(cut: Vec<String>, sent_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            from: 0,
            brace: 0,
            cuts: CutPaths::new(cut),
            cutting: CutTarget::No,
            depth: 0,
            wants_type: false,
            has_kind: false,
            has_api_version: false,
            sent: 0,
            sent_max,
            at: 0,
            skip: None,
        }
    }

    /// Starts an object at this position of the body, in a container at `depth`. `head` may be inserted once it is
    /// complete; the paths are cut if `is_cut`.
    pub(super) fn begin(&mut self, at: u64, depth: usize, head: Option<&Head>, is_cut: bool) {
        self.bytes.clear();
        self.brace = head.map_or(0, Head::len);
        // Room for the longest head.
        self.bytes.resize(self.brace, b' ');
        self.from = self.brace;
        self.cuts.begin(is_cut);
        self.cutting = CutTarget::No;
        self.depth = depth;
        self.wants_type = head.is_some();
        self.has_kind = false;
        self.has_api_version = false;
        self.sent = 0;
        self.at = at;
        self.skip = None;
    }

    /// Starts a value that is no object, at this position of the body, in a container at `depth`.
    pub(super) fn begin_other(&mut self, at: u64, depth: usize) {
        self.depth = depth;
        self.skip = Some(Skip::new(SkipReason::NotAnObject, at));
    }

    /// Takes the skipped object, once it is complete.
    pub(super) fn take_skipped(&mut self) -> Option<Skip> {
        self.skip.take()
    }

    /// Consumes bytes of `chunk` until the object is complete (`true`) or the chunk is used up.
    pub(super) fn feed(&mut self, structure: &mut Structure, chunk: &mut &[u8]) -> Result<bool, FrameError> {
        if let Some(skip) = &mut self.skip {
            // The higher depth limit applies until the object ends.
            structure.skips(true);
            let is_complete = skip.feed(structure, self.depth, chunk)?;
            structure.skips(!is_complete);
            return Ok(is_complete);
        }
        while !chunk.is_empty() {
            let room = self.sent_max - self.sent;
            if room == 0 {
                return self.skip(SkipReason::TooLarge { limit: self.sent_max }, structure, chunk);
            }
            // Bytes beyond the limit are left to the skip.
            let window = &chunk[..chunk.len().min(room)];
            let (taken, stop) = match self.cutting {
                CutTarget::No => {
                    let (taken, stop) = structure.run(window, self.stops())?;
                    self.keep(&window[..taken]);
                    (taken, stop)
                }
                CutTarget::Value { .. } => structure.run(window, self.stops())?,
                CutTarget::Comma => structure.run(self.comma(window), Stops::NONE)?,
            };
            self.sent += taken;
            *chunk = &chunk[taken..];
            match stop {
                Some(Stop::Key) => self.key(structure.key_len()),
                Some(Stop::End) if self.end() => return Ok(true),
                Some(Stop::End | Stop::Value) | None => {}
                Some(Stop::Depth) => return self.skip(SkipReason::TooDeep { limit: DEPTH_MAX }, structure, chunk),
            }
        }
        Ok(false)
    }

    /// Skips the object, whose beginning is buffered. Frees that memory.
    fn skip(&mut self, reason: SkipReason, structure: &mut Structure, chunk: &mut &[u8]) -> Result<bool, FrameError> {
        let mut skip = Skip::new(reason, self.at);
        skip.begin(&self.bytes[self.brace..]);
        self.bytes = Vec::new();
        (self.from, self.brace) = (0, 0);
        self.skip = Some(skip);
        self.feed(structure, chunk)
    }

    /// Inserts the members of `head` that the complete object lacks.
    pub(super) fn insert(&mut self, head: Option<&Head>) {
        let Some(head) = head else { return };
        let text = head.text(!self.has_kind, !self.has_api_version);
        if text.is_empty() {
            return;
        }
        self.from = self.brace - text.len();
        self.bytes[self.from..self.brace].copy_from_slice(text.as_bytes());
        // The object's own brace becomes the comma behind the head; an empty object needs no comma.
        if self.bytes[self.brace + 1..].trim_ascii_start() == b"}" {
            self.bytes.remove(self.brace);
        } else {
            self.bytes[self.brace] = b',';
        }
    }

    /// The complete object.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..]
    }

    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.skip.as_ref().map_or(0, Skip::capacity)
    }

    /// Drops the complete object, and frees the memory of a large one.
    pub(super) fn release(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(FRAMER_KEEP_BYTES);
        self.from = 0;
    }

    /// Returns where to stop: at keys that a path may follow, and at the end of the innermost object entered.
    fn stops(&self) -> Stops {
        let inner = self.depth + self.cuts.levels();
        match self.cutting {
            CutTarget::No if self.wants_type || !self.cuts.is_empty() => {
                Stops { keys: inner, ends: inner - 1, ..Stops::NONE }
            }
            CutTarget::No => Stops { ends: self.depth, ..Stops::NONE },
            CutTarget::Value { .. } | CutTarget::Comma => Stops { ends: inner, ..Stops::NONE },
        }
    }

    /// Handles a key of the innermost object entered, just buffered; `len` includes its quotes.
    fn key(&mut self, len: usize) {
        let span = self.bytes.len() - len..self.bytes.len();
        let key = Key(&self.bytes[span.start + 1..span.end - 1]).bytes();
        if self.wants_type && self.cuts.levels() == 1 {
            self.has_kind |= *key == *b"kind";
            self.has_api_version |= *key == *b"apiVersion";
        }
        if self.cuts.key(&key) == CutVerdict::Cut {
            self.drop_key(span);
        }
    }

    /// Removes the buffered key of a cut member, and the comma before it.
    fn drop_key(&mut self, span: Range<usize>) {
        let before = self.bytes[..span.start].trim_ascii_end();
        let first = before.last() != Some(&b',');
        let len = before.len() - usize::from(!first);
        self.bytes.truncate(len);
        self.cutting = CutTarget::Value { first };
    }

    /// Handles the end of a value: of a cut member, of an object entered, or (`true`) of the whole object.
    fn end(&mut self) -> bool {
        match self.cutting {
            CutTarget::Value { first } => {
                self.cutting = if first { CutTarget::Comma } else { CutTarget::No };
                false
            }
            CutTarget::No | CutTarget::Comma => {
                self.cuts.leave();
                self.cuts.levels() == 0
            }
        }
    }

    /// Returns the white space behind a first member that was cut, with the comma if there is one.
    fn comma<'a>(&mut self, window: &'a [u8]) -> &'a [u8] {
        let space = window.len() - window.trim_ascii_start().len();
        let Some(&byte) = window.get(space) else { return window };
        self.cutting = CutTarget::No;
        &window[..space + usize::from(byte == b',')]
    }

    /// Appends to the object, doubling the buffer but never beyond the limit.
    fn keep(&mut self, bytes: &[u8]) {
        let needed = self.bytes.len() + bytes.len();
        if self.bytes.capacity() < needed {
            let most = self.sent_max.saturating_add(self.brace);
            let capacity = needed.max(most.min(self.bytes.capacity().saturating_mul(2)));
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
    }
}
