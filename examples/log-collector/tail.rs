//! Follows all log files below a root: finds them, reads them in order, survives rotation, and forgets what is gone.
//!
//! Files are told apart by inode, never by name: a rotation renames `0.log` and makes a new one. A file is opened when it
//! is found and stays open, so that one that is deleted is still read to its end. It polls: `scan` looks at the whole
//! tree, `read` takes what is new; both are cheap for what has not changed.
//!
//! INVARIANT: lines of one file are delivered in order, once each, and of one container oldest file first.
//! INVARIANT: memory is one buffer, one pending line per stream and container, and a few hundred bytes for each file.
//!
//! Symbolic links are not followed: who can write into a log directory must not choose what an agent of root reads. The
//! files of containerd and CRI-O are files; the links that Docker's runtime makes are not read.

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

/// Files known at once. Each costs some 300 bytes. A node of 500 pods with six files each has 3,000; what is above waits
/// until others are gone.
const FILES_MAX: usize = 16_384;

/// Least bytes read at once.
const READ_BYTES_MIN: usize = 64 << 10;

/// What the caller decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of text of one line; what is longer is cut. Memory: one such line per stream and container at the worst,
    /// when all of them have a line in parts.
    pub(crate) line_bytes_max: usize,
    /// Files open at once. Above it, those that have nothing new are closed first; one of them that is deleted within
    /// one poll of its last line loses that line.
    pub(crate) files_open_max: usize,
}

/// Who gets the lines.
pub(crate) trait Lines {
    /// Whether lines of this pod can be taken now. Otherwise they wait, in their files.
    fn takes(&mut self, pod: &PodRef) -> bool;

    /// Takes a line.
    ///
    /// # Errors
    /// It cannot be written. The turn ends.
    fn line(&mut self, pod: &PodRef, container: &str, line: Line<'_>) -> io::Result<()>;

    /// Something about a file or directory failed. It is tried again in the next turn.
    fn trouble(&mut self, path: &Path, error: &io::Error);
}

/// All files below one root.
pub(crate) struct Tail {
    root: PathBuf,
    limits: Limits,
    /// The uid of a pod that is left alone.
    skipped: Option<String>,
    /// For one read at a time, shared by all files: a whole line of the longest kind fits.
    buffer: Vec<u8>,
    pods: BTreeMap<PodRef, BTreeMap<String, Container>>,
    /// Where an earlier run left off, by inode, until the file is found.
    saved: HashMap<u64, Position>,
    /// Counts scans, so that what one did not see can be told.
    scan: u64,
}

impl Tail {
    /// Starts with nothing; what an earlier run read is continued from `saved`.
    pub(crate) fn new(root: PathBuf, limits: Limits, saved: HashMap<u64, Position>) -> Self {
        let buffer = vec![0; READ_BYTES_MIN.max(limits.line_bytes_max + HEADER_BYTES_MAX)];
        Self { root, limits, skipped: None, buffer, pods: BTreeMap::new(), saved, scan: 0 }
    }

    /// Leaves the pod of this uid alone: a program that logs to where it reads would never come to an end.
    pub(crate) fn skip(&mut self, uid: String) {
        self.skipped = Some(uid);
    }

    /// Looks at the tree: new files, new names, files that are gone.
    ///
    /// # Errors
    /// The root cannot be read, and nothing has changed.
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

    /// Looks at one container's directory. New files are taken as long as there is `room`.
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

    /// What is below a directory that cannot be read is unknown, so nothing there is taken for gone; unless the
    /// directory is.
    fn unreadable(&mut self, pod: &PodRef, path: &Path, error: &io::Error, lines: &mut impl Lines) {
        if error.kind() == io::ErrorKind::NotFound {
            return;
        }
        lines.trouble(path, error);
        for container in self.pods.get_mut(pod).into_iter().flat_map(BTreeMap::values_mut) {
            container.stays(self.scan);
        }
    }

    /// Forgets containers and pods that have neither a directory, nor unread files, nor lines in parts.
    fn forget(&mut self) {
        let scan = self.scan;
        self.pods.retain(|_, containers| {
            containers.retain(|_, container| !container.is_done(scan));
            !containers.is_empty()
        });
    }

    /// Opens what has something to read, then what may be deleted before it is read, as far as the limit goes.
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
        // Those with something to read first.
        files.sort_by_key(|file| !file.is_unread());
        for file in files {
            let is_wanted = !file.is_open() && (file.is_unread() || file.is_current());
            if is_wanted && open < self.limits.files_open_max {
                match file.open() {
                    Ok(()) => open += 1,
                    // Deleted or renamed since the scan; the next one knows.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => lines.trouble(file.path(), &error),
                }
            }
        }
    }

    /// Delivers what is new, of each container at most so much that all get their turn. Returns whether there is more.
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

    /// How far everything was read, including files of an earlier run that were not found again yet.
    pub(crate) fn positions(&self) -> Vec<Position> {
        let containers = self.pods.values().flat_map(BTreeMap::values);
        containers.flat_map(Container::positions).chain(self.saved.values().cloned()).collect()
    }

    /// Whether anything of this pod is still there.
    pub(crate) fn follows(&self, pod: &PodRef) -> bool {
        self.pods.contains_key(pod)
    }

    fn files(&self) -> impl Iterator<Item = &LogFile> {
        self.pods.values().flat_map(BTreeMap::values).flat_map(|container| &container.files)
    }
}

/// The directories in a directory, with their names; names that are no UTF-8 are none of ours.
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
        // By its path, now: a rename since the listing began shows in the inode.
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
