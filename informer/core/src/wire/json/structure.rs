//! The JSON grammar of this crate: checks structure, and can stop and resume at any byte.
//!
//! INVARIANT: brackets balance, strings close, commas and colons are in place; the spelling of numbers, literals and
//! escapes is left to the decoder. INVARIANT: results do not depend on the boundaries of chunks.

use memchr::memchr2;

use super::JsonError;
use crate::limits::{DEPTH_MAX, SKIPPED_DEPTH_MAX};

/// Stop conditions of [`Structure::run`], each by the depth of the containing object or array (the outermost is 1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stops {
    /// After the closing quote of a key in the object at this depth.
    pub(crate) keys: usize,
    /// Before the first byte of a value inside the container at this depth.
    pub(crate) values: usize,
    /// After a value inside the container at this depth; 0 is the end of the document.
    pub(crate) ends: usize,
}

impl Stops {
    /// A depth that is never reached.
    pub(crate) const NEVER: usize = usize::MAX;
    /// Runs to the end of the input.
    pub(crate) const NONE: Self = Self { keys: Self::NEVER, values: Self::NEVER, ends: Self::NEVER };
}

/// Reason for a stop of [`Structure::run`] before the end of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A key has just ended; [`Structure::key_len`] returns its length.
    Key,
    /// The next byte begins a value.
    Value,
    /// A value has just ended.
    End,
    /// The next byte would exceed the depth limit; see [`Structure::skips`].
    Depth,
}

/// A position in the grammar of one JSON document.
#[derive(Clone, Debug)]
pub(crate) struct Structure {
    state: GrammarState,
    levels: Levels,
    // Bits of the levels around those in `levels`, 64 each. Allocated only for documents deeper than 64 levels, which
    // are rare.
    around: Vec<u64>,
    // Bytes of the document so far.
    seen: u64,
    // Position of the opening quote of the latest key, in the units of `seen`.
    key_at: u64,
}

/// The objects and arrays that are open.
#[derive(Clone, Copy, Debug)]
struct Levels {
    depth: usize,
    // A multiple of 64.
    depth_max: usize,
    // One bit for each of the innermost 1 to 64 levels, the innermost lowest: set for an object, clear for an array.
    bits: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrammarState {
    /// A value must come.
    Value,
    /// A value or `]`: just after `[`.
    FirstValue,
    /// A key or `}`: just after `{`.
    FirstKey,
    /// A key must come: just after a comma.
    Key,
    /// Inside a key.
    KeyText,
    /// Inside a key, after a backslash.
    KeyEscape,
    /// A colon must come.
    Colon,
    /// Inside a string.
    Text,
    /// Inside a string, after a backslash.
    TextEscape,
    /// Inside a number or a literal.
    Scalar,
    /// A comma or the closing bracket: just after a value.
    After,
}

/// End of a string within the bytes at hand.
#[derive(Clone, Copy)]
enum StringEnd {
    /// At its closing quote.
    Closed,
    /// Beyond the bytes.
    Open,
    /// Beyond the bytes, the last of which is a backslash.
    Escape,
}

/// Blocks of a string that are searched inline before calling memchr, which is faster on long runs.
const BLOCKS_INLINE: usize = 4;

const _: () = assert!(DEPTH_MAX.is_multiple_of(64) && DEPTH_MAX > 0, "levels fill whole words");
const _: () = assert!(SKIPPED_DEPTH_MAX.is_multiple_of(64) && SKIPPED_DEPTH_MAX > DEPTH_MAX, "and so do those skipped");

/// Bytes that may occur inside a number, `true`, `false` or `null`.
const SCALAR: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'+' | b'-' | b'.' | b'E');
        byte += 1;
    }
    table
};

impl Structure {
    /// Starts a document.
    pub(crate) const fn new() -> Self {
        let levels = Levels { depth: 0, depth_max: DEPTH_MAX, bits: 0 };
        Self { state: GrammarState::Value, levels, around: Vec::new(), seen: 0, key_at: 0 }
    }

