//! HTTP/2 connections.

use std::pin::pin;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

use super::handler::Handler;
use crate::limits;

/// Serves a connection to its end. Once `closed` changes it takes no more requests, and ends with the last open one.
pub(super) async fn serve<S>(stream: S, handler: Handler, mut closed: watch::Receiver<()>) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_send_buf_size(limits::HTTP2_SEND_BYTES_MAX)
        .max_concurrent_streams(limits::HTTP2_STREAMS_MAX)
        .max_header_list_size(limits::HTTP2_HEAD_BYTES_MAX);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), handler));
    tokio::select! {
        ended = &mut connection => return ended,
        _ = closed.changed() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}
