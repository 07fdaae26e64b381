//! The files of a container, read oldest first, and its pending lines.

use std::{fs::Metadata, io, path::Path};

use super::{
    Lines,
    file::{FileId, LogFile, Overlong},
};
use crate::{
    cri::{self, Joiner, Stream},
    names::{LogName, PodRef},
    positions::Position,
};

/// Bytes of a container that are read before others get their turn.
const TURN_BYTES: usize = 1 << 20;

/// A container of a pod.
pub(super) struct Container {
    pub(super) files: Vec<LogFile>,
    joiner: Joiner<FileId>,
    /// Restart count of the file read last. A restarted container does not complete the lines of its predecessor.
    restarts: u32,
    /// The last scan that saw its directory.
    pub(super) seen_in: u64,
}

/// Context for reading a container.
pub(super) struct Turn<'a, L> {
    pub(super) pod: &'a PodRef,
    pub(super) container: &'a str,
    pub(super) lines: &'a mut L,
    pub(super) buffer: &'a mut [u8],
    pub(super) scan: u64,
}

/// Result of reading a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// All its complete lines were delivered.
    End,
    /// The bytes of this turn are used up.
    More,
    /// It cannot be read now.
    Failed,
}

impl Container {
    pub(super) const fn new(line_bytes_max: usize) -> Self {
        Self { files: Vec::new(), joiner: Joiner::new(line_bytes_max), restarts: 0, seen_in: 0 }
    }

    /// Records that a scan saw a file. Returns true if the file is known here.
    pub(super) fn seen(&mut self, path: &Path, name: &LogName, metadata: &Metadata, scan: u64) -> bool {
        self.files.iter_mut().any(|file| file.seen(path, name, metadata, scan))
    }

    /// Counts everything as seen by this scan.
    pub(super) fn stays(&mut self, scan: u64) {
        self.seen_in = scan;
        self.files.iter_mut().for_each(|file| file.seen_in = scan);
    }

    /// Sorts files oldest first. A file that was not seen has its last known name, and is older than the file with that
    /// name now.
    pub(super) fn sort(&mut self, scan: u64) {
        self.files.sort_by(|a, b| {
            let key = |file: &LogFile| (file.name.restarts, file.seen_in == scan);
            key(a).cmp(&key(b)).then_with(|| a.name.age.cmp(&b.name.age))
        });
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = Position> {
        self.files.iter().map(|file| file.position(Stream::ALL.map(|stream| self.joiner.begins(stream, file.id))))
    }

    /// Delivers new lines, and forgets deleted files. Returns true if there is more to read.
    ///
    /// # Errors
    /// A line could not be delivered.
    pub(super) fn read<L: Lines>(&mut self, turn: &mut Turn<'_, L>) -> io::Result<bool> {
        if self.is_over(turn.scan) {
            self.end_lines(turn)?;
            return Ok(false);
        }
        if !self.files.iter().any(|file| file.is_unread() || file.seen_in != turn.scan) {
            return Ok(false);
        }
        let mut left = TURN_BYTES;
        let mut at = 0;
        while let Some(file) = self.files.get_mut(at) {
            let mut reading = Reading { joiner: &mut self.joiner, restarts: &mut self.restarts, turn };
            match reading.file(file, &mut left)? {
                Outcome::End if file.is_gone(reading.turn.scan) => {
                    reading.rest(file)?;
                    self.files.remove(at);
                }
                Outcome::End => at += 1,
                Outcome::More => return Ok(true),
                // Later files wait, because their lines would come before this file's.
                Outcome::Failed => return Ok(false),
            }
        }
        if self.is_over(turn.scan) {
            self.end_lines(turn)?;
        }
        Ok(false)
    }

    /// True if no more lines can come: a container whose directory exists may get another file at any time.
    fn is_over(&self, scan: u64) -> bool {
        self.files.is_empty() && self.seen_in != scan
    }

    /// True if the container can be forgotten.
    pub(super) fn is_done(&self, scan: u64) -> bool {
        self.is_over(scan) && self.joiner.is_empty()
    }

    /// Delivers pending lines whose ends will not arrive.
    fn end_lines<L: Lines>(&mut self, turn: &mut Turn<'_, L>) -> io::Result<()> {
        self.joiner.end_all().try_for_each(|line| turn.lines.line(turn.pod, turn.container, line))
    }
}

/// Context for reading one file of a container.
struct Reading<'a, 't, L> {
    joiner: &'a mut Joiner<FileId>,
    restarts: &'a mut u32,
    turn: &'a mut Turn<'t, L>,
}

impl<L: Lines> Reading<'_, '_, L> {
    /// Delivers the file's complete lines, until `left` bytes are used up.
    fn file(&mut self, file: &mut LogFile, left: &mut usize) -> io::Result<Outcome> {
        if !file.is_open() {
            // A deleted file that was not opened in time cannot be read any more.
            let is_done = !file.is_unread() || file.is_gone(self.turn.scan);
            return Ok(if is_done { Outcome::End } else { Outcome::Failed });
        }
        match file.rewinds() {
            Ok(false) => {}
            Ok(true) => self.end_lines_of(file)?,
            Err(error) => return Ok(self.failed(file, &error)),
        }
        file.read_in = self.turn.scan;
        loop {
            if *left == 0 {
                return Ok(Outcome::More);
            }
            let bytes = match file.read(self.turn.buffer) {
                Ok(0) => return Ok(Outcome::End),
                Ok(bytes) => bytes,
                Err(error) => return Ok(self.failed(file, &error)),
            };
            let used = self.consume(file, bytes)?;
            if used == 0 {
                return Ok(Outcome::End);
            }
            file.advance(used);
            *left = left.saturating_sub(used);
        }
    }

