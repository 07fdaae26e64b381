//! The server as a process: refused command lines, and how it ends.

use std::{io::Write as _, net::Ipv4Addr, time::Duration};

use serde_json::{Value, json};
use tests::{
    http::{ANSWER_WAIT, Answer, Client, LINE_WAIT},
    objects::configmap,
    process::{READY, Server},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");

#[tokio::test]
async fn a_bad_start_is_one_line_and_exit_code_two() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let broken = manifest("broken.yaml", "apiVersion: v1\nkind: [");
    let foreign = manifest("foreign.yaml", "apiVersion: none/v1\nkind: Nothing\nmetadata:\n  name: a\n");
    let missing = folder.path().join("missing.yaml").to_str().unwrap().to_owned();
    let running = Server::start(BINARY, &[]).await;
    let taken = running.address().to_string();
    for arguments in [
        &["serve", "--no-such-flag"][..],
        &["no-such-command"],
        &["serve", "--listen", "nowhere"],
        &["serve", "--listen", "127.0.0.1:0", "--first-revision", "x"],
        &["serve", "--listen", "127.0.0.1:0", "--populate", "unicorns=5"],
        &["serve", "--listen", "127.0.0.1:0", "--load", &missing],
        &["serve", "--listen", "127.0.0.1:0", "--load", &broken],
        &["serve", "--listen", "127.0.0.1:0", "--load", &foreign],
        &["serve", "--listen", &taken],
    ] {
        let ended = Server::run(BINARY, arguments).await;
        assert_eq!(ended.code, Some(2), "{arguments:?}: {ended:?}");
        assert!(!ended.stdout.contains(READY), "{arguments:?}: {ended:?}");
        assert_eq!(ended.stderr.trim().lines().count(), 1, "{arguments:?}: {ended:?}");
    }
}

/// Goal: a misspelt field of a manifest is found. Method: two files of several documents; one object has such fields.
#[tokio::test]
async fn unknown_fields_of_a_loaded_file_are_named_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let map =
        |name: &str, more: &str| format!("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n{more}");
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("good.yaml"), [map("a", ""), map("b", "data: {k: v}\n")].concat()).unwrap();
    std::fs::write(at("misspelt.yaml"), [map("c", ""), map("d", "dta: {k: v}\nimutable: true\n")].concat()).unwrap();
    let server = Server::start(BINARY, &["--load", folder.path().to_str().unwrap()]).await;
    let log = server.logged("unknown fields dropped").await;
    let lines: Vec<_> = log.lines().filter(|line| line.contains("unknown fields dropped")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for part in [&*at("misspelt.yaml"), "document 2", "dta", "imutable"] {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }
    server.client().get("/api/v1/namespaces/default/configmaps/d").await.with_code(200);
}

