//! A server for tests of connections, whose responses the tests write.

use std::{
    net::Ipv4Addr,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes};
use http::StatusCode;
use http_body::{Frame, SizeHint};
use tokio::sync::{
    Notify,
    mpsc::{UnboundedSender, unbounded_channel},
};

use super::*;
use crate::{
    shares::{StreamCaller, UserShares},
    watch_sink::tests::Script,
};

type Answers = dyn Fn(&Request<Incoming>) -> Response<TestBody> + Send + Sync;

/// Answers requests by a function of the test. An answer with an `Arc<Notify>` as its extension waits for that.
pub struct TestHandler {
    answers: Box<Answers>,
    shares: Arc<UserShares>,
    /// One clone for each open connection.
    connections: Arc<()>,
    /// Number of requests that were refused because too many others were unread.
    crowded: AtomicUsize,
}

impl TestHandler {
    pub fn connections(&self) -> usize {
        Arc::strong_count(&self.connections) - 1
    }

    pub fn crowded(&self) -> usize {
        self.crowded.load(Ordering::Relaxed)
    }
}

/// The parts of a server with these answers.
pub fn shared(
    answers: impl Fn(&Request<Incoming>) -> Response<TestBody> + Send + Sync + 'static,
) -> ConnectionShared<TestHandler> {
    let (shares, connections, crowded) = Default::default();
    let handler = TestHandler { answers: Box::new(answers), shares, connections, crowded };
    let settings = ConnectionSettings {
        connections_max: 100,
        socket_stuck: Duration::from_secs(60),
        forwards_bodies: false,
        listed: ServerNames::default(),
    };
    ConnectionShared { handler, tls: None, settings }
}

/// The context of a connection over loopback.
pub fn context(shared: &Arc<ConnectionShared<TestHandler>>) -> ConnectionContext<TestHandler> {
    let end = RemoteEnd::Tcp((Ipv4Addr::LOCALHOST, 1).into());
    let context = ConnectionContext::new(Arc::clone(shared), Arc::default(), end);
    ConnectionContext { bound: Some(Ipv4Addr::LOCALHOST.into()), ..context }
}

impl Handler for TestHandler {
    type Peer = RemoteEnd;
    type Body = TestBody;

    fn peer(&self, end: RemoteEnd, _: Option<ClientCertificate>) -> RemoteEnd {
        end
    }

    fn count_connection(&self) -> impl Send + 'static + use<> {
        Arc::clone(&self.connections)
    }

    fn answer(
        &self,
        request: Request<Incoming>,
        _: &Arc<RemoteEnd>,
        refusal: Option<Refusal>,
    ) -> impl Future<Output = Response<TestBody>> + Send + 'static + use<> {
        let mut response = match refusal {
            Some(refusal) => answer(StatusCode::FORBIDDEN, TestBody::text(format!("{refusal:?}"))),
            None => (self.answers)(&request),
        };
        if response.extensions().get::<StreamOwner>().is_none() {
            let owner = StreamOwner::new(Arc::clone(&self.shares), StreamCaller::Unlimited);
            response.extensions_mut().insert(owner);
        }
        // Requests stay whole until they are answered, as those of a real server.
        async move {
            if let Some(held) = response.extensions_mut().remove::<Arc<Notify>>() {
                held.notified().await;
            }
            (request, response).1
        }
    }

    fn refuse_crowded(&self) -> Response<TestBody> {
        self.crowded.fetch_add(1, Ordering::Relaxed);
        answer(StatusCode::TOO_MANY_REQUESTS, TestBody::text("later"))
    }

    fn refused_owner(&self) -> StreamOwner {
        StreamOwner::new(Arc::clone(&self.shares), StreamCaller::Refused)
    }

    fn is_watch(body: &TestBody) -> bool {
        body.is_watch
    }

    fn term(body: &TestBody) -> Option<WatchTerm> {
        body.term.clone()
    }

    fn is_tunnel(body: &TestBody) -> bool {
        body.tunnel.is_some()
    }

    fn into_tunnel(
        body: TestBody,
    ) -> Option<(impl AsyncRead + AsyncWrite + Unpin + Send + 'static, impl Send + 'static)> {
        body.tunnel.map(|stream| (stream, ()))
    }
}

/// Sends batches into a body, or the error that ends it.
pub type Feed = UnboundedSender<Result<Slices, BodyError>>;

/// The other side of a tunnel.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// A body of any kind.
#[derive(Default)]
pub struct TestBody {
    whole: Slices,
    batches: Option<Script>,
    is_watch: bool,
    term: Option<WatchTerm>,
    tunnel: Option<Box<dyn Duplex>>,
}

impl TestBody {
    /// A body of known length.
    pub fn text(text: impl Into<String>) -> Self {
        Self { whole: slices(text), ..Self::default() }
    }

    /// A body whose batches the test sends; it ends when the feed is dropped.
    pub fn fed() -> (Feed, Self) {
        let (feed, batches) = unbounded_channel();
        (feed, Self { batches: Some(Script(batches)), ..Self::default() })
    }

    /// A body of these batches.
    pub fn of_batches(batches: impl IntoIterator<Item = String>) -> Self {
        let (feed, body) = Self::fed();
        for batch in batches {
            feed.send(Ok(slices(batch))).expect("the body is there");
        }
        body
    }

    /// The watch of these batches.
    pub fn watch(self) -> Self {
        Self { is_watch: true, ..self }
    }

    pub fn until(self, term: WatchTerm) -> Self {
        Self { term: Some(term), ..self }
    }

    /// The other side of a tunnel.
    pub fn tunnel(stream: impl Duplex + 'static) -> Self {
        Self { tunnel: Some(Box::new(stream)), ..Self::default() }
    }
}

pub fn slices(text: impl Into<String>) -> Slices {
    let mut slices = Slices::new();
    slices.push(Bytes::from(text.into()));
    slices
}

pub fn answer(code: StatusCode, body: TestBody) -> Response<TestBody> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}

impl Body for TestBody {
    type Data = Slices;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Some(batches) = &mut self.batches {
            return Pin::new(batches).poll_frame(cx);
        }
        let whole = std::mem::take(&mut self.whole);
        Poll::Ready((!whole.is_empty()).then(|| Ok(Frame::data(whole))))
    }

    fn is_end_stream(&self) -> bool {
        self.batches.as_ref().map_or_else(|| self.whole.is_empty(), Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.batches {
            Some(_) => SizeHint::default(),
            None => SizeHint::with_exact(self.whole.remaining() as u64),
        }
    }
}
