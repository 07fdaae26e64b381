//! A gate in front of a client, which can end open responses, hold requests, and answer the next watch with 410.
//!
//! INVARIANT: every client goes through the same kind of gate; while open, the gate only forwards.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use http_body_util::{BodyExt as _, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube::client::Body;
use tokio::sync::watch;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Treatment of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Held,
    /// Open, but the next watch of pods from a position gets 410.
    Expires,
}

/// Handle to the gate, cheap to clone.
#[derive(Clone)]
pub(crate) struct Gate {
    state: Arc<watch::Sender<State>>,
    pub(crate) passed: Arc<Passed>,
}

/// Counts of what passed the gate.
#[derive(Default)]
pub(crate) struct Passed {
    pub(crate) requests: AtomicU64,
    /// Bytes of response bodies, as sent by the server.
    pub(crate) body_bytes: AtomicU64,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { state: Arc::new(watch::Sender::new(State::Open)), passed: Arc::default() }
    }

    /// Ends every open response and holds all requests from now on.
    pub(crate) fn cut(&self) {
        self.state.send_replace(State::Held);
    }

    /// Forwards requests again; the first watch of pods from a position gets 410.
    pub(crate) fn expire(&self) {
        self.state.send_replace(State::Expires);
    }

    /// A client whose requests go through this gate to `inner`.
    pub(crate) fn client(&self, inner: kube::Client) -> kube::Client {
        let gate = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (gate, inner) = (gate.clone(), inner.clone());
            async move { gate.pass(inner, request).await }.boxed()
        });
        kube::Client::new(service, "default")
    }

    async fn pass(
        &self,
        inner: kube::Client,
        request: http::Request<Body>,
    ) -> Result<http::Response<UnsyncBoxBody<Bytes, Failure>>, Failure> {
        let mut state = self.state.subscribe();
        state.wait_for(|state| *state != State::Held).await?;
        let query = request.uri().query().unwrap_or_default();
        let is_of_pods = request.uri().path().ends_with("/pods");
        let resumes = is_of_pods && query.contains("watch=true") && !query.contains("sendInitialEvents=true");
        if resumes && self.state.send_if_modified(|state| std::mem::replace(state, State::Open) == State::Expires) {
            let body = http_body_util::Full::new(Bytes::from_static(EXPIRED)).map_err(Into::into).boxed_unsync();
            return Ok(http::Response::new(body));
        }
        self.passed.requests.fetch_add(1, Ordering::Relaxed);
        let (parts, body) = inner.send(request).await?.into_parts();
        let mut cut = self.state.subscribe();
        let cut = async move { drop(cut.wait_for(|state| *state == State::Held).await) };
        let passed = Arc::clone(&self.passed);
        let count = move |frame: &Result<Frame<Bytes>, _>| {
            let bytes = frame.as_ref().ok().and_then(Frame::data_ref).map_or(0, Bytes::len);
            passed.body_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        };
        let body = BodyStream::new(body).inspect(count).take_until(cut.boxed());
        let body = StreamBody::new(body).map_err(Into::into).boxed_unsync();
        Ok(http::Response::from_parts(parts, body))
    }
}

/// Sent in the stream, like servers with a watch cache do: kube's watcher would repeat a watch with 410 in the headers
/// for ever.
const EXPIRED: &[u8] = concat!(
    r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
    r#""message":"too old resource version: 1 (2)","reason":"Expired","code":410}}"#,
    "\n"
)
.as_bytes();
