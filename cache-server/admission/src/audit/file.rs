//! The file of the audit log: appended to, renamed when it is full, and opened again when another program moved it.
//!
//! INVARIANT: a file ends with a whole line: a line that the disk does not take is cut off again. INVARIANT: no error ends
//! the log: the next line tries again.
//!
//! Names of renamed files are those of kube-apiserver: `audit.log` becomes `audit-2026-01-31T12-00-00.000.log`.
//!
//! Blocks; only the writer's thread uses it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek as _, Write},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use jiff::Timestamp;

/// Interval at which the path is compared with the open file. Until then lines go to a file that was moved.
const MOVED_CHECK_EVERY: Duration = Duration::from_secs(1);

/// Names that may be taken before a rotation fails. Each has a millisecond.
const NAMES_MAX: i64 = 1_000;

/// Destination of the lines.
pub(super) enum AuditOutput {
    Stdout,
    File(RotatedFile),
}

/// Lines that were not written, and why.
#[derive(Debug)]
pub(super) struct LostLines {
    pub(super) count: u64,
    pub(super) error: io::Error,
}

impl AuditOutput {
    /// Writes whole lines. Returns those that were not written.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), LostLines> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                let (written, error) = write_all(&mut stdout, lines);
                let flushed = error.map_or_else(|| stdout.flush(), Err);
                flushed.map_err(|error| LostLines { count: count(&lines[whole(&lines[..written])..]), error })
            }
            Self::File(file) => file.write(lines),
        }
    }
}

/// A file that is renamed when it is full.
pub(super) struct RotatedFile {
    path: PathBuf,
    bytes_max: u64,
    backups_max: usize,
    /// `None` after a failure.
    open: Option<OpenFile>,
}

struct OpenFile {
    file: File,
    size: u64,
    /// Size at which it is renamed.
    full_at: u64,
    /// Time of the last comparison with the path.
    checked: Instant,
}

impl RotatedFile {
    /// Opens the file. `bytes_max` and `backups_max` of 0 mean no limit.
    ///
    /// # Errors
    /// Error of the operating system.
    pub(super) fn open(path: &Path, bytes_max: u64, backups_max: usize) -> io::Result<Self> {
        let bytes_max = if bytes_max == 0 { u64::MAX } else { bytes_max };
        Ok(Self { path: path.to_owned(), bytes_max, backups_max, open: Some(OpenFile::open(path, bytes_max)?) })
    }

    fn write(&mut self, mut lines: &[u8]) -> Result<(), LostLines> {
        if self.open.as_ref().is_some_and(|open| open.checked.elapsed() >= MOVED_CHECK_EVERY) {
            self.notice_a_move();
        }
        while !lines.is_empty() {
            let written = self.write_some(lines);
            let (Ok(bytes) | Err((bytes, _))) = &written;
            lines = &lines[*bytes..];
            if let Err((_, error)) = written {
                return Err(LostLines { count: count(lines), error });
            }
        }
        Ok(())
    }