    /// Allows [`SKIPPED_DEPTH_MAX`] levels from here on, inside a skipped value, or [`DEPTH_MAX`] again.
    pub(crate) const fn skips(&mut self, skips: bool) {
        self.levels.depth_max = if skips { SKIPPED_DEPTH_MAX } else { DEPTH_MAX };
    }

    /// Bytes of the document consumed so far.
    pub(crate) const fn seen(&self) -> u64 {
        self.seen
    }

    /// Length of the last key, including quotes. Valid right after [`Stop::Key`].
    pub(crate) fn key_len(&self) -> usize {
        usize::try_from(self.seen - self.key_at).unwrap_or(usize::MAX)
    }

    /// Returns true inside a bare number or literal, which is complete if no byte follows.
    pub(crate) const fn in_bare_scalar(&self) -> bool {
        matches!(self.state, GrammarState::Scalar) && self.levels.depth == 0
    }

    /// Consumes bytes until one of `stops` or the end of `bytes` (`None`). Returns their number.
    ///
    /// Cost: 0.4 ns per byte on typical objects, less on long strings. After an error the value must not be used again.
    #[expect(clippy::too_many_lines, reason = "the loop that sees every byte is best read, and compiled, whole")]
    pub(crate) fn run(&mut self, bytes: &[u8], stops: Stops) -> Result<(usize, Option<Stop>), JsonError> {
        let start = self.seen;
        let malformed = |at: usize| Err(JsonError::Malformed { at: start + at as u64 });
        if bytes.is_empty() {
            return Ok((0, None));
        }
        // The variables used for every byte stay in registers: taking their address below would make each step wait for
        // the previous step's store.
        let (mut at, mut state) = self.resume();
        let mut levels = self.levels;
        // Each iteration handles one member or element. The states are in the order in which they usually follow each
        // other, so that the common path is straight; other paths skip the ones before theirs.
        let stop = 'run: loop {
            if matches!(state, GrammarState::Key | GrammarState::FirstKey) {
                let byte;
                (byte, at) = significant(bytes, at);
                let Some(byte) = byte else { break None };
                if byte == b'"' {
                    self.key_at = start + at as u64;
                    at += 1;
                    state = GrammarState::KeyText;
                } else if byte == b'}' && state == GrammarState::FirstKey {
                    at += 1;
                    levels.close(&self.around);
                    state = GrammarState::After;
                    if levels.depth == stops.ends {
                        break Some(Stop::End);
                    }
                } else {
                    return malformed(at);
                }
            }
            if state == GrammarState::KeyText {
                let end;
                (end, at) = text(bytes, at);
                match end {
                    StringEnd::Closed => state = GrammarState::Colon,
                    StringEnd::Open => break None,
                    StringEnd::Escape => {
                        state = GrammarState::KeyEscape;
                        break None;
                    }
                }
                if levels.depth == stops.keys {
                    break Some(Stop::Key);
                }
            }
            if state == GrammarState::Colon {
                let byte;
                (byte, at) = significant(bytes, at);
                let Some(byte) = byte else { break None };
                if byte != b':' {
                    return malformed(at);
                }
                at += 1;
                state = GrammarState::Value;
            }
            if matches!(state, GrammarState::Value | GrammarState::FirstValue) {
                let byte;
                (byte, at) = significant(bytes, at);
                let Some(byte) = byte else { break None };
                // `]` ends an empty array.
                if levels.depth == stops.values && byte != b']' {
                    break Some(Stop::Value);
                }
                if byte == b'"' {
                    at += 1;
                    state = GrammarState::Text;
                } else if byte == b'{' {
                    // Not consumed, so that the caller can raise the limit and resume here.
                    if !levels.open(true, &mut self.around) {
                        break Some(Stop::Depth);
                    }
                    at += 1;
                    state = GrammarState::FirstKey;
                    continue;
                } else if byte == b'[' {
                    if !levels.open(false, &mut self.around) {
                        break Some(Stop::Depth);
                    }
                    at += 1;
                    state = GrammarState::FirstValue;
                    continue;
                } else if byte == b']' && state == GrammarState::FirstValue {
                    at += 1;
                    levels.close(&self.around);
                    state = GrammarState::After;
                    if levels.depth == stops.ends {
                        break Some(Stop::End);
                    }
                } else if matches!(byte, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') {
                    at += 1;
                    state = GrammarState::Scalar;
                } else {
                    return malformed(at);
                }
            }
            if state == GrammarState::Text {
                let end;
                (end, at) = text(bytes, at);
                match end {
                    StringEnd::Closed => state = GrammarState::After,
                    StringEnd::Open => break None,
                    StringEnd::Escape => {
                        state = GrammarState::TextEscape;
                        break None;
                    }
                }
                if levels.depth == stops.ends {
                    break Some(Stop::End);
                }
            }
            if state == GrammarState::Scalar {
                while let Some(&byte) = bytes.get(at)
                    && SCALAR[usize::from(byte)]
                {
                    at += 1;
                }
                // The scalar may continue in the next chunk.
                if at == bytes.len() {
                    break None;
                }
                state = GrammarState::After;
                if levels.depth == stops.ends {
                    break Some(Stop::End);
                }
            }
            while state == GrammarState::After {
                let byte;
                (byte, at) = significant(bytes, at);
                let Some(byte) = byte else { break 'run None };
                if levels.depth == 0 {
                    // Only white space may follow the document.
                    return malformed(at);
                }
                let in_object = levels.bits & 1 == 1;
                if byte == b',' {
                    at += 1;
                    state = if in_object { GrammarState::Key } else { GrammarState::Value };
                    continue 'run;
                }
                if byte != if in_object { b'}' } else { b']' } {
                    return malformed(at);
                }
                at += 1;
                levels.close(&self.around);
                if levels.depth == stops.ends {
                    break 'run Some(Stop::End);
                }
            }
        };
        self.state = state;
        self.levels = levels;
        self.seen = start + at as u64;
        Ok((at, stop))
    }

