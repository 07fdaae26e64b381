//! A scripted server. Logs each request with its time and answers it by one function; bodies are lists of steps.

use std::{
    convert::Infallible,
    io, iter,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http_body_util::StreamBody;
use hyper_util::rt::TokioIo;
use informer::{
    Cluster, Event, Informer,
    delays::{self, Delays},
};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body as KubeBody;
use tokio::{sync::mpsc, time::Instant};

/// One response: status, headers, body.
#[derive(Clone)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) steps: Vec<Step>,
    /// Events sent after the steps, as they are published; the body ends when the sender is dropped.
    pub(crate) live: Option<Live>,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send(String),
    Wait(Duration),
    /// Keeps the body open without further data.
    Hang,
    /// The connection breaks.
    Abort,
}

pub(crate) fn ok(steps: impl IntoIterator<Item = Step>) -> Reply {
    Reply { code: 200, headers: Vec::new(), steps: steps.into_iter().collect(), live: None }
}

pub(crate) fn refuse(code: u16, body: impl Into<String>) -> Reply {
    Reply { code, headers: Vec::new(), steps: vec![Step::Send(body.into())], live: None }
}

/// Events sent while the test runs.
#[derive(Clone, Default)]
pub(crate) struct Live(Arc<Mutex<Vec<mpsc::UnboundedSender<String>>>>);

impl Live {
    pub(crate) fn send(&self, text: impl Into<String>) {
        let text = text.into();
        self.0.lock().unwrap().retain(|watcher| watcher.send(text.clone()).is_ok());
    }

    fn join(&self) -> mpsc::UnboundedReceiver<String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.lock().unwrap().push(sender);
        receiver
    }
}

/// Log of requests, with the time since the fixture was created.
#[derive(Clone)]
pub(crate) struct Log {
    zero: Instant,
    lines: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Log {
    fn new() -> Self {
        Self { zero: Instant::now(), lines: Arc::default() }
    }

    pub(crate) fn uris(&self) -> Vec<String> {
        self.lines.lock().unwrap().iter().map(|(_, uri)| uri.clone()).collect()
    }

    pub(crate) fn times(&self) -> Vec<Duration> {
        self.lines.lock().unwrap().iter().map(|(at, _)| *at).collect()
    }

    /// Number of requests whose URI contains `part`.
    pub(crate) fn count(&self, part: &str) -> usize {
        self.uris().iter().filter(|uri| uri.contains(part)).count()
    }

    fn add(&self, uri: &http::Uri) -> usize {
        let mut lines = self.lines.lock().unwrap();
        lines.push((self.zero.elapsed(), uri.to_string()));
        lines.len()
    }
}

/// The answers of a server to each request, by its number, from 1, and its URI. Boxed: otherwise the compiler would build
/// a client, or a server, for every test.
type Answers = Arc<dyn Fn(usize, &str) -> Reply + Send + Sync>;

/// Cluster whose server is `answer`, which gets each request's number, from 1, and its URI. No sockets: for paused
/// time.
pub(crate) fn in_memory(answer: impl Fn(usize, &str) -> Reply + Send + Sync + 'static) -> (Cluster, Log) {
    let (client, log) = client_in_memory(answer);
    (Cluster::new(client), log)
}

/// Like [`in_memory`], as a client.
pub(crate) fn client_in_memory(answer: impl Fn(usize, &str) -> Reply + Send + Sync + 'static) -> (kube::Client, Log) {
    client_of(Arc::new(answer))
}

fn client_of(answers: Answers) -> (kube::Client, Log) {
    let log = Log::new();
    let seen = log.clone();
    let service = tower::service_fn(move |request: http::Request<KubeBody>| {
        let number = seen.add(request.uri());
        let reply = answers(number, &request.uri().to_string());
        async move { Ok::<_, Infallible>(reply.into_response()) }
    });
    (kube::Client::new(service, "default"), log)
}

/// Like [`in_memory`], over a socket.
pub(crate) fn over_socket(
    answer: impl Fn(usize, &str) -> Reply + Send + Sync + 'static,
) -> impl Future<Output = (Cluster, Log)> {
    server_of(Arc::new(answer))
}

async fn server_of(answers: Answers) -> (Cluster, Log) {
    let log = Log::new();
    let seen = log.clone();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let (answers, seen) = (Arc::clone(&answers), seen.clone());
            let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let number = seen.add(request.uri());
                let reply = answers(number, &request.uri().to_string());
                async move { Ok::<_, Infallible>(reply.into_response()) }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    (cluster_at(&format!("http://{address}")), log)
}

/// Cluster with kube's own client and its defaults, retries included.
pub(crate) fn cluster_at(url: &str) -> Cluster {
    let config = kube::Config::new(url.parse().unwrap());
    assert!(config.default_retry);
    Cluster::new(kube::Client::try_from(config).unwrap())
}

type Chunks = Pin<Box<dyn Stream<Item = io::Result<http_body::Frame<Bytes>>> + Send>>;

impl Reply {
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn live(mut self, live: &Live) -> Self {
        self.live = Some(live.clone());
        self
    }

