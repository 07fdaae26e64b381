//! Watches over WebSockets: one message per event, and clients that break the rules.

use serde_json::{Value, json};
use tests::{
    http::{LINE_WAIT, MERGE_PATCH, Step, resource_version, watch_list, with_query},
    objects::configmap,
    process::Server,
    tls::Authority,
    websocket::{Frame, HANDSHAKE, WebSocket},
};
use tokio::net::TcpStream;

const BINARY: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIGMAPS: &str = "/api/v1/configmaps";

/// Opens a watch from the current position.
async fn live(server: &Server) -> WebSocket {
    let at = server.client().get(CONFIGMAPS).await.with_code(200).resource_version();
    let path = with_query(CONFIGMAPS, &[("watch", "1"), ("resourceVersion", &at.to_string())]);
    WebSocket::open(server.address(), &path).await
}

#[tokio::test]
async fn a_watch_has_the_same_events_over_a_websocket_and_over_http() {
    let server = Server::start(BINARY, &[]).await;
    let client = server.client();
    for name in ["a", "b", "c"] {
        client.create(&configmap(name)).await;
    }
    for accept in [
        "*/*",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
    ] {
        let (path, accept) = (watch_list(CONFIGMAPS), [("accept", accept)]);
        let mut stream = client.watch_with(&path, &accept).await;
        let connection = TcpStream::connect(server.address()).await.unwrap();
        let mut socket = WebSocket::over(connection, server.address(), &path, &accept).await;
        // Three objects and the bookmark after them.
        for _ in 0..4 {
            let text = String::from_utf8(stream.event().await.raw.to_vec()).unwrap();
            assert_eq!(socket.next().await, Frame::Text(text), "{accept:?}");
        }
        client.update(&configmap("b").data(accept[0].1)).await;
        let changed = stream.event().await;
        assert_eq!(socket.next().await, Frame::Text(String::from_utf8(changed.raw.to_vec()).unwrap()));
    }
}

#[tokio::test]
async fn changes_arrive_in_order_large_ones_too() {
    let server = Server::start(BINARY, &[]).await;
    let (client, mut socket) = (server.client(), live(&server).await);
    for bytes in [1, 50, 500, 70_000, 300_000] {
        let object = configmap(&format!("of-{bytes}")).with("data", json!({"k": "x".repeat(bytes)}));
        let version = client.create(&object).await;
        let event = socket.next().await.event();
        assert_eq!((&event["type"], resource_version(&event["object"])), (&json!("ADDED"), version));
        assert_eq!(event["object"]["data"]["k"].as_str().unwrap().len(), bytes);
    }
    client.remove(&configmap("of-1")).await;
    assert_eq!(socket.next().await.event()["type"], "DELETED");
}

#[tokio::test]
async fn the_handshake_is_answered_as_rfc_6455_has_it() {
    let server = Server::start(BINARY, &[]).await;
    let path = with_query(CONFIGMAPS, &[("watch", "1")]);
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let own = format!("http://{}", server.address());
    let headers = [("origin", own.as_str()), ("sec-websocket-protocol", "base64.binary.k8s.io, b")];
    let socket = WebSocket::over(stream, server.address(), &path, &headers).await;
    let lines: Vec<&str> = socket.head().split("\r\n").collect();
    for line in [
        "HTTP/1.1 101 Switching Protocols",
        "upgrade: websocket",
        "connection: Upgrade",
        "sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        "sec-websocket-protocol: base64.binary.k8s.io",
    ] {
        assert!(lines.contains(&line), "{line} in {lines:#?}");
    }
    assert!(lines.iter().all(|line| !line.starts_with("transfer-encoding") && !line.starts_with("content-")));
}