    fn failed(&mut self, file: &LogFile, error: &io::Error) -> Outcome {
        self.turn.lines.trouble(file.path(), error);
        Outcome::Failed
    }

    /// Delivers the complete lines among the first `bytes` of the buffer. Returns the number of bytes used.
    fn consume(&mut self, file: &mut LogFile, bytes: usize) -> io::Result<usize> {
        let buffer = std::mem::take(&mut self.turn.buffer);
        let used = self.lines(file, &buffer[..bytes], bytes == buffer.len());
        self.turn.buffer = buffer;
        used
    }

    fn lines(&mut self, file: &mut LogFile, bytes: &[u8], is_full: bool) -> io::Result<usize> {
        let mut used = 0;
        if let Some(line) = file.overlong {
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let skipped = end.unwrap_or(bytes.len());
            if !line.is_written {
                self.joiner.skip(line.stream, skipped as u64);
            }
            let Some(end) = end else { return Ok(skipped) };
            file.overlong = None;
            used = end + 1;
            if line.is_last && !line.is_written {
                self.deliver(|joiner| joiner.end(line.stream, false))?;
            }
        }
        while let Some(end) = bytes[used..].iter().position(|&byte| byte == b'\n') {
            self.line(file, &bytes[used..used + end], file.offset + used as u64)?;
            used += end + 1;
        }
        if used == 0 && is_full {
            self.begin_overlong(file, bytes)?;
            used = bytes.len();
        }
        Ok(used)
    }

    /// Delivers a line of the file, which begins at `offset`.
    fn line(&mut self, file: &LogFile, line: &[u8], offset: u64) -> io::Result<()> {
        let part = cri::parse(line);
        if offset < file.written[part.stream as usize] {
            return Ok(());
        }
        self.restarted(file)?;
        self.deliver(|joiner| joiner.push(part, file.id, offset))
    }

    /// Handles a line that does not end within the buffer: keeps its beginning up to the limit and counts the rest.
    fn begin_overlong(&mut self, file: &mut LogFile, start: &[u8]) -> io::Result<()> {
        let part = cri::parse(start);
        let (stream, is_last, begins) = (part.stream, part.is_last, file.offset);
        let is_written = begins < file.written[stream as usize];
        file.overlong = Some(Overlong { begins, stream, is_last, is_written });
        if is_written {
            return Ok(());
        }
        self.restarted(file)?;
        let part = cri::Part { is_last: false, ..part };
        self.deliver(|joiner| joiner.push(part, file.id, begins))
    }

    /// Ends pending lines of an earlier run of the container: its successor does not complete them.
    fn restarted(&mut self, file: &LogFile) -> io::Result<()> {
        if *self.restarts != file.name.restarts {
            *self.restarts = file.name.restarts;
            self.end_lines()?;
        }
        Ok(())
    }

    /// Delivers the last line of a deleted file, which has no newline.
    fn rest(&mut self, file: &mut LogFile) -> io::Result<()> {
        if file.overlong.take().is_some() {
            return self.end_lines();
        }
        let Ok(bytes) = file.read(self.turn.buffer) else { return Ok(()) };
        if bytes == 0 {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.turn.buffer);
        let delivered = self.line(file, &buffer[..bytes], file.offset);
        self.turn.buffer = buffer;
        delivered
    }

    /// Delivers lines that began in the previous content of a truncated or replaced file: their ends are lost.
    fn end_lines_of(&mut self, file: &LogFile) -> io::Result<()> {
        for stream in Stream::ALL {
            if self.joiner.begins(stream, file.id).is_some() {
                self.deliver(|joiner| joiner.end(stream, true))?;
            }
        }
        Ok(())
    }

    fn end_lines(&mut self) -> io::Result<()> {
        let Turn { pod, container, lines, .. } = self.turn;
        self.joiner.end_all().try_for_each(|line| lines.line(pod, container, line))
    }

    fn deliver<'b>(&mut self, line: impl FnOnce(&mut Joiner<FileId>) -> Option<cri::Line<'b>>) -> io::Result<()> {
        match line(self.joiner) {
            Some(line) => self.turn.lines.line(self.turn.pod, self.turn.container, line),
            None => Ok(()),
        }
    }
}
