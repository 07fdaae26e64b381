//! Marks that the writer puts into each object and the watchers find again: the number of the write and the time at
//! which it was sent.
//!
//! A mark is an annotation of fixed width, found by byte search without JSON parsing: a client as expensive as the
//! server would distort the measurement.
//!
//! INVARIANT: each mark of a stream is found once, however the stream is split.

use std::sync::LazyLock;

use memchr::memmem::Finder;

/// Key of the annotation. managedFields contain `f:load/at`; the opening quote in the needle excludes that.
pub(crate) const ANNOTATION: &str = "load/at";
const NEEDLE: &[u8] = br#""load/at":""#;
const NUMBER_DIGITS: usize = 10;
const NANOS_DIGITS: usize = 20;
/// `0000000042.00001763764263123456789`
const VALUE_BYTES: usize = NUMBER_DIGITS + 1 + NANOS_DIGITS;
const MARK_BYTES: usize = NEEDLE.len() + VALUE_BYTES;
/// Bytes kept from one piece to the next: a mark without its last byte.
const TAIL_BYTES: usize = MARK_BYTES - 1;

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(NEEDLE));

/// A write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Number of the write, counted from 0.
    pub(crate) number: u32,
    /// Time at which the write was sent, in nanoseconds since 1970.
    pub(crate) nanos: u64,
}

impl Mark {
    /// Value of the annotation.
    pub(crate) fn text(self) -> String {
        format!("{:0NUMBER_DIGITS$}.{:0NANOS_DIGITS$}", self.number, self.nanos)
    }

    fn parse(value: &[u8]) -> Option<Self> {
        let (number, nanos) = (value.get(..NUMBER_DIGITS)?, value.get(NUMBER_DIGITS + 1..VALUE_BYTES)?);
        Some(Self { number: u32::try_from(digits(number)?).ok()?, nanos: digits(nanos)? })
    }
}

fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |sum, byte| match byte {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// Finds the marks of a stream given in pieces.
#[derive(Clone, Debug)]
pub(crate) struct Scanner {
    tail: [u8; TAIL_BYTES],
    kept: usize,
}

impl Scanner {
    pub(crate) const fn new() -> Self {
        Self { tail: [0; TAIL_BYTES], kept: 0 }
    }

    /// Calls `each` for every mark that ends in this piece.
    pub(crate) fn feed(&mut self, piece: &[u8], mut each: impl FnMut(Mark)) {
        if self.kept > 0 {
            // Search the seam of two pieces for marks that begin in the first one.
            let mut seam = [0; 2 * TAIL_BYTES];
            let after = piece.len().min(TAIL_BYTES);
            seam[..self.kept].copy_from_slice(&self.tail[..self.kept]);
            seam[self.kept..self.kept + after].copy_from_slice(&piece[..after]);
            marks(&seam[..self.kept + after], self.kept, &mut each);
            if piece.len() < TAIL_BYTES {
                let kept = (self.kept + after).min(TAIL_BYTES);
                let start = self.kept + after - kept;
                self.tail[..kept].copy_from_slice(&seam[start..start + kept]);
                self.kept = kept;
                marks(piece, piece.len(), &mut each);
                return;
            }
        }
        marks(piece, piece.len(), &mut each);
        let kept = piece.len().min(TAIL_BYTES);
        self.tail[..kept].copy_from_slice(&piece[piece.len() - kept..]);
        self.kept = kept;
    }
}

/// Calls `each` for every whole mark that begins before `end`.
fn marks(bytes: &[u8], end: usize, each: &mut impl FnMut(Mark)) {
    let mut at = 0;
    while let Some(found) = bytes.get(at..).and_then(|rest| FINDER.find(rest)) {
        let start = at + found;
        if start >= end {
            return;
        }
        let value = start + NEEDLE.len();
        if let Some(mark) = bytes.get(value..value + VALUE_BYTES).and_then(Mark::parse) {
            each(mark);
        }
        at = value;
    }
}

/// The writes that a watcher has received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    bits: Vec<u64>,
    /// Number of distinct writes.
    pub(crate) seen: u64,
    /// Number of duplicates.
    pub(crate) again: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, number: u32) {
        let (word, bit) = (number as usize / 64, 1_u64 << (number % 64));
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        if self.bits[word] & bit == 0 {
            self.bits[word] |= bit;
            self.seen += 1;
        } else {
            self.again += 1;
        }
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.bits.get(number as usize / 64).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(number: u32) -> Mark {
        Mark { number, nanos: 1_763_764_263_123_456_789 + u64::from(number) }
    }

    /// Three events as a server sends them, with the managedFields that a stock server adds.
    fn stream() -> (Vec<u8>, Vec<Mark>) {
        let marks = [mark(7), mark(0), mark(u32::MAX)];
        let text: String = marks
            .iter()
            .map(|mark| {
                let text = mark.text();
                format!(
                    r#"{{"type":"MODIFIED","object":{{"metadata":{{"annotations":{{"load/at":"{text}"}},"managedFields":[{{"f:load/at":{{}}}}]}}}}}}{}"#,
                    "\n"
                )
            })
            .collect();
        (text.into_bytes(), marks.to_vec())
    }

    #[test]
    fn each_mark_is_found_once_wherever_the_stream_is_cut() {
        let (bytes, marks) = stream();
        for size in 1..=bytes.len() {
            let (mut scanner, mut found) = (Scanner::new(), Vec::new());
            for piece in bytes.chunks(size) {
                scanner.feed(piece, |mark| found.push(mark));
            }
            assert_eq!(found, marks, "pieces of {size} bytes");
        }
        for cut in 0..=bytes.len() {
            let (mut scanner, mut found) = (Scanner::new(), Vec::new());
            let (first, second) = bytes.split_at(cut);
            for piece in [first, second] {
                scanner.feed(piece, |mark| found.push(mark));
            }
            assert_eq!(found, marks, "cut after {cut} bytes");
        }
    }

    #[test]
    fn what_only_looks_like_a_mark_is_none() {
        let mut scanner = Scanner::new();
        scanner.feed(br#""load/at":"soon" "load/at":"0000000001:0000"#, |mark| panic!("{mark:?}"));
    }

    #[test]
    fn a_tally_tells_what_came_twice_and_what_never_came() {
        let mut tally = Tally::default();
        for number in [3, 200, 3, 64] {
            tally.add(number);
        }
        assert_eq!((tally.seen, tally.again), (3, 1));
        let there: Vec<u32> = (0..300).filter(|number| tally.has(*number)).collect();
        assert_eq!(there, [3, 64, 200]);
    }
}
