//! Pages for newcomers: their shell blocks work as printed.
//!
//! Goal: a reader who copies a block gets what the page promises. Method: the blocks of a page, in order, in an empty
//! folder, with a shell that stops at the first failure. A line that starts a server runs in the background until the page
//! ends, on a port of its own: the port of the page may be in use. Lines of cargo are left out, because this build is theirs.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use tests::process::{READY, START_WAIT};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use super::SERVER;

/// Timeout of a block; the longest waits five seconds for a watch.
const BLOCK_WAIT: Duration = Duration::from_secs(120);

/// Address of the server in pages.
const PRINTED: &str = "127.0.0.1:8001";

/// Prefix of a line that starts a server.
const SERVE: &str = "cache-server serve ";

/// The shell blocks of a page, without the lines of cargo.
fn blocks(page: &str) -> Vec<String> {
    let parts = page.split("\n```sh\n").skip(1);
    let blocks = parts.map(|part| part.split("\n```").next().unwrap().lines());
    blocks
        .map(|lines| lines.filter(|line| !line.starts_with("cargo ")).map(|line| format!("{line}\n")).collect())
        .collect()
}

/// An empty folder with the program in its PATH, and the address for its server.
struct Shell {
    folder: tempfile::TempDir,
    address: String,
}

impl Shell {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        std::os::unix::fs::symlink(SERVER, folder.path().join("bin/cache-server")).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { folder, address: free.to_string() }
    }

    fn command(&self, script: &str) -> Command {
        let script = script.replace(PRINTED, &self.address);
        let path =
            format!("{}:{}", self.folder.path().join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("bash");
        command
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .env("HOME", self.folder.path())
            .env("CACHE_SERVER_LISTEN", &self.address)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs lines that end.
    async fn run(&self, script: &str) {
        let ended = timeout(BLOCK_WAIT, self.command(script).output()).await;
        let Output { status, stdout, stderr } = ended.unwrap_or_else(|_| panic!("does not end: {script}")).unwrap();
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "{script}{stdout}{stderr}");
    }

    /// Starts a server, and waits until it listens.
    async fn serve(&self, line: &str) -> Child {
        let mut server = self.command(&format!("exec {line}")).spawn().unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let first = timeout(START_WAIT, lines.next_line()).await.expect("it starts").unwrap();
        assert!(first.as_deref().is_some_and(|first| first.starts_with(READY)), "{line}: {first:?}");
        server
    }
}

async fn run_page(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    let (shell, mut servers) = (Shell::new(), Vec::new());
    let blocks = blocks(&fs::read_to_string(path).unwrap());
    assert!(!blocks.is_empty(), "{name} has no shell block");
    for block in blocks {
        let (before, serve) = match block.find(SERVE) {
            Some(at) => block.split_at(at),
            None => (&*block, ""),
        };
        if !before.trim().is_empty() {
            shell.run(before).await;
        }
        if !serve.is_empty() {
            assert_eq!(serve.lines().count(), 1, "a server does not end, so it is the last line: {block}");
            servers.push(shell.serve(serve.trim_end()).await);
        }
    }
}

#[tokio::test]
async fn the_blocks_of_the_page_of_the_server_work_as_printed() {
    let installed = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join("kubectl").is_file());
    if !installed {
        assert!(std::env::var_os("CI").is_none(), "kubectl is not installed, and CI needs it");
        eprintln!("kubectl is not installed: skipped");
        return;
    }
    run_page("server.md").await;
}

#[tokio::test]
async fn the_blocks_of_the_page_of_the_audit_log_work_as_printed() {
    run_page("audit.md").await;
}