    /// Returns where to continue and in which state. A backslash at the end of the previous bytes escapes the first
    /// byte.
    #[inline(always)]
    const fn resume(&self) -> (usize, GrammarState) {
        if matches!(self.state, GrammarState::KeyEscape) {
            (1, GrammarState::KeyText)
        } else if matches!(self.state, GrammarState::TextEscape) {
            (1, GrammarState::Text)
        } else {
            (0, self.state)
        }
    }
}

impl Levels {
    /// Enters one level; returns false beyond the depth limit.
    #[inline(always)]
    fn open(&mut self, object: bool, around: &mut Vec<u64>) -> bool {
        if self.depth.is_multiple_of(64) {
            if self.depth >= self.depth_max {
                return false;
            }
            // The word of bits is full.
            if self.depth > 0 {
                self.set_around(around);
            }
        }
        self.bits = self.bits << 1 | u64::from(object);
        self.depth += 1;
        true
    }

    #[cold]
    #[inline(never)]
    fn set_around(&self, around: &mut Vec<u64>) {
        around.truncate(self.depth / 64 - 1);
        around.push(self.bits);
    }

    /// Leaves one level.
    #[inline(always)]
    fn close(&mut self, around: &[u64]) {
        self.depth -= 1;
        self.bits >>= 1;
        if self.depth.is_multiple_of(64) && self.depth > 0 {
            self.bits = around[self.depth / 64 - 1];
        }
    }
}

/// Returns the next byte that is not white space, and its position.
#[inline(always)]
fn significant(bytes: &[u8], at: usize) -> (Option<u8>, usize) {
    match bytes.get(at) {
        Some(&byte) if byte > b' ' => (Some(byte), at),
        Some(_) => behind_space(bytes, at),
        None => (None, at),
    }
}

#[cold]
#[inline(never)]
fn behind_space(bytes: &[u8], mut at: usize) -> (Option<u8>, usize) {
    while let Some(&byte) = bytes.get(at) {
        if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
            return (Some(byte), at);
        }
        at += 1;
    }
    (None, at)
}

