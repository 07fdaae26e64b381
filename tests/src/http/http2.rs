//! Requests over HTTP/2, by h2 itself.
//!
//! hyper's client reports an error in place of an answer if GOAWAY arrives before its task runs again after the request, which
//! a busy machine may delay (`ClientTask` in hyper 1.12: `poll_ready` after `send_request`). h2 keeps the answer.

use std::task::{Poll, ready};

use bytes::Bytes;
use h2::{
    Reason, RecvStream,
    client::{Builder, SendRequest},
};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;

use super::{AnswerBody, Stream};

/// Windows in bytes, as those of hyper's client.
const STREAM_WINDOW: u32 = 2 << 20;
const CONNECTION_WINDOW: u32 = 5 << 20;

/// Sends the requests of one connection, which ends after the last of its clones and streams.
pub(super) type RequestSender = SendRequest<Bytes>;

/// Opens a connection.
pub(super) async fn open(stream: Box<dyn Stream>) -> Result<RequestSender, String> {
    let mut builder = Builder::new();
    builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW).enable_push(false);
    let (sender, connection) = builder.handshake(stream).await.map_err(|error| format!("{error:?}"))?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends a request. Its body may stay behind: the server may answer before it has arrived.
pub(super) async fn send(sender: RequestSender, request: Request<Full<Bytes>>) -> Result<Response<AnswerBody>, String> {
    let (mut head, body) = request.into_parts();
    let Ok(body) = body.collect().await.map(|body| body.to_bytes());
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE] {
        head.headers.remove(name);
    }
    if !body.is_empty() || matches!(head.method, Method::POST | Method::PUT | Method::PATCH) {
        head.headers.entry(header::CONTENT_LENGTH).or_insert(body.len().into());
    }
    let mut sender = sender.ready().await.map_err(|error| format!("{error:?}"))?;
    let sent = sender.send_request(Request::from_parts(head, ()), body.is_empty());
    let (response, mut rest) = sent.map_err(|error| format!("{error:?}"))?;
    if !body.is_empty() {
        // Fails if the server has answered and reset the stream: the answer counts.
        let _ = rest.send_data(body, true);
    }
    let response = response.await.map_err(|error| format!("{error:?}"))?;
    Ok(response.map(body_of))
}

fn body_of(mut stream: RecvStream) -> AnswerBody {
    let frames = futures::stream::poll_fn(move |cx| {
        Poll::Ready(match ready!(stream.poll_data(cx)) {
            Some(Ok(bytes)) => {
                // Fails once the stream is over.
                let _ = stream.flow_control().release_capacity(bytes.len());
                Some(Ok(Frame::data(bytes)))
            }
            // The server does not read the rest of the request. As in hyper's client.
            Some(Err(error)) if matches!(error.reason(), Some(Reason::NO_ERROR | Reason::CANCEL)) => None,
            Some(Err(error)) => Some(Err(format!("{error:?}"))),
            None => None,
        })
    });
    StreamBody::new(frames).boxed()
}
