//! Tails all log files below a root: finds files, reads them in order, follows rotations, and forgets deleted files.
//!
//! Files are identified by inode, never by name: a rotation renames `0.log` and creates a new one. A file is opened
//! when it is found and stays open, so that a deleted file is still read to its end. The tail polls: `scan` visits the
//! whole tree, `read` reads the new bytes; both are cheap for unchanged files.
//!
//! INVARIANT: the lines of a file are delivered in order, once each, and the files of a container oldest first.
//! INVARIANT: memory is one buffer, one pending line per stream and container, and a few hundred bytes per file.
//!
//! Symbolic links are not followed: a writer to a log directory must not choose what an agent with root privileges
//! reads. containerd and CRI-O write regular files; the links of Docker's runtime are not read.

mod container;
mod file;

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::{Path, PathBuf},
};

use self::{
    container::{Container, Turn},
    file::{LogFile, SCANS_MISSED},
};
use crate::{
    cri::{HEADER_BYTES_MAX, Line},
    names::{LogName, PodRef},
    positions::Position,
};

/// Maximum of files known at a time. Each costs about 300 bytes. A node of 500 pods with six files each has 3,000;
/// files above the limit wait until others are deleted.
const FILES_MAX: usize = 16_384;

/// Minimum size of the read buffer.
const READ_BYTES_MIN: usize = 64 << 10;

/// Limits set by the caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Maximum text bytes of a line; longer lines are truncated. Memory in the worst case: one such line per stream and
    /// container, if all of them have a line in parts.
    pub(crate) line_bytes_max: usize,
    /// Maximum of open files. Above it, files without new bytes are closed first; if one of them is deleted within one
    /// poll of its last line, that line is lost.
    pub(crate) files_open_max: usize,
}

/// Receiver of the lines.
pub(crate) trait Lines {
    /// Returns true if lines of this pod can be delivered now. Otherwise they stay unread in their files.
    fn takes(&mut self, pod: &PodRef) -> bool;

    /// Receives a line.
    ///
    /// # Errors
    /// The line cannot be written, which ends the turn.
    fn line(&mut self, pod: &PodRef, container: &str, line: Line<'_>) -> io::Result<()>;

    /// Reports an error of a file or directory. The next turn retries.
    fn trouble(&mut self, path: &Path, error: &io::Error);
}

/// All files below a root.
pub(crate) struct Tail {
    root: PathBuf,
    limits: Limits,
    /// The uid of a pod whose files are skipped.
    skipped: Option<String>,
    /// Read buffer shared by all files; has room for a whole line of the maximum length.
    buffer: Vec<u8>,
    pods: BTreeMap<PodRef, BTreeMap<String, Container>>,
    /// Positions of an earlier run, by inode, of files that were not found yet.
    saved: HashMap<u64, Position>,
    /// Number of scans, to recognise files that the last ones did not see.
    scan: u64,
}

impl Tail {
    /// Starts empty; files of an earlier run are resumed from `saved`.
    pub(crate) fn new(root: PathBuf, limits: Limits, saved: HashMap<u64, Position>) -> Self {
        let buffer = vec![0; READ_BYTES_MIN.max(limits.line_bytes_max + HEADER_BYTES_MAX)];
        Self { root, limits, skipped: None, buffer, pods: BTreeMap::new(), saved, scan: 0 }
    }

    /// Skips the pod with this uid: an agent that collects its own output would never finish.
    pub(crate) fn skip(&mut self, uid: String) {
        self.skipped = Some(uid);
    }

    /// Scans the tree for new files, new names and deleted files.
    ///
    /// # Errors
    /// The root cannot be read; the state is unchanged then.
    pub(crate) fn scan(&mut self, lines: &mut impl Lines) -> io::Result<()> {
        let pods = directories(&self.root)?;
        self.scan += 1;
        let mut room = FILES_MAX.saturating_sub(self.files().count());
        for (path, name) in pods {
            let Some(pod) = PodRef::parse(&name).filter(|pod| self.skipped.as_ref() != Some(&pod.uid)) else {
                continue;
            };
            match directories(&path) {
                Ok(containers) => {
                    for (path, name) in containers {
                        self.scan_container(&pod, &path, name, &mut room, lines);
                    }
                }
                Err(error) => self.unreadable(&pod, &path, &error, lines),
            }
        }
        self.forget();
        if self.scan >= SCANS_MISSED {
            self.saved.clear();
        }
        self.open_files(lines);
        Ok(())
    }

