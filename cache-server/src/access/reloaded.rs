//! Files of the settings of access that are read again when they change.
//!
//! INVARIANT: an unusable file never replaces a usable one; at start it is an error. INVARIANT: the content is not kept,
//! only its hash and its parsed form.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::{io::AsyncReadExt as _, time::Instant};

use crate::limits::{ACCESS_FILE_BYTES_MAX, ACCESS_RELOAD_EVERY};

/// Reason why a file cannot be used, in one line without its content.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct AccessFileError {
    path: PathBuf,
    problem: String,
}

/// Parses the content of a file. The error omits the content.
type Parse<T> = fn(&[u8]) -> Result<T, String>;

/// A file and its parsed content.
pub(crate) struct ReloadedFile<T> {
    path: PathBuf,
    parse: Parse<T>,
    current: Mutex<ParsedFile<T>>,
}

struct ParsedFile<T> {
    value: Arc<T>,
    hash: [u8; 32],
    /// Number of different contents so far.
    generation: u64,
    /// Time of the last check for a change.
    checked: Instant,
    /// True if the last check failed, so that a failure is logged once.
    is_broken: bool,
}

impl<T> ReloadedFile<T> {
    /// Reads and parses the file.
    ///
    /// # Errors
    /// [`AccessFileError`] if it cannot be used, or is longer than [`ACCESS_FILE_BYTES_MAX`].
    pub(crate) async fn load(path: &Path, parse: Parse<T>) -> Result<Self, AccessFileError> {
        let failed = |problem| AccessFileError { path: path.to_owned(), problem };
        let content = read(path).await.map_err(|error| failed(error.to_string()))?;
        let value = Arc::new(parse(&content).map_err(failed)?);
        let (hash, checked) = (hash(&content), Instant::now());
        let current = ParsedFile { value, hash, generation: 1, checked, is_broken: false };
        Ok(Self { path: path.to_owned(), parse, current: Mutex::new(current) })
    }

    /// Returns the content and its generation. One caller per [`ACCESS_RELOAD_EVERY`] reads the file first.
    pub(crate) async fn current(&self) -> (Arc<T>, u64) {
        let is_due = {
            let mut current = self.current.lock();
            let is_due = current.checked.elapsed() >= ACCESS_RELOAD_EVERY;
            // Set before the file is read, so that concurrent callers do not read it too.
            if is_due {
                current.checked = Instant::now();
            }
            is_due
        };
        if is_due {
            self.reload().await;
        }
        let current = self.current.lock();
        (Arc::clone(&current.value), current.generation)
    }

    async fn reload(&self) {
        let content = read(&self.path).await.map_err(|error| error.to_string());
        if content.as_ref().is_ok_and(|content| self.current.lock().hash == hash(content)) {
            self.current.lock().is_broken = false;
            return;
        }
        let parsed = content.and_then(|content| Ok(((self.parse)(&content)?, hash(&content))));
        let mut current = self.current.lock();
        match parsed {
            Ok((value, hash)) => {
                current.value = Arc::new(value);
                current.hash = hash;
                current.generation += 1;
                current.is_broken = false;
                drop(current);
                tracing::info!(file = %self.path.display(), "access file reloaded");
            }
            Err(problem) if !current.is_broken => {
                current.is_broken = true;
                drop(current);
                tracing::warn!(file = %self.path.display(), problem, "access file reload failed");
            }
            Err(_) => {}
        }
    }
}

async fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = tokio::fs::File::open(path).await?;
    file.take(ACCESS_FILE_BYTES_MAX + 1).read_to_end(&mut content).await?;
    if content.len() as u64 > ACCESS_FILE_BYTES_MAX {
        return Err(io::Error::other(format!("the file is longer than {ACCESS_FILE_BYTES_MAX} bytes")));
    }
    Ok(content)
}

fn hash(content: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, content).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn number(content: &[u8]) -> Result<u32, String> {
        let text = std::str::from_utf8(content).map_err(|_| "it is no text".to_owned())?;
        text.trim().parse().map_err(|_| "it is no number".to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_file_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("number");
        assert!(ReloadedFile::load(&path, number).await.is_err(), "there is no file");
        fs::write(&path, "x").unwrap();
        let error = ReloadedFile::load(&path, number).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.ends_with("number: it is no number"), "{error}");
        fs::write(&path, "1").unwrap();
        let file = ReloadedFile::load(&path, number).await.unwrap();
        for (content, expected) in [(Some("2"), (2, 2)), (Some("x"), (2, 2)), (None, (2, 2)), (Some("2"), (2, 2))] {
            match content {
                Some(content) => fs::write(&path, content).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            tokio::time::advance(ACCESS_RELOAD_EVERY).await;
            let (value, generation) = file.current().await;
            assert_eq!((*value, generation), expected, "{content:?}");
        }
        fs::write(&path, "3".repeat(1 + usize::try_from(ACCESS_FILE_BYTES_MAX).unwrap())).unwrap();
        tokio::time::advance(ACCESS_RELOAD_EVERY).await;
        assert_eq!(*file.current().await.0, 2);
    }
}
