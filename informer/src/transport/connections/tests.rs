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
    io::{copy_bidirectional, duplex},
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
        tokio::time::sleep(Duration::from_millis(10)).await;
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

fn request() -> Request<Body> {
    Request::get(format!("{URL}/api")).body(Body::empty()).expect("a request")
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
