//! A log file: its identity, its position, and checks whether it was truncated or replaced.

use std::{
    fs::{File, Metadata},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{
    cri::{STREAMS, Stream},
    names::{Age, LogName},
    positions::{HEAD_BYTES, Position},
};

/// Scans that must miss a file before it counts as deleted. A rename while a directory is listed can hide it from one
/// scan.
pub(super) const SCANS_MISSED: u64 = 3;

/// Identifies an open file: device and inode.
pub(super) type FileId = (u64, u64);

fn id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// A followed file.
pub(super) struct LogFile {
    pub(super) id: FileId,
    pub(super) name: LogName,
    path: PathBuf,
    handle: Option<File>,
    /// Size at the last look.
    size: u64,
    /// Modification time. Reveals a file that was truncated and refilled to an equal size.
    modified: Option<SystemTime>,
    /// Bytes read.
    pub(super) offset: u64,
    /// Offset per stream before which an earlier run has written the lines.
    pub(super) written: [u64; STREAMS],
    /// The first bytes, as of the last look.
    head: String,
    /// True if this may be another file with the same inode: its head was not checked since its name or modification
    /// time changed, or since an earlier run's position was taken over.
    is_doubtful: bool,
    /// The line that is longer than the buffer, until its end is found.
    pub(super) overlong: Option<Overlong>,
    /// The last scan that saw the file.
    pub(super) seen_in: u64,
    /// Number of the scan before the last read.
    pub(super) read_in: u64,
}

/// A line that filled the whole buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Overlong {
    pub(super) begins: u64,
    pub(super) stream: Stream,
    pub(super) is_last: bool,
    /// True if an earlier run has written it.
    pub(super) is_written: bool,
}

impl LogFile {
    /// A new file, not read yet.
    pub(super) fn found(path: PathBuf, name: LogName, metadata: &Metadata, scan: u64) -> Self {
        Self {
            id: id(metadata),
            name,
            path,
            handle: None,
            size: metadata.len(),
            modified: metadata.modified().ok(),
            offset: 0,
            written: [0; STREAMS],
            head: String::new(),
            is_doubtful: false,
            overlong: None,
            seen_in: scan,
            read_in: 0,
        }
    }

    /// Resumes from the position of an earlier run. If that was for another file with this inode, `rewinds` notices by
    /// the head.
    pub(super) fn resume(&mut self, position: &Position) {
        self.head.clone_from(&position.head);
        self.written = position.offsets;
        self.offset = position.offsets.into_iter().min().unwrap_or_default();
        self.is_doubtful = true;
    }

    /// Takes over name and size from a scan, if it saw this file.
    pub(super) fn seen(&mut self, path: &Path, name: &LogName, metadata: &Metadata, scan: u64) -> bool {
        if self.id != id(metadata) {
            return false;
        }
        let modified = metadata.modified().ok();
        self.is_doubtful |= self.path != path || self.modified != modified;
        path.clone_into(&mut self.path);
        self.name = name.clone();
        self.size = metadata.len();
        self.modified = modified;
        self.seen_in = scan;
        true
    }

    pub(super) const fn inode(&self) -> u64 {
        self.id.1
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn is_open(&self) -> bool {
        self.handle.is_some()
    }

    pub(super) fn is_current(&self) -> bool {
        self.name.age == Age::Current
    }

    /// True if there are bytes to read, or the file was truncated, or it may be another file.
    pub(super) const fn is_unread(&self) -> bool {
        self.is_doubtful || self.size != self.offset
    }

    /// True if the file has no name any more, so that no more bytes will be written to it.
    pub(super) fn is_gone(&self, scan: u64) -> bool {
        let is_unlinked = || self.metadata().is_some_and(|metadata| metadata.nlink() == 0);
        self.seen_in != scan && (scan - self.seen_in >= SCANS_MISSED || is_unlinked())
    }

    fn metadata(&self) -> Option<Metadata> {
        self.handle.as_ref().and_then(|handle| handle.metadata().ok())
    }

    /// Opens the file by its path, if that still leads to it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] also if the path leads to another file now.
    pub(super) fn open(&mut self) -> io::Result<()> {
        let handle = File::open(&self.path)?;
        if id(&handle.metadata()?) != self.id {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.handle = Some(handle);
        Ok(())
    }

    pub(super) fn close(&mut self) {
        self.handle = None;
    }

    /// Checks the file before a read. Returns true, and starts over, if it was truncated or replaced under its inode.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn rewinds(&mut self) -> io::Result<bool> {
        let Some(handle) = &self.handle else { return Ok(false) };
        self.size = handle.metadata()?.len();
        let mut bytes = [0; HEAD_BYTES];
        let found = handle.read_at(&mut bytes, 0)?;
        // ASCII only, so that text and bytes have equal prefixes.
        let head: String =
            bytes[..found].iter().take_while(|byte| byte.is_ascii()).map(|&byte| char::from(byte)).collect();
        let is_other = self.size < self.offset || !head.starts_with(&self.head);
        self.head = head;
        self.is_doubtful = false;
        if is_other {
            self.offset = 0;
            self.written = [0; STREAMS];
            self.overlong = None;
        }
        Ok(is_other)
    }

    /// Reads from `offset`, without moving it. Returns the number of bytes, 0 at the end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.handle.as_ref().map_or(Ok(0), |handle| handle.read_at(buffer, self.offset))
    }

    /// Moves the offset past the consumed bytes.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.size = self.size.max(self.offset);
    }

    /// The position to save, if lines of these streams are pending since `begins`.
    pub(super) fn position(&self, begins: [Option<u64>; STREAMS]) -> Position {
        let read = self.overlong.map_or(self.offset, |line| line.begins);
        let mut offsets = self.written.map(|written| written.max(read));
        for (offset, begins) in offsets.iter_mut().zip(begins) {
            *offset = begins.unwrap_or(*offset);
        }
        Position { inode: self.inode(), head: self.head.clone(), offsets }
    }
}
