//! Requests through a forwarder to API servers on real sockets: headers, bodies, ends and failures.

use std::{
    convert::Infallible,
    io,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::FutureExt as _;
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
    time::Instant,
};

use super::*;
use crate::limits::{UPSTREAM_PIECE_BYTES, UPSTREAM_UNSENT_BYTES_MAX};
use crate::{
    config::UpstreamConfig,
    gateway::Upstream,
    tests::{Api, addresses_of, caller, closed_port, echo, forwarder, forwarder_noting, full, raw, read_head},
};

const WAIT: Duration = Duration::from_secs(20);

fn parts(method: &str, path: &str, headers: &[(&str, &str)]) -> Parts {
    let builder = Request::builder().method(method).uri(path);
    headers
        .iter()
        .fold(builder, |builder, (name, value)| builder.header(*name, *value))
        .body(())
        .unwrap()
        .into_parts()
        .0
}

fn no_body() -> Full<Bytes> {
    Full::default()
}

/// Sends a request and reads the whole answer.
async fn send(
    forwarder: &Forwarder,
    parts: &Parts,
    body: Full<Bytes>,
) -> Result<(http::response::Parts, Bytes), Status> {
    let (parts, body) = forwarder.forward(parts, caller(), body).await?.into_parts();
    Ok((parts, read(body).await))
}

/// Reads a body to its end, and drops each piece as a socket does.
async fn read(mut body: ForwardedBody) -> Bytes {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        all.extend_from_slice(&frame.expect("a whole body").into_data().expect("no trailers"));
    }
    all.into()
}

async fn get(forwarder: &Forwarder, path: &str) -> Result<(u16, Bytes), Status> {
    let (parts, body) = send(forwarder, &parts("GET", path, &[]), no_body()).await?;
    Ok((parts.status.as_u16(), body))
}

/// Waits until `count` has stopped growing for a while, and returns it.
async fn settled(count: &AtomicUsize) -> usize {
    let (mut last, mut calm) = (0, 0);
    while calm < 25 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = count.load(Ordering::Relaxed);
        calm = if now == last && now > 0 { calm + 1 } else { 0 };
        last = now;
    }
    last
}

#[tokio::test]
async fn a_request_and_its_answer_pass_unchanged() {
    let api = Api::start(|_| {
        Box::pin(async {
            let builder = Response::builder().status(418);
            let headers = [
                ("audit-id", "1-2-3"),
                ("cache-control", "max-age=5"),
                ("content-type", "application/yaml"),
                ("content-encoding", "gzip"),
                ("warning", "299 - a"),
                ("warning", "299 - b"),
                ("keep-alive", "timeout=9"),
                ("connection", "x-hop"),
                ("x-hop", "1"),
                ("proxy-authenticate", "Basic"),
            ];
            let builder = headers.into_iter().fold(builder, |builder, (name, value)| builder.header(name, value));
            builder.body(full("not really gzip")).unwrap()
        })
    })
    .await;
    let forwarder = forwarder(&[api.url()]).await;
    let path = "/api/v1/namespaces/a%2Fb/pods?labelSelector=a%3Db,c&&watch=0&x";
    let headers = [
        ("authorization", "Bearer t"),
        ("accept-encoding", "gzip"),
        ("x-remote-user", "root"),
        ("host", "127.0.0.1:1"),
    ];
    let body = Full::from("{\"a\": 1}");
    let (head, body) = send(&forwarder, &parts("PATCH", path, &headers), body).await.unwrap();

    let seen = api.seen.lock();
    let request = &seen[0].head;
    assert_eq!((request.method.as_str(), request.uri.to_string().as_str()), ("PATCH", path));
    let mut names: Vec<_> = request.headers.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["accept-encoding", "audit-id", "authorization", "content-length", "host"]);
    assert_eq!(request.headers["host"], api.address.to_string());

    assert_eq!((head.status.as_u16(), &body[..]), (418, &b"not really gzip"[..]));
    let mut names: Vec<_> = head.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        "audit-id",
        "cache-control",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "warning",
        "warning",
    ];
    assert_eq!(names, expected);
    assert_eq!(head.headers["cache-control"], "max-age=5");
}

