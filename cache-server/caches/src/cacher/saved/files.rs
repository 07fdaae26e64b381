//! The files of a folder of saved states: `<type>.state` is the log of one type.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use informer_log::{LogFiles, identity_of};

use super::CLUSTER;

/// Names the files of the type `id`; `None` if its id cannot be a file's name. Only one value per type may exist in the
/// process that holds the folder's lock.
pub(super) fn files_of(folder: &Path, id: &str) -> Option<LogFiles> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let is_name = !id.is_empty() && !id.starts_with('.') && id.len() <= ID_BYTES_MAX && id.bytes().all(is_plain);
    is_name.then(|| LogFiles::new(folder, format!("{id}.state")))
}

/// Removes the states of a folder, of all types or of one. Returns their number.
pub(super) fn remove_states(folder: &Path, id: Option<&str>) -> io::Result<usize> {
    remove_if(folder, |path| id.is_none_or(|id| path.file_stem().is_some_and(|stem| stem == id)))
}

/// Removes the states of a folder whose owner names another cluster than `source`. Returns their number.
pub(super) fn remove_foreign(folder: &Path, source: &str) -> io::Result<usize> {
    remove_if(folder, |path| is_foreign(path, source))
}

/// Returns true if [`remove_foreign`] would remove states, or the folder cannot be read.
pub(super) fn has_foreign(folder: &Path, source: &str) -> bool {
    states(folder).map_or(true, |states| states.iter().any(|path| is_foreign(path, source)))
}

/// True if the owner of a state names another cluster: in its fourth line.
fn is_foreign(state: &Path, source: &str) -> bool {
    let owner = identity_of(state).unwrap_or_default();
    owner.split('\n').nth(3).is_some_and(|found| found.starts_with(CLUSTER) && found != source)
}

/// The states of a folder.
fn states(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths: Vec<_> = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "state")).collect())
}

fn remove_if(folder: &Path, condition: impl Fn(&Path) -> bool) -> io::Result<usize> {
    let mut removed = 0;
    for state in states(folder)?.iter().filter(|path| condition(path)) {
        LogFiles::new(folder, state.file_name().unwrap_or_default()).remove()?;
        removed += 1;
    }
    Ok(removed)
}

/// Bytes of a type's id in a file's name: less than the 255 of common file systems, with the endings.
const ID_BYTES_MAX: usize = 240;
