//! The processes of one cluster, in one temporary folder, and free ports for them.
//!
//! INVARIANT: they end and the folder is removed when the group is dropped, and also when the test's process ends
//! without that: then a shell reads the end of its standard input, kills what the folder names, and removes the folder.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

/// Ends what a test's process left behind. `$0` is the folder; each `*.pid` in it is the id of a running process.
const CLEANER: &str = r#"
trap "" INT TERM HUP
read -r _
for file in "$0"/*.pid; do [ -e "$file" ] && kill -9 "$(cat "$file")"; done
rm -rf "$0"
"#;

/// Bytes of each log shown in failure messages.
const LOG_BYTES_MAX: usize = 4 << 10;

/// Running processes by name.
pub(crate) struct ProcessGroup {
    folder: PathBuf,
    running: Vec<(String, Child)>,
    cleaner: Child,
    /// Closed to start the cleaner, by the drop or by the end of this process.
    held_open: Option<ChildStdin>,
}

/// A process that ended by itself.
#[derive(Debug)]
#[expect(dead_code, reason = "shown by a failed test")]
pub(crate) struct Exit {
    name: String,
    code: Option<i32>,
    log: String,
}

impl ProcessGroup {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("processes-").tempdir().unwrap().keep();
        let mut cleaner = Command::new("sh")
            .args(["-c", CLEANER])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let held_open = cleaner.stdin.take();
        Self { folder, running: Vec::new(), cleaner, held_open }
    }

    /// Folder of all files of the cluster.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts a program. Its output goes to a log in the folder.
    pub(crate) fn spawn(&mut self, name: &str, program: &Path, flags: &[String]) {
        let log = File::options().create(true).append(true).open(self.log_of(name)).unwrap();
        let child = Command::new(program)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
        fs::write(self.id_of(name), child.id().to_string()).unwrap();
        self.running.push((name.to_owned(), child));
    }

    /// Kills a process and waits for its end. Does nothing if it does not run.
    pub(crate) fn kill(&mut self, name: &str) {
        if let Some(at) = self.running.iter().position(|(running, _)| running == name) {
            let (_, mut child) = self.running.remove(at);
            end(&mut child);
            // A later process may get this id.
            let _ = fs::remove_file(self.id_of(name));
        }
    }

    /// Sends a signal, such as `STOP`, to a running process.
    pub(crate) fn signal(&self, name: &str, signal: &str) {
        let (_, child) = self.running.iter().find(|(running, _)| running == name).expect("it runs");
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {}", child.id())]).status().unwrap();
        assert!(sent.success(), "no signal for {name}");
    }

    /// True if a process was started and not killed.
    pub(crate) fn runs(&self, name: &str) -> bool {
        self.running.iter().any(|(running, _)| running == name)
    }

    /// A process that ended by itself.
    pub(crate) fn exited(&mut self) -> Option<Exit> {
        let ended = self.running.iter_mut().find_map(|(name, child)| Some((name.clone(), child.try_wait().unwrap()?)));
        ended.map(|(name, status)| Exit { code: status.code(), log: self.log_tail(&name), name })
    }

    /// Ends of all logs.
    pub(crate) fn log(&self) -> String {
        self.running.iter().map(|(name, _)| format!("{name}:\n{}\n", self.log_tail(name))).collect()
    }

    fn log_tail(&self, name: &str) -> String {
        let log = fs::read(self.log_of(name)).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_BYTES_MAX)..]).into_owned()
    }

    fn log_of(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    fn id_of(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.pid"))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let (true, Some(exit)) = (std::thread::panicking(), self.exited()) {
            eprintln!("ended by itself: {exit:#?}");
        }
        // The last first: without its etcd an API server would log errors.
        while let Some((name, mut child)) = self.running.pop() {
            end(&mut child);
            let _ = fs::remove_file(self.id_of(&name));
        }
        drop(self.held_open.take());
        let _ = self.cleaner.wait();
    }
}

/// Ports that were free a moment ago, below those that the system gives to outgoing connections: a client that tries to
/// reach a killed server must not occupy its port.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    // Held together, so that they differ.
    let listeners = [(); N].map(|()| {
        let mut tries = std::iter::repeat_with(|| TcpListener::bind(("127.0.0.1", fastrand::u16(20_000..32_000))));
        tries.find_map(Result::ok).expect("ports are free")
    });
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn end(child: &mut Child) {
    // Errors mean that it ended before.
    let _ = child.kill();
    let _ = child.wait();
}