/// Goal: the answer to a write with many warnings arrives. Method: more headers than most clients read by default.
#[tokio::test]
async fn every_warning_of_an_answer_passes() {
    const WARNINGS: usize = 200;
    let api = Api::start(|_| {
        Box::pin(async {
            let warnings = (0..WARNINGS).map(|number| format!("299 - \"unknown field x{number}\""));
            let builder =
                warnings.fold(Response::builder().status(201), |builder, warning| builder.header("warning", warning));
            builder.body(full("made")).unwrap()
        })
    })
    .await;
    let forwarder = forwarder(&[api.url()]).await;
    let (head, body) = send(&forwarder, &parts("POST", "/", &[]), Full::from("{}")).await.unwrap();
    assert_eq!((head.status.as_u16(), &*body), (201, &b"made"[..]));
    assert_eq!(head.headers.get_all("warning").iter().count(), WARNINGS);
}

#[tokio::test]
async fn lengths_are_kept_and_streams_stay_streams() {
    let api = Api::start(echo).await;
    let forwarder = forwarder(&[api.url()]).await;
    let large = Bytes::from((0..3_000_000_u32).map(|byte| byte.to_le_bytes()[0]).collect::<Vec<u8>>());
    let request = parts("POST", "/", &[("content-length", "3000000")]);
    let answer = forwarder.forward(&request, caller(), Full::from(large.clone())).await.unwrap();
    assert_eq!(answer.body().size_hint().exact(), Some(3_000_000));
    assert_eq!(answer.headers()["content-length"], "3000000");
    assert!(read(answer.into_body()).await == large);
    assert_eq!((api.header("content-length"), api.header("transfer-encoding")), ("3000000".into(), String::new()));

    let pieces: Vec<_> =
        large.chunks(100_000).map(Bytes::copy_from_slice).map(Frame::data).map(Ok::<_, io::Error>).collect();
    // A length beside a stream is not believed.
    let request = parts("POST", "/", &[("content-length", "7")]);
    let answer = forwarder.forward(&request, caller(), StreamBody::new(futures::stream::iter(pieces))).await.unwrap();
    assert_eq!(answer.body().size_hint().exact(), None);
    assert!(!answer.headers().contains_key("transfer-encoding"));
    assert!(read(answer.into_body()).await == large);
    assert_eq!((api.header("content-length"), api.header("transfer-encoding")), (String::new(), "chunked".into()));

    let (head, body) = send(&forwarder, &parts("DELETE", "/", &[]), no_body()).await.unwrap();
    assert_eq!((head.status.as_u16(), body.len()), (200, 0));
    assert_eq!((api.header("content-length"), api.header("transfer-encoding")), (String::new(), String::new()));
}

#[tokio::test]
async fn head_keeps_the_length_of_the_body_that_is_not_sent() {
    let address = raw(async |_, mut stream| {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n").await.unwrap();
    })
    .await;
    let forwarder = forwarder(&[format!("http://{address}")]).await;
    let (head, body) = send(&forwarder, &parts("HEAD", "/", &[]), no_body()).await.unwrap();
    assert_eq!((&head.headers["content-length"], body.len()), (&HeaderValue::from_static("1234"), 0));
}

/// A piece of a request body that counts itself.
struct Piece(Arc<[AtomicUsize; 3]>, Vec<u8>);

const MADE: usize = 0;
const ALIVE: usize = 1;
const ALIVE_MAX: usize = 2;

impl Piece {
    fn make(counts: &Arc<[AtomicUsize; 3]>) -> Bytes {
        counts[MADE].fetch_add(1, Ordering::Relaxed);
        let alive = 1 + counts[ALIVE].fetch_add(1, Ordering::Relaxed);
        counts[ALIVE_MAX].fetch_max(alive, Ordering::Relaxed);
        Bytes::from_owner(Self(Arc::clone(counts), vec![7; UPSTREAM_PIECE_BYTES]))
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.1
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.0[ALIVE].fetch_sub(1, Ordering::Relaxed);
    }
}