    fn into_response(self) -> http::Response<StreamBody<Chunks>> {
        let mut response = http::Response::builder().status(self.code);
        for (name, value) in &self.headers {
            response = response.header(*name, value);
        }
        let live = self.live.map(|live| live.join());
        let steps = stream::iter(self.steps).then(|step| async {
            match step {
                Step::Send(text) => Some(Ok(text)),
                Step::Wait(time) => {
                    tokio::time::sleep(time).await;
                    None
                }
                Step::Hang => std::future::pending().await,
                Step::Abort => {
                    // hyper flushes when the body is pending, and drops buffered data when the body fails.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Some(Err(io::Error::other("aborted")))
                }
            }
        });
        let steps = steps.filter_map(|step| async { step });
        let chunks = steps.chain(stream::iter(live).flat_map(|events| Events(events).map(Ok)));
        let frames = chunks.map(|text| text.map(|text| http_body::Frame::data(Bytes::from(text))));
        response.body(StreamBody::new(Box::pin(frames) as Chunks)).unwrap()
    }
}

struct Events(mpsc::UnboundedReceiver<String>);

impl Stream for Events {
    type Item = String;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<String>> {
        self.0.poll_recv(cx)
    }
}

/// A pod as a list item: without kind.
pub(crate) fn item(key: &str, version: u64) -> String {
    let (namespace, name) = key.split_once('/').unwrap();
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"uid-{name}","resourceVersion":"{version}","labels":{{"app":"{name}"}},"managedFields":[{{"manager":"x"}}]}},"spec":{{"nodeName":"node-1","containers":[]}}}}"#
    )
}

/// A pod as the object of a watch event.
pub(crate) fn pod(key: &str, version: u64) -> String {
    item(key, version).replacen('{', r#"{"kind":"Pod","apiVersion":"v1","#, 1)
}

pub(crate) fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

pub(crate) fn added(key: &str, version: u64) -> String {
    event("ADDED", &pod(key, version))
}

pub(crate) fn modified(key: &str, version: u64) -> String {
    event("MODIFIED", &pod(key, version))
}

pub(crate) fn deleted(key: &str, version: u64) -> String {
    event("DELETED", &pod(key, version))
}

pub(crate) fn bookmark(version: u64) -> String {
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\"}}}}}}\n"
    )
}

pub(crate) fn end_bookmark(version: u64) -> String {
    bookmark(version).replace(
        &format!("\"resourceVersion\":\"{version}\""),
        &format!("\"resourceVersion\":\"{version}\",\"annotations\":{{\"k8s.io/initial-events-end\":\"true\"}}"),
    )
}

pub(crate) fn list(items: &[String], version: u64, token: &str) -> String {
    let next = if token.is_empty() { String::new() } else { format!(r#","continue":"{token}""#) };
    let items = items.join(",");
    format!(
        "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\"{next}}},\"items\":[{items}]}}\n"
    )
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> String {
    format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"{message}\",\"reason\":\"{reason}\",\"code\":{code}}}\n"
    )
}

pub(crate) fn is_stream(uri: &str) -> bool {
    uri.contains("sendInitialEvents=true")
}

pub(crate) fn is_watch(uri: &str) -> bool {
    uri.contains("watch=true") && !is_stream(uri)
}

/// Long enough for every expected event, and far below the test runner's timeout.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// `key@version` of every object in the store, followed by `!` if it was skipped.
pub(crate) fn contents(informer: &Informer<Pod>) -> String {
    let snapshot = informer.store().snapshot();
    let all: Vec<String> = snapshot
        .iter()
        .map(|pod| format!("{}@{}{}", pod.key(), pod.resource_version(), mark(pod.is_skipped())))
        .collect();
    all.join(" ")
}

const fn mark(is_skipped: bool) -> &'static str {
    if is_skipped { "!" } else { "" }
}

pub(crate) fn describe(event: &Event<Pod>) -> String {
    match event {
        Event::Added(pod) => format!("+{}@{}{}", pod.key(), pod.resource_version(), mark(pod.is_skipped())),
        Event::Updated { old, new } => {
            let (from, to) = (old.resource_version(), new.resource_version());
            format!("{}@{from}>{to}{}", new.key(), mark(new.is_skipped()))
        }
        Event::Deleted { last_known, missed } => {
            format!("-{}@{}{}", last_known.key(), last_known.resource_version(), if *missed { "?" } else { "" })
        }
        Event::Synced(version) => format!("={version}"),
        Event::Reset => "reset".into(),
        _ => "unknown".into(),
    }
}

/// The next `count` events, one text each.
pub(crate) async fn next(subscription: &mut (impl Stream<Item = Event<Pod>> + Unpin), count: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let event = tokio::time::timeout(SOON, subscription.next()).await.expect("an event soon");
        seen.push(event.as_ref().map_or_else(|| "end".into(), describe));
    }
    seen
}

/// Delays of clients over real sockets that fail in a test about anything but delays.
pub(crate) fn soon() -> impl Delays + 'static {
    delays::from_fn(|| iter::repeat(Duration::from_millis(20)))
}

/// Polls until `condition` holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Lets tokio's clock run fast until `condition` holds: 250 ms in each 5 ms. For long bounds over real sockets, for which
/// a paused clock would not wait.
pub(crate) async fn hurry(what: &str, within: Duration, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + within;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::pause();
        tokio::time::advance(Duration::from_millis(250)).await;
        tokio::time::resume();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
