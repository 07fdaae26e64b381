//! Child processes of this program: the server, churn, and one measured client each.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::{
    Failure,
    client::{Kind, Report},
};

/// A child process, killed on drop.
pub(crate) struct Part {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Part {
    fn spawn(subcommand: &str, arguments: &[String]) -> Result<Self, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(subcommand)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let out = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(Self { child, out })
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.out.read_line(&mut line)? == 0 {
            return Err("a part of this program ended early".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Starts a server with `pods` pods. Returns it with its address.
    pub(crate) fn server(pods: usize) -> Result<(Self, String), Failure> {
        let nodes = (pods / 89).max(1);
        let arguments =
            ["serve".to_owned(), "--listen=127.0.0.1:0".into(), format!("--populate=pods={pods},nodes={nodes}")];
        let mut part = Self::spawn("server", &arguments)?;
        let line = part.line()?;
        let address = line.strip_prefix("listening on http://").ok_or_else(|| format!("the server said {line:?}"))?;
        Ok((part, address.to_owned()))
    }

    /// Runs churn at a steady rate until its end.
    pub(crate) fn churn(address: &str, rate: u32, seconds: u32) -> Result<(), Failure> {
        let server = format!("--server=http://{address}");
        let arguments = ["churn".to_owned(), server, format!("--rate={rate}/s"), format!("--seconds={seconds}")];
        let mut part = Self::spawn("server", &arguments)?;
        if part.child.wait()?.success() { Ok(()) } else { Err("churn failed".into()) }
    }

    pub(crate) fn client(kind: Kind, pods: usize, address: &str) -> Result<Self, Failure> {
        let kind = clap::ValueEnum::to_possible_value(&kind).ok_or("no name")?.get_name().to_owned();
        let arguments = [format!("--kind={kind}"), format!("--pods={pods}"), format!("--address={address}")];
        let mut part = Self::spawn("client", &arguments)?;
        match part.line()?.as_str() {
            "ready" => Ok(part),
            other => Err(format!("a client said {other:?}").into()),
        }
    }

    /// Sends a command to a client and reads its report.
    pub(crate) fn ask(&mut self, command: &str) -> Result<Report, Failure> {
        let stdin = self.child.stdin.as_mut().ok_or("no stdin")?;
        writeln!(stdin, "{command}")?;
        stdin.flush()?;
        Ok(serde_json::from_str(&self.line()?)?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
