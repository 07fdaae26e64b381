//! Attacks with bodies that cost far more than their size, and bodies that never end.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::Method;
use serde_json::json;
use tests::{
    http::{Client, MERGE_PATCH},
    objects::configmap,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{Size, victim::Victim};

const MIB: usize = 1 << 20;

/// Sends one body and returns the status code.
async fn send(client: Client, method: Method, path: &str, kind: &str, body: Bytes) -> u16 {
    let request = Client::request(method, path, &[("content-type", kind)], body);
    client.send(request).await.code.as_u16()
}

fn repeated(head: &str, item: &str, bytes: usize, tail: &str) -> Bytes {
    let items = vec![item; bytes / (item.len() + 1)].join(",");
    format!("{head}{items}{tail}").into()
}

/// Posts JSON objects of up to 2.9 MiB whose values are small as text and large in memory.
pub(crate) async fn amplified_json(server: &Victim, size: Size) {
    let head = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"amplified"},"x":["#;
    for item in [r#"{"":{}}"#, r#"{"":0}"#, "0", "[]"] {
        let body = repeated(head, item, size.of(29 * MIB / 10, 300_000), "]}");
        send(server.client(), Method::POST, "/api/v1/namespaces/default/configmaps", "application/json", body).await;
    }
}

/// Sends a merge patch with such values.
pub(crate) async fn amplified_patch(server: &Victim, size: Size) {
    let client = server.client();
    client.post("/api/v1/namespaces/default/configmaps", configmap("patched").body()).await;
    let body = repeated(r#"{"x":["#, r#"{"":0}"#, size.of(3 * MIB - 100, 300_000), "]}");
    send(client, Method::PATCH, "/api/v1/namespaces/default/configmaps/patched", MERGE_PATCH, body).await;
}

/// Posts a protobuf pod that consists of empty containers.
pub(crate) async fn amplified_protobuf(server: &Victim, size: Size) {
    let varint = |mut value: usize| {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        bytes.push(u8::try_from(value).unwrap());
        bytes
    };
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2][..], &varint(bytes.len()), bytes].concat();
    // Containers with an empty name, four bytes each.
    let spec = [0x12, 0x02, 0x0a, 0x00].repeat(size.of(27 * MIB / 10, 200_000) / 4);
    let pod = [field(1, &field(1, b"amplified")), field(2, &spec)].concat();
    let kind = [field(1, b"v1"), field(2, b"Pod")].concat();
    let body = [b"k8s\0".to_vec(), field(1, &kind), field(2, &pod)].concat();
    let kind = "application/vnd.kubernetes.protobuf";
    send(server.client(), Method::POST, "/api/v1/namespaces/default/pods", kind, body.into()).await;
}

/// Creates large objects continuously from several clients.
pub(crate) async fn large_posts(server: &Victim, size: Size) {
    let rounds = size.of(20, 2);
    let body = repeated(
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"large-"},"x":["#,
        r#"{"a":"b"}"#,
        size.of(3 * MIB - 200, 400_000),
        "]}",
    );
    join_all((0..size.of(32, 8)).map(|_| async {
        for _ in 0..rounds {
            let path = "/api/v1/namespaces/default/configmaps";
            send(server.client(), Method::POST, path, "application/json", body.clone()).await;
        }
    }))
    .await;
}

/// Sends bodies without their last byte, and bodies in chunks of one byte.
pub(crate) async fn held(server: &Victim, size: Size) {
    let held = join_all((0..size.of(800, 40)).map(|_| hold(server, 3 * MIB, 3 * MIB, false))).await;
    let chunked = join_all((0..size.of(20, 4)).map(|_| hold(server, 3 * MIB, size.of(3 * MIB, 100_000), true))).await;
    sleep(Duration::from_millis(size.of(3_000, 300) as u64)).await;
    drop((held, chunked));
}

/// Opens a request with a body of `bytes`, and sends the first `sent` of it but never the last.
async fn hold(server: &Victim, bytes: usize, sent: usize, chunked: bool) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(server.address()).await.ok()?;
    let framing = if chunked { "transfer-encoding: chunked".to_owned() } else { format!("content-length: {bytes}") };
    let authorization = server.authorization().unwrap_or_default();
    let head = format!(
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: {}\r\nauthorization: {authorization}\r\n\
         content-type: application/json\r\n{framing}\r\n\r\n",
        server.address()
    );
    let body = if chunked { b"1\r\n \r\n".repeat(sent.min(bytes) - 1) } else { vec![b' '; sent.min(bytes) - 1] };
    let sending = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await
    };
    // A server without budget for the body refuses it and stops reading.
    let _ = timeout(Duration::from_secs(10), sending).await;
    Some(stream)
}

/// Posts definitions that are invalid in tens of thousands of places.
pub(crate) async fn wrong_everywhere(server: &Victim, size: Size) {
    let names: Vec<_> = (0..size.of(60_000, 5_000)).map(|index| format!("Bad_{index}")).collect();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "bads.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "bads", "singular": "bad", "kind": "Bad", "shortNames": names},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let client = server.client();
    for answer in join_all((0..2).map(|_| client.post(path, &definition))).await {
        let bytes = answer.body.len();
        assert!(answer.code == 422 && bytes < MIB, "{} with {bytes} bytes", answer.code);
    }
}

/// Opens connections that never finish their request head.
pub(crate) async fn unfinished_heads(server: &Victim, size: Size) {
    let opening = (0..size.of(3_000, 200)).map(|_| async {
        let mut stream = TcpStream::connect(server.address()).await.ok()?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: loc").await.ok()?;
        Some(stream)
    });
    let mut streams = join_all(opening).await;
    for _ in 0..size.of(10, 2) {
        sleep(Duration::from_millis(200)).await;
        for stream in streams.iter_mut().flatten().take(100) {
            let _ = stream.write_all(b"a").await;
        }
    }
}

/// Opens and closes connections.
pub(crate) async fn connects(server: &Victim, size: Size) {
    for _ in 0..size.of(400, 10) {
        join_all((0..100).map(|_| TcpStream::connect(server.address()))).await;
    }
}

/// Sends random bytes on new connections.
pub(crate) async fn garbage(server: &Victim, size: Size) {
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..size.of(5_000, 100) {
        let Ok(mut stream) = TcpStream::connect(server.address()).await else { continue };
        let bytes: Vec<u8> = (0..rng.usize(1..400)).map(|_| rng.u8(..)).collect();
        let _ = stream.write_all(&bytes).await;
        let _ = timeout(Duration::from_millis(1), stream.read(&mut [0; 512])).await;
    }
}
