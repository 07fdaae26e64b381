//! A client program while it runs: the lines that it prints, its complaints, and its end.

use std::{
    process::Stdio,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader},
    process::Child,
    task::JoinHandle,
};

use super::{libraries::check::Line, programs::Program};

/// A client's output so far.
pub(crate) type Printed = Arc<Mutex<Vec<Line>>>;

/// A running program.
pub(crate) struct RunningProgram {
    child: Child,
    printed: Printed,
    lines: JoinHandle<()>,
    complaints: JoinHandle<String>,
}

impl RunningProgram {
    /// Starts a program with the server's URL and the selector as last arguments.
    pub(crate) fn start(program: &Program, url: &str, selector: &str) -> Self {
        let mut command = program.process();
        command.args([url, selector]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it was made ready");
        let printed = Printed::default();
        let lines = read_lines(child.stdout.take().expect("is piped"), Arc::clone(&printed));
        let complaints = read_all(child.stderr.take().expect("is piped"));
        Self { child, printed, lines, complaints }
    }

    /// Waits until it ends by itself and its output was read. Returns true if it succeeded. To be called once.
    pub(crate) async fn ended(&mut self) -> bool {
        let status = self.child.wait().await.unwrap();
        (&mut self.lines).await.unwrap();
        status.success()
    }

    /// The lines so far.
    pub(crate) fn lines(&self) -> Vec<Line> {
        self.printed.lock().unwrap().clone()
    }

    /// The output, which grows as long as it runs.
    pub(crate) fn printed(&self) -> Printed {
        Arc::clone(&self.printed)
    }

    /// Kills it, unless it has ended. Returns its standard error.
    pub(crate) async fn complaints(mut self) -> String {
        // An error means that it ended before.
        let _ = self.child.kill().await;
        self.complaints.await.unwrap_or_default()
    }
}

fn read_lines(stream: impl AsyncRead + Unpin + Send + 'static, printed: Printed) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
            printed.lock().unwrap().push(line);
        }
    })
}

fn read_all(mut stream: impl AsyncRead + Unpin + Send + 'static) -> JoinHandle<String> {
    tokio::spawn(async move {
        let mut text = Vec::new();
        // A broken stream still leaves the text read so far.
        let _ = stream.read_to_end(&mut text).await;
        String::from_utf8_lossy(&text).into_owned()
    })
}
