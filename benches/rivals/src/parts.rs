//! Child processes of this program: the server, churn, and one measured client each.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::{
    Failure,
    client::{Kind, Report, ServerAddress},
    memory,
};

/// A child process, killed on drop.
pub(crate) struct Part {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Part {
    fn spawn(subcommand: &str, arguments: &[String]) -> Result<Self, Failure> {
        Self::run(Command::new(std::env::current_exe()?).arg(subcommand).args(arguments))
    }

    fn run(command: &mut Command) -> Result<Self, Failure> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
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
    pub(crate) fn server(pods: usize) -> Result<(Self, ServerAddress), Failure> {
        Self::server_with(pods, Vec::new(), None)
    }

    /// Starts a server like [`server`](Self::server) that speaks TLS, with its certificate in `folder`.
    pub(crate) fn server_over_tls(pods: usize, folder: &Path) -> Result<(Self, ServerAddress), Failure> {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
        let [certificate, key, ca] = ["tls.crt", "tls.key", "ca.der"].map(|name| folder.join(name));
        fs::write(&certificate, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        fs::write(&ca, made.cert.der())?;
        let flags = vec![format!("--tls-cert={}", certificate.display()), format!("--tls-key={}", key.display())];
        Self::server_with(pods, flags, Some(&ca))
    }

    fn server_with(pods: usize, flags: Vec<String>, ca: Option<&Path>) -> Result<(Self, ServerAddress), Failure> {
        let nodes = (pods / 89).max(1);
        let arguments =
            ["serve".to_owned(), "--listen=127.0.0.1:0".into(), format!("--populate=pods={pods},nodes={nodes}")];
        let mut part = Self::spawn("server", &[&arguments[..], &flags].concat())?;
        let line = part.line()?;
        let url = line.strip_prefix("listening on ").ok_or_else(|| format!("the server said {line:?}"))?;
        let address = ServerAddress { url: url.to_owned(), ca: ca.map(Path::to_owned) };
        Ok((part, address))
    }

    /// CPU seconds of the process so far.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, Failure> {
        Ok(memory::cpu_seconds_of(&self.child.id().to_string())?)
    }

    /// Runs churn of pods at a steady rate until its end. Returns the number of changes.
    pub(crate) fn churn(server: &ServerAddress, rate: u32, seconds: u32) -> Result<u64, Failure> {
        let server = format!("--server={}", server.url);
        let arguments = ["churn".to_owned(), server, format!("--rate={rate}/s"), format!("--seconds={seconds}")];
        let mut part = Self::spawn("server", &arguments)?;
        let summary = part.line()?;
        if !part.child.wait()?.success() {
            return Err("churn failed".into());
        }
        let count =
            |name: &str| summary.split(", ").find_map(|part| part.strip_prefix(name)?.trim().parse::<u64>().ok());
        let counts = ["updated", "created", "deleted"].map(count);
        counts.into_iter().sum::<Option<u64>>().ok_or_else(|| format!("churn said {summary:?}").into())
    }

    pub(crate) fn client(kind: Kind, server: &ServerAddress) -> Result<Self, Failure> {
        let kind = clap::ValueEnum::to_possible_value(&kind).ok_or("no name")?.get_name().to_owned();
        let arguments = [vec![format!("--kind={kind}")], server.flags()].concat();
        Self::spawn("client", &arguments)?.ready()
    }

    /// Starts a client that is a program of its own.
    pub(crate) fn program(program: &Path, arguments: &[String]) -> Result<Self, Failure> {
        Self::run(Command::new(program).args(arguments))?.ready()
    }

    fn ready(mut self) -> Result<Self, Failure> {
        match self.line()?.as_str() {
            "ready" => Ok(self),
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
