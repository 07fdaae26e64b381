//! Counts requests while a server refuses them or closes every watch at once, in virtual time and without sockets.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::Full;
use informer::{Cluster, InitialList};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    client::Body,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::{sync::Notify, time::Instant};

use crate::Failure;

/// Behavior of the failing server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Refused,
    Code(u16),
    /// Lists succeed, watches end at once.
    InstantCloses,
}

/// The client under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    KubePages,
    KubeStream,
    Informer(InitialList),
}

/// Number of requests within a span of virtual time, and the elapsed time if counting stopped early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) requests: u64,
    pub(crate) stopped_after: Option<Duration>,
}

/// Maximum of counted requests: virtual time would not advance for a client that never waits.
const REQUESTS_MAX: u64 = 20_000;

/// Counts the requests of `who` within `span`.
pub(crate) fn count(who: Who, trouble: Trouble, span: Duration) -> Result<Counted, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async move {
        let requests = Arc::new(AtomicU64::new(0));
        let full = Arc::new(Notify::new());
        let (client, start) = (client(trouble, &requests, &full), Instant::now());
        let asking = async {
            match who {
                Who::KubePages => kube(client, watcher::Config::default()).await,
                Who::KubeStream => kube(client, watcher::Config::default().streaming_lists()).await,
                Who::Informer(initial) => informer(client, initial).await,
            }
        };
        let stopped_after = tokio::select! {
            biased;
            () = tokio::time::sleep(span) => None,
            () = full.notified() => Some(start.elapsed()),
            never = asking => return Err(format!("the client ended: {never:?}").into()),
        };
        Ok(Counted { requests: requests.load(Ordering::SeqCst), stopped_after })
    })
}

async fn kube(client: kube::Client, config: watcher::Config) -> Result<(), Failure> {
    let mut stream = std::pin::pin!(watcher(Api::<Pod>::all(client), config).default_backoff());
    while stream.next().await.is_some() {
        tokio::task::consume_budget().await;
    }
    Ok(())
}

async fn informer(client: kube::Client, initial: InitialList) -> Result<(), Failure> {
    let _running = Cluster::new(client).informer::<Pod>().initial_list(initial).start()?;
    std::future::pending().await
}

fn client(trouble: Trouble, requests: &Arc<AtomicU64>, full: &Arc<Notify>) -> kube::Client {
    let (requests, full) = (Arc::clone(requests), Arc::clone(full));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let number = requests.fetch_add(1, Ordering::SeqCst);
        let answer = if number < REQUESTS_MAX { Some(answer(trouble, request.uri())) } else { None };
        if answer.is_none() {
            full.notify_one();
        }
        async move {
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        }
    });
    kube::Client::new(service, "default")
}

fn answer(trouble: Trouble, uri: &http::Uri) -> Result<http::Response<Full<Bytes>>, std::io::Error> {
    let (code, body) = match trouble {
        Trouble::Refused => return Err(std::io::ErrorKind::ConnectionRefused.into()),
        Trouble::Code(code) => (code, status(code)),
        Trouble::InstantCloses => (200, quiet(uri.query().unwrap_or_default())),
    };
    http::Response::builder().status(code).body(Full::new(body.into())).map_err(std::io::Error::other)
}

fn status(code: u16) -> String {
    format!(r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"No","code":{code}}}"#)
}

/// Responses of an empty cluster whose watches end at once; the initial state of a watch-list is complete.
fn quiet(query: &str) -> String {
    if query.contains("sendInitialEvents=true") {
        return concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7","#,
            r#""annotations":{"k8s.io/initial-events-end":"true"}},"spec":{"containers":[]},"status":{}}}"#,
            "\n"
        )
        .to_owned();
    }
    if query.contains("watch=true") {
        return String::new();
    }
    r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#.to_owned()
}
