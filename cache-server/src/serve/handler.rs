//! What answers the requests of a connection.

use std::{convert::Infallible, net::IpAddr, pin::Pin, sync::Arc};

use http::{Method, Request, Response, header};
use hyper::{
    body::{Body as _, Incoming},
    service::Service,
};

use super::{host, origin};
use crate::{
    app::App,
    http::{Refusal, body::Body},
};

/// Answers the requests of one connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Handler {
    pub(super) app: Arc<App>,
    pub(super) bound: IpAddr,
}

/// An answer on its way.
pub(super) type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl Handler {
    /// The answer to one request.
    pub(super) fn answer(&self, request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send + use<> {
        let (refusal, head_only) = (self.refusal(&request), request.method() == Method::HEAD);
        let app = Arc::clone(&self.app);
        async move {
            let response = match refusal {
                Some(refusal) => crate::http::refuse(&app, &request, refusal),
                None => crate::http::handle(app, request).await,
            };
            if head_only { without_body(response) } else { response }
        }
    }

    /// Reason to refuse a request for the way it came, whatever it asks for.
    fn refusal(&self, request: &Request<Incoming>) -> Option<Refusal> {
        if !host::is_ours(request, self.bound) {
            return Some(Refusal::ForeignHost);
        }
        origin::is_foreign(request).then_some(Refusal::ForeignOrigin)
    }
}

impl Service<Request<Incoming>> for Handler {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let answer = self.answer(request);
        Box::pin(async move { Ok(answer.await) })
    }
}

/// What HEAD gets: the head of the response. hyper leaves the body out for HTTP/1 alone, and an HTTP/2 client takes one
/// for a broken stream.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if let Some(length) = body.size_hint().exact() {
        head.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Response::from_parts(head, Body::from(Vec::new()))
}