/// Goal: an upstream that does not read stops the caller, at the cost of a few pieces. Method: an endless body whose pieces
/// count themselves.
#[tokio::test]
async fn an_upstream_that_does_not_read_stops_the_caller() {
    let (go, gone) = mpsc::unbounded_channel::<()>();
    let gone = Arc::new(tokio::sync::Mutex::new(gone));
    let address = raw(move |_, mut stream| {
        let gone = Arc::clone(&gone);
        async move {
            read_head(&mut stream).await;
            gone.lock().await.recv().await;
            let mut space = vec![0; 1 << 16];
            while stream.read(&mut space).await.is_ok_and(|count| count > 0) {}
        }
    })
    .await;
    let forwarder = forwarder(&[format!("http://{address}")]).await;
    let counts = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let made = Arc::clone(&counts);
    let endless = futures::stream::repeat_with(move || Ok::<_, Infallible>(Frame::data(Piece::make(&made))));
    let sending = tokio::spawn(async move {
        let _ = forwarder.forward(&parts("POST", "/", &[]), caller(), StreamBody::new(endless)).await;
    });
    let stopped = settled(&counts[MADE]).await;
    assert!(stopped * UPSTREAM_PIECE_BYTES < 32 << 20, "{stopped} pieces fit into no socket");
    go.send(()).unwrap();
    timeout(WAIT, async {
        while counts[MADE].load(Ordering::Relaxed) < 2 * stopped {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it continues once the upstream reads");
    assert_eq!(counts[ALIVE_MAX].load(Ordering::Relaxed), 1, "more is read than is sent");
    sending.abort();
}

/// Goal: a caller that does not read stops the upstream, at the cost of a few pieces.
#[tokio::test]
async fn a_caller_that_does_not_read_stops_the_upstream() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sent);
    let api = Api::start(move |_| {
        let count = Arc::clone(&count);
        Box::pin(async move {
            let endless = futures::stream::repeat_with(move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(Frame::data(Bytes::from_static(&[7; UPSTREAM_PIECE_BYTES])))
            });
            Response::new(StreamBody::new(endless).boxed_unsync())
        })
    })
    .await;
    let forwarder = forwarder(&[api.url()]).await;
    let mut body = forwarder.forward(&parts("GET", "/", &[]), caller(), no_body()).await.unwrap().into_body();
    let (mut unsent, mut bytes) = (Vec::new(), 0);
    while bytes + UPSTREAM_PIECE_BYTES <= UPSTREAM_UNSENT_BYTES_MAX {
        let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
        bytes += piece.len();
        unsent.push(piece);
    }
    assert!(bytes <= UPSTREAM_UNSENT_BYTES_MAX);
    let stopped = settled(&sent).await;
    assert!(stopped * UPSTREAM_PIECE_BYTES < 32 << 20, "{stopped} pieces fit into no socket");
    assert!(body.frame().now_or_never().is_none(), "more while so much is not sent");
    // A socket that takes a piece wakes the task.
    let next = tokio::spawn(async move { body.frame().await.is_some() });
    tokio::task::yield_now().await;
    unsent.clear();
    assert!(timeout(WAIT, next).await.unwrap().unwrap());
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_complete() {
    for (head, is_reset) in [
        ("Content-Length: 100\r\n\r\n0123456789", false),
        ("Content-Length: 100\r\n\r\n0123456789", true),
        ("Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n", false),
        ("Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n", true),
    ] {
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let gone = Arc::new(parking_lot::Mutex::new(Some(gone)));
        let address = raw(move |_, mut stream| {
            let gone = gone.lock().take();
            async move {
                read_head(&mut stream).await;
                stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}").as_bytes()).await.unwrap();
                if is_reset {
                    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                }
                let _ = gone.unwrap().await;
            }
        })
        .await;
        let forwarder = forwarder(&[format!("http://{address}")]).await;
        let mut body = forwarder.forward(&parts("GET", "/", &[]), caller(), no_body()).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "0123456789");
        go.send(()).unwrap();
        assert!(body.frame().await.expect("no clean end").is_err(), "{head} {is_reset}");
    }
}