/// Finds the end of the string that contains `at`. Returns the position behind its closing quote, or the end of
/// `bytes`.
#[inline(always)]
fn text(bytes: &[u8], mut at: usize) -> (StringEnd, usize) {
    // Most strings are short, so search the first blocks without a call.
    for _ in 0..BLOCKS_INLINE {
        let Some(block) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { break };
        let Some(found) = quote_or_backslash(block) else {
            at += block.len();
            continue;
        };
        at += found + 1;
        if bytes[at - 1] == b'"' {
            return (StringEnd::Closed, at);
        }
        if at == bytes.len() {
            return (StringEnd::Escape, at);
        }
        at += 1;
    }
    long_text(bytes, at)
}

/// Like [`text`], for strings that are long, full of escapes, or near the end of `bytes`.
#[inline(never)]
fn long_text(bytes: &[u8], mut at: usize) -> (StringEnd, usize) {
    loop {
        let Some(found) = memchr2(b'"', b'\\', &bytes[at..]) else { return (StringEnd::Open, bytes.len()) };
        at += found + 1;
        if bytes[at - 1] == b'"' {
            return (StringEnd::Closed, at);
        }
        if at == bytes.len() {
            return (StringEnd::Escape, at);
        }
        at += 1;
    }
}

/// Returns the position of the first quote or backslash.
///
/// All eight bytes are compared in one word: subtracting 1 from a zero byte sets its high bit. A borrow can set further
/// bits, but only above the first hit. Without vector intrinsics, which need `unsafe`, wider blocks cost more.
#[inline(always)]
const fn quote_or_backslash(block: &[u8; 8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH_BITS: u64 = ONES << 7;
    let word = u64::from_le_bytes(*block);
    let quotes = word ^ (ONES * b'"' as u64);
    let backslashes = word ^ (ONES * b'\\' as u64);
    // Bytes above 127 equal neither.
    let hits = (quotes.wrapping_sub(ONES) | backslashes.wrapping_sub(ONES)) & !word & HIGH_BITS;
    if hits == 0 { None } else { Some(hits.trailing_zeros() as usize / 8) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stops with their positions and the lengths of keys, up to the end of the document or the first error.
    fn scan(bytes: &[u8], chunk_bytes: usize, stops: Stops) -> (Vec<(u64, Stop, usize)>, Option<JsonError>) {
        let (mut structure, mut found) = (Structure::new(), Vec::new());
        for mut chunk in bytes.chunks(chunk_bytes) {
            while !chunk.is_empty() {
                let (taken, stop) = match structure.run(chunk, stops) {
                    Ok(ran) => ran,
                    Err(error) => return (found, Some(error)),
                };
                chunk = &chunk[taken..];
                if let Some(stop) = stop {
                    found.push((structure.seen(), stop, if stop == Stop::Key { structure.key_len() } else { 0 }));
                }
            }
        }
        (found, None)
    }

    /// Goal: words of eight bytes are searched with the results of single bytes. Method: every byte of an object is
    /// replaced by each of several, and scanned at once and in pieces down to single bytes, which are too short for
    /// words.
    #[test]
    fn the_size_of_chunks_changes_neither_stops_nor_errors() {
        let object =
            br#"{"metadata":{"name":"web-0","uid":"a-longer-text\"\\","labels":{"app":"web","tier":"x","y":"1"},
            "n":1,"list":["a","b",{"k":"v","w":""}],"t":true,"e":{},"last":"text"},"spec":{"a":"b" , "c":"d"}} "#;
        let never = Stops::NONE;
        for stops in [Stops { ends: 0, ..never }, Stops { keys: 2, ends: 1, ..never }, Stops { keys: 3, ..never }] {
            for (at, byte) in (0..object.len()).flat_map(|at| b"\"\\:,{}[] x1\n".iter().map(move |byte| (at, *byte))) {
                let mut bytes = object.to_vec();
                bytes[at] = byte;
                let singly = scan(&bytes, 1, stops);
                for chunk_bytes in [7, 64, bytes.len()] {
                    assert_eq!(scan(&bytes, chunk_bytes, stops), singly, "{}", String::from_utf8_lossy(&bytes));
                }
            }
        }
    }
}
