//! Response bodies of the fake server, pulled chunk by chunk.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http_body::Frame;
use informer_serving::marks::MarksReply;

/// A response body of [`FakeApiServer`](super::FakeApiServer). Fails only if the test injects that.
pub struct Body {
    chunks: Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>,
    /// Number of bytes after which the connection breaks.
    breaks_after: Option<usize>,
    pub(super) marks: Option<MarksReply>,
}

impl Body {
    pub(super) fn stream(chunks: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::perhaps_broken(chunks.map(Ok))
    }

    pub(super) fn perhaps_broken(chunks: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self { chunks: Box::pin(chunks), breaks_after: None, marks: None }
    }

    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self::stream(stream::once(async { bytes }))
    }

    pub(super) fn breaking_after(self, bytes: Option<usize>) -> Self {
        Self { breaks_after: bytes, ..self }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.breaks_after == Some(0) {
            self.chunks = Box::pin(stream::empty());
            self.breaks_after = None;
            return Poll::Ready(Some(Err(broken())));
        }
        self.chunks.as_mut().poll_next(cx).map(|chunk| {
            let mut bytes = match chunk? {
                Ok(bytes) => bytes,
                Err(error) => return Some(Err(error)),
            };
            if let Some(left) = &mut self.breaks_after {
                bytes.truncate(*left);
                *left -= bytes.len();
            }
            Some(Ok(Frame::data(bytes)))
        })
    }
}

pub(super) fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the test broke the body")
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}
