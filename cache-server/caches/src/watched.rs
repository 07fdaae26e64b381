//! Files of the settings that are read again when they change, by one task.
//!
//! INVARIANT: an unusable file never replaces a usable one; at start it is an error. INVARIANT: no request reads a file, so
//! none can put off that a change is noticed. INVARIANT: a file that does not answer holds up neither requests nor other
//! files: it occupies one thread, until its read ends. INVARIANT: the content is not kept, only its hash and its parsed form.

use std::{
    fmt,
    fs::OpenOptions,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use ring::digest::{Context, SHA256};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{
    limits::{FILE_CHECK_EVERY, WATCHED_FILE_BYTES_MAX},
    supervised::SupervisedTasks,
};

/// Reason why a file cannot be used, in one line without its content.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct AccessFileError {
    path: PathBuf,
    problem: String,
}

/// Settings that files decide.
pub trait WatchedSource: Send + Sync {
    /// Reads the files if they changed. May block; is called again only after it returned.
    fn check(&self);
}

/// Checks files for changes every [`FILE_CHECK_EVERY`], in one task that ends with the last watcher.
#[derive(Clone, Default)]
pub struct FileWatcher(Arc<WatchedSources>);

#[derive(Default)]
struct WatchedSources {
    all: Mutex<Vec<Arc<CheckedSource>>>,
    /// Sources without another owner.
    retained: Mutex<Vec<Arc<dyn WatchedSource>>>,
    /// True once the task runs.
    is_started: AtomicBool,
    /// Starts the task again after a panic.
    tasks: Arc<SupervisedTasks>,
}

struct CheckedSource {
    source: Weak<dyn WatchedSource>,
    /// True while a thread checks it.
    is_busy: AtomicBool,
}

impl fmt::Debug for FileWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWatcher").field("sources", &self.0.all.lock().len()).finish()
    }
}

impl FileWatcher {
    /// Checks a source as long as the watcher lives.
    pub fn keep(&self, source: impl WatchedSource + 'static) {
        let source = Arc::new(source);
        self.watch(&source);
        self.0.retained.lock().push(source);
    }

    /// Checks a source until it is dropped.
    pub fn watch<S: WatchedSource + 'static>(&self, source: &Arc<S>) {
        let source: Arc<dyn WatchedSource> = Arc::clone(source) as _;
        let (source, is_busy) = (Arc::downgrade(&source), AtomicBool::new(false));
        self.0.all.lock().push(Arc::new(CheckedSource { source, is_busy }));
        if !self.0.is_started.swap(true, Ordering::Relaxed) {
            let sources = Arc::downgrade(&self.0);
            self.0.tasks.spawn("files", move || keep_checking(Weak::clone(&sources)));
        }
    }

    /// The tasks of the server that has these files.
    pub fn tasks(&self) -> &Arc<SupervisedTasks> {
        &self.0.tasks
    }

    /// Checks all sources now, and waits for that.
    #[cfg(any(test, feature = "testing"))]
    pub async fn check(&self) {
        for check in self.0.check_all() {
            check.await.expect("a check that does not panic");
        }
    }
}

async fn keep_checking(sources: Weak<WatchedSources>) {
    loop {
        tokio::time::sleep(FILE_CHECK_EVERY).await;
        let Some(sources) = sources.upgrade() else { return };
        // Nothing waits for the checks: one whose disk hangs must not delay the others.
        drop(sources.check_all());
    }
}

impl WatchedSources {
    /// Begins a check of each source, in threads that may block, unless the last one has not ended.
    fn check_all(&self) -> Vec<JoinHandle<()>> {
        let mut all = self.all.lock();
        all.retain(|checked| checked.source.strong_count() > 0);
        let begin = |checked: &Arc<CheckedSource>| {
            let source = checked.source.upgrade().filter(|_| !checked.is_busy.swap(true, Ordering::Acquire))?;
            let busy = BusySource(Arc::clone(checked));
            Some(spawn_blocking(move || {
                source.check();
                drop(busy);
            }))
        };
        all.iter().filter_map(begin).collect()
    }
}

/// Ends the check of a source when it is dropped, also by a panic of its parser.
struct BusySource(Arc<CheckedSource>);

impl Drop for BusySource {
    fn drop(&mut self) {
        self.0.is_busy.store(false, Ordering::Release);
    }
}

/// Parses the contents of files, in their order. The error omits them.
type Parse<T, E> = dyn Fn(Vec<Vec<u8>>) -> Result<T, E> + Send + Sync;

/// One or more files and their parsed content.
pub struct WatchedFile<T, E = AccessFileError>(Arc<WatchedContent<T, E>>);

struct WatchedContent<T, E> {
    paths: Vec<PathBuf>,
    parse: Box<Parse<T, E>>,
    /// Makes the error of a file that cannot be read.
    unreadable: fn(&Path, io::Error) -> E,
    current: Mutex<CurrentContent<T>>,
}