#[tokio::test]
async fn sigterm_ends_watches_cleanly_and_exits_with_zero() {
    let server = Server::start(BINARY, &[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let mut watch = client.watch("/api/v1/configmaps?watch=1").await;
    assert_eq!(watch.event().await.brief(), "ADDED default/a");
    server.terminate();
    // A broken connection would panic here.
    assert!(watch.rest(LINE_WAIT * 2).await.is_empty());
    assert_eq!(server.ended().await.code, Some(0));
}

/// Goal: a watch never gets an event at or below its position, even if it arrives while the server drains. Method: for
/// each storage, deleted objects in the window, then a SIGTERM amid watches that arrive on connections that are open
/// already.
#[tokio::test]
async fn watches_that_arrive_during_the_drain_get_no_old_event() {
    const STARTS: usize = 3;
    const CONNECTIONS: usize = 240;
    let mut ended = 0;
    for start in 0..2 * STARTS {
        let folder = tempfile::tempdir().unwrap();
        let data = ["--data-dir", folder.path().to_str().unwrap()];
        let server = Server::start(BINARY, if start % 2 == 0 { &[] } else { &data }).await;
        let client = server.client();
        let mut position = 0;
        for number in 0..20 {
            let object = configmap(&format!("c{number}"));
            client.create(&object).await;
            position = client.remove(&object).await;
        }
        let mut streams = open(&server, CONNECTIONS).await;
        for stream in &mut streams {
            assert!(is_answered(stream, ANSWER_WAIT).await);
        }
        for (number, stream) in streams.iter_mut().enumerate() {
            let path = if number % 3 == 0 { "namespaces/default/configmaps" } else { "configmaps" };
            let request = format!(
                "GET /api/v1/{path}?watch=1&timeoutSeconds=20&resourceVersion={position} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            );
            // An error means that the server closed the connection before.
            let _ = stream.write_all(request.as_bytes()).await;
            if number == CONNECTIONS / 4 {
                server.terminate();
            }
        }
        for mut stream in streams {
            let mut answer = Vec::new();
            // A reset is the end of a connection whose request the server did not read.
            let _ = timeout(ANSWER_WAIT, stream.read_to_end(&mut answer)).await.expect("the server ends");
            let answer = String::from_utf8_lossy(&answer);
            assert!(!answer.contains(r#""type":"#), "after {position}: {answer}");
            ended += usize::from(answer.contains("\r\n\r\n0\r\n\r\n"));
        }
        assert_eq!(server.ended().await.code, Some(0));
    }
    println!("{ended} of {} watches were answered", 2 * STARTS * CONNECTIONS);
    assert!(ended > 0, "no watch arrived in time");
}

async fn read_table(client: Client, path: String) -> Answer {
    client.get_with(&path, &[("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")]).await
}

/// Goal: readers of tables delay neither other clients nor the shutdown. Method: as many columns as a definition may
/// have, each of which would visit every value of a long object for every other one; many concurrent readers, an honest
/// client, and a SIGTERM.
#[tokio::test]
async fn tables_of_long_objects_hold_up_neither_others_nor_the_end() {
    let server = Server::start(BINARY, &[]).await;
    let client = server.client();
    let columns: Vec<Value> = (0..128)
        .map(|number| json!({"name": format!("c{number}"), "type": "string", "jsonPath": "..a..b..c..d"}))
        .collect();
    let version = json!({"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "wides.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "wides", "kind": "Wide"}, "versions": [version]}});
    client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.with_code(201);
    let wides = "/apis/example.com/v1/namespaces/default/wides";
    let items: Vec<Value> = (0..8_000).map(|number| json!({"a": {"b": {"name": format!("item-{number}")}}})).collect();
    let object = json!({"apiVersion": "example.com/v1", "kind": "Wide", "metadata": {"name": "w"}, "items": items});
    client.post(wides, &object).await.with_code(201);
    let path = |number: usize| if number.is_multiple_of(2) { wides.to_owned() } else { format!("{wides}/w") };
    let tables = (0..24).map(|number| async move {
        let table = read_table(client, path(number)).await.with_code(200).json();
        assert_eq!((table["kind"].as_str(), table["rows"].as_array().map(Vec::len)), (Some("Table"), Some(1)));
        assert_eq!(table["rows"][0]["cells"].as_array().map(Vec::len), Some(129));
    });
    let honest = async {
        for _ in 0..20 {
            timeout(ANSWER_WAIT / 3, client.get("/livez")).await.expect("others are answered").with_code(200);
        }
    };
    let ((), _) = tokio::join!(honest, futures::future::join_all(tables));
    let last: Vec<_> = (0..24).map(|number| tokio::spawn(read_table(client, path(number)))).collect();
    server.terminate();
    let ended = server.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    last.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Goal: a position is never reused, even if a server restarts immediately, as in a crash loop. Method: six starts in
/// quick succession; each position is above the earlier ones, and a position of an earlier run gets a 410.
#[tokio::test]
async fn a_memory_only_store_never_repeats_positions() {
    let mut last = 0;
    for _ in 0..6 {
        let server = Server::start(BINARY, &[]).await;
        let client = server.client();
        let listed = client.get("/api/v1/configmaps").await.with_code(200).resource_version();
        assert!(listed > last, "{listed} after {last}");
        if last > 0 {
            let mut watch = client.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={last}")).await;
            assert_eq!(watch.event().await.brief(), "ERROR 410", "a position of an earlier run");
        }
        last = client.create(&configmap("a")).await;
    }
}

/// Path of a script that runs the server with shell `limits`.
fn limited(folder: &std::path::Path, limits: &str) -> String {
    let path = folder.join("limited");
    let script = format!("#!/bin/sh\n{limits} && exec {BINARY} \"$@\"\n");
    // A process that another test starts meanwhile has a copy of what this one writes to: the script would be busy.
    let write = "printf %s \"$1\" > \"$0\" && chmod +x \"$0\"";
    let written =
        std::process::Command::new("sh").args(["-c", write]).arg(&path).arg(script).status().expect("a shell");
    assert!(written.success(), "{written}");
    path.to_str().expect("is text").to_owned()
}

/// Opens connections with one request each, from a hundred addresses in turn: while few slots are free, an address with
/// several connections gets no further one.
async fn open(server: &Server, count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for own in (1..=100).cycle().take(count) {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::new(127, 0, 0, own), 0).into()).expect("all of 127.0.0.0/8 is this machine");
        let mut stream = socket.connect(server.address()).await.expect("the listen queue takes it");
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("the socket takes it");
        streams.push(stream);
    }
    streams
}

/// Returns true if the server answers the request with a 200.
async fn is_answered(stream: &mut TcpStream, wait: Duration) -> bool {
    let mut answer = [0; 12];
    timeout(wait, stream.read_exact(&mut answer)).await.is_ok_and(|read| read.is_ok()) && answer.ends_with(b"200")
}

#[tokio::test]
async fn the_usual_limit_of_open_files_is_raised() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&limited(folder.path(), "ulimit -S -n 64"), &[]).await;
    for stream in &mut open(&server, 200).await {
        assert!(is_answered(stream, ANSWER_WAIT).await);
    }
}

/// Goal: a server serves as many clients as it may, and the others once those disconnect. Method: few file descriptors, and
/// the flag.
#[tokio::test]
async fn connections_beyond_the_limit_wait_for_others_to_leave() {
    for (files, flags, warns) in [("100", &[][..], true), ("1000", &["--connections-max", "68"], false)] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(&limited(folder.path(), &format!("ulimit -n {files}")), flags).await;
        others_wait(server, warns).await;
    }
}

async fn others_wait(server: Server, warns: bool) {
    let mut streams = open(&server, 100).await;
    let mut late = streams.split_off(60);
    for stream in &mut streams {
        assert!(is_answered(stream, ANSWER_WAIT).await);
    }
    assert!(!is_answered(&mut late[39], Duration::from_millis(100)).await, "there is no room for it");
    drop(streams);
    for stream in &mut late {
        assert!(is_answered(stream, ANSWER_WAIT).await);
    }
    server.terminate();
    let ended = server.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stderr.contains("connection limit lowered open_files=100"), warns, "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), usize::from(warns), "{ended:?}");
}
