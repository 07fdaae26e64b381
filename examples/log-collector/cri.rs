//! Parses the lines that container runtimes write, and joins the parts of split lines.
//!
//! In `2026-11-20T16:00:00.123456789Z stdout F hello` the fields are time, stream, tags and text. The first tag is `F`
//! for a full line or the last part of one, and `P` for a part with a continuation; runtimes split lines at 16 KiB.
//! Parts of stdout and stderr may be interleaved, and a rotation may separate two parts.
//!
//! INVARIANT: a joined line keeps at most its limit of text; bytes beyond it are counted and dropped.

use std::{borrow::Cow, mem};

/// Maximum bytes of a recognised header: 35 (time) + 1 + 6 (stream) + 1, and room for future tags.
pub(crate) const HEADER_BYTES_MAX: usize = 128;

/// The stream that a container wrote a line to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
    /// The line is not in CRI format; all of it is text.
    Unknown,
}

/// Number of streams.
pub(crate) const STREAMS: usize = 3;

impl Stream {
    /// All streams, in the order of their `usize` values.
    pub(crate) const ALL: [Self; STREAMS] = [Self::Stdout, Self::Stderr, Self::Unknown];

    /// Name in records; `None` for lines without a stream.
    pub(crate) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Stdout => Some("stdout"),
            Self::Stderr => Some("stderr"),
            Self::Unknown => None,
        }
    }
}

/// A line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// RFC 3339 time with up to nine fractional digits, as the runtime wrote it; empty if unknown.
    pub(crate) time: &'a str,
    pub(crate) stream: Stream,
    /// True if the container's line ends here.
    pub(crate) is_last: bool,
    pub(crate) text: &'a [u8],
}

/// Parses a line of a file, without its newline. Lines that are not in CRI format become lines of [`Stream::Unknown`],
/// so that no line is dropped for its format.
pub(crate) fn parse(line: &[u8]) -> Part<'_> {
    cri(line).unwrap_or(Part { time: "", stream: Stream::Unknown, is_last: true, text: line })
}

fn cri(line: &[u8]) -> Option<Part<'_>> {
    let mut fields = line.splitn(4, |&byte| byte == b' ');
    let time = fields.next().filter(|time| is_rfc3339(time))?;
    let stream = match fields.next()? {
        b"stdout" => Stream::Stdout,
        b"stderr" => Stream::Stderr,
        _ => return None,
    };
    // Tags are separated by colons; only the first one has a defined meaning.
    let is_last = match fields.next()?.split(|&byte| byte == b':').next()? {
        b"F" => true,
        b"P" => false,
        _ => return None,
    };
    // The space before an empty text may be missing.
    let text = fields.next().unwrap_or_default();
    Some(Part { time: std::str::from_utf8(time).ok()?, stream, is_last, text })
}

/// Returns true for `2026-11-20T16:00:00`, an optional fraction of one to nine digits, then `Z` or an offset.
fn is_rfc3339(text: &[u8]) -> bool {
    const SECONDS: &[u8; 19] = b"0000-00-00T00:00:00";
    let fits = |text: &[u8], form: &[u8]| {
        text.len() == form.len()
            && text.iter().zip(form).all(|(&byte, &expected)| match expected {
                b'0' => byte.is_ascii_digit(),
                _ => byte == expected,
            })
    };
    let Some((seconds, mut rest)) = text.split_at_checked(SECONDS.len()) else { return false };
    if let [b'.', fraction @ ..] = rest {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if !(1..=9).contains(&digits) {
            return false;
        }
        rest = &fraction[digits..];
    }
    fits(seconds, SECONDS) && (rest == b"Z" || fits(rest, b"+00:00") || fits(rest, b"-00:00"))
}

/// A whole line, as the container wrote it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Time of the first part; empty if unknown.
    pub(crate) time: Cow<'a, str>,
    pub(crate) stream: Stream,
    pub(crate) text: Cow<'a, [u8]>,
    /// Bytes of text that exceeded the limit and were dropped from the end.
    pub(crate) cut: u64,
    /// True if the last part never arrived: the container ended first, or its file was truncated.
    pub(crate) is_unfinished: bool,
}

