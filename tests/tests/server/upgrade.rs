//! A process takes over from another one: its sockets, and in front of an API server its caches.

mod folder;

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::TcpListener,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{fs::PermissionsExt as _, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command as Plain, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};
use tests::{
    genuine::Counters,
    http::{Client, briefs},
    objects::configmap,
    process::Server,
    upgrade::Upgraded,
};
use tokio::{
    process::{Child, Command},
    task::{JoinHandle, spawn_blocking},
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

/// Streams of the state of the ConfigMaps that a server has sent so far.
async fn initial_streams(client: &Client) -> u64 {
    Counters::parse(client.get("/metrics").await.with_code(200).text()).initial_streams("configmaps")
}

/// Goal: clients of a server in front of another one notice an upgrade only by the end of their watches, and the server
/// behind it not at all. Method: watches over TLS, half of them over HTTP/2, beside writes, each of which has a
/// connection of its own; twice, so that what was taken over is handed on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_cache_resume_at_the_next_process() {
    let behind = Server::start(BINARY, &[]).await;
    let url = format!("http://{}", behind.address());
    let states = tempfile::tempdir().unwrap();
    let upstream = ["--upstream", &url, "--authorization", "always-allow", "--resources", "configmaps"];
    let saved = ["--state-dir", states.path().to_str().unwrap()];
    let mut upgraded = Upgraded::start(BINARY, &[&upstream[..], &saved].concat(), None).await;
    upgraded.client().get("/api/v1/configmaps").await.with_code(200);
    let before = initial_streams(&behind.client()).await;
    let report = upgraded.upgrade_under_load().await;
    assert_eq!(initial_streams(&behind.client()).await, before, "the API server notices nothing");
    upgraded.assert_not_listed("configmaps").await;
    println!("in front of an API server: {report:?}");
    upgraded.upgrade().await;
    upgraded.assert_not_listed("configmaps").await;
    assert_eq!(initial_streams(&behind.client()).await, before);
    // The saved state is of the process that runs now.
    let last = upgraded.client().create(&configmap("last")).await;
    upgraded.client().get(&format!("/api/v1/configmaps?resourceVersion={last}")).await.with_code(200);
    upgraded.server.terminate();
    upgraded.server.ended().await;
    let restarted = Server::start(BINARY, &[&upstream[..], &saved, &["--log", "info"]].concat()).await;
    restarted.client().get("/api/v1/configmaps?resourceVersion=0").await.with_code(200);
    restarted.logged("saved state loaded").await;
    assert_eq!(initial_streams(&behind.client()).await, before);
}

/// Goal: with objects in a folder, no connection is refused and no event is lost while the processes change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_folder_wait_for_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, tokens) = (folder.path().join("socket"), folder.path().join("tokens.csv"));
    fs::write(&tokens, "t-alice,alice,u1\n").unwrap();
    let (data, local) = (folder.path().to_str().unwrap(), socket.to_str().unwrap());
    let flags = ["--data-dir", data, "--unix-socket", local, "--token-auth-file", tokens.to_str().unwrap()];
    let mut upgraded = Upgraded::start(BINARY, &flags, Some("t-alice")).await;
    let local = LocalLoad::start(socket.clone());
    let report = upgraded.upgrade_under_load().await;
    println!("in a folder: {report:?}, and {} local requests", local.stop().await);
    upgraded.server.terminate();
    upgraded.server.ended().await;
    assert!(!socket.exists(), "its file goes with the last server");
}

/// Clients of a Unix socket, each with a connection of its own, one after the other.
struct LocalLoad {
    is_over: Arc<AtomicBool>,
    task: JoinHandle<u64>,
}

impl LocalLoad {
    fn start(socket: PathBuf) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let over = Arc::clone(&is_over);
        let task = spawn_blocking(move || {
            let mut count = 0;
            while !over.load(Ordering::SeqCst) {
                let answer = over_socket(&socket).unwrap_or_else(|error| panic!("request {count}: {error}"));
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "request {count}: {answer:?}");
                count += 1;
            }
            count
        });
        Self { is_over, task }
    }

    /// Returns the number of requests.
    async fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::SeqCst);
        self.task.await.expect("no request fails")
    }
}

