//! Lists as gzip, YAML and indented JSON, beyond the cases of `forms`: they equal the plain list for every query, and
//! their memory cost is bounded.

use std::{
    io::{Read as _, Write as _},
    time::Duration,
};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tests::{
    http::{Answer, Client, MERGE_PATCH, with_query},
    objects::configmap,
    process::Server,
};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use super::server;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Bodies longer than this many bytes are compressed, as in kube-apiserver.
const LONG: usize = 128 << 10;
const GZIP: (&str, &str) = ("accept-encoding", "gzip");

fn unzip(body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut gzip = GzDecoder::new(body);
    gzip.read_to_end(&mut text).expect("gzip");
    let mut rest = Vec::new();
    gzip.into_inner().read_to_end(&mut rest).expect("a slice is read");
    assert!(rest.is_empty(), "one member, and nothing behind it");
    text
}

fn yaml(answer: &Answer) -> Value {
    assert_eq!(answer.header("content-type"), "application/yaml", "{}", answer.asked);
    serde_saphyr::from_str(answer.text()).unwrap_or_else(|error| panic!("{}: {error}\n{}", answer.asked, answer.text()))
}

/// Goal: the size limit for compression is exact to the byte. Method: lists of one object that grows past the limit.
#[tokio::test]
async fn a_list_is_compressed_above_the_bound() {
    let server = server(&[]).await;
    let client = server.client();
    client.create(&configmap("a").data("")).await;
    let empty = client.get(CONFIGMAPS).await.body.len();
    for length in [LONG - 1, LONG, LONG + 1] {
        client.update(&configmap("a").data(&"x".repeat(length - empty))).await;
        let plain = client.get(CONFIGMAPS).await;
        assert_eq!(plain.body.len(), length);
        let answer = client.get_with(CONFIGMAPS, &[GZIP]).await.with_code(200);
        let compressed = answer.header("content-encoding") == "gzip";
        assert_eq!(compressed, length > LONG, "{length} bytes");
        let body = if compressed { unzip(&answer.body) } else { answer.body.to_vec() };
        assert_eq!(body, plain.body);
    }
    for (encoding, compressed) in [
        ("gzip", true),
        (" gzip ", true),
        ("br,gzip", true),
        ("gzip;q=0.5", false),
        ("gzip;q=1.0", false),
        ("GZIP", false),
        ("x-gzip", false),
        ("*", false),
        ("", false),
    ] {
        let answer = client.get_with(CONFIGMAPS, &[("accept-encoding", encoding)]).await;
        assert_eq!(answer.header("content-encoding"), if compressed { "gzip" } else { "" }, "{encoding:?}");
        assert_eq!(answer.header("vary"), if compressed { "Accept-Encoding" } else { "" }, "{encoding:?}");
    }
    // Single objects, tables and texts for people are not compressed.
    let a = configmap("a").path();
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io;includeObject=Object";
    let metadata = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    for (path, accept) in [
        (a.as_str(), "application/json"),
        (CONFIGMAPS, table),
        (CONFIGMAPS, metadata),
        (CONFIGMAPS, "application/yaml"),
        (CONFIGMAPS, "application/json;pretty=1"),
    ] {
        let answer = client.get_with(path, &[GZIP, ("accept", accept)]).await.with_code(200);
        assert_eq!(answer.header("content-encoding"), "", "{path} {accept}");
    }
}

/// Creates `foos.example.com` and 40 objects of it in two colours, about 300 KB.
async fn foos(client: &Client) {
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let definition = json!({"metadata": {"name": "foos.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [version("v1", true), version("v2", false)],
    }});
    client.post(DEFINITIONS, &definition).await.with_code(201);
    for index in 0..40 {
        let object = json!({"apiVersion": "example.com/v1", "kind": "Foo",
            "metadata": {"name": format!("f{index}"), "labels": {"colour": if index % 4 == 0 { "red" } else { "blue" }}},
            "spec": {"text": format!("{index} \u{e4}\u{1f980} \\ \" ").repeat(500)}});
        client.post("/apis/example.com/v1/namespaces/default/foos", &object).await.with_code(201);
    }
}

