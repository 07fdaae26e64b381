//! The server as its connections know it.

use std::sync::Arc;

use cache_server_wire::{
    handler::{Handler, Refusal},
    listeners::RemoteEnd,
    tls::ClientCertificate,
};
use http::{Method, Request, Response, header};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::InspectReader;

use crate::{
    access::{authenticate::certificates, peer::Peer},
    app::App,
    budget, clock,
    http::body::{Body, MeasuredTunnel},
    read::encode::{self, RequestedEncoding},
    shares::StreamOwner,
    term::WatchTerm,
};

/// Answers the requests of all connections.
pub(super) struct AppHandler(pub(super) Arc<App>);

impl Handler for AppHandler {
    type Peer = Peer;
    type Body = Body;

    fn peer(&self, end: RemoteEnd, certificate: Option<ClientCertificate>) -> Peer {
        let mut peer = match end {
            RemoteEnd::Tcp(address) => Peer::tcp(address),
            RemoteEnd::Unix { uid, gid } => Peer::unix(uid, gid),
        };
        peer.certificate = certificate.and_then(|ClientCertificate { chain, of_authorities }| {
            certificates::caller(chain, of_authorities).transpose()
        });
        peer
    }

    fn count_connection(&self) -> impl Send + 'static + use<> {
        self.0.metrics.connection()
    }

    fn answer(
        &self,
        mut request: Request<Incoming>,
        peer: &Arc<Peer>,
        refusal: Option<Refusal>,
    ) -> impl Future<Output = Response<Body>> + Send + 'static + use<> {
        let (app, head_only) = (Arc::clone(&self.0), request.method() == Method::HEAD);
        request.extensions_mut().insert(Arc::clone(peer));
        async move {
            let response = match refusal {
                Some(refusal) => crate::http::refuse(&app, request, refusal).await,
                None => crate::http::handle(app, request).await,
            };
            if head_only { without_body(response) } else { response }
        }
    }

    fn refuse_crowded(&self) -> Response<Body> {
        let mut response = encode::error(&budget::no_room(), RequestedEncoding::Indented).map(Body::without_bytes);
        response.headers_mut().remove(header::CONTENT_TYPE);
        response.headers_mut().insert(header::DATE, clock::http_date());
        self.0.metrics.request("OTHER", "", response.status().as_u16());
        response
    }

    fn refused_owner(&self) -> StreamOwner {
        self.0.access.refused_stream()
    }

    fn is_watch(body: &Body) -> bool {
        body.is_watch()
    }

    fn term(body: &Body) -> Option<WatchTerm> {
        body.term()
    }

    fn is_tunnel(body: &Body) -> bool {
        body.is_forwarded()
    }

    fn into_tunnel(body: Body) -> Option<(impl AsyncRead + AsyncWrite + Unpin + Send + 'static, impl Send + 'static)> {
        body.into_tunnel().map(|MeasuredTunnel { tunnel, mut measure, guard }| {
            // Bytes of the upstream are the response. The measure ends with the stream.
            let count = move |read: &[u8]| measure.iter_mut().for_each(|measure| measure.sent(read.len()));
            (InspectReader::new(TokioIo::new(tunnel.stream), count), (tunnel.permit, guard))
        })
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
    Response::from_parts(head, body.without_bytes())
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, Instant};

    use super::*;
    use crate::{config::Config, limits::WATCH_END_WAIT, metrics::ScrapeReadings};

    #[tokio::test(start_paused = true)]
    async fn the_term_of_a_watch_is_over_soon_after_its_timeout() {
        let app = Arc::new(App::new(Config::default()));
        let request = Request::get("/api/v1/configmaps?watch=1&timeoutSeconds=5").body(String::new()).unwrap();
        let response = crate::http::handle(app, request).await;
        let began = Instant::now();
        AppHandler::term(response.body()).expect("a watch").over().await;
        let late = began.elapsed().saturating_sub(Duration::from_secs(5) + WATCH_END_WAIT);
        assert!(late < Duration::from_millis(20), "{late:?}");
        assert!(began.elapsed() >= Duration::from_secs(5));
    }

    #[test]
    fn requests_on_crowded_connections_are_refused_and_counted() {
        let handler = AppHandler(Arc::new(App::new(Config::default())));
        for _ in 0..2 {
            let response = handler.refuse_crowded();
            assert_eq!(
                (response.status().as_u16(), &response.headers()[header::RETRY_AFTER]),
                (429, &"1".parse().unwrap())
            );
            assert!(response.headers().contains_key(header::DATE), "hyper's stands still when the clock is set back");
            assert!(response.body().is_end_stream(), "a stream without a body leaves nothing behind");
        }
        let text = handler.0.metrics.text(&handler.0.caches, &ScrapeReadings::default());
        let counted = r#"apiserver_request_total{verb="OTHER",resource="",code="429"} 2"#;
        assert!(text.lines().any(|line| line == counted), "{text}");
    }
}