#[tokio::test]
async fn an_upstream_that_is_away_is_said_with_a_delay() {
    let forwarder = forwarder(&[format!("http://{}", closed_port().await)]).await;
    for method in ["GET", "POST"] {
        let status = send(&forwarder, &parts(method, "/", &[]), Full::from("x")).await.unwrap_err();
        assert_eq!((status.code, &status.reason), (503, &Reason::ServiceUnavailable));
        assert_eq!(status.retry_after(), Some(Duration::from_secs(UPSTREAM_RETRY_AFTER_SECONDS.into())));
    }
    let status = forwarder.ask(Method::POST, "/", &HeaderMap::new(), Bytes::new()).await.unwrap_err();
    assert_eq!(status.code, 503);
    assert!(status.retry_after().is_some());
}

/// Goal: a caller cannot make this server doubt its connections. Method: bodies that their callers break off; then an API
/// server that closes the connection without an answer.
#[tokio::test]
async fn a_body_that_its_caller_breaks_off_is_no_break_of_the_connection() {
    let (api, last_answer) = (Api::start(echo).await, Arc::<LastAnswer>::default());
    let aborting = forwarder_noting(&[api.url()], Arc::clone(&last_answer)).await;
    for pieces in [0, 1, 3] {
        let pieces = (0..pieces).map(|_| Ok(Frame::data(Bytes::from_static(b"{}"))));
        let aborted = pieces.chain([Err(io::Error::other("the caller has left"))]);
        let body = StreamBody::new(futures::stream::iter(aborted.collect::<Vec<_>>()));
        if let Ok(answer) = aborting.forward(&parts("POST", "/", &[]), caller(), body).await {
            // Echoed from the first piece on.
            let _ = answer.into_body().collect().await;
        }
    }
    assert_eq!(last_answer.breaks(), 0);
    let closing = raw(|_, mut stream| async move { drop(read_head(&mut stream).await) }).await;
    let closing = forwarder_noting(&[format!("http://{closing}")], Arc::clone(&last_answer)).await;
    assert!(send(&closing, &parts("POST", "/", &[]), Full::from("{}")).await.is_err());
    assert_eq!(last_answer.breaks(), 1);
}

/// Goal: a request moves to an address that accepts it, with its body, and the next one goes there at once.
#[tokio::test]
async fn the_address_that_answered_last_is_preferred() {
    let api = Api::start(echo).await;
    let away = closed_port().await;
    let forwarder = forwarder(&[format!("http://{away}"), api.url()]).await;
    let (_, body) = send(&forwarder, &parts("POST", "/", &[]), Full::from("moved")).await.unwrap();
    assert_eq!(body, "moved");
    // The first address is back, but nothing says so.
    let back = tokio::net::TcpListener::bind(away).await.unwrap();
    for _ in 0..3 {
        assert_eq!(get(&forwarder, "/").await.unwrap().0, 200);
    }
    assert!(back.accept().now_or_never().is_none(), "the first address was tried");
    assert_eq!(api.seen.lock().len(), 4);
}

/// Goal: streams that failed are opened again once the API server answers, not when it is overloaded or a load balancer
/// answers in its place.
#[tokio::test]
async fn only_answers_of_a_working_api_server_are_signs_of_it() {
    let api = Api::start(|request| {
        // The last one is the question for the cluster's identity.
        let code = request.uri().path().trim_start_matches('/').parse().unwrap_or(404);
        Box::pin(async move { Response::builder().status::<u16>(code).body(full("")).unwrap() })
    })
    .await;
    for (code, is_sign) in
        [(200, true), (404, true), (401, true), (429, false), (500, false), (502, false), (503, false), (504, false)]
    {
        let (begun, last_answer) = (Instant::now(), Arc::<LastAnswer>::default());
        let forwarder = forwarder_noting(&[api.url()], Arc::clone(&last_answer)).await;
        assert_eq!(get(&forwarder, &format!("/{code}")).await.unwrap().0, code);
        assert_eq!(last_answer.is_after(begun), is_sign, "{code}");
    }
    let config = UpstreamConfig { url: Some(api.url()), ..UpstreamConfig::default() };
    let upstream = Upstream::new(addresses_of(&config).await.unwrap(), &config);
    let begun = Instant::now();
    upstream.forwarder.ask(Method::POST, "/201", &HeaderMap::new(), Bytes::new()).await.unwrap();
    assert!(upstream.source.last_answer().is_after(begun), "a question about rights, for the caches");
}

