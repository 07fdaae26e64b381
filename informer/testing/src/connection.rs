//! Connections of a test's own listener, over HTTP/1.1 and HTTP/2.

use std::{future::pending, io, pin::pin};

use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::io::{AsyncRead, AsyncWrite};

use super::FakeApiServer;

impl FakeApiServer {
    /// Serves one connection of the test's own listener until it ends: over HTTP/2 if the client begins with its preface,
    /// as after ALPN, and over HTTP/1.1 otherwise. Dropping the future cuts the connection.
    ///
    /// # Errors
    /// The connection broke off, or the client violates the protocol.
    pub async fn serve_connection<S>(&self, stream: S) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let server = self.clone();
        let service = service_fn(move |request: http::Request<Incoming>| {
            let server = server.clone();
            async move { server.respond(request).await }
        });
        let builder = auto::Builder::new(TokioExecutor::new());
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            ended = connection.as_mut() => return ended.map_err(io::Error::other),
            () = self.went_away() => {}
        }
        connection.as_mut().graceful_shutdown();
        connection.await.map_err(io::Error::other)
    }

    /// Sends GOAWAY on the open HTTP/2 connections of [`serve_connection`](Self::serve_connection), once, as
    /// kube-apiserver does when it stops or rebalances its clients. Their open watches go on; each connection ends with
    /// its last one. Over HTTP/1.1, connections end after their responses.
    pub fn go_away(&self) -> Self {
        self.fault(|faults| faults.went_away += 1)
    }

    /// Waits until [`go_away`](Self::go_away) is called.
    async fn went_away(&self) {
        let mut moved = self.moved();
        let before = self.faults().went_away;
        while self.faults().went_away == before {
            if moved.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }
}