/// Goal: a decompressed list equals the plain list. Method: lists of built-in and custom types, whole, paged, selected,
/// and of old states, each with and without gzip; and each as YAML and indented.
#[tokio::test]
async fn a_list_is_the_same_in_every_encoding() {
    let server = server(&["--populate", "pods=120,nodes=10,namespaces=3,seed=7"]).await;
    let client = server.client();
    foos(&client).await;
    let at = client.get("/api/v1/pods").await.resource_version().to_string();
    let token = client.get("/api/v1/pods?limit=60").await.token().expect("more pages");
    client.create(&tests::objects::pod("later")).await;
    let exact = [("resourceVersion", at.as_str()), ("resourceVersionMatch", "Exact")];
    let custom = "/apis/example.com/v1/foos";
    for (path, long) in [
        ("/api/v1/pods".to_owned(), true),
        ("/api/v1/pods?resourceVersion=0".to_owned(), true),
        ("/api/v1/pods?limit=50".to_owned(), true),
        ("/api/v1/pods?limit=2".to_owned(), false),
        (with_query("/api/v1/pods", &exact), true),
        (with_query("/api/v1/pods", &[("limit", "50"), ("continue", &token)]), true),
        (with_query("/api/v1/pods", &[("fieldSelector", "metadata.namespace!=default")]), true),
        (with_query("/api/v1/pods", &[("labelSelector", "none=of-them")]), false),
        ("/api/v1/nodes".to_owned(), false),
        (custom.to_owned(), true),
        (with_query(custom, &[("labelSelector", "colour=blue")]), true),
        (with_query(custom, &[("labelSelector", "colour=green")]), false),
        (with_query(custom, &[("limit", "30")]), true),
        // A version other than the stored one.
        ("/apis/example.com/v2/foos".to_owned(), true),
    ] {
        let plain = client.get(&path).await.with_code(200);
        let gzip = client.get_with(&path, &[GZIP]).await.with_code(200);
        if long {
            assert_eq!(gzip.header("content-encoding"), "gzip", "{path}");
            assert!(gzip.body.len() < plain.body.len() / 2, "{path}: {} of {}", gzip.body.len(), plain.body.len());
        }
        let body = if gzip.header("content-encoding") == "gzip" { unzip(&gzip.body) } else { gzip.body.to_vec() };
        assert!(body == plain.body, "{path}: another list");
        let people = client.get_with(&path, &[("user-agent", "curl/8.5.0")]).await.with_code(200);
        assert!(people.text() == indented(plain.text()), "{path}: another indentation");
        // Parsing YAML is slow.
        if plain.body.len() < 3 * LONG {
            let written = client.get_with(&path, &[("accept", "application/yaml")]).await.with_code(200);
            assert!(yaml(&written) == plain.json(), "{path}: another list in YAML");
        }
    }
}

/// Goal: a decompressed list equals the plain list in every form, whatever changes between two lists. Method: creations,
/// updates and deletions of pods, and after each the list in every form, with and without gzip.
#[tokio::test]
async fn a_compressed_list_follows_changes() {
    let server = server(&["--populate", "pods=600,nodes=10,namespaces=3,seed=7"]).await;
    let client = server.client();
    let partial = "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let forms = [
        ("application/json".to_owned(), true),
        ("application/json;drop=metadata.managedFields".to_owned(), true),
        ("application/vnd.kubernetes.protobuf".to_owned(), true),
        (format!("application/json;{partial}"), true),
        (format!("application/vnd.kubernetes.protobuf;{partial}"), true),
        ("application/json;as=Table;v=v1;g=meta.k8s.io;includeObject=Object".to_owned(), false),
    ];
    for round in 0..8 {
        for (accept, is_compressed) in &forms {
            let headers = [("accept", accept.as_str())];
            let plain = client.get_with("/api/v1/pods", &headers).await.with_code(200);
            let gzip = client.get_with("/api/v1/pods", &[headers[0], GZIP]).await.with_code(200);
            assert_eq!(gzip.header("content-encoding"), if *is_compressed { "gzip" } else { "" }, "{accept}");
            assert_eq!(gzip.header("content-type"), plain.header("content-type"), "{accept}");
            let body = if *is_compressed { unzip(&gzip.body) } else { gzip.body.to_vec() };
            // A Table tells the age of its objects, in seconds.
            let is_same = match is_compressed {
                true => body == plain.body,
                false => table_objects(&body) == table_objects(&plain.body),
            };
            assert!(is_same, "round {round}, {accept}: another list");
        }
        let added = tests::objects::pod(&format!("added{round}"));
        client.create(&added).await;
        if round % 2 == 0 {
            client.update(&added.clone().label("round", "even")).await;
        } else {
            client.delete(&added.path()).await.with_code(200);
        }
        let list = client.get("/api/v1/pods?limit=300").await.json();
        for place in [round * 30, round * 30 + 17] {
            let metadata = &list["items"][place]["metadata"];
            let (namespace, name) = (metadata["namespace"].as_str().unwrap(), metadata["name"].as_str().unwrap());
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
            if place % 60 == 0 {
                client.delete(&path).await.with_code(200);
            } else {
                let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
                client.patch(&path, MERGE_PATCH, &patch).await.with_code(200);
            }
        }
    }
}

