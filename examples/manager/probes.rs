//! The HTTP server of the kubelet, of Prometheus and of people: `/healthz`, `/readyz`, `/metrics`, `/debug/informers`.

use std::{convert::Infallible, time::Duration};

use futures::{StreamExt as _, stream};
use http::{Request, Response, StatusCode};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use informer::{Cluster, Readiness, ready_all};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};

/// Connections served at once; others wait in the listener's queue.
pub(crate) const CONNECTIONS_MAX: usize = 16;

/// Timeout of a connection, which has one request: silent ones must not keep the kubelet out.
const CONNECTION_TIME: Duration = Duration::from_secs(5);

/// Pause after a failure to accept, such as too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// State behind the paths.
pub(crate) struct Probes {
    pub(crate) copies: [Readiness; 2],
    pub(crate) cluster: Cluster,
    pub(crate) registry: Registry,
}

impl Probes {
    /// Answers requests until the future is dropped.
    pub(crate) async fn serve(self, listener: TcpListener) -> Infallible {
        let probes = &self;
        let sockets = stream::unfold(listener, |listener| async move { Some((listener.accept().await, listener)) });
        let serving = sockets.for_each_concurrent(CONNECTIONS_MAX, |accepted| async move {
            let Ok((socket, _)) = accepted else { return sleep(ACCEPT_RETRY).await };
            let service = service_fn(|request: Request<Incoming>| async move {
                Ok::<_, Infallible>(probes.answer(request.uri().path()).await)
            });
            let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(socket), service);
            // A client that leaves is no failure of this program.
            drop(timeout(CONNECTION_TIME, connection).await);
        });
        serving.await;
        unreachable!("a listener yields sockets for ever")
    }

    async fn answer(&self, path: &str) -> Response<String> {
        let (status, text) = match path {
            // Only what a restart cures: during an outage of the API server the copies run on.
            "/healthz" => match self.copies.iter().find(|copy| !copy.is_running()) {
                None => (StatusCode::OK, "ok".to_owned()),
                Some(ended) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{ended:?}")),
            },
            "/readyz" => match ready_all(self.copies.clone(), Duration::ZERO).await {
                Ok(()) => (StatusCode::OK, "ok".to_owned()),
                Err(unready) => (StatusCode::SERVICE_UNAVAILABLE, unready.to_string()),
            },
            "/metrics" => {
                let mut text = String::new();
                match encode(&mut text, &self.registry) {
                    Ok(()) => (StatusCode::OK, text),
                    Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
                }
            }
            // No objects and no credentials: for everyone who may read metrics.
            "/debug/informers" => match serde_json::to_string_pretty(&self.cluster.status()) {
                Ok(text) => (StatusCode::OK, text),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            },
            _ => (StatusCode::NOT_FOUND, String::new()),
        };
        let form = match path {
            "/metrics" => "application/openmetrics-text; version=1.0.0",
            "/debug/informers" => "application/json",
            _ => "text/plain",
        };
        let response = Response::builder().status(status).header("content-type", form).body(text);
        response.expect("a constant header")
    }
}
