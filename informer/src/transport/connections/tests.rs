//! A pool over pipes in memory, under paused time: pings, connections that fill up, failures that are shared.

use std::{
    convert::Infallible,
    io,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};

use futures::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, copy_bidirectional, duplex},
    sync::{Notify, watch},
    time::{Instant, timeout},
};
use tower::util::BoxCloneSyncService;

use super::*;
use crate::transport::{connector::BoxedSocket, pipe::NegotiatedPipe};

const URL: &str = "https://server";
/// Bytes that a pipe holds.
const PIPE_BYTES: usize = 64 << 10;

/// An HTTP/2 server whose responses begin and do not end, behind a network that can fall silent.
#[derive(Clone, Default)]
struct PipeServer {
    opened: Arc<AtomicUsize>,
    /// Streams that the server allows on a connection; zero for its default.
    streams_max: Arc<AtomicU32>,
    is_refusing: watch::Sender<bool>,
    silence: Arc<Notify>,
}

impl PipeServer {
    fn pool(&self) -> ConnectionPool {
        let server = self.clone();
        let connector = BoxCloneSyncService::new(tower::service_fn(move |_: Uri| {
            let server = server.clone();
            async move { server.accept().await }
        }));
        ConnectionPool::new(Uri::from_static(URL), connector)
    }

