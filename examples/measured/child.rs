//! Child processes of an example: its own binary in another role.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde::de::DeserializeOwned;

use crate::Failure;

/// A child process of this program in one of its roles, killed on drop.
#[derive(Debug)]
pub struct Part {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Part {
    /// Starts this program's binary with `role` as its first argument.
    ///
    /// # Errors
    /// The binary cannot be started.
    pub fn spawn(role: &str, arguments: &[String]) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(role)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(Self { child, stdin, stdout })
    }

    /// Spawns the process and waits until it prints `ready`.
    ///
    /// # Errors
    /// It cannot be started, or its first line is another one.
    pub fn start(role: &str, arguments: &[String]) -> Result<Self, Failure> {
        let mut part = Self::spawn(role, arguments)?;
        match part.line()?.as_str() {
            "ready" => Ok(part),
            other => Err(format!("{role} said {other:?}").into()),
        }
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells the process to begin.
    ///
    /// # Errors
    /// The process has closed its stdin.
    pub fn go(&mut self) -> std::io::Result<()> {
        self.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"go\n"))
    }

    /// The next line of its stdout.
    ///
    /// # Errors
    /// The process has ended.
    pub fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err("a part of the run ended early; its own line is above".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// The next line of its stdout, decoded from JSON.
    ///
    /// # Errors
    /// The process has ended, or the line is something else.
    pub fn outcome<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Closing stdin ends load and client; the server needs the signal.
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
