//! Positions of all files over restarts: one JSON file, replaced atomically.
//!
//! INVARIANT: a saved position is written only after its lines; a crash repeats lines written since the last save and
//! loses none.

use std::{
    borrow::Cow,
    collections::HashMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::cri::STREAMS;

/// Maximum bytes of a positions file, enough for 100,000 files. A larger file is rejected as not ours.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Bytes at the start of a file that distinguish it from another with the same inode: a CRI line begins with its time
/// in nanoseconds.
pub(crate) const HEAD_BYTES: usize = 30;

/// Position in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    pub(crate) inode: u64,
    /// The first bytes of the file. File systems reuse the inode of a deleted file.
    pub(crate) head: String,
    /// Per stream, the offset of the first line that was not written out: a line in parts may be pending in one stream
    /// while lines of the other are written.
    pub(crate) offsets: [u64; STREAMS],
}

/// Format of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Saved<'a> {
    version: u32,
    files: Cow<'a, [Position]>,
}

const VERSION: u32 = 1;

/// Reads the positions written by [`save`], by inode; empty if the file does not exist.
///
/// # Errors
/// The file cannot be read or is not a positions file. An operator should check it, because a start without positions
/// collects everything again.
pub(crate) fn load(path: &Path) -> io::Result<HashMap<u64, Position>> {
    let text = match fs::metadata(path) {
        Ok(found) if found.len() > FILE_BYTES_MAX => return Err(io::Error::other("too large for a positions file")),
        Ok(_) => fs::read(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
        Err(error) => return Err(error),
    };
    let saved: Saved<'_> = serde_json::from_slice(&text)?;
    if saved.version != VERSION {
        return Err(io::Error::other(format!("version {} is not known", saved.version)));
    }
    Ok(saved.files.into_owned().into_iter().map(|position| (position.inode, position)).collect())
}

/// Replaces the file atomically: a crash leaves the old or the new one.
///
/// # Errors
/// The file cannot be written; the old one stays.
pub(crate) fn save(path: &Path, files: &[Position]) -> io::Result<()> {
    let mut beside = OsString::from(path);
    beside.push(".new");
    let mut file = File::create(&beside)?;
    serde_json::to_writer(&mut file, &Saved { version: VERSION, files: Cow::Borrowed(files) })?;
    file.flush()?;
    // Without this, a power loss may leave the new name with no contents.
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn positions_come_back_as_they_were_saved() {
        let scratch = Scratch::new("positions");
        let path = scratch.path().join("positions.json");
        assert_eq!(load(&path).unwrap(), HashMap::new());
        for offset in [1, 2] {
            let position = Position { inode: 7, head: "2026".into(), offsets: [offset, 0, 9] };
            save(&path, std::slice::from_ref(&position)).unwrap();
            assert_eq!(load(&path).unwrap(), HashMap::from([(7, position)]));
        }
    }

    #[test]
    fn a_file_that_is_something_else_is_an_error() {
        let scratch = Scratch::new("not-positions");
        let path = scratch.path().join("positions.json");
        for text in ["", "{}", "[]", r#"{"version":2,"files":[]}"#] {
            fs::write(&path, text).unwrap();
            assert!(load(&path).is_err(), "{text}");
        }
    }
}
