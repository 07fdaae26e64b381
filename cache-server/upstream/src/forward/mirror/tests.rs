//! Documents through a forwarder to an API server that records its requests.

use http::Request;
use http_body::Body as _;
use http_body_util::Full;
use parking_lot::Mutex;

use super::*;
use crate::{
    forward::Forwarder,
    tests::{Api, ApiAnswer, caller, forwarder, full},
};

const JSON: (&str, &str) = ("accept", "application/json");

/// Date of the 304.
const LONG_AGO: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

/// The document that the API server has at every path.
#[derive(Clone)]
struct Served {
    etag: Option<&'static str>,
    body: Bytes,
    more: &'static [(&'static str, &'static str)],
}

/// Answers like kube-apiserver: 403 to the token `refused`, and 304 to exactly its ETag.
fn answer(served: &Served, request: &Request<Incoming>) -> ApiAnswer {
    let header = |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
    let builder = Response::builder().header("audit-id", "1").header("content-type", "application/json");
    let builder = served.more.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
    let builder = served.etag.iter().fold(builder, |builder, etag| builder.header("etag", *etag));
    let response = if header(header::AUTHORIZATION) == Some("Bearer refused") {
        Response::builder().status(403).body(full("no")).unwrap()
    } else if served.etag.is_some() && header(header::IF_NONE_MATCH) == served.etag {
        builder.status(304).header("date", LONG_AGO).body(full("")).unwrap()
    } else {
        builder.body(full(served.body.clone())).unwrap()
    };
    Box::pin(std::future::ready(response))
}

/// An API server with one document, and a forwarder to it.
struct Scene {
    api: Api,
    served: Arc<Mutex<Served>>,
    forwarder: Forwarder,
}