/// Goal: only a safe request is sent twice, and only after a kept connection was closed. Method: a server that closes
/// each connection instead of a second answer.
#[tokio::test]
async fn only_reads_are_sent_again() {
    let (seen, mut requests) = mpsc::unbounded_channel();
    let address = raw(move |number, mut stream| {
        let seen = seen.clone();
        async move {
            seen.send((number, read_head(&mut stream).await)).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            seen.send((number, read_head(&mut stream).await)).unwrap();
        }
    })
    .await;
    let forwarder = forwarder(&[format!("http://{address}")]).await;
    let mut next = async || {
        let (number, head) = requests.recv().await.unwrap();
        (number, head.split(' ').next().unwrap().to_owned())
    };
    assert_eq!(get(&forwarder, "/").await.unwrap().1, "ok");
    assert_eq!(next().await, (0, "GET".into()));
    assert_eq!(get(&forwarder, "/").await.unwrap().1, "ok");
    assert_eq!((next().await, next().await), ((0, "GET".into()), (1, "GET".into())));

    assert_eq!(get(&forwarder, "/").await.unwrap().1, "ok");
    assert_eq!(next().await, (2, "GET".into()), "the connection of a repeated request is not kept");
    let status = send(&forwarder, &parts("POST", "/", &[]), Full::from("x")).await.unwrap_err();
    assert_eq!((status.code, &status.reason, status.retry_after()), (504, &Reason::Timeout, None));
    assert_eq!(next().await, (2, "POST".into()));
    assert!(requests.try_recv().is_err(), "the write was sent once");
}

/// Goal: a caller that leaves takes its request along, before and in the answer.
#[tokio::test]
async fn a_caller_that_leaves_takes_its_request_along() {
    let (ended, mut ends) = mpsc::unbounded_channel();
    let address = raw(move |_, mut stream| {
        let ended = ended.clone();
        async move {
            let head = read_head(&mut stream).await;
            if head.starts_with("GET /body") {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfirst").await.unwrap();
            }
            ended.send("began").unwrap();
            let _ = stream.read(&mut [0; 16]).await;
            ended.send("ended").unwrap();
        }
    })
    .await;
    let forwarder = Arc::new(forwarder(&[format!("http://{address}")]).await);
    let waiting = tokio::spawn({
        let forwarder = Arc::clone(&forwarder);
        async move { get(&forwarder, "/head").await }
    });
    assert_eq!(ends.recv().await, Some("began"));
    waiting.abort();
    assert_eq!(timeout(WAIT, ends.recv()).await.unwrap(), Some("ended"));

    let answer = forwarder.forward(&parts("GET", "/body", &[]), caller(), no_body()).await.unwrap();
    assert_eq!(ends.recv().await, Some("began"));
    drop(answer);
    assert_eq!(timeout(WAIT, ends.recv()).await.unwrap(), Some("ended"));
    assert_eq!(forwarder.requests.available_permits(), UPSTREAM_REQUESTS_MAX);
}

#[tokio::test]
async fn requests_at_once_are_bounded() {
    let api = Api::start(echo).await;
    let forwarder = forwarder(&[api.url()]).await;
    let all = forwarder.requests.acquire_many(u32::try_from(UPSTREAM_REQUESTS_MAX).unwrap()).await.unwrap();
    let status = get(&forwarder, "/").await.unwrap_err();
    assert_eq!(status.code, 429);
    assert!(status.retry_after().is_some());
    let answer = forwarder.ask(Method::GET, "/", &HeaderMap::new(), Bytes::new()).await.unwrap();
    assert_eq!(answer.0, 200, "questions have permits of their own");
    drop(all);
    assert_eq!(get(&forwarder, "/").await.unwrap().0, 200);
}

