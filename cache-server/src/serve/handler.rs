//! Answers the requests of a connection.

use std::{net::IpAddr, sync::Arc};

use http::{Method, Request, Response, Version, header};
use hyper::body::{Body as _, Incoming};

use super::{host, origin};
use crate::{
    access::peer::Peer,
    app::App,
    http::{Refusal, body::Body},
};

/// Answers the requests of one connection.
pub(super) struct Handler {
    pub(super) app: Arc<App>,
    pub(super) bound: IpAddr,
    pub(super) peer: Arc<Peer>,
}

impl Handler {
    /// Returns the response to one request.
    pub(super) fn answer(&self, mut request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send + use<> {
        let (refusal, head_only) = (self.refusal(&request), request.method() == Method::HEAD);
        request.extensions_mut().insert(Arc::clone(&self.peer));
        let app = Arc::clone(&self.app);
        async move {
            let response = match refusal {
                Some(refusal) => crate::http::refuse(&app, request, refusal),
                None => crate::http::handle(app, request).await,
            };
            if head_only { without_body(response) } else { response }
        }
    }

    /// Returns the reason to refuse a request for its Host or Origin, whatever resource it asks for.
    fn refusal(&self, request: &Request<Incoming>) -> Option<Refusal> {
        if request.version() == Version::HTTP_11 && !request.headers().contains_key(header::HOST) {
            return Some(Refusal::NoHost);
        }
        if !host::is_ours(request, self.bound) {
            return Some(Refusal::ForeignHost);
        }
        origin::is_foreign(request).then_some(Refusal::ForeignOrigin)
    }
}

/// Removes the body of a response to HEAD. hyper omits it only for HTTP/1, and HTTP/2 clients treat a body as a stream
/// error.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    // An upstream has announced the length of the body that it did not send either.
    if let Some(length) = body.size_hint().exact().filter(|_| !body.is_forwarded()) {
        head.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Response::from_parts(head, Body::from(Vec::new()))
}