#[tokio::test]
async fn a_watch_that_is_over_ends_with_a_close_frame() {
    let server = Server::start(BINARY, &[]).await;
    server.client().create(&configmap("a")).await;
    let path = with_query(CONFIGMAPS, &[("watch", "1"), ("timeoutSeconds", "1")]);
    let mut socket = WebSocket::open(server.address(), &path).await;
    assert_eq!(socket.next().await.event()["type"], "ADDED");
    assert_eq!(socket.next().await, Frame::Close(Some(1000)));
    socket.send(0x88, &1000_u16.to_be_bytes()).await;
    assert!(socket.ends().await);
}

#[tokio::test]
async fn a_position_that_is_gone_is_one_event_and_the_end() {
    let server = Server::start(BINARY, &["--first-revision", "1000"]).await;
    let path = with_query(CONFIGMAPS, &[("watch", "1"), ("resourceVersion", "5")]);
    let mut socket = WebSocket::open(server.address(), &path).await;
    let event = socket.next().await.event();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(socket.next().await, Frame::Close(Some(1000)));
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_closes_its_websockets() {
    let server = Server::start(BINARY, &[]).await;
    let mut socket = live(&server).await;
    server.terminate();
    assert_eq!(socket.next().await, Frame::Close(Some(1000)));
    socket.send(0x88, &1000_u16.to_be_bytes()).await;
    assert!(socket.ends().await);
    assert_eq!(server.ended().await.code, Some(0));
}

#[tokio::test]
async fn pings_are_answered_and_data_is_ignored() {
    let server = Server::start(BINARY, &[]).await;
    let mut socket = live(&server).await;
    socket.send(0x89, b"are you there").await;
    assert_eq!(socket.next().await, Frame::Pong(b"are you there".to_vec()));
    socket.send(0x01, b"a message in").await;
    socket.send(0x89, b"").await;
    socket.send(0x80, b"two parts").await;
    assert_eq!(socket.next().await, Frame::Pong(Vec::new()));
    server.client().create(&configmap("a")).await;
    assert_eq!(socket.next().await.event()["type"], "ADDED");
    socket.send(0x88, &4000_u16.to_be_bytes()).await;
    assert_eq!(socket.next().await, Frame::Close(Some(4000)));
    assert!(socket.ends().await);
}

#[tokio::test]
async fn a_client_that_breaks_the_protocol_is_closed_and_disturbs_nobody() {
    let server = Server::start(BINARY, &[]).await;
    let mut honest = live(&server).await;
    for (sent, code) in [
        (&b"\x81\x05hello"[..], 1002),
        (b"\x08\x82\0\0\0\0\x03\xe8", 1002),
        (b"\x89\xfe\x01\0\0\0\0\0", 1002),
        (b"\xc1\x80\0\0\0\0", 1002),
        (b"\x88\x81\0\0\0\0\x03", 1002),
        (b"\x82\xff\0\0\0\0\x80\0\0\0\0\0\0\0", 1009),
        (b"GET / HTTP/1.1\r\n\r\n", 1002),
    ] {
        let mut socket = live(&server).await;
        for byte in sent {
            socket.send_bytes(&[*byte]).await;
        }
        assert_eq!(socket.next().await, Frame::Close(Some(code)), "{sent:?}");
    }
    server.client().create(&configmap("a")).await;
    assert_eq!(honest.next().await.event()["type"], "ADDED");
}

/// Goal: a slow consumer costs no queue and misses no event. Method: it reads nothing while 5 MB of changes are
/// written, many times what its socket holds, and then everything.
#[tokio::test]
async fn a_client_that_was_slow_gets_every_change_in_order() {
    const WRITES: usize = 1_000;
    let server = Server::start(BINARY, &[]).await;
    let (client, mut socket) = (server.client(), live(&server).await);
    let mut expected = vec![client.create(&configmap("a")).await];
    let before = server.private_bytes();
    for round in 1..WRITES {
        let data = json!({"k": format!("{round}{}", "x".repeat(5_000))});
        let patched = client.patch(&configmap("a").path(), MERGE_PATCH, &json!({"data": data})).await;
        expected.push(patched.with_code(200).resource_version());
    }
    // The window holds the changes once.
    assert!(server.private_bytes() - before < 64 << 20);
    socket.send(0x89, b"late").await;
    let mut versions = Vec::new();
    let mut pongs = 0;
    while versions.len() < WRITES {
        match socket.next().await {
            Frame::Pong(_) => pongs += 1,
            frame @ (Frame::Text(_) | Frame::Close(_)) => versions.push(resource_version(&frame.event()["object"])),
        }
    }
    assert_eq!(versions, expected);
    if pongs == 0 {
        assert_eq!(socket.next().await, Frame::Pong(b"late".to_vec()));
    }
}

#[tokio::test]
async fn websockets_are_spoken_over_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new();
    let files = authority.issue(folder.path());
    let server = Server::start(BINARY, &files.flags()).await;
    let client = server.client().over_tls(authority.trust());
    let stream = authority.trust().connect(server.address(), &["http/1.1"]).await.unwrap();
    let path = with_query(CONFIGMAPS, &[("watch", "1")]);
    let origin = format!("https://{}", server.address());
    let mut socket = WebSocket::over(stream, server.address(), &path, &[("origin", &origin)]).await;
    for bytes in [10, 100_000] {
        client.create(&configmap(&format!("of-{bytes}")).with("data", json!({"k": "x".repeat(bytes)}))).await;
        assert_eq!(socket.next().await.event()["object"]["data"]["k"].as_str().unwrap().len(), bytes);
    }
    socket.send(0x89, b"x").await;
    assert_eq!(socket.next().await, Frame::Pong(b"x".to_vec()));
    socket.send(0x88, b"").await;
    assert_eq!(socket.next().await, Frame::Close(None));
}