    /// Writes the lines that fit into the file, at least one. Returns their bytes; with an error, those before it.
    fn write_some(&mut self, lines: &[u8]) -> Result<usize, (usize, io::Error)> {
        let first = first_line(lines);
        if let Some(open) = &mut self.open
            && open.size > 0
            && open.room() < first
        {
            // A log that is too long is better than none.
            open.full_at = open.size.saturating_add(self.bytes_max);
            self.rotate();
        }
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenFile::open(&self.path, self.bytes_max).map_err(|error| (0, error))?),
        };
        let room = open.room();
        let fitting = whole(&lines[..room.min(lines.len())]).max(first);
        open.append(&lines[..fitting]).map(|()| fitting)
    }

    /// Renames and closes the file, and deletes the oldest renamed ones. After an error the file stays in use. One that
    /// another program moved is only closed.
    fn rotate(&mut self) {
        self.notice_a_move();
        if self.open.is_none() {
            return;
        }
        let path = self.path.display();
        if let Err(error) = self.rename() {
            tracing::error!(%error, %path, "audit log not rotated");
            return;
        }
        self.open = None;
        if let Err(error) = self.remove_old_backups() {
            tracing::error!(%error, %path, "old audit log not deleted");
        }
    }

    fn rename(&self) -> io::Result<()> {
        let now = Timestamp::now().as_millisecond();
        let mut names = (now..now + NAMES_MAX).map(|at| self.backup_name(at));
        let name = names.find(|name| !name.exists()).ok_or(io::ErrorKind::AlreadyExists)?;
        fs::rename(&self.path, name)
    }

    fn backup_name(&self, unix_millis: i64) -> PathBuf {
        let time = Timestamp::from_millisecond(unix_millis).unwrap_or_default();
        let (stem, extension) = self.name_parts();
        self.path.with_file_name(format!("{stem}-{}{extension}", time.strftime("%Y-%m-%dT%H-%M-%S.%3f")))
    }

    /// Splits the file's name before its extension.
    fn name_parts(&self) -> (String, String) {
        let part = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let extension = part(self.path.extension());
        let dot = if extension.is_empty() { "" } else { "." };
        (part(self.path.file_stem()), format!("{dot}{extension}"))
    }

    fn remove_old_backups(&self) -> io::Result<()> {
        if self.backups_max == 0 {
            return Ok(());
        }
        let folder =
            self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        let mut backups = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            backups.extend(name.to_str().filter(|name| self.is_backup(name)).map(str::to_owned));
        }
        // By name is by time.
        backups.sort_unstable();
        let old = backups.len().saturating_sub(self.backups_max);
        backups[..old].iter().try_for_each(|name| fs::remove_file(folder.join(name)))
    }

    fn is_backup(&self, name: &str) -> bool {
        let (stem, extension) = self.name_parts();
        let time = name.strip_prefix(&stem).and_then(|rest| rest.strip_prefix('-'));
        let time = time.and_then(|rest| rest.strip_suffix(&*extension)).unwrap_or_default();
        let shape = time.bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
        shape.eq(*b"0000-00-00T00-00-00.000")
    }

    /// Closes a file that is no longer at its path, and looks whether another program shortened it.
    fn notice_a_move(&mut self) {
        let Some(open) = &mut self.open else { return };
        open.checked = Instant::now();
        let identity = |data: &fs::Metadata| (data.dev(), data.ino());
        let (at_path, own) = (fs::metadata(&self.path), open.file.metadata());
        match (at_path, own) {
            (Ok(at_path), Ok(own)) if identity(&at_path) == identity(&own) => open.size = own.len(),
            _ => self.open = None,
        }
    }
}

impl OpenFile {
    fn open(path: &Path, full_at: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { file, size, full_at, checked: Instant::now() })
    }

    /// Bytes until the file is renamed.
    fn room(&self) -> usize {
        usize::try_from(self.full_at.saturating_sub(self.size)).unwrap_or(usize::MAX)
    }

    /// Appends whole lines. With an error, returns the bytes of the lines that were written.
    fn append(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        let (written, error) = write_all(&mut self.file, lines);
        let Some(error) = error else {
            self.size += written as u64;
            return Ok(());
        };
        let whole = whole(&lines[..written]);
        self.size += whole as u64;
        self.cut((written - whole) as u64);
        Err((whole, error))
    }

    /// Cuts the last bytes that were written, unless another process has written behind them, or the file is a pipe.
    fn cut(&mut self, bytes: u64) {
        if let (Ok(end), Ok(data)) = (self.file.stream_position(), self.file.metadata())
            && 0 < bytes
            && data.len() == end
        {
            let _ = self.file.set_len(end - bytes);
        }
    }
}

/// Writes as much as the file takes. Returns the bytes, and the error that ended it.
fn write_all(to: &mut impl Write, mut bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut written = 0;
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return (written, Some(io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                written += count;
                bytes = &bytes[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Some(error)),
        }
    }
    (written, None)
}

/// Bytes of the first line.
fn first_line(lines: &[u8]) -> usize {
    memchr::memchr(b'\n', lines).map_or(lines.len(), |end| end + 1)
}

/// Bytes of the whole lines.
fn whole(lines: &[u8]) -> usize {
    memchr::memrchr(b'\n', lines).map_or(0, |end| end + 1)
}

