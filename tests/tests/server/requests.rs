//! Requests that the server refuses early, and their logs and metrics.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use cache_server::{Server as InProcess, config::Config};
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Client, LINE_WAIT},
    objects::configmap,
    process::Server,
    websocket::HANDSHAKE,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{Instant, sleep, timeout},
};

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Sends exactly these bytes. Returns the response up to the end of the connection.
async fn answer(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = Vec::new();
    let _ = timeout(LINE_WAIT, stream.read_to_end(&mut answer)).await.expect("it ends");
    String::from_utf8(answer).expect("is text")
}

#[tokio::test]
async fn http_1_1_needs_a_host() {
    let server = Server::start(BINARY, &[]).await;
    for (request, status) in [
        ("GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n", "400 Bad Request"),
        ("GET http://localhost/livez HTTP/1.1\r\nConnection: close\r\n\r\n", "400 Bad Request"),
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "200 OK"),
        ("GET /livez HTTP/1.0\r\n\r\n", "200 OK"),
    ] {
        let answer = answer(&server, request).await;
        assert_eq!(
            answer.split_once("\r\n").expect("a head").0.split_once(' ').expect("a status").1,
            status,
            "{answer}"
        );
    }
}

/// Goal: a request for a pod's process gets an error about missing pods, not a 404 for its pod. Method: the requests of
/// kubectl, kr8s and lightkube.
#[tokio::test]
async fn logs_and_exec_say_that_the_server_runs_no_pods() {
    let server = Server::start(BINARY, &["--populate", "pods=1,nodes=1,namespaces=1,seed=1"]).await;
    let pod = server.client().get("/api/v1/pods").await.json()["items"][0]["metadata"].take();
    let pod =
        format!("/api/v1/namespaces/{}/pods/{}", pod["namespace"].as_str().unwrap(), pod["name"].as_str().unwrap());
    for path in [
        format!("{pod}/log"),
        format!("{pod}/exec?command=ls&stdout=true"),
        format!("{pod}/attach"),
        format!("{pod}/portforward?ports=80"),
        format!("{pod}/proxy/index.html"),
        "/api/v1/namespaces/a/services/web/proxy/".to_owned(),
        "/api/v1/nodes/node-0/proxy/metrics".to_owned(),
    ] {
        let client = server.client();
        for answer in [
            client.get(&path).await,
            client.get_with(&path, &HANDSHAKE).await,
            client.get_with(&path, &[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]).await,
            client.post(&path, &json!(null)).await,
        ] {
            let answer = answer.with_code(405);
            assert_eq!(answer.json()["reason"], "MethodNotAllowed");
            assert!(answer.message().contains("runs no pods"), "{path}: {}", answer.message());
        }
    }
}

#[tokio::test]
async fn unserved_versions_of_built_in_groups_are_a_status() {
    let server = Server::start(BINARY, &[]).await;
    for path in ["/api/v2", "/api/v2/pods", "/apis/apps/v9", "/apis/apps/v9/deployments", "/api/v1/foos"] {
        let answer = server.client().get(path).await.with_code(404);
        assert_eq!(answer.message(), "the server could not find the requested resource", "{path}");
    }
}

