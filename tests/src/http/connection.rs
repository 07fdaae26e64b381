//! One connection that carries the requests of several callers.

use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::{ANSWER_WAIT, Answer, BODY_BYTES_MAX, Client, http2};

/// An open connection. Its requests have the credentials that they bring, and no others.
pub struct Connection {
    client: Client,
    sender: RequestSender,
}

enum RequestSender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::RequestSender),
}

impl Connection {
    /// Opens a connection as `client` does for each of its requests.
    ///
    /// # Panics
    /// If it fails.
    pub async fn open(client: Client) -> Self {
        let stream = client.connect().await.expect("a connection");
        let sender = if client.http2 {
            RequestSender::Http2(http2::open(stream).await.expect("a handshake"))
        } else {
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a handshake");
            tokio::spawn(connection);
            RequestSender::Http1(sender)
        };
        Self { client, sender }
    }

    /// Sends a request and reads its whole response. An HTTP/1.1 connection that the server has closed is opened again.
    ///
    /// # Panics
    /// If there is no whole response.
    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> Answer {
        let (begun, asked) = (Instant::now(), format!("{} {}", request.method(), request.uri()));
        let sending = async {
            match &mut self.sender {
                RequestSender::Http2(sender) => http2::send(sender.clone(), self.client.absolute(request)).await,
                RequestSender::Http1(sender) => {
                    if sender.ready().await.is_err() {
                        let io = TokioIo::new(self.client.connect().await.expect("a connection"));
                        let (fresh, connection) = http1::handshake(io).await.expect("a handshake");
                        tokio::spawn(connection);
                        *sender = fresh;
                    }
                    let response = sender.send_request(self.client.named(request)).await;
                    let response = response.map_err(|error| format!("{error:?}"))?;
                    Ok(response.map(|body| body.map_err(|error| format!("{error:?}")).boxed()))
                }
            }
        };
        let response = timeout(ANSWER_WAIT, sending).await.unwrap_or_else(|_| panic!("{asked}: no answer"));
        let (head, body) = response.unwrap_or_else(|error| panic!("{asked}: {error}")).into_parts();
        let body = timeout(ANSWER_WAIT, Limited::new(body, BODY_BYTES_MAX).collect()).await;
        let body = body.unwrap_or_else(|_| panic!("{asked}: the answer does not end"));
        let body = body.unwrap_or_else(|error| panic!("{asked}: {error}")).to_bytes();
        Answer { code: head.status, headers: head.headers, body, took: begun.elapsed(), asked }
    }
}