struct CurrentContent<T> {
    value: Arc<T>,
    hash: ContentHash,
    /// Number of different contents so far.
    generation: u64,
    /// True if the last check failed, so that a failure is logged once.
    is_broken: bool,
}

type ContentHash = [u8; 32];

impl<T: Send + Sync + 'static> WatchedFile<T> {
    /// Reads and parses a file, which `watcher` checks from now on.
    ///
    /// # Errors
    /// [`AccessFileError`] if it cannot be used: see [`read`].
    pub async fn load(
        watcher: &FileWatcher,
        path: &Path,
        parse: fn(&[u8]) -> Result<T, String>,
    ) -> Result<Self, AccessFileError> {
        let own = path.to_owned();
        let parse = move |contents: Vec<Vec<u8>>| {
            let content = contents.first().map(Vec::as_slice).unwrap_or_default();
            parse(content).map_err(|problem| AccessFileError { path: own.clone(), problem })
        };
        let unreadable = |path: &Path, error: io::Error| {
            let (path, problem) = (path.to_owned(), error.to_string());
            AccessFileError { path, problem }
        };
        Self::load_all(watcher, vec![path.to_owned()], unreadable, parse).await
    }
}

impl<T: Send + Sync + 'static, E: fmt::Display + Send + 'static> WatchedFile<T, E> {
    /// Reads files that are parsed together, and that `watcher` checks from now on.
    ///
    /// # Errors
    /// The error of `unreadable` or of `parse`.
    pub async fn load_all(
        watcher: &FileWatcher,
        paths: Vec<PathBuf>,
        unreadable: fn(&Path, io::Error) -> E,
        parse: impl Fn(Vec<Vec<u8>>) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let watcher = watcher.clone();
        let open = move || Self::open(&watcher, paths, unreadable, parse);
        spawn_blocking(open).await.expect("a first read does not panic")
    }

    /// Like [`load_all`](Self::load_all). May block. Needs a tokio runtime.
    fn open(
        watcher: &FileWatcher,
        paths: Vec<PathBuf>,
        unreadable: fn(&Path, io::Error) -> E,
        parse: impl Fn(Vec<Vec<u8>>) -> Result<T, E> + Send + Sync + 'static,
    ) -> Result<Self, E> {
        let (contents, hash) = read_all(&paths, unreadable)?;
        let current = CurrentContent { value: Arc::new(parse(contents)?), hash, generation: 1, is_broken: false };
        let (parse, current) = (Box::new(parse), Mutex::new(current));
        let content = Arc::new(WatchedContent { paths, parse, unreadable, current });
        watcher.watch(&content);
        Ok(Self(content))
    }

    /// Returns the content and its generation.
    pub fn current(&self) -> (Arc<T>, u64) {
        let current = self.0.current.lock();
        (Arc::clone(&current.value), current.generation)
    }
}

impl<T: Send + Sync, E: fmt::Display> WatchedSource for WatchedContent<T, E> {
    fn check(&self) {
        let read = read_all(&self.paths, self.unreadable);
        if read.as_ref().is_ok_and(|(_, hash)| self.current.lock().hash == *hash) {
            self.current.lock().is_broken = false;
            return;
        }
        let parsed = read.and_then(|(contents, hash)| Ok(((self.parse)(contents)?, hash)));
        let mut current = self.current.lock();
        match parsed {
            Ok((value, hash)) => {
                let generation = current.generation + 1;
                *current = CurrentContent { value: Arc::new(value), hash, generation, is_broken: false };
                drop(current);
                tracing::info!(file = %self.paths[0].display(), "file reloaded");
            }
            Err(error) if !current.is_broken => {
                current.is_broken = true;
                drop(current);
                tracing::warn!(%error, "file reload failed");
            }
            Err(_) => {}
        }
    }
}

/// Reads files, and hashes them together.
fn read_all<E>(paths: &[PathBuf], unreadable: fn(&Path, io::Error) -> E) -> Result<(Vec<Vec<u8>>, ContentHash), E> {
    let read = |path: &PathBuf| read(path).map_err(|error| unreadable(path, error));
    let contents = paths.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let mut context = Context::new(&SHA256);
    for content in &contents {
        // The length keeps a byte that moves from one file to the next from going unnoticed.
        context.update(&content.len().to_le_bytes());
        context.update(content);
    }
    let mut hash = ContentHash::default();
    hash.copy_from_slice(context.finish().as_ref());
    Ok((contents, hash))
}

/// Reads a regular file of at most [`WATCHED_FILE_BYTES_MAX`]. A FIFO or device is an error: its read could wait for another
/// process, and never end.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Without the flag, opening a FIFO waits for its writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut content = Vec::new();
    file.take(WATCHED_FILE_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > WATCHED_FILE_BYTES_MAX {
        return Err(io::Error::other(format!("the file is longer than {WATCHED_FILE_BYTES_MAX} bytes")));
    }
    Ok(content)
}

#[cfg(test)]
mod tests;