    async fn accept(self) -> Result<BoxedSocket, BoxError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        // A connection takes time, in which other requests come.
        sleep(Duration::from_millis(10)).await;
        if *self.is_refusing.borrow() {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        let (near, mut near_end) = duplex(PIPE_BYTES);
        let (mut far_end, far) = duplex(PIPE_BYTES);
        let silence = Arc::clone(&self.silence);
        tokio::spawn(async move {
            tokio::select! {
                _ = copy_bidirectional(&mut near_end, &mut far_end) => {}
                // Both ends stay open.
                () = silence.notified() => std::future::pending().await,
            }
        });
        let service = hyper::service::service_fn(|_| async {
            let endless = stream::pending::<Result<Frame<Bytes>, Infallible>>();
            Ok::<_, Infallible>(Response::new(StreamBody::new(endless)))
        });
        let mut server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        match self.streams_max.load(Ordering::Relaxed) {
            0 => {}
            allowed => drop(server.max_concurrent_streams(allowed)),
        }
        tokio::spawn(server.serve_connection(TokioIo::new(far), service));
        Ok(NegotiatedPipe::boxed(near))
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

fn request() -> Request<PooledRequestBody> {
    Request::get(format!("{URL}/api")).body(PooledRequestBody::default()).expect("a request")
}

/// Goal: a peer that vanished without a word ends the streams within 45 s; one that answers pings keeps them. Method: a
/// pipe that stops passing bytes, and ten quiet minutes before.
#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_noticed_within_45_seconds() {
    let server = PipeServer::default();
    let pool = server.pool();
    let mut body = pool.clone().send(request()).await.expect("headers").into_body();
    timeout(Duration::from_secs(600), body.frame()).await.expect_err("a quiet stream stays open");

    let since = Instant::now();
    server.silence.notify_one();
    let end = timeout(Duration::from_secs(60), body.frame()).await.expect("the stream ends");
    end.expect("it does not end well").expect_err("it does not end well");
    assert!(since.elapsed() <= PING_AFTER + PONG_TIME_MAX, "{:?}", since.elapsed());

    // The next request opens another connection.
    pool.send(request()).await.expect("headers");
    assert_eq!(server.opened(), 2);
}

/// Goal: requests that start together share connections, each with at most `STREAMS_MAX` of them, and ended ones make
/// room. Method: 250 requests at once, whose bodies stay open, then another 50 in place of 50 of these.
#[tokio::test(start_paused = true)]
async fn requests_share_connections_up_to_the_most_streams() {
    let server = PipeServer::default();
    let pool = server.pool();
    let requests = (0..2 * STREAMS_MAX + 50).map(|_| pool.clone().send(request()));
    let mut open: Vec<_> = futures::future::try_join_all(requests).await.expect("headers");
    assert_eq!(server.opened(), 3);
    open.truncate(2 * STREAMS_MAX);
    for _ in 0..50 {
        open.push(pool.clone().send(request()).await.expect("headers"));
    }
    assert_eq!(server.opened(), 3);
}

/// Goal: a server that allows few streams gets more connections, and no request waits behind a stream that does not end.
/// Method: servers with each limit, 30 requests at once whose bodies stay open, then one more in place of another.
#[tokio::test(start_paused = true)]
async fn no_connection_is_used_beyond_what_its_server_allows() {
    for (allowed, connections) in [(1, 30), (2, 15), (5, 6), (10, 3), (100, 1)] {
        let server = PipeServer::default();
        server.streams_max.store(allowed, Ordering::Relaxed);
        let pool = server.pool();
        let requests = futures::future::try_join_all((0..30).map(|_| pool.clone().send(request())));
        let mut open = timeout(Duration::from_secs(5), requests).await.expect("no request waits").expect("headers");
        assert_eq!(server.opened(), connections, "{allowed} streams");
        open.truncate(29);
        open.push(pool.clone().send(request()).await.expect("headers"));
        assert_eq!(server.opened(), connections, "{allowed} streams");
    }
}

/// Goal: a request that was given up while it waited takes no stream. Method: a server of one stream, three requests of
/// which the first two are dropped before there is a connection.
#[tokio::test(start_paused = true)]
async fn a_request_that_gives_up_takes_no_stream() {
    let server = PipeServer::default();
    server.streams_max.store(1, Ordering::Relaxed);
    let pool = server.pool();
    for _ in 0..2 {
        timeout(Duration::from_millis(1), pool.clone().send(request())).await.expect_err("no connection yet");
    }
    let open = pool.clone().send(request()).await.expect("headers");
    assert_eq!(server.opened(), 1);
    drop(open);
    pool.send(request()).await.expect("headers");
    assert_eq!(server.opened(), 1);
}

/// Goal: a refused connection is one attempt for all that wait, and the next request tries again. Method: 30 requests at
/// once at a server that refuses connections and then accepts them.
#[tokio::test(start_paused = true)]
async fn requests_share_a_failure_to_connect() {
    let server = PipeServer::default();
    server.is_refusing.send_replace(true);
    let pool = server.pool();
    let failures = futures::future::join_all((0..30).map(|_| pool.clone().send(request()))).await;
    for failure in failures {
        let error = failure.expect_err("refused");
        assert_eq!(crate::error::Chain(&*error).to_string(), "no connection: connection refused");
    }
    assert_eq!(server.opened(), 1);
    server.is_refusing.send_replace(false);
    pool.send(request()).await.expect("headers");
    assert_eq!(server.opened(), 2);
}

/// A server that speaks HTTP/2 byte by byte: it sends SETTINGS by script, and headers for the first stream.
struct ScriptedServer {
    /// Bytes to send, by connection.
    scripts: Mutex<VecDeque<Vec<Script>>>,
    opened: AtomicUsize,
    /// Number of connections that their client has ended.
    ended: watch::Sender<usize>,
}

enum Script {
    /// SETTINGS that allow this number of streams.
    Allows(u8),
    /// Waits for a request, and answers it with headers and a body without end.
    Answers,
}

impl ScriptedServer {
    fn new(scripts: impl IntoIterator<Item = Vec<Script>>) -> Arc<Self> {
        let scripts = Mutex::new(scripts.into_iter().collect());
        Arc::new(Self { scripts, opened: AtomicUsize::new(0), ended: watch::Sender::default() })
    }

