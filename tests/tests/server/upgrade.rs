//! A process takes over from another one: its sockets, and in front of an API server its caches.

use std::{
    fs,
    net::TcpListener,
    os::fd::{AsFd as _, OwnedFd},
    process::Stdio,
};

use serde_json::json;
use tests::{
    genuine::Counters,
    http::{Client, briefs},
    objects::configmap,
    process::Server,
    upgrade::Upgraded,
};
use tokio::process::{Child, Command};

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
    let mut upgraded = Upgraded::start(BINARY, &["--data-dir", folder.path().to_str().unwrap()], None).await;
    let report = upgraded.upgrade_under_load().await;
    println!("in a folder: {report:?}");
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
    fs::write(at("file"), "text").unwrap();
    let file = refused(&["--listen", "127.0.0.1:0", "--data-dir", &data, "--unix-socket", &at("file")]).await;
    assert!(file.contains("the file is no socket"), "{file}");
    server.client().create(&configmap("one")).await;
    assert_eq!(briefs(&watch.events(1).await), ["ADDED default/one"]);
    let next = Server::start(BINARY, &flags).await;
    server.ended().await;
    let found = next.client().get("/api/v1/namespaces/default/configmaps/one").await.with_code(200).json();
    assert_eq!(found["metadata"]["name"], json!("one"));
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