impl Scene {
    async fn new(etag: Option<&'static str>, body: impl Into<Bytes>) -> Self {
        let served = Arc::new(Mutex::new(Served { etag, body: body.into(), more: &[] }));
        let shared = Arc::clone(&served);
        let api = Api::start(move |request| answer(&shared.lock(), &request)).await;
        let forwarder = forwarder(&[api.url()]).await;
        Self { api, served, forwarder }
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response<Bytes> {
        let builder = Request::builder().method(method).uri(path);
        let builder = headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        let (parts, ()) = builder.body(()).unwrap().into_parts();
        let answer = self.forwarder.forward(&parts, caller(), Full::default()).await.unwrap();
        let length = answer.body().size_hint().exact();
        let (head, mut body) = answer.into_parts();
        let mut read = Vec::new();
        while let Some(frame) = body.frame().await {
            // Dropped at once, as by a socket.
            read.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        let body = Bytes::from(read);
        assert!(length.is_none_or(|length| method == "HEAD" || length == body.len() as u64));
        Response::from_parts(head, body)
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response<Bytes> {
        self.send("GET", path, headers).await
    }

    /// The If-None-Match of the latest request that the API server got.
    fn requested(&self) -> String {
        self.api.header("if-none-match")
    }
}

#[tokio::test]
async fn a_document_is_sent_once_until_it_changes() {
    let scene = Scene::new(Some("\"a\""), "first").await;
    for requested in ["", "\"a\"", "\"a\""] {
        let answer = scene.get("/openapi/v2", &[JSON]).await;
        assert_eq!(
            (answer.status().as_u16(), &answer.body()[..], &*scene.requested()),
            (200, &b"first"[..], requested)
        );
        let headers = ["etag", "content-type", "content-length", "audit-id"].map(|name| &answer.headers()[name]);
        assert_eq!(headers, ["\"a\"", "application/json", "5", "1"]);
        assert_eq!(answer.headers()["date"] == LONG_AGO, !requested.is_empty(), "the newer head counts");
    }
    *scene.served.lock() = Served { etag: Some("\"b\""), body: "second".into(), more: &[] };
    for requested in ["\"a\"", "\"b\""] {
        let answer = scene.get("/openapi/v2", &[JSON]).await;
        assert_eq!((&answer.body()[..], &*scene.requested()), (&b"second"[..], requested), "a change is seen at once");
    }
}

#[tokio::test]
async fn a_caller_without_rights_gets_the_api_servers_refusal() {
    let scene = Scene::new(Some("\"a\""), "secret").await;
    scene.get("/apis", &[("authorization", "Bearer granted")]).await;
    let answer = scene.get("/apis", &[("authorization", "Bearer refused")]).await;
    assert_eq!((answer.status().as_u16(), &answer.body()[..]), (403, &b"no"[..]));
    assert_eq!(scene.api.header("authorization"), "Bearer refused");
    assert_eq!(scene.get("/apis", &[("authorization", "Bearer granted")]).await.body(), "secret");
}

#[tokio::test]
async fn a_callers_own_etag_is_honoured() {
    let scene = Scene::new(Some("\"a\""), "first").await;
    let known = |etag| [JSON, ("if-none-match", etag)];
    assert_eq!(scene.get("/apis", &known("\"a\"")).await.status(), 304, "before it is kept");
    assert_eq!(scene.get("/apis", &known("\"old\"")).await.status(), 200);
    for (etag, code) in [("\"a\"", 304), ("W/\"a\"", 304), ("\"x\", \"a\"", 304), ("*", 304), ("\"x\"", 200)] {
        let answer = scene.get("/apis", &known(etag)).await;
        assert_eq!((answer.status().as_u16(), &*scene.requested()), (code, "\"a\""), "{etag}");
        assert_eq!(answer.headers()["etag"], "\"a\"");
        assert_eq!(answer.headers().contains_key("content-length"), code == 200);
    }
    *scene.served.lock() = Served { etag: Some("\"b\""), body: "second".into(), more: &[] };
    assert_eq!(scene.get("/apis", &known("\"b\"")).await.status(), 304, "the caller is ahead of us");
    assert_eq!(scene.get("/apis", &known("\"a\"")).await.body(), "second");
}

#[tokio::test]
async fn forms_of_a_document_are_kept_apart() {
    let scene = Scene::new(Some("\"a\""), "text").await;
    let protobuf = ("accept", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    let gzip = ("accept-encoding", "gzip");
    for (path, headers) in [
        ("/openapi/v2", &[JSON][..]),
        ("/openapi/v2", &[protobuf]),
        ("/openapi/v2", &[JSON, gzip]),
        ("/openapi/v2?timeout=32s", &[JSON]),
        ("/openapi/v2", &[]),
    ] {
        let mut marked = headers.to_vec();
        for requested in ["", "\"a\""] {
            scene.get(path, &marked).await;
            assert_eq!(scene.requested(), requested, "{path} {headers:?}");
            // Other headers of the caller choose no other form.
            marked.push(("user-agent", "another"));
        }
    }
}

#[tokio::test]
async fn only_whole_documents_with_an_etag_are_kept() {
    let scene = Scene::new(None, "text").await;
    let twice = async |method: &str, path: &str, headers: &[(&str, &str)]| {
        scene.send(method, path, headers).await;
        scene.send(method, path, headers).await;
        scene.requested()
    };
    assert_eq!(twice("GET", "/apis", &[]).await, "", "no ETag");
    scene.served.lock().etag = Some("\"a\"");
    assert_eq!(twice("GET", "/api/v1/nodes/a", &[]).await, "", "no document");
    assert_eq!(twice("HEAD", "/openapi/v2", &[]).await, "", "no body");
    assert_eq!(twice("GET", "/openapi/v2", &[("range", "bytes=0-1")]).await, "", "a part");
    assert_eq!(twice("GET", &format!("/openapi/v2?{}", "x".repeat(MIRROR_KEY_BYTES_MAX)), &[]).await, "", "too long");
    scene.served.lock().more = &[("vary", "Accept, Authorization")];
    assert_eq!(twice("GET", "/openapi/v2", &[]).await, "", "it depends on the caller");
    scene.served.lock().more = &[("cache-control", "private, no-store")];
    assert_eq!(twice("GET", "/openapi/v2", &[]).await, "", "it must not be kept");
    scene.served.lock().more =
        &[("vary", "Accept-Encoding"), ("vary", "Accept"), ("cache-control", "no-cache, private")];
    assert_eq!(twice("GET", "/openapi/v2", &[]).await, "\"a\"");
}

#[tokio::test]
async fn longer_documents_pass_whole() {
    let long: Bytes = (0..=MIRROR_DOCUMENT_BYTES_MAX).map(|at| at.to_le_bytes()[0]).collect();
    let scene = Scene::new(Some("\"a\""), long.clone()).await;
    for more in [&[][..], &[("transfer-encoding", "chunked")]] {
        scene.served.lock().more = more;
        for _ in 0..2 {
            assert!(scene.get("/openapi/v2", &[]).await.body() == &long, "other bytes");
            assert_eq!(scene.requested(), "");
        }
    }
}

/// Goal: no caller gets a header that another one got with the document. Method: a cookie and a warning for the first one.
#[tokio::test]
async fn headers_for_one_caller_reach_no_other() {
    let scene = Scene::new(Some("\"a\""), "first").await;
    scene.served.lock().more = &[("set-cookie", "session=1"), ("warning", "299 - \"old token\""), ("vary", "Accept")];
    let first = scene.get("/apis", &[]).await;
    assert_eq!([&first.headers()["set-cookie"], &first.headers()["vary"]], ["session=1", "Accept"]);
    scene.served.lock().more = &[];
    let second = scene.get("/apis", &[]).await;
    assert_eq!((&*scene.requested(), &second.body()[..]), ("\"a\"", &b"first"[..]), "the kept document");
    let names: Vec<_> = second.headers().keys().map(HeaderName::as_str).collect();
    assert!(names.contains(&"vary") && !names.contains(&"set-cookie") && !names.contains(&"warning"), "{names:?}");
}

/// Goal: a document always comes with its own ETag. Method: a 304 without one, as some proxies send it.
#[tokio::test]
async fn a_kept_document_has_its_etag() {
    let api = Api::start(|request| {
        let is_known = request.headers().contains_key("if-none-match");
        let builder = Response::builder().status(if is_known { 304 } else { 200 });
        let builder = if is_known { builder } else { builder.header("etag", "\"a\"") };
        Box::pin(std::future::ready(builder.body(full(if is_known { "" } else { "first" })).unwrap()))
    })
    .await;
    let served = Arc::new(Mutex::new(Served { etag: None, body: Bytes::new(), more: &[] }));
    let forwarder = forwarder(&[api.url()]).await;
    let scene = Scene { api, served, forwarder };
    for requested in ["", "\"a\""] {
        let answer = scene.get("/apis", &[]).await;
        assert_eq!((&answer.body()[..], &*scene.requested()), (&b"first"[..], requested));
        assert_eq!(answer.headers()["etag"], "\"a\"");
    }
}

/// Goal: callers that do not read hold a bounded number of documents. Method: more documents than there is room for, each of
/// which is left unread, whole or as the beginning of a longer one; then all callers leave.
#[tokio::test]
async fn unread_documents_are_bounded() {
    const ROOM: usize = MIRROR_BYTES_MAX / MIRROR_DOCUMENT_BYTES_MAX;
    for (length, more) in
        [(MIRROR_DOCUMENT_BYTES_MAX, &[][..]), (MIRROR_DOCUMENT_BYTES_MAX + 1, &[("transfer-encoding", "chunked")])]
    {
        let scene = Scene::new(Some("\"a\""), vec![7; length]).await;
        scene.served.lock().more = more;
        let mut unread = Vec::new();
        for number in 0..2 * ROOM {
            let (parts, ()) = Request::get(format!("/openapi/v2?{number}")).body(()).unwrap().into_parts();
            unread.push(scene.forwarder.forward(&parts, caller(), Full::default()).await.unwrap());
            let room = scene.forwarder.mirror.room.available_permits();
            assert_eq!(room, ROOM.saturating_sub(number + 1) * MIRROR_DOCUMENT_BYTES_MAX, "{length} {number}");
        }
        drop(unread);
        *scene.served.lock() = Served { etag: Some("\"b\""), body: "short".into(), more: &[] };
        for requested in ["", "\"b\""] {
            assert_eq!(
                (&scene.get("/apis", &[]).await.body()[..], &*scene.requested()),
                (&b"short"[..], requested),
                "{length}"
            );
        }
    }
}

#[test]
fn the_longest_unused_documents_are_dropped() {
    let mirror = Mirror::new();
    let key = |path: &str| DocumentKey { path_and_query: path.to_owned(), accept: Vec::new(), encoding: Vec::new() };
    let insert = |path: &str, part: usize| {
        let bytes = vec![0; MIRROR_BYTES_MAX / 10 * part];
        let room = mirror.reserve(bytes.len()).expect("no caller holds a document");
        let (etag, headers) = (HeaderValue::from_static("\"a\""), HeaderMap::new());
        let retained = &mut *mirror.retained.lock();
        retained.insert(MirroredDocument { key: key(path), etag, headers, body: DocumentBytes::counted(bytes, room) });
        retained.0.iter().map(|document| document.key.path_and_query.as_str()).collect::<String>()
    };
    assert_eq!(insert("a", 4), "a");
    assert_eq!(insert("b", 4), "ab");
    let mut retained = mirror.retained.lock();
    assert!(retained.find(&key("a")).is_some() && retained.find(&key("c")).is_none());
    drop(retained);
    assert_eq!(insert("c", 4), "ac", "b was used before a");
    assert_eq!(insert("a", 1), "ca", "replaced");
    assert_eq!(insert("d", 10), "d");
    for number in 0..2 * MIRROR_DOCUMENTS_MAX {
        insert(&number.to_string(), 0);
    }
    assert_eq!(mirror.retained.lock().0.len(), MIRROR_DOCUMENTS_MAX);
}