/// Sends a request over a Unix socket, and returns the answer.
fn over_socket(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.write_all(b"GET /api/v1/configmaps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Goal: a process that ends while it is replaced leaves a server. Method: the limit of its files kills it at the first
/// state that it writes.
#[tokio::test]
async fn the_next_process_serves_if_the_one_before_is_killed() {
    let behind = Server::start(BINARY, &[]).await;
    behind.client().create(&configmap("one")).await;
    let folder = tempfile::tempdir().unwrap();
    let (socket, url) = (folder.path().join("upgrade"), format!("http://{}", behind.address()));
    let upstream = ["--upstream", &url, "--authorization", "always-allow", "--resources", "configmaps"];
    let flags = [&upstream[..], &["--upgrade-socket", socket.to_str().unwrap()]].concat();
    let before = Server::start(BINARY, &flags).await;
    let list = "/api/v1/configmaps";
    assert_eq!(before.client().get(list).await.with_code(200).keys(), ["default/one"]);
    let limited = Plain::new("prlimit").args(["--fsize=16:16", "--pid", &before.id().to_string()]).status();
    assert!(limited.unwrap().success());
    let next = Server::start_at(&before.address().to_string(), BINARY, &[], &flags).await;
    assert_eq!(before.ended().await.code, None, "a signal ended it");
    assert_eq!(next.client().get(list).await.with_code(200).keys(), ["default/one"]);
    let last = Server::start(BINARY, &flags).await;
    last.client().get(list).await.with_code(200);
    assert_eq!(next.ended().await.code, Some(0));
}

/// Goal: a process that ends once it may serve leaves the one before as it was, and so does one that says nothing. Method:
/// messages of both, then a process that takes over.
#[tokio::test]
async fn a_server_outlives_a_process_that_ends_before_it_serves() {
    let behind = Server::start(BINARY, &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (upgrades, requests, url) = (at("upgrade"), at("requests"), format!("http://{}", behind.address()));
    let upstream = ["--upstream", &url, "--authorization", "always-allow", "--resources", "configmaps"];
    let flags = [&upstream[..], &["--upgrade-socket", &upgrades, "--unix-socket", &requests]].concat();
    let server = Server::start(BINARY, &flags).await;
    let _silent = UnixStream::connect(&upgrades).unwrap();
    let (path, place) = (upgrades.clone(), format!("(Some({url:?}), None, None)"));
    spawn_blocking(move || {
        let stream = UnixStream::connect(path).unwrap();
        let place = json!({"kind": "upstream", "name": place});
        send(&stream, &json!({"message": "hello", "format": 3, "storage": place})).unwrap();
        until(&stream, "complete").unwrap();
        send(&stream, &json!({"message": "ready"})).unwrap();
        until(&stream, "go").unwrap();
    })
    .await
    .unwrap();
    server.client().get("/api/v1/configmaps").await.with_code(200);
    assert!(over_socket(Path::new(&requests)).unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
    let next = Server::start(BINARY, &flags).await;
    assert_eq!(next.address(), server.address());
    assert_eq!(server.ended().await.code, Some(0));
    assert!(over_socket(Path::new(&requests)).unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
}

/// Sends a message of a process that takes over.
fn send(mut stream: &UnixStream, message: &Value) -> io::Result<()> {
    let text = message.to_string();
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(text.as_bytes())
}

/// Reads up to a message of the process before. Files are dropped.
fn until(mut stream: &UnixStream, expected: &str) -> io::Result<()> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut text)?;
        let message: Value = serde_json::from_slice(&text)?;
        assert_ne!(message["message"], "refused", "{message}");
        if message["message"] == expected {
            return Ok(());
        }
    }
}

/// Goal: a server goes on if the next process cannot take over. Method: processes with other settings; then one that
/// can.
#[tokio::test]
async fn a_server_goes_on_beside_a_process_that_cannot_take_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (socket, data) = (at("upgrade"), at("data"));
    let flags = ["--data-dir", &data, "--upgrade-socket", &socket];
    let server = Server::start(BINARY, &flags).await;
    let mut watch = server.client().watch("/api/v1/configmaps?watch=1").await;
    let refused = async |flags: &[&str]| {
        let ended = Server::run(BINARY, &[&["serve", "--upgrade-socket", &socket], flags].concat()).await;
        assert!(matches!(ended.code, Some(1 | 2)), "{}", ended.stderr);
        ended.stderr
    };
    let goes_on = "cannot take over from the running server, which goes on: it";
    let elsewhere = refused(&["--listen", "127.0.0.1:0"]).await;
    assert!(elsewhere.contains("keeps its objects elsewhere") && elsewhere.contains(goes_on), "{elsewhere}");
    let address = refused(&["--listen", "127.0.0.1:1", "--data-dir", &data]).await;
    assert!(address.contains("and --listen is 127.0.0.1:1") && address.contains(goes_on), "{address}");
    let other = refused(&["--listen", "127.0.0.1:0", "--data-dir", &at("other-data")]).await;
    assert!(other.contains("keeps its objects elsewhere"), "{other}");
    // Mistakes in its files show before the folder changes hands.
    let mistyped = ["--listen", "127.0.0.1:0", "--data-dir", &data, "--tls-cert", &at("cert"), "--tls-key", &at("key")];
    let unreadable = refused(&mistyped).await;
    assert!(unreadable.contains("cannot use the certificate"), "{unreadable}");
    for flag in ["--load", "--flow-config"] {
        fs::write(at("broken.yaml"), "a: [1\nb: 2\n").unwrap();
        for (file, reason) in [("none.yaml", "No such file"), ("broken.yaml", "not YAML")] {
            let broken = refused(&["--listen", "127.0.0.1:0", "--data-dir", &data, flag, &at(file)]).await;
            assert!(broken.contains(reason), "{flag} {file}: {broken}");
        }
    }
    fs::write(at("file"), "text").unwrap();
    let file = refused(&["--listen", "127.0.0.1:0", "--data-dir", &data, "--unix-socket", &at("file")]).await;
    assert!(file.contains("the file is no socket"), "{file}");
    server.client().create(&configmap("one")).await;
    assert_eq!(briefs(&watch.events(1).await), ["ADDED default/one"]);
    // This mistake shows with the objects of the folder only: the new process serves all the same.
    let (manifest, log) = (at("load.yaml"), at("audit.log"));
    fs::write(&manifest, "kind: Cat\napiVersion: v1\nmetadata: {name: two}\n").unwrap();
    let unready = Server::start(BINARY, &[&flags[..], &["--load", &manifest, "--audit-log", &log]].concat()).await;
    server.ended().await;
    let found = unready.client().get("/api/v1/namespaces/default/configmaps/one").await.with_code(200).json();
    assert_eq!(found["metadata"]["name"], json!("one"));
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    let reason = unready.client().get("/readyz?verbose").await.with_code(500);
    assert!(reason.text().contains("unknown kind"), "{}", reason.text());
    // It is replaced like any other.
    fs::write(&manifest, "kind: ConfigMap\napiVersion: v1\nmetadata: {name: two}\n").unwrap();
    let next = Server::start(BINARY, &[&flags[..], &["--load", &manifest]].concat()).await;
    unready.ended().await;
    next.client().get("/readyz").await.with_code(200);
    next.client().get("/api/v1/namespaces/default/configmaps/two").await.with_code(200);
    // Objects in memory end with their process.
    let memory = ["--upgrade-socket", &at("other")];
    let server = Server::start(BINARY, &memory).await;
    let ended = Server::run(BINARY, &[&["serve", "--listen", "127.0.0.1:0"], &memory[..]].concat()).await;
    assert!(ended.code == Some(1) && ended.stderr.contains("use --data-dir"), "{ended:?}");
    server.client().get("/readyz").await.with_code(200);
}

/// Goal: a server uses the socket that systemd has opened for it. Method: a shell that opens no socket but passes one
/// on, as systemd does.
#[tokio::test]
async fn a_socket_of_systemd_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let _server = activated(&listener);
    // It waits in the queue of the socket, which listens already.
    let client = Client::new(address).patient();
    client.get("/readyz").await.with_code(200);
    drop(listener);
    client.create(&configmap("one")).await;
}

/// Starts a server with a listening socket as its third descriptor, as systemd does. It is killed when it is dropped.
fn activated(listener: &TcpListener) -> Child {
    // The shell gets it as its standard input.
    let socket: OwnedFd = listener.as_fd().try_clone_to_owned().expect("a descriptor is free");
    let script = format!("exec 3<&0; export LISTEN_FDS=1 LISTEN_PID=$$; exec {BINARY} serve");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).stdin(Stdio::from(socket)).stdout(Stdio::null()).kill_on_drop(true);
    shell.spawn().expect("there is a shell")
}