    /// Scans a container's directory. New files are added while there is `room`.
    fn scan_container(&mut self, pod: &PodRef, path: &Path, name: String, room: &mut usize, lines: &mut impl Lines) {
        let found = match logs(path) {
            Ok(found) => found,
            Err(error) => return self.unreadable(pod, path, &error, lines),
        };
        let containers = self.pods.entry(pod.clone()).or_default();
        let container = containers.entry(name).or_insert_with(|| Container::new(self.limits.line_bytes_max));
        container.seen_in = self.scan;
        for (path, name, metadata) in found {
            let is_known = container.seen(&path, &name, &metadata, self.scan);
            if !is_known && *room > 0 {
                *room -= 1;
                let mut file = LogFile::found(path, name, &metadata, self.scan);
                if let Some(position) = self.saved.remove(&file.inode()) {
                    file.resume(&position);
                }
                container.files.push(file);
            }
        }
        container.sort(self.scan);
    }

    /// Handles a directory that cannot be read: unless it was deleted, none of its files counts as deleted.
    fn unreadable(&mut self, pod: &PodRef, path: &Path, error: &io::Error, lines: &mut impl Lines) {
        if error.kind() == io::ErrorKind::NotFound {
            return;
        }
        lines.trouble(path, error);
        for container in self.pods.get_mut(pod).into_iter().flat_map(BTreeMap::values_mut) {
            container.stays(self.scan);
        }
    }

    /// Forgets containers and pods without a directory, unread files or pending lines.
    fn forget(&mut self) {
        let scan = self.scan;
        self.pods.retain(|_, containers| {
            containers.retain(|_, container| !container.is_done(scan));
            !containers.is_empty()
        });
    }

    /// Opens unread files, then current files that may be deleted before they are read, up to the limit.
    fn open_files(&mut self, lines: &mut impl Lines) {
        let mut files: Vec<&mut LogFile> =
            self.pods.values_mut().flat_map(BTreeMap::values_mut).flat_map(|container| &mut container.files).collect();
        let wanting = files.iter().filter(|file| file.is_unread() && !file.is_open()).count();
        let mut open = files.iter().filter(|file| file.is_open()).count();
        let excess = (open + wanting).saturating_sub(self.limits.files_open_max);
        if excess > 0 {
            let mut idle: Vec<_> = files.iter_mut().filter(|file| file.is_open() && !file.is_unread()).collect();
            idle.sort_by_key(|file| file.read_in);
            open -= excess.min(idle.len());
            idle.into_iter().take(excess).for_each(|file| file.close());
        }
        // Unread files first.
        files.sort_by_key(|file| !file.is_unread());
        for file in files {
            let is_due = !file.is_open() && (file.is_unread() || file.is_current());
            if is_due && open < self.limits.files_open_max {
                match file.open() {
                    Ok(()) => open += 1,
                    // Deleted or renamed since the scan; the next scan will notice.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => lines.trouble(file.path(), &error),
                }
            }
        }
    }

    /// Delivers new lines, with a bound per container so that each gets its turn. Returns true if there is more to
    /// read.
    ///
    /// # Errors
    /// A line could not be delivered.
    pub(crate) fn read(&mut self, lines: &mut impl Lines) -> io::Result<bool> {
        let mut has_more = false;
        for (pod, containers) in &mut self.pods {
            if !lines.takes(pod) {
                continue;
            }
            for (name, container) in containers {
                let mut turn = Turn { pod, container: name, lines, buffer: &mut self.buffer, scan: self.scan };
                has_more |= container.read(&mut turn)?;
            }
        }
        Ok(has_more)
    }

    /// Positions of all files, including files of an earlier run that were not found again yet.
    pub(crate) fn positions(&self) -> Vec<Position> {
        let containers = self.pods.values().flat_map(BTreeMap::values);
        containers.flat_map(Container::positions).chain(self.saved.values().cloned()).collect()
    }

    /// True if the pod still has a directory, unread files or pending lines.
    pub(crate) fn follows(&self, pod: &PodRef) -> bool {
        self.pods.contains_key(pod)
    }

    fn files(&self) -> impl Iterator<Item = &LogFile> {
        self.pods.values().flat_map(BTreeMap::values).flat_map(|container| &container.files)
    }
}

/// The directories in a directory, with their names; names that are not UTF-8 cannot belong to pods.
fn directories(path: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && entry.file_type()?.is_dir()
        {
            found.push((entry.path(), name));
        }
    }
    Ok(found)
}

/// The log files in a container's directory.
fn logs(path: &Path) -> io::Result<Vec<(PathBuf, LogName, fs::Metadata)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().and_then(LogName::parse) else { continue };
        // By path, at this moment: after a rename since the listing began, the inode differs.
        match fs::symlink_metadata(entry.path()) {
            Ok(metadata) if metadata.is_file() => found.push((entry.path(), name, metadata)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
