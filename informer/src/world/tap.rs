//! A tap between the informers and their connections: which reads are open, and namespaces that fail.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt as _, future::BoxFuture};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use tokio::sync::watch;
use tower::BoxError;

use crate::connection::{ResponseBody, ServerConnection};

/// The tap of all endpoints. Clones are the same tap.
#[derive(Clone, Default)]
pub(super) struct RequestTap {
    reads: Arc<Mutex<OpenReads>>,
    failing: watch::Sender<BTreeSet<&'static str>>,
}

#[derive(Default)]
struct OpenReads {
    begun: u64,
    open: BTreeMap<u64, OpenRead>,
}

/// A request whose response has not ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OpenRead {
    pub(super) endpoint: usize,
    /// As `explain` writes it: `GET /api/v1/pods?watch=true`.
    pub(super) request: String,
}

impl OpenRead {
    /// Path and selectors: what it asks for, whatever the position.
    pub(super) fn subject(&self) -> String {
        let (path, query) = self.request.split_once('?').unwrap_or((&self.request, ""));
        let selectors = query.split('&').filter(|pair| pair.contains("Selector="));
        selectors.fold(path.to_owned(), |subject, selector| subject + " " + selector)
    }
}

impl RequestTap {
    /// Fails every request for a namespace, and breaks those that are open.
    pub(super) fn fail(&self, namespace: &'static str) {
        self.failing.send_modify(|failing| failing.extend([namespace]));
    }

    pub(super) fn heal(&self) {
        self.failing.send_replace(BTreeSet::new());
    }

    /// The reads whose responses have not ended.
    pub(super) fn open(&self) -> Vec<OpenRead> {
        self.reads().open.values().cloned().collect()
    }

    /// Number of requests so far.
    pub(super) fn begun(&self) -> u64 {
        self.reads().begun
    }

    pub(super) fn connection(&self, endpoint: usize, connection: ServerConnection) -> ServerConnection {
        let tap = self.clone();
        let service = tower::service_fn(move |request: Request<()>| {
            let (tap, connection) = (tap.clone(), connection.clone());
            async move { tap.send(endpoint, connection, request).await }
        });
        ServerConnection::new(service)
    }

    async fn send(
        self,
        endpoint: usize,
        connection: ServerConnection,
        request: Request<()>,
    ) -> Result<Response<TappedBody>, BoxError> {
        let uri = request.uri().to_string();
        let failure = self.failure(uri.clone());
        let open = self.begin(OpenRead { endpoint, request: format!("GET {uri}") });
        let is_failing = self.failing.borrow().iter().any(|namespace| is_within(&uri, namespace));
        if is_failing {
            let mut response = Response::new(TappedBody { inner: ResponseBody::default(), failure, _open: open });
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return Ok(response);
        }
        Ok(connection.send(request).await?.map(|inner| TappedBody { inner, failure, _open: open }))
    }

    fn begin(&self, read: OpenRead) -> ReadGuard {
        let mut reads = self.reads();
        reads.begun += 1;
        let number = reads.begun;
        reads.open.insert(number, read);
        ReadGuard { tap: self.clone(), number }
    }

    /// Resolves once the namespace of a request fails.
    fn failure(&self, uri: String) -> BoxFuture<'static, ()> {
        let mut failing = self.failing.subscribe();
        async move {
            let fails = |failing: &BTreeSet<&str>| failing.iter().any(|namespace| is_within(&uri, namespace));
            if failing.wait_for(fails).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }

    fn reads(&self) -> MutexGuard<'_, OpenReads> {
        self.reads.lock().expect("no panic under the lock")
    }
}

fn is_within(uri: &str, namespace: &str) -> bool {
    uri.contains(&format!("/namespaces/{namespace}/"))
}

/// Its drop ends the read.
struct ReadGuard {
    tap: RequestTap,
    number: u64,
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        self.tap.reads().open.remove(&self.number);
    }
}

/// A body that breaks when its namespace fails.
struct TappedBody {
    inner: ResponseBody,
    failure: BoxFuture<'static, ()>,
    _open: ReadGuard,
}

impl http_body::Body for TappedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.failure.poll_unpin(cx).is_ready() {
            self.failure = std::future::pending().boxed();
            self.inner = ResponseBody::default();
            return Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::ConnectionReset).into())));
        }
        Pin::new(&mut self.inner).poll_frame(cx)
    }
}
