//! HTTP/2 with hyper's client: one connection with many streams, each with one response at a time.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use hyper::{
    body::{Body as _, Incoming},
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::{Ask, Buffers, Failure, Head, Kind, io::Io};

/// Streams that may be opened before the server's SETTINGS arrive.
const STREAMS_AT_FIRST: usize = 100;

/// Pause between keep-alive pings, and the timeout of each.
const PING: Duration = Duration::from_secs(30);

/// A handle to a connection, and the response body being read.
pub(super) struct Http2 {
    sender: SendRequest<Full<Bytes>>,
    tls: bool,
    body: Option<Incoming>,
}

impl Http2 {
    pub(super) async fn new(io: Io, buffers: &Buffers, tls: bool) -> Result<Self, Failure> {
        let handshake = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(buffers.stream_window)
            .initial_connection_window_size(buffers.connection_window)
            .max_frame_size(buffers.frame_bytes)
            .initial_max_send_streams(STREAMS_AT_FIRST)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .handshake(TokioIo::new(io));
        let (sender, connection) = handshake.await.map_err(|error| failed(&error))?;
        // Ends with the last handle; its error also reaches every stream.
        tokio::spawn(connection);
        Ok(Self { sender, tls, body: None })
    }

    pub(super) fn another(&self) -> Self {
        Self { sender: self.sender.clone(), tls: self.tls, body: None }
    }

    pub(super) async fn send(&mut self, ask: &Ask<'_>, authority: &str, token: Option<&str>) -> Result<Head, Failure> {
        self.body = None;
        let scheme = if self.tls { "https" } else { "http" };
        let mut request = Request::builder()
            .method(&ask.method)
            .uri(format!("{scheme}://{authority}{}", ask.path))
            .header(header::USER_AGENT, "load")
            .header(header::ACCEPT, ask.accept);
        if ask.gzip {
            request = request.header(header::ACCEPT_ENCODING, "gzip");
        }
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some((content_type, _)) = &ask.body {
            request = request.header(header::CONTENT_TYPE, *content_type);
        }
        let body = ask.body.as_ref().map_or_else(Bytes::new, |(_, body)| body.clone());
        let request = request.body(Full::new(body)).map_err(|error| Failure::new(Kind::Protocol, error))?;
        self.sender.ready().await.map_err(|error| failed(&error))?;
        let answer = self.sender.send_request(request).await.map_err(|error| failed(&error))?;
        let gzip = answer.headers().get(header::CONTENT_ENCODING).is_some_and(|value| value == "gzip");
        let head = Head { status: answer.status().as_u16(), gzip };
        self.body = Some(answer.into_body());
        Ok(head)
    }

    pub(super) fn poll_bytes(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut impl FnMut(&[u8]),
    ) -> Poll<Result<bool, Failure>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(false)) };
        match ready!(Pin::new(body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref().filter(|data| !data.is_empty()) {
                    take(data);
                }
                Poll::Ready(Ok(true))
            }
            Some(Err(error)) => {
                self.body = None;
                Poll::Ready(Err(failed(&error)))
            }
            None => {
                self.body = None;
                Poll::Ready(Ok(false))
            }
        }
    }
}

/// Appends the innermost source's message, since hyper's own is terse.
fn failed(error: &hyper::Error) -> Failure {
    let mut bottom: &dyn std::error::Error = error;
    while let Some(below) = bottom.source() {
        bottom = below;
    }
    Failure::new(Kind::Reset, format!("{error}: {bottom}"))
}