fn count(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The lines of all files, those of renamed ones first.
    fn all_lines(folder: &Path) -> (usize, Vec<String>) {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        // `audit-…` comes before `audit.log`.
        names.sort();
        let lines = names.iter().flat_map(|name| {
            let text = fs::read_to_string(name).unwrap();
            assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        (names.len(), lines.collect())
    }

    /// Goal: rotation loses and repeats no line. Method: batches of lines of random lengths into small files.
    #[test]
    fn rotation_loses_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut file = RotatedFile::open(&path, 1_000, 0).unwrap();
        let mut expected = Vec::new();
        for batch in 0..100 {
            let mut lines = String::new();
            for line in 0..fastrand::usize(1..30) {
                let text = format!("{batch}-{line}-{}", "x".repeat(fastrand::usize(0..200)));
                lines.push_str(&text);
                lines.push('\n');
                expected.push(text);
            }
            file.write(lines.as_bytes()).unwrap();
        }
        let (files, lines) = all_lines(folder.path());
        assert_eq!(lines, expected);
        assert!(files > 50, "{files}");
        for entry in fs::read_dir(folder.path()).unwrap() {
            let data = entry.unwrap().metadata().unwrap();
            assert!(data.len() <= 1_000, "{}", data.len());
            assert_eq!(data.permissions().mode() & 0o777, 0o600);
        }
        drop(file);
        // A line that is longer than a file has one of its own, and an existing file is continued.
        let mut file = RotatedFile::open(&path, 1_000, 2).unwrap();
        file.write(format!("{}\nlast\n", "y".repeat(5_000)).as_bytes()).unwrap();
        let (files, lines) = all_lines(folder.path());
        assert_eq!((files, lines.last().map(String::as_str)), (3, Some("last")));
    }

    /// Goal: cutting off a line that the disk does not take costs no other process a line. Method: a cut before, and after,
    /// another one has written.
    #[test]
    fn only_the_end_of_a_file_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let open = || OpenFile::open(&path, u64::MAX).unwrap();
        let (mut one, mut other) = (open(), open());
        one.file.write_all(b"a\nb").unwrap();
        one.cut(1);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\n");
        one.file.write_all(b"b").unwrap();
        other.append(b"c\n").unwrap();
        one.cut(1);
        assert_eq!(fs::read_to_string(&path).unwrap(), "a\nbc\n");
    }

    #[test]
    fn only_files_of_the_log_are_backups() {
        let folder = tempfile::tempdir().unwrap();
        let file = RotatedFile::open(&folder.path().join("audit.log"), 1, 1).unwrap();
        let name = file.backup_name(1_769_860_800_123);
        assert_eq!(name.file_name().unwrap(), "audit-2026-01-31T12-00-00.123.log");
        assert!(file.is_backup(name.file_name().unwrap().to_str().unwrap()));
        for other in
            ["audit.log", "audit-.log", "audit-2026-01-31T12-00-00.log", "audit-2026-01-31T12-00-00.123.log.gz"]
        {
            assert!(!file.is_backup(other), "{other}");
        }
    }

    /// Goal: a moved file does not grow beyond its limit, and the one in its place is used, not renamed. Method: both before
    /// the next comparison with the path.
    #[test]
    fn a_moved_file_that_is_full_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
        let mut file = RotatedFile::open(&path, 4, 0).unwrap();
        file.write(b"a\nb\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        fs::write(&path, "c\n").unwrap();
        file.write(b"d\n").unwrap();
        let (files, lines) = all_lines(folder.path());
        assert_eq!((files, lines.concat()), (2, "cdab".to_owned()));
    }

    #[test]
    fn a_moved_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
        let mut file = RotatedFile::open(&path, 0, 0).unwrap();
        file.write(b"a\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        file.open.as_mut().unwrap().checked = Instant::now().checked_sub(MOVED_CHECK_EVERY).unwrap();
        file.write(b"b\n").unwrap();
        assert_eq!(
            (fs::read_to_string(&moved).unwrap(), fs::read_to_string(&path).unwrap()),
            ("a\n".into(), "b\n".into())
        );
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        file.open = None;
        assert_eq!(file.write(b"c\nd\n").unwrap_err().count, 2);
        fs::remove_dir(&path).unwrap();
        file.write(b"e\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "e\n", "it goes on after an error");
    }
}