    fn pool(self: &Arc<Self>) -> ConnectionPool {
        let server = Arc::clone(self);
        let connector = BoxCloneSyncService::new(tower::service_fn(move |_: Uri| {
            let server = Arc::clone(&server);
            async move {
                let (near, far) = duplex(PIPE_BYTES);
                server.opened.fetch_add(1, Ordering::Relaxed);
                let script = server.scripts.lock().pop_front().expect("a script for each connection");
                tokio::spawn(server.serve(far, script));
                Ok(NegotiatedPipe::boxed(near))
            }
        }));
        ConnectionPool::new(Uri::from_static(URL), connector)
    }

    async fn serve(self: Arc<Self>, mut far: DuplexStream, script: Vec<Script>) {
        let mut preface = [0; 24];
        far.read_exact(&mut preface).await.expect("a preface");
        for step in script {
            match step {
                Script::Allows(streams) => {
                    far.write_all(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, streams]).await.expect("an open pipe");
                }
                Script::Answers => {
                    while read_frame(&mut far).await.expect("a request") != HEADERS {}
                    // `:status: 200` on the first stream.
                    far.write_all(&[0, 0, 1, HEADERS, 4, 0, 0, 0, 1, 0x88]).await.expect("an open pipe");
                }
            }
        }
        while read_frame(&mut far).await.is_some() {}
        self.ended.send_modify(|ended| *ended += 1);
    }
}

const HEADERS: u8 = 1;

/// Reads a frame, and returns its type; `None` at the end.
async fn read_frame(far: &mut DuplexStream) -> Option<u8> {
    let mut head = [0; 9];
    far.read_exact(&mut head).await.ok()?;
    let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    far.read_exact(&mut payload).await.ok()?;
    Some(head[3])
}

/// Goal: a server that allows no streams fails requests with an error that names that. Method: SETTINGS with zero.
#[tokio::test(start_paused = true)]
async fn a_server_that_allows_no_streams_fails_requests_in_time() {
    let server = ScriptedServer::new([vec![Script::Allows(0)]]);
    let began = Instant::now();
    let error = server.pool().send(request()).await.expect_err("no stream");
    assert_eq!(began.elapsed(), SETTINGS_TIME_MAX);
    let error = error.downcast_ref::<ConnectError>().expect("its type");
    assert_eq!(error.0.downcast_ref::<SettingsError>(), Some(&SettingsError::NoStreams));
}

/// Goal: a connection whose server lowers its streams to zero is left in time, and ends after its last stream. Method: SETTINGS
/// with two streams, then with none; requests before and after, until the server sees the end.
#[tokio::test(start_paused = true)]
async fn a_connection_that_allows_no_streams_any_more_is_left() {
    let lowered = vec![Script::Allows(2), Script::Answers, Script::Allows(0)];
    let server = ScriptedServer::new([lowered, vec![Script::Allows(1), Script::Answers]]);
    let pool = server.pool();
    let first = pool.clone().send(request()).await.expect("headers");
    // It is sent before the client knows, and waits for a stream.
    timeout(Duration::from_secs(1), pool.clone().send(request())).await.expect_err("no stream");
    sleep(SETTINGS_TIME_MAX).await;
    let _second = pool.clone().send(request()).await.expect("headers over another connection");
    assert_eq!(server.opened.load(Ordering::Relaxed), 2);
    let mut ended = server.ended.subscribe();
    assert_eq!(*ended.borrow(), 0, "a stream is open");
    drop(first);
    timeout(Duration::from_secs(1), ended.wait_for(|&ended| ended == 1)).await.expect("in time").expect("it lives");
}

/// Goal: a connection without streams costs few wake-ups. Method: counted checks until the time is over, and after streams were
/// allowed in between.
#[tokio::test(start_paused = true)]
async fn checks_for_streams_become_rare() {
    let mut checks = SettingsChecks::new();
    for _ in 0..2 {
        let mut count = 0;
        while poll_fn(|cx| checks.poll_due(cx, 0)).await < SETTINGS_TIME_MAX {
            count += 1;
        }
        assert!((20..50).contains(&count), "{count}");
        let allowed = poll_fn(|cx| Poll::Ready(checks.poll_due(cx, 1))).await;
        assert_eq!(allowed, Poll::Pending);
    }
}
