//! Resets HTTP/2 watches whose client does not read, once they are past their deadline. hyper polls a body only after
//! the previous frame was accepted, so a body cannot end itself while its stream's window is closed.
//!
//! hyper hands each stream to an executor as one future, which polls the service and later the body. [`Streams`] runs
//! that future beside a deadline that the service sets from within. Dropping the future resets this stream only.

use std::{cell::OnceCell, future::poll_fn, pin::pin, task::Poll};

use tokio::time::{Instant, sleep_until};

use crate::limits::WATCH_END_WAIT;

tokio::task_local! {
    /// Deadline of the watch on this task's stream. Empty for other requests.
    static DEADLINE: OnceCell<Instant>;
}

/// Sets the deadline of the watch on this task's stream. Has no effect outside of [`Streams`].
pub(super) fn set_deadline(deadline: Instant) {
    let _ = DEADLINE.try_with(|place| place.set(deadline));
}

/// Executor for the streams of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams;

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        tokio::spawn(DEADLINE.scope(OnceCell::new(), async move {
            let stream = pin!(stream);
            tokio::select! {
                biased;
                _ = stream => {}
                () = overdue() => tracing::debug!("stalled watch reset"),
            }
        }));
    }
}

/// Resolves [`WATCH_END_WAIT`] after this task's deadline, once one is set. No timer exists before that.
async fn overdue() {
    // The service sets the deadline while this task is polled, so checking at each poll needs no waker.
    let deadline = poll_fn(|_| DEADLINE.with(|place| place.get().map_or(Poll::Pending, |&at| Poll::Ready(at)))).await;
    sleep_until(deadline + WATCH_END_WAIT).await;
}
