//! Answers the requests of a connection.

use std::{net::IpAddr, sync::Arc};

use access_rules::authentication::certificate::ServerNames;
use http::{Method, Request, Response, Version, header};
use hyper::body::{Body as _, Incoming};

use super::{
    host::{self, OwnNames},
    origin,
};
use crate::{
    access::peer::Peer,
    app::App,
    budget::{self, Crowd},
    http::{Refusal, body::Body},
    read::encode::{self, RequestedEncoding},
};

/// Answers the requests of one connection.
pub(super) struct Handler {
    pub(super) app: Arc<App>,
    /// Signals that other connections need the slots of idle ones.
    pub(super) crowd: Arc<Crowd>,
    /// The address at which the client has reached the server; `None` for a Unix socket.
    pub(super) bound: Option<IpAddr>,
    /// Names of the settings by which clients may call the server.
    pub(super) listed: Arc<ServerNames>,
    /// Names of its certificate.
    pub(super) certified: Arc<ServerNames>,
    pub(super) peer: Arc<Peer>,
}

impl Handler {
    /// A handler for a client on loopback.
    #[cfg(test)]
    pub(super) fn of_tests(app: Arc<App>) -> Self {
        let bound = Some(std::net::Ipv4Addr::LOCALHOST.into());
        Self {
            app,
            crowd: Arc::default(),
            bound,
            listed: Arc::default(),
            certified: Arc::default(),
            peer: Arc::default(),
        }
    }

    /// Returns the response to one request.
    pub(super) fn answer(&self, mut request: Request<Incoming>) -> impl Future<Output = Response<Body>> + Send + use<> {
        let (refusal, head_only) = (self.refusal(&request), request.method() == Method::HEAD);
        request.extensions_mut().insert(Arc::clone(&self.peer));
        let app = Arc::clone(&self.app);
        async move {
            let response = match refusal {
                Some(refusal) => crate::http::refuse(&app, request, refusal).await,
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
        let own = OwnNames { bound: self.bound, certified: &self.certified, listed: &self.listed };
        if !host::is_ours(request, own) {
            return Some(Refusal::ForeignHost);
        }
        origin::is_foreign(request).then_some(Refusal::ForeignOrigin)
    }
}

/// Returns the response to a request that is refused until others have been answered.
pub(super) fn no_room(method: &Method) -> Response<Body> {
    let response = encode::error(&budget::no_room(), RequestedEncoding::Indented);
    if method == Method::HEAD { without_body(response) } else { response }
}

/// Removes the body of a response to HEAD. hyper omits it only for HTTP/1, and HTTP/2 clients treat a body as a stream
/// error.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    // An upstream has announced the length of the body that it did not send either.
    if let Some(length) = body.size_hint().exact().filter(|_| !body.is_forwarded()) {
        head.headers.insert(header::CONTENT_LENGTH, length.into());
    }
    Response::from_parts(head, body.without_bytes())
}
