//! The body and the connection of tests of watches over in-memory streams.

use http_body::Frame;
use tokio::{io::DuplexStream, sync::mpsc::UnboundedReceiver};

use super::*;

/// A body whose batches the test sends; it ends when the test drops its end.
pub(in crate::serve) struct Script(pub(in crate::serve) UnboundedReceiver<Result<Slices, BodyError>>);

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

impl Socket for DuplexStream {
    fn reset_on_close(&self) {}

    fn lift_stall_limit(&mut self) {}

    fn limit_unconfirmed(&mut self, _: bool) {}

    fn poll_room(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
