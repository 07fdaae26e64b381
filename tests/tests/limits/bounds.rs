//! Bounds on the memory that one client can take: for bodies, decoded values, stored objects and selectors. Other
//! clients are served meanwhile.
//!
//! Goal: no request costs 128 MiB, no stored object exceeds the configured limit, and no client is starved. Method: the
//! most expensive bodies known, against a server process whose size the kernel reports.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests panic like tests")]

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH},
    objects::{configmap, pod},
    process::Server,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const SERVER: &str = env!("CARGO_BIN_EXE_tests-cache-server");
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const APPLY: &str = "application/apply-patch+yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

const MIB: u64 = 1 << 20;

/// Maximum memory cost of one request, in bytes.
const REQUEST: u64 = 128 * MIB;

async fn send(client: &Client, method: Method, path: &str, content_type: &str, body: impl Into<Bytes>) -> Answer {
    client.send(Client::request(method, path, &[("content-type", content_type)], body.into())).await
}

/// A field of a protobuf message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 0x7f {
        field.push(0x80 | u8::try_from(length & 0x7f).unwrap());
        length >>= 7;
    }
    field.push(u8::try_from(length).unwrap());
    [&field, bytes].concat()
}

/// An object in protobuf, with the fields of its message.
fn protobuf(kind: &str, raw: &[u8]) -> Vec<u8> {
    let said = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    [b"k8s\0", &*field(1, &said), &field(2, raw)].concat()
}

