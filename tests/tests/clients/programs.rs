//! The programs of `tests/clients/`: built or installed once, then run as separate processes.
//!
//! INVARIANT: everything built or installed for them is below `target/clients`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command as Plain, Stdio},
    sync::{Mutex, OnceLock},
};

use tokio::process::Command;

/// Exit code of `tests/clients/prepare` if a toolchain or a dependency is unavailable.
const NOT_HERE: i32 = 3;

/// A program with its arguments and environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    command: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Program {
    /// Prepares a program. `None` if that is impossible here and `CI` does not require it.
    pub(crate) fn ready(name: &str) -> Option<Self> {
        static DONE: OnceLock<Mutex<BTreeMap<String, Option<Vec<String>>>>> = OnceLock::new();
        let mut done = DONE.get_or_init(Mutex::default).lock().unwrap();
        let command = done.entry(name.to_owned()).or_insert_with(|| prepared(name)).clone()?;
        Some(Self { command, environment: Vec::new() })
    }

    /// Finds an installed program on the PATH.
    pub(crate) fn found(name: &str) -> Option<Self> {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())?;
        Some(Self::at(found.to_str()?))
    }

    /// The program at a path.
    pub(crate) fn at(path: &str) -> Self {
        Self { command: vec![path.to_owned()], environment: Vec::new() }
    }

    /// Lets another program start it, which takes its command as last arguments.
    #[must_use]
    pub(crate) fn within(mut self, outer: &[&str]) -> Self {
        self.command.splice(0..0, outer.iter().map(|&word| word.to_owned()));
        self
    }

    /// Adds an argument.
    #[must_use]
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.command.push(argument.to_owned());
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The command of the process.
    pub(crate) fn process(&self) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

/// Builds or installs a program. Returns its command line, which the script prints.
fn prepared(name: &str) -> Option<Vec<String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/prepare");
    let output = Plain::new(&script).arg(name).env("CLIENTS", folder()).output().expect("bash runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(NOT_HERE) {
        assert!(std::env::var_os("CI").is_none(), "CI needs {name}: {stderr}");
        eprintln!("{name} is skipped: {}", stderr.lines().last().unwrap_or_default());
        return None;
    }
    assert!(output.status.success(), "{name} is not ready: {stdout}{stderr}");
    let command: Vec<String> = stdout.lines().map(str::to_owned).collect();
    assert!(!command.is_empty(), "{name}: the script names no program");
    Some(command)
}

/// The folder beside the one that cargo gives to tests.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in target/").join("clients")
}