/// Joins the parts of a container's lines. `F` identifies the files that the parts come from.
#[derive(Debug)]
pub(crate) struct Joiner<F> {
    text_bytes_max: usize,
    pending: [Option<Pending<F>>; STREAMS],
}

/// The parts of an incomplete line.
#[derive(Debug)]
struct Pending<F> {
    /// Offset of its first part in each file with parts of it: a new run must start to read there.
    begins: Vec<(F, u64)>,
    time: String,
    text: Vec<u8>,
    cut: u64,
}

impl<F: Copy + PartialEq> Joiner<F> {
    /// Limits lines to this number of text bytes. Memory: at most that for each stream with an incomplete line.
    pub(crate) const fn new(text_bytes_max: usize) -> Self {
        Self { text_bytes_max, pending: [const { None }; STREAMS] }
    }

    /// Adds a part that begins at `offset` of `file`. Returns the line if the part completes it.
    pub(crate) fn push<'a>(&mut self, part: Part<'a>, file: F, offset: u64) -> Option<Line<'a>> {
        let Part { time, stream, is_last, text } = part;
        let slot = &mut self.pending[stream as usize];
        if is_last && slot.is_none() {
            // The common case, without copies.
            let (fitting, cut) = text.split_at(text.len().min(self.text_bytes_max));
            let (time, text) = (Cow::Borrowed(time), Cow::Borrowed(fitting));
            return Some(Line { time, stream, text, cut: cut.len() as u64, is_unfinished: false });
        }
        let new = || Pending { begins: Vec::new(), time: time.to_owned(), text: Vec::new(), cut: 0 };
        let pending = slot.get_or_insert_with(new);
        if pending.begins.last().is_none_or(|(last, _)| *last != file) {
            pending.begins.push((file, offset));
        }
        let room = self.text_bytes_max - pending.text.len();
        let (fitting, cut) = text.split_at(text.len().min(room));
        pending.text.extend_from_slice(fitting);
        pending.cut += cut.len() as u64;
        if is_last { self.end(stream, false) } else { None }
    }

    /// Counts dropped text of the stream's pending line that was not passed to `push`.
    pub(crate) fn skip(&mut self, stream: Stream, bytes: u64) {
        if let Some(pending) = &mut self.pending[stream as usize] {
            pending.cut += bytes;
        }
    }

    /// Ends the stream's pending line.
    pub(crate) fn end(&mut self, stream: Stream, is_unfinished: bool) -> Option<Line<'static>> {
        let Pending { time, text, cut, .. } = mem::take(&mut self.pending[stream as usize])?;
        Some(Line { time: Cow::Owned(time), stream, text: Cow::Owned(text), cut, is_unfinished })
    }

    /// Ends all pending lines, whose last parts will not arrive.
    pub(crate) fn end_all(&mut self) -> impl Iterator<Item = Line<'static>> {
        Stream::ALL.into_iter().filter_map(|stream| self.end(stream, true))
    }

    /// Offset of the first part in `file` of the stream's pending line.
    pub(crate) fn begins(&self, stream: Stream, file: F) -> Option<u64> {
        let begins = self.pending[stream as usize].as_ref().map(|pending| &pending.begins);
        begins.into_iter().flatten().find(|(of, _)| *of == file).map(|(_, offset)| *offset)
    }

    /// True if no line is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_time_stream_tags_and_text() {
        let time = "2026-11-20T16:00:00.123456789Z";
        for (line, stream, is_last, text) in [
            ("2026-11-20T16:00:00.123456789Z stdout F hello world", Stream::Stdout, true, "hello world"),
            ("2026-11-20T16:00:00.123456789Z stderr P  padded ", Stream::Stderr, false, " padded "),
            ("2026-11-20T16:00:00.123456789Z stdout F:tag:tag x", Stream::Stdout, true, "x"),
            ("2026-11-20T16:00:00.123456789Z stdout F ", Stream::Stdout, true, ""),
            ("2026-11-20T16:00:00.123456789Z stdout F", Stream::Stdout, true, ""),
        ] {
            assert_eq!(parse(line.as_bytes()), Part { time, stream, is_last, text: text.as_bytes() }, "{line}");
        }
    }

    #[test]
    fn what_is_not_cri_is_kept_whole() {
        for line in [
            "",
            "hello",
            "{\"log\":\"docker\"}",
            "2026-11-20T16:00:00Z stdlog F x",
            "2026-11-20T16:00:00Z stdout X x",
            "2026-11-20 16:00:00Z stdout F x",
            "2026-11-20T16:00:00.Z stdout F x",
            "2026-11-20T16:00:00.1234567890Z stdout F x",
            "2026-11-20T16:00:00 stdout F x",
        ] {
            let whole = Part { time: "", stream: Stream::Unknown, is_last: true, text: line.as_bytes() };
            assert_eq!(parse(line.as_bytes()), whole, "{line}");
        }
    }

    #[test]
    fn times_may_have_offsets_and_no_fraction() {
        for time in ["2026-11-20T16:00:00Z", "2026-11-20T16:00:00.1Z", "2026-11-20T16:00:00.123456789+01:00"] {
            let line = format!("{time} stdout F x");
            assert_eq!(parse(line.as_bytes()).time, time);
        }
    }

    /// Feeds lines to a joiner with a limit of ten bytes and formats the results.
    fn joined(lines: &[&str]) -> Vec<String> {
        let mut joiner = Joiner::new(10);
        let mut out = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let line = format!("2026-11-20T16:00:0{at}Z {line}");
            out.extend(joiner.push(parse(line.as_bytes()), 'a', 0).map(|line| show(&line)));
        }
        out.extend(joiner.end_all().map(|line| show(&line)));
        out
    }

    fn show(line: &Line<'_>) -> String {
        let second = line.time.as_bytes()[18] as char;
        let text = String::from_utf8_lossy(&line.text);
        let end = if line.is_unfinished { "~" } else { "." };
        format!("{second} {} {text}{end}{}", line.stream.name().unwrap_or("?"), line.cut)
    }

    #[test]
    fn parts_become_one_line_with_the_time_of_the_first() {
        assert_eq!(
            joined(&["stdout P ab", "stdout P cd", "stdout F ef", "stdout F g"]),
            ["0 stdout abcdef.0", "3 stdout g.0"]
        );
    }

    #[test]
    fn streams_are_joined_apart() {
        assert_eq!(joined(&["stdout P ab", "stderr F x", "stdout F cd"]), ["1 stderr x.0", "0 stdout abcd.0"]);
    }

    #[test]
    fn what_is_too_long_is_cut_and_counted() {
        assert_eq!(joined(&["stdout F 0123456789abc"]), ["0 stdout 0123456789.3"]);
        assert_eq!(joined(&["stdout P 01234567", "stdout P 89abc", "stdout F def"]), ["0 stdout 0123456789.6"]);
    }

    #[test]
    fn a_line_without_an_end_comes_out_unfinished() {
        assert_eq!(joined(&["stderr P ab"]), ["0 stderr ab~0"]);
    }

    #[test]
    fn a_pending_line_knows_where_it_begins_in_each_file() {
        let mut joiner = Joiner::new(10);
        let part = |is_last| Part { time: "t", stream: Stream::Stdout, is_last, text: b"x" };
        for (file, offset) in [('a', 7), ('a', 8), ('b', 1), ('b', 2)] {
            assert_eq!(joiner.push(part(false), file, offset), None);
        }
        let begins = |joiner: &Joiner<char>| ['a', 'b', 'c'].map(|file| joiner.begins(Stream::Stdout, file));
        assert_eq!(begins(&joiner), [Some(7), Some(1), None]);
        assert!(joiner.push(part(true), 'b', 3).is_some());
        assert_eq!(begins(&joiner), [None; 3]);
    }
}
