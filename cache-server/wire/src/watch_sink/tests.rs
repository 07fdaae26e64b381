//! The body and the connection of tests of watches over in-memory streams.

use http_body::Frame;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;

/// A body whose batches the test sends; it ends when the test drops its end.
pub struct Script(pub UnboundedReceiver<Result<Slices, BodyError>>);

impl Body for Script {
    type Data = Slices;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.0.poll_recv(cx).map(|batch| batch.map(|batch| batch.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_closed() && self.0.is_empty()
    }
}