/// `count` times `item`, as a JSON list.
fn list(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

/// Goal: decoded values are bounded before they are built. Method: for each write path, the body with the most memory
/// per byte, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_costs_128_mib() {
    let server = Server::start(SERVER, &[]).await;
    let client = server.client().patient();
    client.create(&configmap("a")).await;
    let object = |field: &str| format!(r#"{{"metadata":{{"name":"x"}},"x":{field}}}"#);
    let containers = field(2, &[0x12, 2, 0x0a, 0].repeat(700_000));
    let pod = protobuf("Pod", &[field(1, &field(1, b"x")), containers].concat());
    let packed = field(2, &field(14, &field(4, &vec![0; 2_900_000])));
    let groups = protobuf("Pod", &[field(1, &field(1, b"x")), packed].concat());
    let patched = configmap("a").path();
    let copies: Vec<Value> = (0..40)
        .map(|n| json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/annotations/{n}")}))
        .collect();
    let anchors = format!("metadata: {{name: x}}\nx: &x {}\ny: [{}]\n", list("{a: {}}", 1_000), "*x,".repeat(200));
    for (what, method, path, content_type, body) in [
        ("protobuf of many messages", Method::POST, PODS, PROTOBUF, pod),
        ("protobuf of many numbers", Method::POST, PODS, PROTOBUF, groups),
        ("JSON of small objects", Method::POST, CONFIG_MAPS, JSON, object(&list(r#"{"":0}"#, 430_000)).into()),
        ("JSON of nested objects", Method::POST, CONFIG_MAPS, JSON, object(&list(r#"{"":{"":0}}"#, 240_000)).into()),
        ("JSON of numbers", Method::POST, CONFIG_MAPS, JSON, object(&list("0", 1_400_000)).into()),
        ("YAML of aliases", Method::POST, CONFIG_MAPS, YAML, anchors.into()),
        ("a merge patch", Method::PATCH, &patched, MERGE_PATCH, object(&list(r#"{"":0}"#, 430_000)).into()),
        ("a JSON patch of copies", Method::PATCH, &patched, "application/json-patch+json", {
            let add = json!({"op": "add", "path": "/metadata/annotations", "value": {"a": "x".repeat(1 << 20)}});
            json!([&[add], &*copies].concat()).to_string().into()
        }),
        ("an apply", Method::PATCH, "/api/v1/namespaces/default/configmaps/b?fieldManager=m", APPLY, {
            let data: serde_json::Map<_, _> = (0..100_000).map(|n| (format!("k{n}"), json!("v"))).collect();
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": data}).to_string().into()
        }),
    ] {
        let before = server.forget_peak();
        let answer = send(&client, method, path, content_type, body).await;
        let grown = server.peak_bytes().saturating_sub(before);
        eprintln!("{what}: {} and {} MiB", answer.code, grown / MIB);
        assert!(grown <= REQUEST, "{what}: {} MiB", grown / MIB);
        assert!(answer.code.as_u16() < 500, "{what}: {}", answer.text());
    }
}

/// Goal: a write of the largest objects costs no more than one request may. Method: create, replace, patch, apply and
/// delete an object with as many values as the limit allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_of_a_large_object_costs_128_mib() {
    let server = Server::start(SERVER, &[]).await;
    let client = server.client().patient();
    let data = |from: usize, to: usize| -> serde_json::Map<_, _> {
        (from..to).map(|n| (format!("k{n:06}"), json!("v"))).collect()
    };
    let object =
        |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let large = object(data(0, 100_000).into()).to_string();
    let path = configmap("a").path();
    let applied = format!("{CONFIG_MAPS}/b?fieldManager=m");
    let patch = json!({"data": data(50_000, 100_000), "metadata": {"labels": {"a": "b"}}}).to_string();
    let operations: Vec<Value> =
        (0..5_000).map(|n| json!({"op": "replace", "path": format!("/data/k{n:06}"), "value": "w"})).collect();
    let strategic = "application/strategic-merge-patch+json";
    for (what, method, path, content_type, body, code) in [
        ("create", Method::POST, CONFIG_MAPS, JSON, large.clone(), 201),
        ("replace", Method::PUT, &path, JSON, large.replace("\"v\"", "\"u\""), 200),
        ("merge patch", Method::PATCH, &path, MERGE_PATCH, patch.clone(), 200),
        ("strategic merge patch", Method::PATCH, &path, strategic, patch.replace("\"v\"", "\"t\""), 200),
        ("JSON patch", Method::PATCH, &path, "application/json-patch+json", json!(operations).to_string(), 200),
        (
            "apply",
            Method::PATCH,
            &applied,
            APPLY,
            object(data(0, 40_000).into()).to_string().replace("\"a\"", "\"b\""),
            201,
        ),
        (
            "apply again",
            Method::PATCH,
            &applied,
            APPLY,
            object(data(0, 39_000).into()).to_string().replace("\"a\"", "\"b\""),
            200,
        ),
        ("delete", Method::DELETE, &path, JSON, String::new(), 200),
    ] {
        let before = server.forget_peak();
        let answer = send(&client, method, path, content_type, body).await;
        let grown = server.peak_bytes().saturating_sub(before);
        eprintln!("{what}: {} and {} MiB", answer.code, grown / MIB);
        assert!(grown <= REQUEST, "{what}: {} MiB", grown / MIB);
        assert_eq!(answer.code, code, "{what}: {}", &answer.text()[..answer.text().len().min(200)]);
    }
}

/// Goal: a body costs its bytes, however it is chunked. Method: bodies in one-byte chunks, held until all have arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_in_pieces_cost_their_bytes() {
    const PIECES: usize = 40_000;
    let server = Server::start(SERVER, &[]).await;
    server.client().create(&configmap("a")).await;
    let before = server.forget_peak();
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: {}\r\ntransfer-encoding: chunked\r\ncontent-type: {JSON}\r\n\r\n",
        server.address()
    );
    let held = join_all((0..10).map(async |_| {
        let mut socket = TcpStream::connect(server.address()).await.unwrap();
        socket.write_all(head.as_bytes()).await.unwrap();
        socket.write_all(&b"1\r\n \r\n".repeat(PIECES)).await.unwrap();
        socket
    }))
    .await;
    server.client().get(&configmap("a").path()).await.with_code(200);
    let answered = join_all(held.into_iter().map(async |mut socket| {
        socket.write_all(b"0\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 12];
        socket.read_exact(&mut answer).await.unwrap();
        answer
    }))
    .await;
    assert!(answered.iter().all(|answer| answer == b"HTTP/1.1 400"), "all of it is white space: {answered:?}");
    let grown = server.peak_bytes().saturating_sub(before);
    eprintln!("ten bodies of {PIECES} bytes: {} KiB", grown >> 10);
    assert!(grown <= 6 * MIB, "{} MiB", grown / MIB);
}

/// Goal: other clients are served while large bodies are decoded. Method: eight clients that post them, and one that
/// reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_are_answered_while_large_bodies_are_written() {
    let server = Server::start(SERVER, &[]).await;
    let client = server.client();
    client.create(&configmap("a")).await;
    let body = format!(r#"{{"metadata":{{"name":"a"}},"x":{}}}"#, list(r#""0123456789""#, 200_000));
    let posting = tokio::spawn(join_all((0..8).map(move |_| {
        let body = Bytes::from(body.clone());
        async move { send(&client.patient(), Method::POST, CONFIG_MAPS, JSON, body).await.code.as_u16() }
    })));
    let (path, mut answered) = (configmap("a").path(), 0);
    while !posting.is_finished() {
        let read = timeout(Duration::from_secs(10), client.get(&path));
        read.await.expect("is answered meanwhile").with_code(200);
        answered += 1;
    }
    let codes = posting.await.unwrap();
    assert!(codes.iter().all(|code| [409, 413, 429].contains(code)), "{codes:?}");
    assert!(answered > 0);
}

const TOO_LARGE: &str = "Request entity too large: the object has ";

/// Goal: no write path creates an object above the configured limit. Method: each path, with a small limit.
#[tokio::test]
async fn stored_objects_are_bounded_however_they_are_made() {
    let server = Server::start(SERVER, &["--object-bytes-max", "64KiB"]).await;
    let client = server.client();
    let big = "x".repeat(64 << 10);
    let refused = |answer: Answer| {
        let answer = answer.with_code(413);
        let text = answer.message();
        assert!(text.starts_with(TOO_LARGE) && text.ends_with("limit is 65536"), "{text}");
        assert_eq!(answer.json()["reason"], "RequestEntityTooLarge");
    };
    let text = json!({"metadata": {"name": "a"}, "data": {"k": big}}).to_string();
    for content_type in [JSON, YAML] {
        refused(send(&client, Method::POST, CONFIG_MAPS, content_type, text.clone()).await);
    }
    let entry = [field(1, b"k"), field(2, big.as_bytes())].concat();
    let body = protobuf("ConfigMap", &[field(1, &field(1, b"a")), field(2, &entry)].concat());
    refused(send(&client, Method::POST, CONFIG_MAPS, PROTOBUF, body).await);
    client.get(&configmap("a").path()).await.with_code(404);

    client.create(&configmap("a")).await;
    let half = "x".repeat(32 << 10);
    client.patch(&configmap("a").path(), MERGE_PATCH, &json!({"data": {"one": half}})).await.with_code(200);
    refused(client.patch(&configmap("a").path(), MERGE_PATCH, &json!({"data": {"two": half}})).await);
    refused(send(&client, Method::PUT, &configmap("a").path(), JSON, text).await);
    let stored = client.get(&configmap("a").path()).await.with_code(200);
    assert_eq!(stored.json()["data"], json!({"one": half}), "nothing was changed");
    client.delete(&configmap("a").path()).await.with_code(200);

    // An object of exactly the maximum size can still be deleted.
    let held = |data: &str| {
        configmap("held").data(data).with(
            "metadata",
            json!({"name": "held", "namespace": "default",
        "finalizers": ["x/y"]}),
        )
    };
    let overhead = client.post(&format!("{CONFIG_MAPS}?dryRun=All"), held("").body()).await.with_code(201).body.len();
    let version = r#""resourceVersion":"","#.len();
    client.create(&held(&"x".repeat((64 << 10) - overhead - version))).await;
    client.delete(&held("").path()).await.with_code(200);
    client.patch(&held("").path(), MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.with_code(200);
    client.get(&held("").path()).await.with_code(404);

    let mut applied = 0;
    for manager in 0..12 {
        let path = format!("{CONFIG_MAPS}/grown?fieldManager=m{manager}");
        let data = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "grown"},
            "data": {format!("k{manager}"): &half[..8 << 10]}});
        let answer = send(&client, Method::PATCH, &path, APPLY, data.to_string()).await;
        if answer.code == 413 {
            refused(answer);
            break;
        }
        assert!([200, 201].contains(&answer.code.as_u16()), "{}", answer.text());
        applied += 1;
    }
    assert_eq!(applied, 7);
}

#[tokio::test]
async fn an_object_may_have_as_many_bytes_as_etcd_takes() {
    let server = Server::start(SERVER, &[]).await;
    let client = server.client();
    client.create(&configmap("fits").data(&"x".repeat((3 << 19) - 1_000))).await;
    let refused = client.post(CONFIG_MAPS, configmap("larger").data(&"x".repeat(3 << 19)).body()).await.with_code(413);
    assert!(refused.message().starts_with(TOO_LARGE) && refused.message().ends_with("limit is 1572864"));
}

/// Goal: a selector costs its text, not a parsed tree. Method: watches with the longest selectors, all different.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_costs_a_few_times_its_selector() {
    const WATCHES: u64 = 64;
    const SELECTOR: u64 = 45_000;
    let server = Server::start(SERVER, &[]).await;
    server.client().create(&pod("a").label("app", "web")).await;
    let open = async |index: u64| {
        let requirements: Vec<String> = (0..SELECTOR / 9).map(|n| format!("!w{index:02}{n:04}")).collect();
        let selector = requirements.join(",");
        let mut socket = TcpStream::connect(server.address()).await.unwrap();
        let head =
            format!("GET /api/v1/pods?watch=1&labelSelector={selector} HTTP/1.1\r\nhost: {}\r\n\r\n", server.address());
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.windows(5).any(|bytes| bytes == b"ADDED") {
            assert!(socket.read_buf(&mut answer).await.unwrap() > 0, "{}", String::from_utf8_lossy(&answer));
        }
        socket
    };
    // The first watch creates shared state, which is not part of the cost per watch.
    let first = open(99).await;
    let before = server.private_bytes();
    let watches = join_all((0..WATCHES).map(open)).await;
    let each = settled(&server).await.saturating_sub(before) / WATCHES;
    eprintln!("{each} bytes for a watch with a selector of {SELECTOR}");
    assert!(each <= 3 * SELECTOR + (32 << 10), "{each} bytes for each watch");
    drop((first, watches));
}

/// Returns the size once it has been stable for 3 s.
async fn settled(server: &Server) -> u64 {
    let (mut last, mut same) = (server.private_bytes(), 0);
    while same < 12 {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = server.private_bytes();
        same = if now.abs_diff(last) < 64 << 10 { same + 1 } else { 0 };
        last = now;
    }
    last
}

/// Goal: a caller who is refused costs no memory and no time of its body, and does not keep the connection for it.
/// Method: wrong credentials with bodies that do not arrive, over HTTP/1.1: the answer comes at once, and the end of the
/// connection behind it.
#[tokio::test]
async fn a_refused_caller_is_answered_before_its_body() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.csv");
    std::fs::write(&tokens, "right,jane,1\n").unwrap();
    let server = Server::start(SERVER, &["--token-auth-file", tokens.to_str().unwrap()]).await;
    for framing in ["content-length: 1000000000", "content-length: 200", "transfer-encoding: chunked"] {
        let mut took = Vec::new();
        // A busy machine may delay any one answer.
        while took.len() < 5 && took.iter().all(|took| *took > BODY_WAIT) {
            took.push(refused_with(&server, framing).await);
        }
        assert!(took.iter().any(|took| *took <= BODY_WAIT), "{framing}: {took:?}");
    }
    server.client().with_token("right").get(CONFIG_MAPS).await.with_code(200);
}

/// Sends wrong credentials with a body that does not arrive. Returns the time until the connection ended.
async fn refused_with(server: &Server, framing: &str) -> Duration {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer wrong\r\ncontent-type: {JSON}\r\n{framing}\r\n\r\n",
        server.address()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let begun = std::time::Instant::now();
    let mut answer = String::new();
    timeout(ANSWERS_WITHIN, stream.read_to_string(&mut answer)).await.expect("it ends").unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("connection: close"), "{framing}: {answer}");
    begun.elapsed()
}

/// Less than the second for which bodies of other refused requests are waited for.
const BODY_WAIT: Duration = Duration::from_millis(900);

/// Time for an answer, on a busy machine.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);