/// The objects of a Table's rows.
fn table_objects(table: &[u8]) -> Vec<Value> {
    let table: Value = serde_json::from_slice(table).unwrap();
    table["rows"].as_array().unwrap().iter().map(|row| row["object"].clone()).collect()
}

/// JSON indented by two spaces, like the output of Go's `json.Indent`. Independent of the server's implementation.
fn indented(compact: &str) -> String {
    let (mut out, mut depth, mut in_text, mut escaped) = (String::new(), 0, false, false);
    let text: Vec<char> = compact.trim_end().chars().collect();
    for (at, &letter) in text.iter().enumerate() {
        if in_text {
            out.push(letter);
            in_text = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            continue;
        }
        let next = text.get(at + 1).copied().unwrap_or(' ');
        let before = at.checked_sub(1).map_or(' ', |before| text[before]);
        match letter {
            '{' | '[' if next == '}' || next == ']' => out.push(letter),
            '}' | ']' if before == '{' || before == '[' => out.push(letter),
            '{' | '[' | ',' => {
                depth += usize::from(letter != ',');
                out.push(letter);
                out.push('\n');
                out.push_str(&"  ".repeat(depth));
            }
            '}' | ']' => {
                depth -= 1;
                out.push('\n');
                out.push_str(&"  ".repeat(depth));
                out.push(letter);
            }
            ':' => out.push_str(": "),
            other => {
                in_text = other == '"';
                out.push(other);
            }
        }
    }
    out
}