/// Goal: a client that requests a WebSocket never waits in vain for one. Method: requests that are not watches, or
/// invalid ones, are answered at once.
#[tokio::test]
async fn whatever_is_no_watch_is_refused_at_once() {
    let server = Server::start(BINARY, &[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let watch = format!("{CONFIGMAPS}?watch=1");
    for (path, headers, code, text) in [
        (CONFIGMAPS, &[][..], 400, "only watches"),
        ("/api/v1/namespaces/default/configmaps/a?watch=1", &[], 400, "only watches"),
        ("/livez", &[], 400, "only watches"),
        (&watch, &[("sec-websocket-version", "8")], 400, "must be 13"),
        (&watch, &[("sec-websocket-key", "short")], 400, "16 bytes"),
        (&format!("{watch}&fieldSelector=spec.a=1"), &[], 400, "is not a known field selector"),
        (&format!("{watch}&resourceVersion=x"), &[], 500, "resourceVersion"),
        (&watch, &[("origin", "https://evil.example")], 403, "another origin"),
    ] {
        let kept = HANDSHAKE.into_iter().filter(|(name, _)| headers.iter().all(|(other, _)| other != name));
        let answer = client.get_with(path, &kept.chain(headers.iter().copied()).collect::<Vec<_>>()).await;
        assert!(answer.message().contains(text), "{path}: {}", answer.message());
        answer.with_code(code);
    }
}

/// HTTP/2 has no upgrade: such a header is an error there, and extended CONNECT is not offered.
#[tokio::test]
async fn an_upgrade_to_something_else_is_an_ordinary_request() {
    let server = Server::start(BINARY, &[]).await;
    let headers =
        [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", "h2c"), ("http2-settings", "AAMAAABkAAQAAP__")];
    let listed: Value = server.client().get_with(CONFIGMAPS, &headers).await.with_code(200).json();
    assert_eq!(listed["kind"], "ConfigMapList");
    let mut watch = server.client().watch_with(&with_query(CONFIGMAPS, &[("watch", "1")]), &headers).await;
    server.client().create(&configmap("a")).await;
    assert!(matches!(watch.step(LINE_WAIT).await, Step::Event(_)));
}
