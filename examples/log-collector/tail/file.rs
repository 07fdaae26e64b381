//! One log file: which it is, how far it was read, and whether it still is what it was.

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

/// Scans that must miss a file before it counts as gone. A rename while a directory is listed can hide it from one.
pub(super) const SCANS_MISSED: u64 = 3;

/// Tells files apart, as long as they are open: device and inode.
pub(super) type FileId = (u64, u64);

fn id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// A file that is followed.
pub(super) struct LogFile {
    pub(super) id: FileId,
    pub(super) name: LogName,
    path: PathBuf,
    handle: Option<File>,
    /// Bytes in it when last looked at.
    size: u64,
    /// When it was written last, as far as file systems know. Of files cut and filled again to the same size, this tells.
    modified: Option<SystemTime>,
    /// Bytes read.
    pub(super) offset: u64,
    /// Lines of a stream that begin before this were written out by an earlier run.
    pub(super) written: [u64; STREAMS],
    /// The first bytes, as far as they were there when last looked at.
    head: String,
    /// Something says that this may be another file by now, of the same inode: nobody has looked at its head since it got
    /// another name or another time, or since an earlier run's position was taken over.
    is_doubtful: bool,
    /// The line that is longer than the buffer, while its end is looked for.
    pub(super) overlong: Option<Overlong>,
    /// The scan that saw it last.
    pub(super) seen_in: u64,
    /// The scan after which it was read last.
    pub(super) read_in: u64,
}

/// A line whose first bytes filled the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Overlong {
    pub(super) begins: u64,
    pub(super) stream: Stream,
    pub(super) is_last: bool,
    /// Written out by an earlier run.
    pub(super) is_written: bool,
}

impl LogFile {
    /// A file nobody has read.
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

    /// Goes on where an earlier run left off. If it was another file of that inode, its head will tell.
    pub(super) fn resume(&mut self, position: &Position) {
        self.head.clone_from(&position.head);
        self.written = position.offsets;
        self.offset = position.offsets.into_iter().min().unwrap_or_default();
        self.is_doubtful = true;
    }

    /// Takes the name and size of this scan, if it is this file.
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

    /// Whether there is something to read, or it was cut, or may be another file.
    pub(super) const fn is_unread(&self) -> bool {
        self.is_doubtful || self.size != self.offset
    }

    /// Whether it has no name any more, so that nobody will write to it: what is in it now is all.
    pub(super) fn is_gone(&self, scan: u64) -> bool {
        let is_unlinked = || self.metadata().is_some_and(|metadata| metadata.nlink() == 0);
        self.seen_in != scan && (scan - self.seen_in >= SCANS_MISSED || is_unlinked())
    }

    fn metadata(&self) -> Option<Metadata> {
        self.handle.as_ref().and_then(|handle| handle.metadata().ok())
    }

    /// Opens it by its path, if that still leads to it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] also when the path leads to another file by now.
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

    /// Whether it was cut, or replaced under its inode, since it was read. Then reading starts over.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn rewinds(&mut self) -> io::Result<bool> {
        let Some(handle) = &self.handle else { return Ok(false) };
        self.size = handle.metadata()?.len();
        let mut bytes = [0; HEAD_BYTES];
        let found = handle.read_at(&mut bytes, 0)?;
        // ASCII alone, so that text and bytes have the same prefixes.
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

    /// Reads on from `offset`, which stays where it is. Returns the number of bytes; none at the end.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.handle.as_ref().map_or(Ok(0), |handle| handle.read_at(buffer, self.offset))
    }

    /// Moves on by what was consumed.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.offset += bytes as u64;
        self.size = self.size.max(self.offset);
    }

    /// How far it was read, when the lines of these streams are pending since `begins`.
    pub(super) fn position(&self, begins: [Option<u64>; STREAMS]) -> Position {
        let read = self.overlong.map_or(self.offset, |line| line.begins);
        let mut offsets = self.written.map(|written| written.max(read));
        for (offset, begins) in offsets.iter_mut().zip(begins) {
            *offset = begins.unwrap_or(*offset);
        }
        Position { inode: self.inode(), head: self.head.clone(), offsets }
    }
}