#[tokio::test]
async fn requests_that_cannot_be_passed_on_are_refused() {
    let forwarder = forwarder(&["http://127.0.0.1:1".to_owned()]).await;
    let upgrade = [("connection", "upgrade"), ("upgrade", "websocket")];
    for (method, path, headers, body, code) in [
        ("CONNECT", "a.example:80", &[][..], "", 405),
        ("OPTIONS", "*", &[], "", 400),
        ("POST", "/api/v1/namespaces/a/pods/b/exec", &upgrade, "body", 400),
    ] {
        let status = send(&forwarder, &parts(method, path, headers), Full::from(body)).await.unwrap_err();
        assert_eq!(status.code, code, "{method} {path}: {}", status.message);
    }
}

#[tokio::test]
async fn questions_carry_the_callers_credentials_and_have_short_answers() {
    let api = Api::start(|request| {
        let long = request.uri().path() == "/long";
        let echo = echo(request);
        Box::pin(async move {
            if long { Response::new(full(vec![b' '; UPSTREAM_ANSWER_BYTES_MAX + 1])) } else { echo.await }
        })
    })
    .await;
    let forwarder = forwarder(&[api.url()]).await;
    let headers = parts("GET", "/", &[("authorization", "Bearer t"), ("impersonate-user", "jane"), ("cookie", "a")]);
    let credentials = credentials(&headers.headers);
    let (code, body) = forwarder.ask(Method::POST, "/apis?x=y", &credentials, Bytes::from("{}")).await.unwrap();
    assert_eq!((code.as_u16(), &body[..]), (200, &b"{}"[..]));
    assert_eq!(api.header("authorization"), "Bearer t");
    assert_eq!(api.header("impersonate-user"), "jane");
    assert_eq!((api.header("content-type"), api.header("cookie")), ("application/json".into(), String::new()));
    assert_eq!(forwarder.ask(Method::GET, "/long", &credentials, Bytes::new()).await.unwrap_err().code, 503);
}

#[tokio::test(start_paused = true)]
async fn a_question_without_an_answer_ends_in_time() {
    let address = raw(async |_, stream| {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let forwarder = forwarder(&[format!("http://{address}")]).await;
    let began = Instant::now();
    let status = forwarder.ask(Method::GET, "/", &HeaderMap::new(), Bytes::new()).await.unwrap_err();
    assert_eq!(status.code, 503);
    assert!(began.elapsed() <= UPSTREAM_ASK_WAIT + Duration::from_millis(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_upgrade_returns_the_upstreams_side() {
    let api = Api::start(|mut request| {
        Box::pin(async move {
            if request.uri().path() == "/refused" {
                return Response::builder().status(403).body(full("no")).unwrap();
            }
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.unwrap());
                let mut received = [0; 4];
                stream.read_exact(&mut received).await.unwrap();
                stream.write_all(&received).await.unwrap();
            });
            let builder = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "SPDY/3.1");
            builder.header("x-stream-protocol-version", "v4.channel.k8s.io").body(full("")).unwrap()
        })
    })
    .await;
    let forwarder = forwarder(&[api.url()]).await;
    let headers =
        [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", "v4.channel.k8s.io")];
    let refused = send(&forwarder, &parts("POST", "/refused", &headers), no_body()).await.unwrap();
    assert_eq!((refused.0.status.as_u16(), &refused.1[..]), (403, &b"no"[..]));
    let answer = forwarder.forward(&parts("POST", "/exec", &headers), caller(), no_body()).await.unwrap();
    assert_eq!((api.header("connection"), api.header("upgrade")), ("Upgrade".into(), "SPDY/3.1".into()));
    assert_eq!(answer.status(), 101);
    for (name, value) in headers {
        assert_eq!(answer.headers()[name], value);
    }
    let tunnel = answer.into_body().into_tunnel().expect("a tunnel");
    let mut stream = TokioIo::new(tunnel.stream);
    stream.write_all(b"ping").await.unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"ping");
}
