//! Child processes of a run, and the folder of their files.
//!
//! INVARIANT: neither a process nor a file outlives this program, however it ends: then a shell reads the end of its
//! standard input, kills the processes that the folder names, and removes the folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use tempfile::TempDir;

/// Ends the processes that this program left behind. `$0` is the folder; each `*.pid` in it is the ID of a running
/// process.
const CLEANER: &str = r#"
trap "" INT TERM HUP
read -r _
for file in "$0"/*.pid; do [ -e "$file" ] && kill -9 "$(cat "$file")"; done
rm -rf "$0"
"#;

/// Folder of a run. A static is never dropped, so the cleaner removes it.
struct RunFolder {
    path: PathBuf,
    _cleaner: Child,
    /// The kernel closes it when this program ends, which starts the cleaner.
    _held_open: Option<ChildStdin>,
}

static RUN: Mutex<Option<RunFolder>> = Mutex::new(None);

/// The folder of this run, made on first use.
fn root() -> io::Result<PathBuf> {
    let mut run = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(run) = &*run {
        return Ok(run.path.clone());
    }
    let path = tempfile::Builder::new().prefix("numbers-").tempdir()?.keep();
    let mut cleaner = Command::new("sh")
        .args(["-c", CLEANER])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let held_open = cleaner.stdin.take();
    *run = Some(RunFolder { path: path.clone(), _cleaner: cleaner, _held_open: held_open });
    Ok(path)
}

/// Makes a folder for the files of one process.
pub(crate) fn folder() -> io::Result<TempDir> {
    tempfile::tempdir_in(root()?)
}

/// A running process, killed on drop: none of them has state that a later run needs.
#[derive(Debug)]
pub(crate) struct RunningProcess {
    child: Child,
    id_file: PathBuf,
}

impl RunningProcess {
    /// Starts a program.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        let root = root()?;
        let child = command.stdin(Stdio::null()).spawn()?;
        let id_file = root.join(format!("{}.pid", child.id()));
        fs::write(&id_file, child.id().to_string())?;
        Ok(Self { child, id_file })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output, once, if it was piped.
    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        // Errors mean that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A later process may get this ID.
        let _ = fs::remove_file(&self.id_file);
    }
}

/// Opens a log in a folder.
pub(crate) fn log(folder: &Path, name: &str) -> io::Result<fs::File> {
    fs::File::options().create(true).append(true).open(folder.join(format!("{name}.log")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_process_has_ended() {
        let process = RunningProcess::start(Command::new("sleep").arg("60")).unwrap();
        let (id, id_file) = (process.id(), process.id_file.clone());
        assert!(id_file.is_file() && Path::new(&format!("/proc/{id}")).exists());
        drop(process);
        assert!(!id_file.exists() && !Path::new(&format!("/proc/{id}")).exists());
    }
}