#[tokio::test]
async fn names_that_are_no_segment_of_a_path_are_refused() {
    let server = Server::start(BINARY, &[]).await;
    for (name, message) in [
        (".", r#"Name parameter invalid: ".": may not be '.'"#),
        ("%2E%2E", r#"Name parameter invalid: "..": may not be '..'"#),
        ("a%25b", r#"Name parameter invalid: "a%b": may not contain '%'"#),
    ] {
        let path = format!("{CONFIGMAPS}/{name}");
        assert_eq!(server.client().get(&path).await.with_code(400).message(), message);
        assert_eq!(server.client().delete(&path).await.with_code(400).message(), message);
    }
    // An encoded slash separates segments, so these paths lead to no resource.
    for path in [
        format!("{CONFIGMAPS}/a%2Fb"),
        "/api/v1/namespaces/a%2F..%2Fb/pods".to_owned(),
        "/api/v1/namespaces/a%2Fb/pods".to_owned(),
    ] {
        let message = server.client().get(&path).await.with_code(404).message().to_owned();
        assert_eq!(message, "the server could not find the requested resource", "{path}");
    }
}

/// Goal: an error about a body is small and contains no value of it. Method: names of fields, kinds and versions as
/// long as a body may be, with a value beside them.
#[tokio::test]
async fn messages_about_bodies_are_bounded_and_hold_no_values() {
    let server = Server::start(BINARY, &[]).await;
    let long = "n".repeat(200_000);
    let strict = format!("{CONFIGMAPS}?fieldValidation=Strict");
    let many: serde_json::Map<_, _> =
        (0..90).map(|at| (format!("{at}{}", "m".repeat(5_000)), json!("tiger"))).collect();
    for (path, body) in [
        (strict.as_str(), json!({"metadata": {"name": "a"}, long.as_str(): "tiger"})),
        (&strict, json!({"metadata": {"name": "a"}, "more": many})),
        (CONFIGMAPS, json!({"kind": long, "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "tiger"}})),
        (
            CONFIGMAPS,
            json!({"kind": "ConfigMap", "apiVersion": long, "metadata": {"name": "a"}, "data": {"k": "tiger"}}),
        ),
        (CONFIGMAPS, json!({"metadata": {"name": long}, "data": {"k": "tiger"}})),
        (CONFIGMAPS, json!({"metadata": {"name": "a", "labels": {long.as_str(): "tiger"}}})),
    ] {
        let answer = server.client().post(path, &body).await;
        if answer.code != 201 {
            assert!((400..500).contains(&answer.code.as_u16()), "{}", answer.code);
            assert!(answer.body.len() < 100_000, "{} bytes", answer.body.len());
            assert!(!answer.text().contains("tiger"), "{:.1000}", answer.text());
        }
    }
}

/// Goal: each client error can be diagnosed without a proxy. Method: the debug log of several requests.
#[tokio::test]
async fn the_debug_log_tells_what_a_client_asked_and_why_it_failed() {
    for (environment, arguments) in [
        (&[][..], &["--log", "debug"][..]),
        (&[("CACHE_SERVER_LOG", "cache_server=debug")], &[]),
        (&[("RUST_LOG", "cache_server=debug")], &[]),
    ] {
        let server = Server::start_with(BINARY, environment, arguments).await;
        let client = server.client();
        let agent = [("user-agent", "probe/1.0"), ("authorization", "Bearer tiger")];
        client.get_with("/api/v1/pods?fieldSelector=spec.a%3Db&limit=3", &agent).await.with_code(400);
        client.get_with("/api/v1/pods?limit=3&continue=eyJ2IjoibWV0YS5rOHMuaW8iLCJ0aWdlciI6MX0", &agent).await;
        let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "tiger"}, "tigger": 1});
        client.post("/api/v1/namespaces/default/secrets?fieldValidation=Strict", &secret).await.with_code(400);
        client.get_with("/api/v1/pods", &[("host", "evil.example")]).await.with_code(403);
        let invalid = json!({"metadata": {"name": "the tiger"}});
        client.post("/api/v1/namespaces/default/secrets", &invalid).await.with_code(422);
        server.terminate();
        let log = server.ended().await.stderr;
        for line in [
            r#"verb="LIST" resource="pods" method=GET uri=/api/v1/pods?fieldSelector=spec.a%3Db&limit=3 user_agent=probe/1.0 code=400 error=field label not supported: spec.a"#,
            "uri=/api/v1/pods?limit=3&continue=eyJ2Ijoi… user_agent=probe/1.0 code=400",
            r#"verb="POST" resource="secrets" method=POST uri=/api/v1/namespaces/default/secrets?fieldValidation=Strict"#,
            "code=403 error=the Host header names another server",
            "code=422 error=invalid: metadata.name (FieldValueInvalid)",
        ] {
            assert!(log.contains(line), "{line} is not in {log}");
        }
        let of_list = log.lines().find(|line| line.contains("limit=3 user_agent=probe/1.0 code=400 error=field"));
        assert!(of_list.is_some_and(|line| line.contains(" took=") && line.contains(" bytes=")), "{log}");
        assert!(!log.contains("tiger") && !log.contains("dGlnZXI"), "{log}");
    }
}

/// Goal: no end of a watch is lost from the log, though fifty lines a second are written. Method: more watches than that end
/// with the server.
#[tokio::test]
async fn ends_of_watches_that_are_not_logged_are_counted() {
    const WATCHES: u64 = 120;
    let server = Server::start(BINARY, &["--log", "info", "--log-format", "json"]).await;
    let client = server.client();
    let _open = join_all((0..WATCHES).map(|_| client.watch("/api/v1/configmaps?watch=1"))).await;
    server.terminate();
    let log = server.ended().await.stderr;
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let logged = lines.iter().filter(|line| line["message"] == "watch ended").count() as u64;
    let counts = lines.iter().filter(|line| line["message"] == "watch ends not logged");
    let counted: u64 = counts.map(|line| line["count"].as_u64().expect("a count")).sum();
    assert_eq!(logged + counted, WATCHES, "{logged} and {counted}");
}

/// Goal: the server logs one line for each ended watch, with its user and cause. Method: watches that end by their timeout, by their
/// client, and by the end of the server; the lines as JSON objects.
#[tokio::test]
async fn the_end_of_each_watch_is_logged() {
    let server = Server::start(BINARY, &["--log", "info", "--log-format", "json"]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let agent = [("user-agent", "probe/1.0")];
    client.get_with(&format!("{CONFIGMAPS}?watch=1&timeoutSeconds=1&labelSelector=a%3Db"), &agent).await.with_code(200);
    let left = client.watch(&format!("{CONFIGMAPS}?watch=1")).await;
    drop(left);
    server.logged(r#""cause":"client_left""#).await;
    let _open = client.watch("/api/v1/configmaps?watch=1").await;
    server.terminate();
    let log = server.ended().await.stderr;
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let ends: Vec<_> = lines.iter().filter(|line| line["message"] == "watch ended").collect();
    let facts = |line: &&Value| [&line["cause"], &line["namespace"], &line["selects"]].map(ToString::to_string);
    assert_eq!(
        ends.iter().map(facts).collect::<Vec<_>>(),
        [
            [r#""deadline""#, r#""default""#, "true"],
            [r#""client_left""#, r#""default""#, "false"],
            [r#""shutdown""#, r#""""#, "false"],
        ],
        "{log}"
    );
    for line in &ends {
        assert_eq!((&line["level"], &line["resource"]), (&"INFO".into(), &"configmaps".into()), "{line}");
        assert!(line["bytes"].is_u64() && line["events"].is_u64(), "{line}");
        assert!(line["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{line}");
    }
    assert_eq!(ends[0]["user_agent"], "probe/1.0", "{log}");
}

/// Goal: a client cannot forge lines of the log, or reach the terminal that shows it. Method: control characters in each
/// text of a request that an error repeats; then every line of the log is one of ours.
#[tokio::test]
async fn texts_of_requests_forge_no_lines_of_the_log() {
    const FORGED: &str = "x\n2026-01-01T00:00:00.000000Z  INFO forged\r\u{1b}[31m\u{9b}2J\u{7}\u{202e}";
    let server = Server::start(BINARY, &["--log", "trace"]).await;
    let client = server.client();
    let (path, header) = (format!("{CONFIGMAPS}/a%0A%1B%5B31m"), [("content-type", "application/json")]);
    let object = |kind: &str, version: &str, name: &str, label: &str| json!({"kind": kind, "apiVersion": version, "metadata": {"name": name, "labels": {label: label}}, label: 1});
    for body in [
        object(FORGED, "v1", "a", "a"),
        object("ConfigMap", FORGED, "a", "a"),
        object("ConfigMap", "v1", FORGED, "a"),
        object("ConfigMap", "v1", "a", FORGED),
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": FORGED}}),
    ] {
        let answer = client.post(&format!("{CONFIGMAPS}?fieldValidation=Strict"), &body).await;
        assert!(answer.code.is_client_error(), "{answer:?}");
    }
    client.get(&path).await.with_code(404);
    client.get(&format!("{CONFIGMAPS}?labelSelector=a%0Ab%1B%5B31m")).await.with_code(400);
    let broken = Client::request(Method::POST, CONFIGMAPS, &header, format!("{{\"{FORGED}").into());
    client.send(broken).await.with_code(400);
    client.get("/api/v1/last").await.with_code(404);
    let log = server.logged("/api/v1/last").await;
    assert!(log.matches("request answered").count() >= 9, "{log}");
    for line in log.lines() {
        let is_ours = line.get(..2) == Some("20") && !line.starts_with("2026-01-01T00:00:00.000000Z");
        assert!(is_ours && !line.contains(|letter: char| letter.is_control() || letter == '\u{202e}'), "{line:?}");
    }
}

#[tokio::test]
async fn requests_whose_client_leaves_are_counted_and_logged() {
    let server = Server::start(BINARY, &["--log", "debug"]).await;
    let client = server.client();
    let ahead = client.create(&configmap("a")).await + 1_000;
    // A read waits three seconds for a position that is never reached. On a machine that stalls for so long, it is
    // answered before its client leaves: then another one follows.
    let path = format!("{CONFIGMAPS}?resourceVersion={ahead}&resourceVersionMatch=NotOlderThan");
    let counted = async {
        let line = r#"apiserver_request_aborts_total{verb="LIST",resource="configmaps"} "#;
        while !client.get("/metrics").await.text().contains(line) {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
            sleep(Duration::from_millis(500)).await;
        }
    };
    timeout(LINE_WAIT, counted).await.expect("it is counted");
    server.terminate();
    let log = server.ended().await.stderr;
    assert!(log.contains("request aborted verb=\"LIST\" resource=\"configmaps\"") && log.contains(&path), "{log}");
}

/// Connects from one of this machine's addresses.
async fn connect_from(own: u8, address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::new(127, 0, 0, own), 0).into()).expect("all of 127.0.0.0/8 is this machine");
    socket.connect(address).await.expect("it listens")
}

/// Goal: idle clients do not block others. Method: every connection of a small server is taken by a client of another
/// address that is silent, stops in a request head, or sent one request; then another client connects.
#[tokio::test]
async fn idle_clients_make_room_within_seconds_when_there_is_none() {
    let listen = ([127, 0, 0, 1], 0).into();
    let start = async |connections_max| {
        let server = InProcess::bind(Config { listen, connections_max, ..Config::default() }).await.unwrap();
        let address = server.local_addr();
        tokio::spawn(server.serve(std::future::pending()));
        let mut idle = Vec::new();
        for index in 0..12 {
            let mut stream = connect_from(2 + index, address).await;
            let begun = ["", "GET /livez HTTP/1.1\r\nHo", "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", "PRI "];
            stream.write_all(begun[usize::from(index) % begun.len()].as_bytes()).await.unwrap();
            idle.push(stream);
        }
        (Client::new(address), idle)
    };
    let ((crowded, _taken), (roomy, mut kept)) = tokio::join!(start(12), start(1_000));
    let began = Instant::now();
    crowded.get("/livez").await.with_code(200);
    assert!(began.elapsed() > Duration::from_secs(5), "idle clients have some time");
    // While there is room, idle clients stay connected.
    roomy.get("/livez").await.with_code(200);
    sleep(Duration::from_secs(2)).await;
    let silent = &mut kept[0];
    silent.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut start = [0; 12];
    timeout(LINE_WAIT, silent.read_exact(&mut start)).await.expect("an answer").expect("it is open");
    assert_eq!(&start, b"HTTP/1.1 200");
}

/// Goal: one address does not keep others out, and its own clients get in once its idle connections ended. Method: an
/// address opens more connections than a small server has, and sends nothing.
#[tokio::test]
async fn one_address_leaves_connections_to_others() {
    let listen = ([127, 0, 0, 1], 0).into();
    let server = InProcess::bind(Config { listen, connections_max: 20, ..Config::default() }).await.unwrap();
    let address = server.local_addr();
    tokio::spawn(server.serve(std::future::pending()));
    let mut silent = Vec::new();
    for _ in 0..30 {
        silent.push(connect_from(2, address).await);
    }
    let began = Instant::now();
    for _ in 0..10 {
        Client::new(address).get("/livez").await.with_code(200);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "others wait for no idle connection");
    // Four fifths of the connections are those of the address; further ones are closed.
    let is_closed = async |stream: &mut TcpStream| {
        matches!(timeout(Duration::from_millis(300), stream.read(&mut [0])).await, Ok(Ok(0) | Err(_)))
    };
    let mut closed = 0;
    for stream in &mut silent {
        closed += usize::from(is_closed(stream).await);
    }
    assert_eq!(closed, 14);
    let answered = async {
        loop {
            let mut stream = connect_from(2, address).await;
            let sent = stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
            if sent.is_ok() && matches!(stream.read(&mut [0]).await, Ok(1)) {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(60), answered).await.expect("idle connections make room");
}