/// Goal: clients can read and write YAML. Method: create, replace, patch, read, delete and errors in YAML.
#[tokio::test]
async fn yaml_is_spoken_both_ways() {
    let server = server(&[]).await;
    let client = server.client();
    let send = async |method: Method, path: &str, content_type: &str, body: String| {
        let headers = [("content-type", content_type), ("accept", "application/yaml")];
        client.send(Client::request(method, path, &headers, body.into())).await
    };
    let path = configmap("a").path();
    let text =
        "kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\ndata:\n  k: \"no\"\n  lines: |\n    one\n      two\n";
    let made = send(Method::POST, CONFIGMAPS, "application/yaml", text.to_owned()).await.with_code(201);
    assert_eq!(yaml(&made)["data"], json!({"k": "no", "lines": "one\n  two\n"}));
    let same = send(Method::PUT, &path, "application/yaml", made.text().to_owned()).await.with_code(200);
    assert_eq!(yaml(&same), yaml(&made), "what it says can be sent back");
    let patched = send(Method::PATCH, &path, MERGE_PATCH, r#"{"data":{"k":"1"}}"#.to_owned()).await.with_code(200);
    assert_eq!(yaml(&patched)["data"]["k"], json!("1"));
    let read = client.get_with(&path, &[("accept", "application/yaml")]).await.with_code(200);
    assert_eq!(read.body, patched.body);
    for (answer, code, reason) in [
        (send(Method::POST, CONFIGMAPS, "application/yaml", text.to_owned()).await, 409, "AlreadyExists"),
        (send(Method::POST, CONFIGMAPS, "application/yaml", "a: [".to_owned()).await, 400, "BadRequest"),
        (client.get_with(&configmap("b").path(), &[("accept", "application/yaml")]).await, 404, "NotFound"),
        (client.get_with(&format!("{CONFIGMAPS}?limit=x"), &[("accept", "application/yaml")]).await, 400, "BadRequest"),
        (
            client.get_with(&format!("{CONFIGMAPS}?watch=1"), &[("accept", "application/yaml")]).await,
            406,
            "NotAcceptable",
        ),
    ] {
        let answer = answer.with_code(code);
        let status = yaml(&answer);
        assert_eq!(
            (&status["kind"], &status["reason"], &status["code"]),
            (&json!("Status"), &json!(reason), &json!(code))
        );
    }
    let deleted = send(Method::DELETE, &path, "application/yaml", "propagationPolicy: Background\n".to_owned()).await;
    assert_eq!(yaml(&deleted.with_code(200))["status"], "Success");
    let both = client.get_with(&path, &[("accept", "application/yaml;q=0.5,application/json")]).await.with_code(404);
    assert_eq!((both.header("content-type"), &both.json()["kind"]), ("application/json", &json!("Status")));
}

async fn over_http_2(server: &Server, path: &str, headers: &[(&str, &str)]) -> Response<Incoming> {
    let socket = TcpStream::connect(server.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::get(format!("http://{}{path}", server.address()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
}

#[tokio::test]
async fn http_2_carries_every_encoding() {
    let server = server(&["--populate", "pods=60,nodes=10,namespaces=3,seed=7"]).await;
    let plain = server.client().get("/api/v1/pods").await;
    let gzip = over_http_2(&server, "/api/v1/pods", &[GZIP]).await;
    assert_eq!(
        (&gzip.headers()["content-encoding"], &gzip.headers()["vary"]),
        (&"gzip".parse().unwrap(), &"Accept-Encoding".parse().unwrap())
    );
    assert!(unzip(&gzip.into_body().collect().await.unwrap().to_bytes()) == plain.body);
    let people = over_http_2(&server, "/api/v1/pods?pretty=true", &[]).await.into_body().collect().await.unwrap();
    assert!(people.to_bytes() == indented(plain.text()).as_bytes());
    let written = over_http_2(&server, "/api/v1/pods", &[("accept", "application/yaml")]).await;
    let text = written.into_body().collect().await.unwrap().to_bytes();
    let list: Value = serde_saphyr::from_slice(&text).expect("YAML");
    assert!(list == plain.json());
}

/// A stream over HTTP/2, decompressed as it comes.
struct Stream {
    answer: Response<Incoming>,
    text: flate2::write::GzDecoder<Vec<u8>>,
}

impl Stream {
    async fn open(server: &Server, path: &str, headers: &[(&str, &str)]) -> Self {
        let answer = over_http_2(server, path, headers).await;
        assert_eq!(answer.status(), 200, "{path}");
        Self { answer, text: flate2::write::GzDecoder::new(Vec::new()) }
    }

    fn is_compressed(&self) -> bool {
        self.answer.headers().get("content-encoding").is_some_and(|encoding| encoding == "gzip")
    }

    /// Reads until the text has `needle`. A compressed stream is one member.
    async fn read_until(&mut self, needle: &str) -> &[u8] {
        while !String::from_utf8_lossy(self.text.get_ref()).contains(needle) {
            let data = self.answer.body_mut().frame().await.expect("a stream").unwrap().into_data().unwrap();
            if self.is_compressed() {
                self.text.write_all(&data).expect("one member");
                self.text.flush().expect("gzip");
            } else {
                self.text.get_mut().extend_from_slice(&data);
            }
        }
        self.text.get_ref()
    }
}

/// Goal: a compressed watch-list has the lines of a plain one, and each event can be decoded at once. Method: both over
/// HTTP/2, and writes behind the state; in JSON, as metadata and in protobuf.
#[tokio::test]
async fn a_compressed_watch_list_is_the_watch_list() {
    let server = server(&["--populate", "pods=400,nodes=10,namespaces=3,seed=7"]).await;
    let client = server.client();
    let watch = "/api/v1/pods?watch=1&allowWatchBookmarks=true";
    let state = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    let forms = ["application/json", partial, "application/vnd.kubernetes.protobuf;stream=watch"];
    for (round, accept) in forms.into_iter().enumerate() {
        let path = format!("{watch}&{state}");
        let mut plain = Stream::open(&server, &path, &[("accept", accept)]).await;
        let mut gzip = Stream::open(&server, &path, &[("accept", accept), GZIP]).await;
        assert_eq!((plain.is_compressed(), gzip.is_compressed()), (false, true), "{accept}");
        assert_eq!(gzip.answer.headers()["content-type"], plain.answer.headers()["content-type"], "{accept}");
        let state = gzip.read_until("initial-events-end").await;
        assert!(state.len() > LONG / 2, "{accept}: {} bytes", state.len());
        assert!(state == plain.read_until("initial-events-end").await, "{accept}: another state");
        let added = tests::objects::pod(&format!("added{round}"));
        client.create(&added).await;
        client.delete(&added.path()).await.with_code(200);
        assert!(gzip.read_until("DELETED").await == plain.read_until("DELETED").await, "{accept}: other events");
    }
    let at = client.get("/api/v1/pods?limit=1").await.resource_version();
    // A short state, a table, and a watch without its state.
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (path, accept) in [
        (format!("{watch}&{state}&fieldSelector=metadata.name%3Dnone"), "application/json"),
        (format!("{watch}&{state}"), table),
        (format!("{watch}&resourceVersion={at}"), "application/json"),
    ] {
        assert!(!Stream::open(&server, &path, &[GZIP, ("accept", accept)]).await.is_compressed(), "{path}");
    }
}

/// The process's resident memory in bytes.
async fn resident(client: &Client) -> u64 {
    let metrics = client.get("/metrics").await;
    let mut lines = metrics.text().lines().filter_map(|line| line.strip_prefix("process_resident_memory_bytes "));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
    let size = lines.next().and_then(|size| size.parse::<f64>().ok()).expect("its size") as u64;
    size
}

/// Number of concurrent readers.
const CLIENTS: u64 = 64;
/// Maximum memory cost of a reader, in bytes.
const CLIENT_BYTES: u64 = 64 << 10;
/// Allowance for allocators and timing, in bytes.
const SLACK_BYTES: u64 = 12 << 20;

/// Goal: every encoding has a bounded cost per client. Method: 64 clients that stop in the middle of a list of 2,000
/// pods, about 10 MB; then the server's size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_encoded_in_constant_memory_for_each_client() {
    let server = server(&["--populate", "pods=2000,nodes=50,namespaces=10,seed=7"]).await;
    let client = server.client();
    let plain = client.get("/api/v1/pods").await.body.len();
    assert!(plain > 5 << 20, "{plain} bytes");
    for (headers, once) in [
        // The compressed blocks are created once and shared.
        (&[GZIP][..], plain as u64 / 2),
        (&[("user-agent", "curl/8.5.0")][..], 0),
        (&[("accept", "application/yaml")][..], 0),
    ] {
        let before = resident(&client).await;
        let mut readers = Vec::new();
        for _ in 0..CLIENTS {
            // A small receive buffer, so that the rest of the list waits in the server.
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4_096).unwrap();
            let io = TokioIo::new(socket.connect(server.address()).await.unwrap());
            let (mut sender, connection) =
                hyper::client::conn::http1::Builder::new().max_buf_size(8_192).handshake(io).await.unwrap();
            tokio::spawn(connection);
            let mut request = Request::get("/api/v1/pods").header("host", server.address().to_string());
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
            readers.push((sender, answer.into_body()));
        }
        for (_, body) in &mut readers {
            let mut length = 0;
            while length < 50_000 {
                length += body.frame().await.expect("more").unwrap().into_data().unwrap().len();
            }
        }
        let most = once + CLIENTS * CLIENT_BYTES + SLACK_BYTES;
        let grown = settled(&client, before, most).await;
        println!("{headers:?}: {grown} bytes more for {CLIENTS} clients");
        assert!(grown < most, "{headers:?}: {grown} bytes more, {most} are allowed");
    }
}

/// Growth in bytes once it is below `most`, or after 5 s: the server frees memory only periodically.
async fn settled(client: &Client, before: u64, most: u64) -> u64 {
    let small = async {
        while resident(client).await.saturating_sub(before) >= most {
            sleep(Duration::from_millis(200)).await;
        }
    };
    let _ = timeout(Duration::from_secs(5), small).await;
    resident(client).await.saturating_sub(before)
}
